// Several files as one trace: joined by time, one naming for all, each request once; and files that cannot be
// joined.

#include "sim/trace/trace_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/trace/trace.h"

namespace troupe::sim {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::vector<uint64_t>;

// A prompt of blocks of ten tokens, as a gateway records it.
struct Line {
  double at_s = 0;
  int64_t output = 0;
  Ids blocks{};                 // one per whole block
  std::vector<int32_t> ends{};  // of the messages
  Ids messages{};
  std::vector<int32_t> answers{};
  Ids output_blocks{};
  int status = 200;
  std::string salt = "a";
  int block_size = 10;

  std::string text() const {
    std::string out =
        absl::StrCat(R"({"timestamp":)", std::to_string(at_s * 1e3), R"(,"input_length":)", ends.back(),
                     R"(,"output_length":)", output, R"(,"block_size":)", block_size,
                     R"(,"session":"s","hash_ids":[)", absl::StrJoin(blocks, ","), R"(],"output_hash_ids":[)",
                     absl::StrJoin(output_blocks, ","), R"(],"message_ends":[)", absl::StrJoin(ends, ","),
                     R"(],"message_ids":[)", absl::StrJoin(messages, ","), R"(],"message_answers":[)",
                     absl::StrJoin(answers, ","), R"(],"status":)", status);
    if (!salt.empty()) absl::StrAppend(&out, R"(,"salt":")", salt, "\"");
    return out + "}\n";
  }
};

// Files of lines, and the requests read from all of them.
struct Files {
  std::vector<std::string> paths;
  std::vector<std::string> notes;

  explicit Files(const std::vector<std::vector<Line>>& files) {
    for (const std::vector<Line>& lines : files) {
      std::string text;
      for (const Line& line : lines) text += line.text();
      paths.push_back((std::filesystem::temp_directory_path() /
                       absl::StrCat("troupe_join_", ::getpid(), "_", paths.size()))
                          .string());
      std::ofstream(paths.back(), std::ios::binary) << text;
    }
  }
  ~Files() {
    for (const std::string& path : paths) std::filesystem::remove(path);
  }
  StatusOr<std::vector<TraceRequest>> read(const TraceOptions& options = {}) {
    TROUPE_ASSIGN_OR_RETURN(auto reader, TraceReader::open_all(paths, options));
    std::vector<TraceRequest> all;
    TraceRequest request;
    while (true) {
      TROUPE_ASSIGN_OR_RETURN(const bool more, reader->next(request));
      if (!more) break;
      all.push_back(request);
    }
    notes = reader->notes();
    return all;
  }
  std::vector<TraceRequest> all() {
    auto read_all = read();
    EXPECT_TRUE(read_all.ok()) << read_all.status();
    return read_all.ok() ? *std::move(read_all) : std::vector<TraceRequest>();
  }
  std::string error() { return std::string(read().status().message()); }
};

Line later(Line line, double at_s) {
  line.at_s = at_s;
  return line;
}

// One prompt, of one unique message.
Line simple(double at_s, uint64_t id) {
  return {.at_s = at_s, .blocks = {id}, .ends = {10}, .messages = {id}};
}

TEST(TraceJoin, FilesAreJoinedByTimeFromTheFirstLineOfAll) {
  Files files({{simple(1e9 + 5, 1), simple(1e9 + 8, 2)}, {simple(1e9 + 3, 3), simple(1e9 + 6, 4)}});
  std::vector<Duration> at;
  Ids ids;
  for (const TraceRequest& r : files.all()) {
    at.push_back(r.at);
    ids.push_back(r.blocks.at(0));
  }
  EXPECT_THAT(at, ElementsAre(seconds(0), seconds(2), seconds(3), seconds(5)));
  EXPECT_THAT(ids, ElementsAre(3, 1, 4, 2));
  EXPECT_THAT(files.notes, IsEmpty());
}

// Gateway b counts a card one token shorter than a does, so it names all its blocks differently.
TEST(TraceJoin, CardRecordedByTwoGatewaysKeepsItsFirstIds) {
  const Line a{.at_s = 1, .blocks = {1, 2, 3, 4}, .ends = {31, 40}, .messages = {100, 101}};
  const Line b{.at_s = 2, .blocks = {51, 52, 53, 54, 55}, .ends = {30, 55}, .messages = {100, 102}};
  const Line c{.at_s = 3, .blocks = {51, 52, 53, 56, 57}, .ends = {30, 50}, .messages = {100, 103}};
  Files files({{a}, {b, c}});
  const auto all = files.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].blocks, a.blocks);
  EXPECT_THAT(Ids(all[1].blocks.begin(), all[1].blocks.begin() + 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(Ids(all[2].blocks.begin(), all[2].blocks.begin() + 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(all[1].blocks.size(), 5u);
  EXPECT_NE(all[1].blocks[3], all[0].blocks[3]);
  EXPECT_NE(all[1].blocks[3], all[2].blocks[3]);
}

// By b's own lengths its fourth block lies within the card, so it is the same in both its lines; by a's the
// card ends before it.
TEST(TraceJoin, BlockBehindAMovedEndStandsForItsMessageToo) {
  const Line a{.at_s = 1, .blocks = {1, 2, 3, 4}, .ends = {31, 40}, .messages = {100, 101}};
  const Line b{.at_s = 2, .blocks = {51, 52, 53, 54}, .ends = {41, 49}, .messages = {100, 102}};
  const Line c{.at_s = 3, .blocks = {51, 52, 53, 54}, .ends = {41, 49}, .messages = {100, 103}};
  Files files({{a}, {b, c, later(b, 4)}});
  const auto all = files.all();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NE(all[1].blocks[3], all[2].blocks[3]);
  EXPECT_EQ(all[1].blocks, all[3].blocks) << "and the same prompt is the same";
}

TEST(TraceJoin, TurnAtAnotherGatewayBeginsWithTheLastOneAndItsAnswer) {
  const Line one{
      .at_s = 1, .output = 20, .blocks = {1, 2}, .ends = {25}, .messages = {100}, .output_blocks = {3, 4}};
  const Line two{.at_s = 2,
                 .output = 5,
                 .blocks = {61, 62, 63, 64, 65},
                 .ends = {28, 39, 55},
                 .messages = {100, 101, 102},
                 .answers = {1},
                 .output_blocks = {66}};
  const Line three{.at_s = 3,
                   .blocks = {1, 2, 3, 4, 75, 76, 77},
                   .ends = {25, 45, 58, 66, 70},
                   .messages = {100, 101, 102, 103, 104},
                   .answers = {1, 3}};
  Files files({{one, three}, {two}});
  const auto all = files.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(Ids(all[1].blocks.begin(), all[1].blocks.begin() + 4), ElementsAre(1, 2, 3, 4));
  Ids held = all[1].blocks;
  held.push_back(66);
  EXPECT_EQ(Ids(all[2].blocks.begin(), all[2].blocks.begin() + 6), held) << "and back again";
}

TEST(TraceJoin, IdsOfASingleGatewayStay) {
  const Line one{
      .at_s = 1, .output = 20, .blocks = {1, 2}, .ends = {25}, .messages = {100}, .output_blocks = {3, 4}};
  const Line two{.at_s = 2,
                 .blocks = {1, 2, 3, 4, 5},
                 .ends = {25, 45, 55},
                 .messages = {100, 101, 102},
                 .answers = {1}};
  const Line edited{.at_s = 3, .blocks = {1, 8, 9}, .ends = {30}, .messages = {110}};
  Files files({{one, two, later(one, 2.5), edited, later(two, 4)}});
  const auto all = files.all();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[1].blocks, two.blocks);
  EXPECT_EQ(all[2].blocks, one.blocks);
  EXPECT_EQ(all[3].blocks, edited.blocks);
  EXPECT_EQ(all[4].blocks, two.blocks);
}

TEST(TraceJoin, FailedRequestRetriedSoonCountsOnce) {
  Line failed = simple(1, 7), again = simple(2, 7), later = simple(40, 7), gone = simple(41, 8);
  failed.status = 503;
  gone.status = 499;
  Files files({{failed, gone}, {again, later, simple(42, 8)}});
  std::vector<Duration> at;
  for (const TraceRequest& r : files.all()) at.push_back(r.at);
  EXPECT_THAT(at, ElementsAre(seconds(0), seconds(39), seconds(40), seconds(41)))
      << "later it is asked anew, and who went away was being answered";
  EXPECT_THAT(files.notes,
              ElementsAre("1 lines repeat a request that had failed just before; it counts once"));
  // Two that fail may come again once each.
  Line twice = again;
  twice.status = 429;
  Files two({{failed, failed, twice}, {simple(3, 7), simple(4, 7), simple(5, 7)}});
  EXPECT_EQ(two.all().size(), 3u);
}

TEST(TraceJoin, OtherSaltsAreRefusedAndTheSettingNamed) {
  Line other = simple(2, 1);
  other.salt = "b";
  Files files({{simple(1, 1)}, {simple(1.5, 1), other}});
  EXPECT_EQ(files.error(),
            absl::StrCat(files.paths[1], ":2: field 'salt': is not as in ", files.paths[0],
                         ":1, so equal text has other ids here, and what both could find cached "
                         "would be lost; gateways whose records are to be joined need the same "
                         "record_secret (configs/gateway.yaml)"));
  other.salt = "";
  Files missing({{simple(1, 1)}, {other}});
  EXPECT_THAT(missing.error(), HasSubstr(":1: field 'salt': is missing, but told by "));
  // Runs of one gateway in one file stay as they are, with a note.
  other.salt = "b";
  Files one({{simple(1, 1), other}});
  EXPECT_EQ(one.all().size(), 2u);
  EXPECT_THAT(one.notes, ElementsAre(HasSubstr("the salt changes 1 times")));
}

TEST(TraceJoin, FilesThatCannotBeOneTraceAreRefused) {
  Line wide = simple(2, 1);
  wide.block_size = 5;
  wide.blocks = {1, 2};
  Files blocks({{simple(1, 1)}, {wide}});
  EXPECT_THAT(blocks.error(), HasSubstr(blocks.paths[1] + ":1: field 'block_size': is 5, but 10 in " +
                                        blocks.paths[0] + ":1; files of one trace have one block size"));
  Files clocks({{simple(1, 1)}, {simple(1.7e9, 2)}});
  EXPECT_THAT(clocks.error(), HasSubstr(clocks.paths[1] + ":1: field 'timestamp': lies 1699999999 s after " +
                                        clocks.paths[0] + ":1; files of one trace have one clock"));
  Files twice({{simple(1, 1)}});
  twice.paths.push_back(twice.paths[0]);
  EXPECT_THAT(twice.error(), HasSubstr("is the same file as"));
}

TEST(TraceJoin, FilesOfDifferentTimesAndEmptyOnesAreNoted) {
  Files files({{simple(100, 1), simple(101, 2)}, {simple(1, 3), simple(50, 4)}, {simple(20, 5)}, {}});
  EXPECT_EQ(files.all().size(), 5u);
  EXPECT_THAT(files.notes, ElementsAre(absl::StrCat(files.paths[0], " begins 50 s after ", files.paths[1],
                                                    " has ended: they are not of one time"),
                                       absl::StrCat(files.paths[3], " has no requests")));
}

TEST(TraceJoin, BadMessagesAreNamed) {
  const auto says = [](Line line, const std::string& words) {
    Files files({{std::move(line)}});
    EXPECT_THAT(files.error(), HasSubstr(words));
  };
  Line bad = simple(1, 1);
  bad.messages = {1, 2};
  says(bad, ":1: field 'message_ids': has 2 ids, but there are 1 message_ends");
  bad.ends = {12, 10};
  says(bad, ":1: field 'message_ends': must not fall, and end with input_length, 10");
  bad.ends = {5, 10};
  bad.answers = {2};
  says(bad, ":1: field 'message_answers': must rise, and stay below the number of messages, 2");
}

}  // namespace
}  // namespace troupe::sim
