// The vocabulary is generated, not trained: single bytes, the special tokens, every pair of small letters,
// the commonest groups of three and four letters, the commonest words (taken whole: `ignore_merges`), and the
// first two bytes of every common Chinese character.

#include "worker/sim_device/sim_text.h"

#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/json/json.h"
#include "worker/text/tokenizer/byte_level.h"

namespace troupe {

namespace {

constexpr std::string_view kSpecialTokens[] = {"<|endoftext|>", "<|im_start|>", kBuiltInEos};

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}";

// The filler begins with a space and ends in a full stop, so that it can repeat.
constexpr std::string_view kFiller =
    " I was thinking of you only this morning. The road was long and the night was cold, but the house is "
    "warm and there is bread on the table. Sit down and tell me what you have seen since we last spoke. As "
    "for me, little has changed: the old clock is still slow, the cat is still fast, and the people of the "
    "town still say that it will rain before the evening. I said it would not, and I was right for once. "
    "If you ask me what comes next, I can only say that we will find it out together, one word at a time.";

// The commonest words of English prose and of character cards.
constexpr std::string_view kWords =
    "the be to of and in that have it for not on with he as you do at this but his by from they we say her "
    "she or an will my one all would there their what so up out if about who get which go me when make can "
    "like time no just him know take people into year your good some could them see other than then now look "
    "only come its over think also back after use two how our work first well way even new want because any "
    "these give day most us is are was were been has had did does said says made went came took got gave "
    "knew thought told asked looked seemed felt found kept left put ran stood turned never always often "
    "sometimes ever again once soon still yet already almost very too quite much many more less few little "
    "great small big long short old young high low right wrong same different last next early late own sure "
    "true real world life man woman men women child children boy girl friend friends family father mother "
    "brother sister son daughter wife husband king queen lord lady house home room door window table chair "
    "bed wall floor street road town city village country land sea river mountain forest tree garden field "
    "sky sun moon star night morning evening hour minute week month years days water fire earth wind rain "
    "snow light dark black white red blue green gold silver hand hands eyes eye face head hair heart mind "
    "soul body blood bone voice word words name story book letter question answer reason idea dream fear "
    "love hope truth lie secret power war peace law money work job school church ship horse dog cat bird "
    "fish food bread wine tea coffee clothes coat hat shoe sword gun knife key glass paper thing things "
    "something nothing anything everything someone nobody everyone place part side end kind sort bit lot "
    "number point case fact help need try ask tell speak talk call hear listen read write learn teach play "
    "sing dance walk run sit stand sleep wake eat drink live die kill fight win lose buy sell send bring "
    "carry hold open close begin start stop stay leave move turn follow meet remember forget believe feel "
    "understand wait watch show keep let seem become happen must should may might shall cannot don't I'm "
    "it's that's you're can't won't while before between under through against without within around along "
    "across behind above below near far away down off here where why whether though although until since "
    "during both either neither each every such another please thank thanks yes hello character role "
    "persona scene user user's assistant system speaks speaking named born lives lived playing plays "
    "personality appearance background example dialogue style speech tone goal likes dislikes habit age "
    "captain doctor teacher student master servant soldier merchant scholar smile laugh whisper shout smiles "
    "laughs quiet calm gentle proud brave clever kind cold warm strange strong weak beautiful afraid happy "
    "sad angry alone together quietly slowly softly suddenly perhaps maybe really actually course enough "
    "instead else three four five six seven eight nine ten hundred thousand second third half whole";

// Commonest first: of two pairs that overlap in a word, the earlier one here is joined first.
constexpr std::string_view kPairs =
    "th he in er an re on at en nd es or ti te ed is it al ar st nt to ng se ha as ou io le ve co me de hi "
    "ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns ho di fo pe ec pr no ct us ac ot il tr ly "
    "et ut ss so rs un lo wa ge wh ee wi em ad ol rt po we na ul";

constexpr size_t kFoursOf = 50;  // this many of them make groups of four

// Builds tokens and merges, each once, in the order of the calls.
class Vocabulary {
 public:
  void add(std::string token) {
    if (ids_.insert(token).second) tokens_.push_back(std::move(token));
  }
  void merge(std::string_view left, std::string_view right) {
    std::string joined = absl::StrCat(to_absl(left), to_absl(right));
    if (merged_.insert(joined).second) merges_.push_back(absl::StrCat(to_absl(left), " ", to_absl(right)));
    add(std::move(joined));
  }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::string>& merges() const { return merges_; }

 private:
  absl::flat_hash_set<std::string> ids_, merged_;
  std::vector<std::string> tokens_, merges_;
};

std::string byte_level(std::string_view bytes) {
  std::string out;
  append_byte_level(out, bytes);
  return out;
}

std::vector<std::string> split(std::string_view words) {
  return absl::StrSplit(to_absl(words), ' ');
}

void add_words(Vocabulary& vocabulary) {
  for (const std::string& word : split(kWords)) {
    std::string capital = word;
    capital[0] = static_cast<char>(word[0] >= 'a' && word[0] <= 'z' ? word[0] - 'a' + 'A' : word[0]);
    for (const std::string& form : {" " + word, word, " " + capital, capital}) {
      vocabulary.add(byte_level(form));
    }
    for (const char* ending : {"s", "ed", "d", "ing", "er", "ly"}) {
      vocabulary.add(byte_level(" " + word + ending));
    }
  }
}

void add_merges(Vocabulary& vocabulary) {
  const std::vector<std::string> common = split(kPairs);
  for (const std::string& pair : common) vocabulary.merge(pair.substr(0, 1), pair.substr(1));
  for (char left = 'a'; left <= 'z'; ++left) {
    for (char right = 'a'; right <= 'z'; ++right) {
      vocabulary.merge(std::string_view(&left, 1), std::string_view(&right, 1));
    }
  }
  for (size_t left = 0; left < kFoursOf; ++left) {
    for (size_t right = 0; right < kFoursOf; ++right) vocabulary.merge(common[left], common[right]);
  }
  for (const std::string& left : common) {
    for (char right = 'a'; right <= 'z'; ++right) vocabulary.merge(left, std::string_view(&right, 1));
  }
  const std::string space = byte_level(" ");
  for (const std::string& pair : common) vocabulary.merge(space, pair);
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.merge(space, std::string_view(&letter, 1));
  // U+4000 to U+9FFF in UTF-8.
  for (int lead = 0xE4; lead <= 0xE9; ++lead) {
    for (int second = 0x80; second <= 0xBF; ++second) {
      const char bytes[] = {static_cast<char>(lead), static_cast<char>(second)};
      vocabulary.merge(byte_level({bytes, 1}), byte_level({bytes + 1, 1}));
    }
  }
}

// Returns the content of a tokenizer.json.
std::string tokenizer_json() {
  Vocabulary vocabulary;
  for (std::string_view token : kSpecialTokens) vocabulary.add(std::string(token));
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary.add(byte_level({&c, 1}));
  }
  add_words(vocabulary);
  add_merges(vocabulary);

  bj::array added;
  for (std::string_view token : kSpecialTokens) {
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"special", true},
                     {"normalized", false},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false}});
  }
  bj::object vocab;
  for (const std::string& token : vocabulary.tokens()) vocab[token] = vocab.size();
  bj::array merges;
  for (const std::string& merge : vocabulary.merges()) merges.emplace_back(merge);
  const bj::value byte_level_stage = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const bj::value root = {{"added_tokens", std::move(added)},
                          {"pre_tokenizer", byte_level_stage},
                          {"decoder", byte_level_stage},
                          {"model",
                           {{"type", "BPE"},
                            {"ignore_merges", true},
                            {"vocab", std::move(vocab)},
                            {"merges", std::move(merges)}}}};
  return to_json(root);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> built_in_tokenizer() {
  return Tokenizer::from_json(tokenizer_json(), "the built-in tokenizer");
}

StatusOr<std::unique_ptr<ChatTemplate>> built_in_chat_template() {
  return ChatTemplate::parse(kChatMl);
}

StatusOr<std::vector<TokenId>> filler_tokens(const Tokenizer& tokenizer) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.encode(kFiller, /*add_special=*/false));
  std::erase_if(ids, [&tokenizer](TokenId id) { return tokenizer.is_special(id); });
  if (ids.empty()) return invalid_argument("the model's tokenizer makes no tokens of English text");
  return ids;
}

}  // namespace troupe
