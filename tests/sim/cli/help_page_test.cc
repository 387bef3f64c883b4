// --help: the flags that matter come first, and none is left out or told twice.

#include "sim/cli/help_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sim/cli/command_line.h"
#include "sim/cli/run_once.h"

namespace troupe::sim::help_page_test {
namespace {

using ::testing::HasSubstr;

std::string replay_help(const SettingsSchema& schema) {
  return help_page("troupe-sim replay", schema);
}

TEST(HelpPage, PutsTheMostUsedFirstAndKeepsAllOthers) {
  RunFlags flags;
  SettingsSchema schema("troupe-sim replay", "what?");
  const char* argv[] = {"replay"};
  ASSERT_EQ(read_run_flags(schema, flags, "troupe-sim replay", 1, argv), std::nullopt);
  const std::string help = replay_help(schema);
  std::map<std::string, int> told;
  for (size_t at = 0; (at = help.find("\n  --", at)) != std::string::npos; ++at)
    told[help.substr(at + 5, help.find_first_of(" \n", at + 5) - at - 5)] += 1;
  for (std::string key : schema.keys()) {
    std::replace(key.begin(), key.end(), '_', '-');
    EXPECT_EQ(told[key] + told["[no-]" + key], key.empty() ? 0 : 1) << key;
  }
  EXPECT_LT(help.find("  --html"), help.find("All others:"));
  EXPECT_GT(help.find("  --gossip-ms"), help.find("All others:"));
  EXPECT_THAT(help, HasSubstr("Example:\n  troupe-sim replay --trace"));
  for (const char* field : {"timestamp", "input_length", "output_length", "hash_ids", "session_id",
                            "prefix_length", "block_size", "TIMESTAMP,ContextTokens,GeneratedTokens"})
    EXPECT_THAT(help, HasSubstr(field));
}

TEST(CommandLine, IsOneThatAShellTakes) {
  const char* argv[] = {"replay", "--trace", "a b.jsonl", "--flash", "", "--policy=affinity", "it's"};
  EXPECT_EQ(command_line(7, argv),
            R"(troupe-sim replay --trace 'a b.jsonl' --flash '' --policy=affinity 'it'\''s')");
}

}  // namespace
}  // namespace troupe::sim::help_page_test
