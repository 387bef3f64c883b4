// Trace lines: parsing, the words of refusals, and the spreading of a tick.

#include "sim/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/fleet/oracle_caches.h"

namespace troupe::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string temporary_file(const std::string& name, const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / ("troupe_trace_" + std::to_string(::getpid()) + name);
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

Status parse_error(std::string_view line) {
  TraceRequest request;
  return TraceLineParser().parse(line, request);
}

std::vector<TraceRequest> read_all(const std::string& path, const TraceOptions& options) {
  auto reader = TraceReader::open(path, options);
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<TraceRequest> all;
  TraceRequest request;
  while (true) {
    const auto more = (*reader)->next(request);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return all;
    all.push_back(request);
  }
}

TEST(TraceLine, ReadsMooncakesFormAndOurAdditions) {
  TraceLineParser parser;
  TraceRequest r;
  ASSERT_TRUE(
      parser
          .parse(R"({"timestamp": 27000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 14, 7]})",
                 r)
          .ok());
  EXPECT_EQ(r.at, std::chrono::seconds(27));
  EXPECT_EQ(r.input_tokens, 1030);
  EXPECT_EQ(r.output_tokens, 5);
  EXPECT_EQ(r.block_tokens, 512);
  EXPECT_THAT(r.blocks, ElementsAre(0, 14, 7));
  EXPECT_EQ(r.set, 0u);
  ASSERT_TRUE(
      parser
          .parse(
              R"({"session": 12, "set": "12", "key": 12, "turn": 3, "block_size": 16, "timestamp": 0.5, "input_length": 40,
      "output_length": 9, "hash_ids": [1, 2], "output_hash_ids": [8], "model": "x"})",
              r)
          .ok());
  EXPECT_EQ(r.at, std::chrono::microseconds(500));
  EXPECT_EQ(r.set, id_of("12"));
  EXPECT_EQ(r.session, r.set) << "a number and its digits are one name";
  EXPECT_EQ(r.key, r.set);
  EXPECT_EQ(r.turn, 3);
  EXPECT_THAT(r.output_blocks, ElementsAre(8)) << "floor(49/16) - floor(40/16) = 1 block completed";
}

TEST(TraceLine, RefusesInvalidValuesAndNamesTheField) {
  const auto says = [](std::string_view line, const char* words) {
    const Status status = parse_error(line);
    EXPECT_FALSE(status.ok()) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << line;
  };
  says("", "no JSON object");
  says("[1]", "must be a JSON object");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1]} {})", "no JSON object");
  says(R"({"timestamp":1,"input_length":5,"hash_ids":[1]})", "'output_length': is missing");
  says(R"({"input_length":5,"output_length":1,"hash_ids":[1]})", "'timestamp': is missing");
  says(R"({"timestamp":-1,"input_length":5,"output_length":1,"hash_ids":[1]})", "'timestamp': must be >= 0");
  says(R"({"timestamp":1e300,"input_length":5,"output_length":1,"hash_ids":[1]})", "'timestamp'");
  says(R"({"timestamp":"1","input_length":5,"output_length":1,"hash_ids":[1]})",
       "'timestamp': must be a number");
  says(R"({"timestamp":1,"input_length":0,"output_length":1,"hash_ids":[]})",
       "'input_length': must be a whole number from 1");
  says(R"({"timestamp":1,"input_length":5.5,"output_length":1,"hash_ids":[1]})", "'input_length'");
  says(R"({"timestamp":1,"input_length":99999999999,"output_length":1,"hash_ids":[1]})", "'input_length'");
  says(R"({"timestamp":1,"input_length":5,"output_length":-1,"hash_ids":[1]})", "'output_length'");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[-1]})",
       "entry 0 must be a whole number >= 0");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":["a"]})", "entry 0");
  says(R"({"timestamp":1,"input_length":1100,"output_length":1,"hash_ids":[1]})",
       "has 1 ids, but a prompt of 1100 tokens has 3 blocks");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"hash_ids":[1]})",
       "is there twice");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"block_size":0})", "'block_size'");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"set":null})",
       "'set': must be a string");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"turn":0})", "'turn'");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"prefix_length":6})",
       "must be at most input_length, 5");
  says(R"({"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1],"output_hash_ids":[1]})",
       "completes 0 blocks");
}

TEST(TraceLine, NeedsNoIds) {
  TraceRequest r;
  RecordedFacts facts;
  TraceLineParser parser;
  ASSERT_TRUE(
      parser.parse(R"({"timestamp":1,"input_length":600,"output_length":1,"session_id":"a"})", r, &facts)
          .ok());
  EXPECT_FALSE(facts.has_ids);
  EXPECT_EQ(r.session, id_of("a"));
  ASSERT_TRUE(
      parser.parse(R"({"timestamp":1,"input_length":600,"output_length":1,"hash_ids":[1]})", r, &facts).ok());
  EXPECT_TRUE(facts.has_ids);
  EXPECT_THAT(
      std::string(
          parse_error(R"({"timestamp":1,"input_length":600,"output_length":600,"output_hash_ids":[1]})")
              .message()),
      HasSubstr("'output_hash_ids': is there without hash_ids"));
  EXPECT_THAT(
      std::string(
          parse_error(R"({"timestamp":1,"input_length":6,"output_length":6,"session":1,"session_id":1})")
              .message()),
      HasSubstr("'session_id': is there twice"));
}

TEST(TraceLine, WrittenWithoutIdsReadsBackWithoutThem) {
  for (const char* line : {R"({"timestamp":1,"input_length":600,"output_length":1})",
                           R"({"timestamp":1,"input_length":6,"output_length":1,"hash_ids":[]})"}) {
    TraceLineParser parser;
    TraceRequest r, again;
    RecordedFacts facts, facts_again;
    ASSERT_TRUE(parser.parse(line, r, &facts).ok());
    std::string written;
    append_trace_line(written, r, {});
    written.pop_back();
    ASSERT_TRUE(parser.parse(written, again, &facts_again).ok()) << written;
    EXPECT_EQ(facts_again.has_ids, facts.has_ids) << written;
    EXPECT_EQ(again.input_tokens, r.input_tokens);
  }
}

TEST(TraceReader, LinesWithoutIdsAreConversationsByTheirSessions) {
  const std::string path =
      temporary_file("lengths", R"({"timestamp":0,"input_length":1000,"output_length":100,"session":"a"}
{"timestamp":1000,"input_length":1200,"output_length":100,"session":"a"}
{"timestamp":2000,"input_length":1200,"output_length":100}
)");
  auto reader = TraceReader::open(path, {});
  ASSERT_TRUE(reader.ok());
  PooledLru cache(-1);
  std::vector<int64_t> found;
  for (TraceRequest request; (*reader)->next(request).value();)
    found.push_back(cache.serve(request).infinite);
  EXPECT_THAT(found, ElementsAre(0, 1088, 0)) << "68 whole blocks of the first prompt and its answer";
  ASSERT_EQ((*reader)->notes().size(), 1u);
  EXPECT_THAT((*reader)->notes()[0], HasSubstr("3 lines have no hash_ids, only lengths: 1 prompts"));
  std::filesystem::remove(path);
}

TEST(TraceReader, LinesWithoutIdsHaveTheBlocksOfThoseWithThem) {
  const std::string path =
      temporary_file("mixed", R"({"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}
{"timestamp":1,"input_length":5,"output_length":1}
)");
  const auto all = read_all(path, {});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].block_tokens, 512);
  std::filesystem::remove(path);
}

TEST(TraceLine, WrittenLineReadsBack) {
  TraceRequest r;
  r.at = Duration(1'234'567'891);
  r.input_tokens = 40;
  r.output_tokens = 30;
  r.block_tokens = 16;
  r.turn = 2;
  r.prefix_tokens = 33;
  r.set = id_of("p1.v0");
  r.session = id_of("s9");
  r.key = id_of("writers");
  r.blocks = {1, (uint64_t{1} << 53) - 1, 3};
  r.output_blocks = {4, 5};
  std::string line;
  append_trace_line(line, r, {"p1.v0", "s9", "writers"});
  ASSERT_TRUE(line.ends_with("}\n"));
  TraceRequest back;
  ASSERT_TRUE(TraceLineParser().parse(std::string_view(line).substr(0, line.size() - 1), back).ok()) << line;
  EXPECT_EQ(back.at, r.at);
  EXPECT_EQ(back.input_tokens, r.input_tokens);
  EXPECT_EQ(back.output_tokens, r.output_tokens);
  EXPECT_EQ(back.block_tokens, r.block_tokens);
  EXPECT_EQ(back.turn, r.turn);
  EXPECT_EQ(back.prefix_tokens, r.prefix_tokens);
  EXPECT_EQ(back.set, r.set);
  EXPECT_EQ(back.session, r.session);
  EXPECT_EQ(back.key, r.key);
  EXPECT_EQ(back.blocks, r.blocks);
  EXPECT_EQ(back.output_blocks, r.output_blocks);
}

constexpr char kFour[] =
    "{\"timestamp\":0,\"input_length\":5,\"output_length\":1,\"hash_ids\":[1]}\n"
    "{\"timestamp\":0,\"input_length\":6,\"output_length\":1,\"hash_ids\":[2]}\r\n"
    "\n"
    "{\"timestamp\":1000,\"input_length\":7,\"output_length\":1,\"hash_ids\":[3]}\n"
    "{\"timestamp\":9000,\"input_length\":8,\"output_length\":1,\"hash_ids\":[4]}";

TEST(TraceReader, SpreadsATickUpToTheNextAndScalesTheRate) {
  const std::string path = temporary_file("four", kFour);
  const auto at_ms = [&](const TraceOptions& options) {
    std::vector<double> all;
    for (const TraceRequest& r : read_all(path, options))
      all.push_back(static_cast<double>(r.at.count()) / 1e6);
    return all;
  };
  EXPECT_THAT(at_ms({}), ElementsAre(0, 0, 1000, 9000));
  EXPECT_THAT(at_ms({.spread = std::chrono::seconds(3)}), ElementsAre(0, 500, 1000, 9000));
  EXPECT_THAT(at_ms({.rate_scale = 2, .spread = std::chrono::milliseconds(100)}),
              ElementsAre(0, 25, 500, 4500));
  EXPECT_THAT(at_ms({.requests_max = 2}), ElementsAre(0, 0));
  std::filesystem::remove(path);
}

TEST(TraceReader, ReadsGzip) {
  const std::string path = temporary_file("four.gz", "");
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, kFour);
  gzclose(file);
  EXPECT_EQ(read_all(path, {}).size(), 4u);
  std::filesystem::remove(path);
}

TEST(TraceReader, NamesTheBadLineOrSkipsAndCountsIt) {
  const std::string path =
      temporary_file("bad", std::string(kFour) +
                                "\n{\"timestamp\":8000,\"input_length\":8,\"output_length\":1,"
                                "\"hash_ids\":[4]}\nnonsense\n");
  auto reader = TraceReader::open(path, {});
  ASSERT_TRUE(reader.ok());
  TraceRequest r;
  Status error;
  for (int i = 0; i < 9 && error.ok(); ++i) error = (*reader)->next(r).status();
  EXPECT_THAT(std::string(error.message()),
              HasSubstr(path + ":6: field 'timestamp': lies before the line above (9000 ms)"));
  auto skipping = TraceReader::open(path, {.skip_bad = true});
  ASSERT_TRUE(skipping.ok());
  int count = 0;
  while (*(*skipping)->next(r)) ++count;
  EXPECT_EQ(count, 4);
  EXPECT_EQ((*skipping)->skipped_count(), 2);
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(TraceReader::open("/nonexistent/t", {}).status().message()),
              HasSubstr("/nonexistent/t: cannot open"));
  EXPECT_FALSE(TraceReader::open(path, {.rate_scale = 0}).ok());
}

TEST(TraceReader, LineTooLongOrWithANulByteIsOneBadLine) {
  const std::string good = "{\"timestamp\":0,\"input_length\":5,\"output_length\":1,\"hash_ids\":[1]}\n";
  const std::string nul = std::string("{\"times\0", 9) + "\n";
  const std::string path =
      temporary_file("long", good + std::string(TraceReader::kLineBytesMax + 1, 'x') + "\n" + nul + good);
  TraceRequest r;
  auto strict = TraceReader::open(path, {});
  Status error = (*strict)->next(r).status();
  if (error.ok()) error = (*strict)->next(r).status();
  EXPECT_THAT(std::string(error.message()), HasSubstr(":2: the line is longer than 16 MB"));
  auto skipping = TraceReader::open(path, {.skip_bad = true});
  int count = 0;
  while (*(*skipping)->next(r)) ++count;
  EXPECT_EQ(count, 2);
  EXPECT_EQ((*skipping)->skipped_count(), 2);
  std::filesystem::remove(path);
}

std::string lines_at(const std::vector<double>& at_ms) {
  std::string text;
  for (const double ms : at_ms) {
    text += "{\"timestamp\":" + std::to_string(ms) +
            ",\"input_length\":5,\"output_length\":1,\"hash_ids\":[1]}\n";
  }
  return text;
}

// The first error of reading a whole trace, "" if there is none.
std::string error_of(const std::string& path, const TraceOptions& options) {
  auto reader = TraceReader::open(path, options);
  TraceRequest r;
  while (true) {
    const auto more = (*reader)->next(r);
    if (!more.ok()) return std::string(more.status().message());
    if (!*more) return "";
  }
}

TEST(TraceReader, ImpossibleTimestampIsTheFaultOfItsLine) {
  const std::string path = temporary_file("span", lines_at({5e8, 5e8 + 1000, 5e8 + 1.3e9, 5e8 + 2000}));
  EXPECT_THAT(error_of(path, {}),
              HasSubstr(path + ":3: field 'timestamp': lies 1300000 s after the trace's first; a run has at "
                               "most 1209600 s"));
  EXPECT_THAT(error_of(path, {.rate_scale = 2}), HasSubstr(path + ":4: field 'timestamp': lies before"))
      << "twice as fast it is short enough";
  EXPECT_EQ(read_all(path, {.skip_bad = true}).size(), 3u);
  std::filesystem::remove(path);
}

TEST(TraceReader, LineFarAheadIsSkippedNotAllBehindIt) {
  std::vector<double> at_ms{0, 36'000'000, 36'000'000};
  for (int i = 1; i < 1000; ++i) at_ms.push_back(i * 1000);
  const std::string path = temporary_file("ahead", lines_at(at_ms));
  EXPECT_THAT(error_of(path, {}), HasSubstr(path + ":4: field 'timestamp': lies before the line above"));
  auto reader = TraceReader::open(path, {.skip_bad = true});
  TraceRequest r;
  int count = 0;
  for (; *(*reader)->next(r); ++count) EXPECT_EQ(r.at, std::chrono::seconds(count));
  EXPECT_EQ(count, 1000);
  EXPECT_EQ((*reader)->skipped_count(), 2);
  std::filesystem::remove(path);
}

TEST(TraceReader, LineTooLateIsSkippedAlone) {
  const std::string path = temporary_file("late", lines_at({0, 5000, 4000, 6000, 5500, 7000, 8000}));
  std::vector<Duration> at;
  for (const TraceRequest& r : read_all(path, {.skip_bad = true})) at.push_back(r.at);
  using std::chrono::seconds;
  EXPECT_THAT(at, ElementsAre(seconds(0), seconds(5), seconds(6), seconds(7), seconds(8)));
  std::filesystem::remove(path);
}

TEST(TraceReader, TraceOfMostlyBadLinesIsRefused) {
  const std::string path = temporary_file("most", lines_at({0, 1.7e12, 1.7e12 + 1, 1.7e12 + 2}));
  EXPECT_THAT(error_of(path, {.skip_bad = true}),
              HasSubstr(path + ": 3 of its 4 lines cannot be used; " + path + ":2: field 'timestamp'"));
  std::filesystem::remove(path);
}

TEST(TraceReader, CountsRequestsTooLongForAModelAndNamesTheFirst) {
  const auto line = [](int input, int output) {
    return "{\"timestamp\":0,\"input_length\":" + std::to_string(input) +
           ",\"output_length\":" + std::to_string(output) + ",\"hash_ids\":[1]}\n";
  };
  const std::string path =
      temporary_file("length", line(90, 10) + "nonsense\n" + line(90, 11) + line(100, 0) + line(99, 1));
  auto reader = TraceReader::open(path, {.skip_bad = true, .model_tokens_max = 100});
  TraceRequest r;
  int count = 0;
  while (*(*reader)->next(r)) ++count;
  EXPECT_EQ(count, 4) << "none is left out";
  EXPECT_EQ((*reader)->too_long().prompts, 1);
  EXPECT_EQ((*reader)->too_long().answers, 1);
  EXPECT_EQ((*reader)->too_long().first_line, 3);
  EXPECT_EQ(read_all(path, {.skip_bad = true}).size(), 4u);
  std::filesystem::remove(path);
}

TEST(TraceReader, RefusesATruncatedGzipFile) {
  const std::string whole = temporary_file("whole.gz", "");
  gzFile file = gzopen(whole.c_str(), "wb");
  for (int i = 0; i < 1000; ++i)
    gzprintf(file, "{\"timestamp\":%d,\"input_length\":5,\"output_length\":1,\"hash_ids\":[%d]}\n", i,
             i * 7919);
  gzclose(file);
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) / 2);
  auto reader = TraceReader::open(whole, {});
  ASSERT_TRUE(reader.ok());
  TraceRequest r;
  Status error;
  for (int i = 0; i < 1000 && error.ok(); ++i) error = (*reader)->next(r).status();
  EXPECT_FALSE(error.ok());
  std::filesystem::remove(whole);
}

// The figures in the trace's own description.
TEST(TraceReader, MooncakesBoundsEqualThePublishedOnes) {
  const char* data = std::getenv("TROUPE_DATA");
  const std::string path = std::string(data != nullptr ? data : TROUPE_SOURCE_DIR "/../shared/data") +
                           "/mooncake/conversation_first30min.jsonl.gz";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "no " << path << ": set TROUPE_DATA to the folder with published traces";
  const auto hit = [&](int64_t blocks) {
    auto reader = TraceReader::open(path, {});
    EXPECT_TRUE(reader.ok());
    PooledLru cache(blocks < 0 ? -1 : blocks * 512);
    TraceRequest r;
    int64_t found = 0, asked = 0;
    while (*(*reader)->next(r)) {
      found += cache.serve(r).pooled;
      asked += r.input_tokens;
    }
    return static_cast<double>(found) / static_cast<double>(asked);
  };
  EXPECT_NEAR(hit(-1), 0.3472, 0.00005);
  EXPECT_NEAR(hit(10'000), 0.2094, 0.002)
      << "published by blocks; here a partial block counts its real tokens";
  EXPECT_NEAR(hit(50'000), 0.3433, 0.002);
}

}  // namespace
}  // namespace troupe::sim
