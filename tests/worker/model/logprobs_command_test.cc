#include "worker/model/logprobs_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/worker/model/demo_model.h"
#include "tests/worker/model/tiny_model.h"

namespace troupe {
namespace logprobs_command_test {

using testing::HasSubstr;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& args, const std::string& input) {
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = logprobs_command(args, in, out, err);
  return {code, out.str(), err.str()};
}

class LogprobsCommand : public testing::Test {
 protected:
  LogprobsCommand() { TinyModel().write(dir_); }
  std::vector<std::string> args() const { return {"--model", dir_.path(), "--device", "ref"}; }
  TempDir dir_;
};

TEST_F(LogprobsCommand, AnswersEachLineWithALine) {
  const Outcome outcome = run(args(), "[1, 2, 3]\n[4]\n[1,2,3,4]");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<bj::value> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(parse_json(line).value());
  ASSERT_EQ(answers.size(), 3u);
  ASSERT_EQ(answers[0].as_array().size(), 2u);
  EXPECT_EQ(answers[1].as_array().size(), 0u);
  ASSERT_EQ(answers[2].as_array().size(), 3u);
  EXPECT_EQ(answers[0].as_array()[1], answers[2].as_array()[1]);
  EXPECT_LT(answers[2].as_array()[2].to_number<double>(), 0.0);
}

TEST_F(LogprobsCommand, EndsAtABadLineAndNamesIt) {
  for (const auto& [line, error] : {std::pair<std::string, std::string>{"", "line 2: "},
                                    {"[1,", "line 2: "},
                                    {"[]", "line 2: must be a JSON array of ids"},
                                    {"{}", "line 2: must be a JSON array of ids"},
                                    {"[1, -2]", "line 2: item 1 is -2"},
                                    {"[1, \"2\"]", "line 2: item 1 is \"2\""},
                                    {"[1, 12]", "line 2: token id 12 is not in the vocabulary [0, 12)"}}) {
    const Outcome outcome = run(args(), "[1,2]\n" + line + "\n[1]\n");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(error));
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
  }
}

TEST_F(LogprobsCommand, RefusesLinesLongerThanTheModel) {
  std::string line = "[1";
  for (int i = 0; i < 32; ++i) line += ",1";
  EXPECT_THAT(run(args(), line + "]\n").err, HasSubstr("33 ids; must be in [1, 32]"));
}

// The config.json of a small Mistral: a window far below its positions. Up to the window nothing differs.
TEST_F(LogprobsCommand, ScoresUpToASlidingWindow) {
  const TempDir dir;
  TinyModel model;
  model.config["architectures"] = bj::array({"MistralForCausalLM"});
  model.config["sliding_window"] = 4;
  model.write(dir);
  const std::vector<std::string> words{"--model", dir.path(), "--device", "ref"};
  EXPECT_EQ(run(words, "[1,2,3,4]\n").out, run(args(), "[1,2,3,4]\n").out);
  EXPECT_THAT(run(words, "[1,2,3,4,5]\n").err, HasSubstr("5 ids; must be in [1, 4]"));
}

TEST_F(LogprobsCommand, ScoresDummyWeightsWithoutAnyFileButTheConfig) {
  const TempDir dir;
  dir.write("config.json", boost::json::serialize(TinyModel().config));
  const std::vector<std::string> words{"--model", dir.path(), "--load-format", "dummy"};
  const Outcome outcome = run(words, "[1,2,3]\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run(words, "[1,2,3]\n").out);
  EXPECT_NE(outcome.out, run(args(), "[1,2,3]\n").out);
}

TEST_F(LogprobsCommand, SeparatesBadUsageFromFailure) {
  EXPECT_EQ(run({}, "").code, 2);
  EXPECT_THAT(run({}, "").err, HasSubstr("--model DIR is missing"));
  EXPECT_EQ(run({"--model", dir_.path(), "--dtype", "int4"}, "").code, 2);
  EXPECT_EQ(run({"--model", dir_.path(), "--colour", "red"}, "").code, 2);
  EXPECT_EQ(run({"--model", dir_.path(), "more"}, "").code, 2);
  EXPECT_EQ(run({"--model", dir_.path() + "/none"}, "").code, 1);
  EXPECT_EQ(run({"--model", dir_.path(), "--device", "abacus"}, "").code, 1);
  const Outcome help = run({"--help"}, "");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--model"));
}

TEST_F(LogprobsCommand, ScoresOfTheDemoModelEqualTransformers) {
  const GoldenCase& golden = golden_cases()[0];
  std::string line;
  for (const TokenId id : golden.all_ids()) line += (line.empty() ? "[" : ",") + std::to_string(id);
  const Outcome outcome =
      run({"--model", kDemoModelDir, "--device", "ref", "--dtype", "float32"}, line + "]\n");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const bj::value answer = parse_json(outcome.out).value();
  ASSERT_EQ(answer.as_array().size(), golden.all_ids().size() - 1);
  for (size_t i = 0; i < golden.output.size(); ++i) {
    EXPECT_NEAR(answer.as_array()[golden.prompt.size() - 1 + i].to_number<double>(), golden.logprobs[i],
                1e-3);
  }
}

}  // namespace logprobs_command_test
}  // namespace troupe
