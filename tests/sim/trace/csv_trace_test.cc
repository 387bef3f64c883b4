// Tables of lengths: the published forms, and the words of refusals.

#include "sim/trace/csv_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/trace/trace.h"

namespace troupe::sim::csv_trace_test {
namespace {

using ::testing::HasSubstr;

constexpr char kAzure[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

std::string file_of(const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / ("troupe_csv_" + std::to_string(::getpid()) + ".csv");
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

// All requests of a file, or the error.
StatusOr<std::vector<TraceRequest>> read(const std::string& text, bool skip_bad = false) {
  const std::string path = file_of(text);
  TraceOptions options;
  options.skip_bad = skip_bad;
  TROUPE_ASSIGN_OR_RETURN(const auto reader, TraceReader::open(path, options));
  std::vector<TraceRequest> all;
  Status status;
  for (TraceRequest request;;) {
    const auto more = reader->next(request);
    status = more.status();
    if (!more.ok() || !*more) break;
    all.push_back(request);
  }
  std::filesystem::remove(path);
  if (!status.ok()) return status;
  return all;
}

TEST(CsvTrace, ReadsAzuresForm) {
  const auto all = read(
      "\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 18:15:50.9951690,396,0\r\n\r\n");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].input_tokens, 374);
  EXPECT_EQ((*all)[0].output_tokens, 44);
  EXPECT_EQ((*all)[1].at, std::chrono::nanoseconds(4'314'579'000));
  EXPECT_EQ((*all)[0].block_tokens, 16);
  EXPECT_EQ((*all)[0].blocks.size(), 23u);
  EXPECT_NE((*all)[0].blocks[0], (*all)[1].blocks[0]);
}

TEST(CsvTrace, ReadsOffsetsSecondsAndSessions) {
  const auto azure =
      read(std::string(kAzure) + "\n2024-05-10 23:59:59.5+00:00,2162,5\n2024-05-11T01:00:00.5+01:00,7,5\n");
  ASSERT_TRUE(azure.ok()) << azure.status();
  EXPECT_EQ((*azure)[1].at, std::chrono::seconds(1));
  const auto burst = read(
      "Timestamp,Model,Request tokens,Response tokens,Log Type\n5,\"a, \"\"b\"\"\",472,18,x\n45.5,c,1,0,y\n");
  ASSERT_TRUE(burst.ok()) << burst.status();
  EXPECT_EQ((*burst)[1].at, std::chrono::milliseconds(40'500));
  const auto own = read(
      "timestamp,session,input_length,output_length,block_size\n0,7,64,32,32\n900,7,128,1,32\n950,,64,1,\n");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)[1].at, std::chrono::milliseconds(900));
  EXPECT_EQ((*own)[0].blocks[1], (*own)[1].blocks[1]) << "a conversation's next turn";
  EXPECT_EQ((*own)[2].session, 0u);
  EXPECT_EQ((*own)[2].block_tokens, 32);
}

TEST(CsvTrace, RefusesAndNamesLineAndField) {
  const auto says = [](const std::string& text, const char* words) {
    const auto all = read(text);
    EXPECT_FALSE(all.ok()) << text;
    EXPECT_THAT(std::string(all.status().message()), HasSubstr(words)) << text;
  };
  const std::string heading = std::string(kAzure) + "\n", time = "2023-11-16 18:15:46,";
  says("TIMESTAMP,ContextTokens\n",
       ".csv:1: neither a JSON object nor the heading of a table: it has no column Gen");
  says("when,prompt,answer\n", "only when, prompt, answer");
  says("timestamp,input_length,ContextTokens,output_length\n",
       "'input_length' and 'ContextTokens' tell the same");
  says(heading + time + "374\n", ".csv:2: has 2 values, but the heading names 3 columns");
  says(heading + time + "x,44\n",
       ".csv:2: field 'ContextTokens': must be a whole number from 1 to 16777216, not 'x'");
  says(heading + time + "0,44\n", "'ContextTokens'");
  says(heading + time + "374,-1\n", "field 'GeneratedTokens': must be a whole number from 0");
  says(heading + time + "374,4.5\n", "not '4.5'");
  says(heading + "yesterday,374,44\n", "field 'TIMESTAMP': must be a time as 2023-11-16");
  says(heading + "2023-13-16 18:15:46,374,44\n", "field 'TIMESTAMP'");
  says(heading + "2023-11-16 18:15:46 CET,374,44\n", "field 'TIMESTAMP'");
  says(heading + time + "374,44\n2023-11-16 18:15:45,374,44\n", ".csv:3: field 'timestamp': lies before");
  says(heading + time + "\"374,44\n", "quote that stays open");
  says("timestamp,input_length,output_length,block_size\n1,16000000,5,1\n",
       "'block_size': is 1, so prompt and answer have");
  says("timestamp,input_length,output_length,prefix_length\n1,5,5,6\n", "'prefix_length': must be at most");
}

TEST(CsvTrace, CountsBadLinesWhereTheyMayBeSkipped) {
  const auto all = read(std::string(kAzure) + "\n1,5,5\nbad\n2,5,5\n3,0,5\n", true);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), 2u);
}

TEST(CsvTrace, ATableHasAHeadingAndJsonHasNone) {
  EXPECT_TRUE(CsvTrace::is_heading(kAzure));
  for (const char* line : {"{\"a\": 1, \"b\": 2}", " [1, 2]", "", "word"})
    EXPECT_FALSE(CsvTrace::is_heading(line)) << line;
}

TEST(ParseDateTime, CountsFrom1970) {
  EXPECT_EQ(parse_date_time("1970-01-01 00:00:01"), Duration(std::chrono::seconds(1)));
  EXPECT_EQ(parse_date_time("2000-02-29T12:00:00Z"), Duration(std::chrono::seconds(951'825'600)));
  EXPECT_EQ(parse_date_time("2000-02-29 12:00:00-0130"), Duration(std::chrono::seconds(951'831'000)));
  for (const char* wrong :
       {"", "1969-12-31 23:59:59", "2001-02-29 12:00:00", "2000-02-29", "2000-02-29 24:00:00",
        "2000-02-29 12:00", "2000-02-29 12:00:00.", "2000-02-29 12:00:00+1"})
    EXPECT_EQ(parse_date_time(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace troupe::sim::csv_trace_test
