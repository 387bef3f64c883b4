// Learning sets from traffic alone.

#include "gateway/route/key/shared_prefix_detector.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "tests/gateway/route/cluster.h"

namespace troupe::route {
namespace anchor_sketch_test {

using testing_cluster::at_ms;
struct Message {
  Role role;
  std::string content;
};
using Messages = std::vector<Message>;

std::string text_of(const std::string& name, size_t bytes) {
  std::string text = name + ":";
  while (text.size() < bytes) text += " word" + std::to_string(text.size() * 7919 % 1009);
  return text.substr(0, bytes);
}

// Traffic through one detector, a request a second; by default every conversation has its own name.
struct World {
  explicit World(const SharedPrefixDetectorOptions& options = {}) : sketch(options) {}

  PrefixKey key_of(const Messages& messages, const std::string& session) const {
    GenerateRequest request;
    request.kind = GenerateRequest::Kind::kChat;
    request.model = "m";
    for (const Message& m : messages) request.messages.push_back(ChatMessage{m.role, m.content, {}});
    PrefixKey key = make_prefix_key(request, session);
    sketch.refine(key);
    return key;
  }
  PrefixKey send(const Messages& messages, const std::string& session) {
    PrefixKey key = key_of(messages, session);
    sketch.learn(key, at_ms(1000 * ++requests));
    return key;
  }
  // The first request of a new conversation with a question of its own.
  PrefixKey ask(Messages messages) {
    const std::string own = std::to_string(++conversations);
    messages.push_back({Role::kUser, "my question " + own});
    return send(messages, "s" + own);
  }

  SharedPrefixDetector sketch;
  int64_t requests = 0;
  int conversations = 0;
};

Messages with_examples(const std::string& card, int examples) {
  Messages messages{{Role::kSystem, text_of(card, 2000)}};
  for (int i = 0; i < examples; ++i) {
    messages.push_back({Role::kUser, text_of(card + " example question " + std::to_string(i), 60)});
    messages.push_back({Role::kAssistant, text_of(card + " example answer " + std::to_string(i), 140)});
  }
  return messages;
}

TEST(SharedPrefixDetector, KeysByTheSystemMessagesBeforeAnythingIsLearned) {
  World world;
  const PrefixKey key = world.key_of(with_examples("newton", 3), "s");
  EXPECT_EQ(key.set, key.anchors[0].hash);
  EXPECT_EQ(key.prefix_messages, 1);
}

TEST(SharedPrefixDetector, KeysAPersonaAtTheEndOfItsExampleDialogues) {
  World world;
  for (int i = 0; i < 3; ++i) world.ask(with_examples("newton", 3));
  const PrefixKey key = world.ask(with_examples("newton", 3));
  EXPECT_EQ(key.prefix_messages, 7);
  EXPECT_EQ(key.set, key.anchors[6].hash);
  EXPECT_EQ(key.prefix_bytes, 2000u + 3 * 200);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(world.ask(with_examples("newton", 3)).set, key.set);
}

TEST(SharedPrefixDetector, MovesTheSessionBehindTheExamplesToo) {
  World world;
  Messages first = with_examples("newton", 3), second = first;
  first.push_back({Role::kUser, "why do apples fall?"});
  second.push_back({Role::kUser, "and the moon?"});
  EXPECT_EQ(world.key_of(first, "").session, world.key_of(second, "").session) << "the examples' first turn";
  for (int i = 0; i < 4; ++i) world.ask(with_examples("newton", 3));
  EXPECT_NE(world.key_of(first, "").session, world.key_of(second, "").session);
  Messages later = first;
  later.push_back({Role::kAssistant, "Gravity."});
  later.push_back({Role::kUser, "what is it?"});
  EXPECT_EQ(world.key_of(first, "").session, world.key_of(later, "").session);
}

TEST(SharedPrefixDetector, TemplateCommonToAllPersonasKeysNoSet) {
  World world;
  const auto prompt = [](int persona) {  // the card in the first user message
    return Messages{{Role::kSystem, text_of("You are a character in a play.", 400)},
                    {Role::kUser, text_of("persona " + std::to_string(persona), 1500)},
                    {Role::kAssistant, "Understood."}};
  };
  const PrefixKey before = world.key_of(prompt(0), "s");
  EXPECT_EQ(before.set, before.anchors[0].hash) << "the first guess";
  for (int i = 0; i < 40; ++i) world.ask(prompt(i % 5));
  std::set<std::string> sets;
  for (int persona = 0; persona < 5; ++persona) {
    const PrefixKey key = world.ask(prompt(persona));
    EXPECT_GE(key.prefix_messages, 2);
    sets.insert(key.set.hex());
  }
  EXPECT_EQ(sets.size(), 5u);
  EXPECT_TRUE(world.ask(prompt(77)).set.is_zero())
      << "a card nobody has shared, and no first guess but the trunk";
}

TEST(SharedPrefixDetector, KeysANewCardAfterACommonTemplateByItsSystemMessages) {
  World world;
  const auto prompt = [](int persona) {
    return Messages{{Role::kSystem, text_of("You are a character in a play.", 400)},
                    {Role::kSystem, text_of("persona " + std::to_string(persona), 1500)}};
  };
  for (int i = 0; i < 60; ++i) {
    const PrefixKey key = world.ask(prompt(i < 30 ? i % 3 : i % 7));
    EXPECT_EQ(key.prefix_messages, 2) << i;
    EXPECT_EQ(key.set, key.anchors[1].hash);
  }
}

TEST(SharedPrefixDetector, PopularFirstQuestionsDoNotSplitAPersona) {
  World world;
  Random random(3);
  std::set<std::string> sets;
  for (int i = 0; i < 600; ++i) {
    Messages messages{{Role::kSystem, text_of("newton", 1200)}};
    const uint32_t draw = random.below(10);
    const bool hi = draw < 4, who = draw < 7;
    messages.push_back({Role::kUser, hi    ? "hi"
                                     : who ? text_of("Who are you, and what have you found?", 300)
                                           : "question " + std::to_string(i)});
    const std::string session = "s" + std::to_string(i);
    sets.insert(world.send(messages, session).set.hex());
    // Greedy answers: equal questions get equal answers.
    messages.push_back({Role::kAssistant, text_of("answer to " + messages.back().content, 500)});
    messages.push_back({Role::kUser, "and " + std::to_string(i)});
    sets.insert(world.send(messages, session).set.hex());
  }
  EXPECT_EQ(sets.size(), 1u);
}

TEST(SharedPrefixDetector, EditedPersonaIsANewSetAtOnceAndItsExamplesAfterThree) {
  World world;
  for (int i = 0; i < 100; ++i) world.ask(with_examples("newton", 3));
  const PrefixKey old = world.ask(with_examples("newton", 3));
  const PrefixKey edited = world.ask(with_examples("newton, revised", 3));
  EXPECT_NE(edited.set, old.set);
  EXPECT_EQ(edited.prefix_messages, 1);
  for (int i = 0; i < 2; ++i) world.ask(with_examples("newton, revised", 3));
  EXPECT_EQ(world.ask(with_examples("newton, revised", 3)).prefix_messages, 7);
  // Another example dialogue at the end of the same card.
  Messages more = with_examples("newton", 3);
  more.back().content = text_of("another last answer", 400);
  int switches = 0;
  Hash128 set;
  for (int i = 0; i < 300; ++i) {
    const PrefixKey key = world.ask(more);
    switches += key.set == set ? 0 : 1;
    set = key.set;
  }
  EXPECT_EQ(set, world.key_of(more, "s").anchors[6].hash);
  EXPECT_LE(switches, 3) << "the old one's, none better, its own";
}

TEST(SharedPrefixDetector, OnlyPersonaOfTheTrafficIsASet) {
  World world;
  PrefixKey key;
  for (int i = 0; i < 2000; ++i) key = world.ask({{Role::kSystem, text_of("newton", 1200)}});
  EXPECT_EQ(key.prefix_messages, 1);
  EXPECT_EQ(key.set, key.anchors[0].hash);
}

TEST(SharedPrefixDetector, SystemMessageWithTheTimeYieldsToTheCardBeforeIt) {
  World world;
  PrefixKey key;
  for (int i = 0; i < 60; ++i) {
    Messages messages{{Role::kSystem, text_of("newton", 1200)}};
    for (int turn = 0; turn < 3; ++turn) {
      messages.resize(1);
      messages.push_back({Role::kSystem, "It is " + std::to_string(world.requests) + " o'clock."});
      messages.push_back({Role::kUser, "question " + std::to_string(i)});
      key = world.send(messages, "s" + std::to_string(i));
    }
  }
  EXPECT_EQ(key.prefix_messages, 1);
}

// A conversation's own history never becomes a set, with a name or without.
TEST(SharedPrefixDetector, TurnsOfLongConversationsAreNotShared) {
  for (const bool named : {true, false}) {
    World world;
    for (int i = 0; i < 30; ++i) {
      Messages messages{{Role::kSystem, text_of("newton", 1200)}};
      for (int turn = 0; turn < 12; ++turn) {
        messages.push_back({Role::kUser, text_of("question " + std::to_string(i * 100 + turn), 300)});
        const PrefixKey key = world.send(messages, named ? "s" + std::to_string(i) : "");
        EXPECT_EQ(key.prefix_messages, 1);
        messages.push_back({Role::kAssistant, text_of("answer " + std::to_string(i * 100 + turn), 700)});
      }
    }
  }
}

TEST(SharedPrefixDetector, PlainPromptsAreKeyedByTheirSharedChunks) {
  World world;
  const auto send = [&](int persona, int question) {
    GenerateRequest request;
    request.kind = GenerateRequest::Kind::kCompletion;
    request.model = "m";
    request.prompt = text_of("template", 1024) + text_of("persona " + std::to_string(persona), 4096) +
                     text_of("question " + std::to_string(question), 500 + static_cast<size_t>(question));
    PrefixKey key = make_prefix_key(request, "");
    world.sketch.refine(key);
    world.sketch.learn(key, at_ms(1000 * ++world.requests));
    return key;
  };
  for (int i = 0; i < 60; ++i) send(i % 4, i);
  std::set<std::string> sets;
  for (int i = 60; i < 100; ++i) {
    const PrefixKey key = send(i % 4, i);
    EXPECT_EQ(key.prefix_bytes, 5 * 1024u);
    EXPECT_EQ(key.prefix_messages, 0) << "there are none";
    sets.insert(key.set.hex());
  }
  EXPECT_EQ(sets.size(), 4u);
}

// Four gateways, each with a random quarter: after a few conversations per persona all name the same set.
TEST(SharedPrefixDetector, GatewaysWithDifferentSamplesAgreeSoon) {
  std::vector<World> gateways(4);
  Random random(11);
  int conversation = 0, differ = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto persona = static_cast<int>(random.below(20));
    Messages messages{{Role::kSystem, text_of("template", 300)}};
    const Messages own = with_examples("persona " + std::to_string(persona), persona % 4);
    messages.insert(messages.end(), own.begin(), own.end());
    messages.push_back({Role::kUser, random.below(3) == 0 ? "hi" : "question " + std::to_string(i)});
    const std::string session = "s" + std::to_string(++conversation);
    std::set<std::string> named;
    for (World& g : gateways) named.insert(g.key_of(messages, session).set.hex());
    if (i >= 1000) differ += named.size() > 1;
    World& g = gateways[random.below(4)];
    g.sketch.learn(g.key_of(messages, session), at_ms(100 * i));
  }
  EXPECT_LE(differ, 30) << "1 % of what came after 50 conversations a persona";
}

// Shares hover about every threshold for two hours: each set's name changes a few times at most.
TEST(SharedPrefixDetector, NamesDoNotFlap) {
  World world;
  Random random(5);
  Hash128 with, without;
  int switches = 0;
  for (int i = 0; i < 7200; ++i) {
    const bool examples = random.unit() < 0.85 + 0.1 * (i / 900 % 2);
    const PrefixKey key = world.ask(with_examples("newton", examples ? 3 : 0));
    Hash128& last = examples ? with : without;
    switches += key.set == last ? 0 : 1;
    last = key.set;
  }
  EXPECT_LE(switches, 10);
}

// An hour and more of other traffic: each second a conversation of one of twenty.
void pass(World& world, int seconds) {
  for (int i = 0; i < seconds; ++i)
    world.ask({{Role::kSystem, text_of("other " + std::to_string(world.requests % 20), 1200)}});
}

TEST(SharedPrefixDetector, SharedStateLapsesAfterAnHourOfOtherTraffic) {
  World world;
  for (int i = 0; i < 20; ++i) world.ask(with_examples("newton", 3));
  ASSERT_EQ(world.key_of(with_examples("newton", 3), "s").prefix_messages, 7);
  pass(world, 3500);
  EXPECT_EQ(world.key_of(with_examples("newton", 3), "s").prefix_messages, 7);
  pass(world, 800);
  EXPECT_EQ(world.key_of(with_examples("newton", 3), "s").prefix_messages, 1) << "the first guess";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(world.ask(with_examples("newton", 3)).prefix_messages, 1);
  world.ask(with_examples("newton", 3));
  EXPECT_EQ(world.ask(with_examples("newton", 3)).prefix_messages, 7) << "three have shown it anew";
}

// A former trunk before personas becomes the beginning of one persona's card.
TEST(SharedPrefixDetector, TrunkLapsesWithItsSharedState) {
  World world;
  const auto prompt = [](int persona) {
    return Messages{{Role::kSystem, text_of("You are a character in a play.", 400)},
                    {Role::kUser, text_of("persona " + std::to_string(persona), 1500)},
                    {Role::kAssistant, "Understood."}};
  };
  for (int i = 0; i < 40; ++i) world.ask(prompt(i % 5));
  ASSERT_TRUE(world.key_of(prompt(77), "s").set.is_zero()) << "a trunk keys nobody";
  pass(world, 5000);
  const PrefixKey key = world.key_of(prompt(77), "s");
  EXPECT_EQ(key.set, key.anchors[0].hash) << "the first guess";
}

// In idle hours no state lapses.
TEST(SharedPrefixDetector, QuietNightForgetsNothing) {
  World world;
  for (int i = 0; i < 20; ++i) world.ask(with_examples("newton", 3));
  for (int i = 0; i < 100; ++i) {
    world.requests += 300;
    world.ask({{Role::kSystem, text_of("other", 1200)}});
  }
  EXPECT_EQ(world.key_of(with_examples("newton", 3), "s").prefix_messages, 7)
      << "after more than eight hours";
}

TEST(SharedPrefixDetector, OngoingConversationKeepsItsName) {
  World world;
  for (int i = 0; i < 20; ++i) world.ask(with_examples("newton", 3));
  Messages messages = with_examples("newton", 3);
  const Hash128 set = world.key_of(messages, "long").set;
  for (int turn = 0; turn < 10; ++turn) {
    messages.push_back({Role::kUser, "question " + std::to_string(turn)});
    EXPECT_EQ(world.send(messages, "long").set, set) << turn;
    messages.push_back({Role::kAssistant, "answer " + std::to_string(turn)});
    pass(world, 1200);
  }
}

// Shared for a while, then about as rare as makes it lapse: the key changes with each lapse, no more often.
TEST(SharedPrefixDetector, RarePersonaDoesNotFlap) {
  World world;
  Random random(7);
  Hash128 last;
  int switches = 0;
  for (int i = 0; i < 20; ++i) last = world.ask(with_examples("newton", 3)).set;
  for (int hour = 0; hour < 48; ++hour) {
    pass(world, 3000 + static_cast<int>(random.below(2000)));
    const Hash128 set = world.ask(with_examples("newton", 3)).set;
    switches += set == last ? 0 : 1;
    last = set;
  }
  EXPECT_LE(switches, 2);
}

TEST(SharedPrefixDetector, MemoryIsBounded) {
  SharedPrefixDetectorOptions options;
  options.anchors_max = 1000;
  options.sessions_max = 500;
  World world(options);
  for (int i = 0; i < 20'000; ++i) {
    world.ask({{Role::kSystem, text_of("one-off " + std::to_string(i), 300)}});
    if (i % 20 == 0)
      world.ask({{Role::kSystem, text_of("newton", 1000)},
                 {Role::kUser, "a"},
                 {Role::kAssistant, text_of("b", 400)}});
  }
  EXPECT_EQ(world.sketch.anchors(), 1000u);
  EXPECT_LT(world.sketch.bytes_max(), 1000u * 300);
  const PrefixKey key = world.ask(
      {{Role::kSystem, text_of("newton", 1000)}, {Role::kUser, "a"}, {Role::kAssistant, text_of("b", 400)}});
  EXPECT_EQ(key.prefix_messages, 3) << "what is shared is used, so it stays";
}

TEST(SharedPrefixDetector, DefaultsTakeLessThanSixteenMegabytes) {
  EXPECT_LT(SharedPrefixDetector(SharedPrefixDetectorOptions{}).bytes_max(), size_t{16} << 20);
}

}  // namespace anchor_sketch_test
}  // namespace troupe::route
