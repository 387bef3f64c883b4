// A worker's own name for a model does not come back to the client.

#include "gateway/upstream/model_rename.h"

#include <gtest/gtest.h>

namespace troupe {
namespace model_rename_test {

const std::string kClient = "a\"x";

std::string renamed(std::string json) {
  rename_model(kClient, json);
  return json;
}
std::string renamed_events(std::string events) {
  rename_model_in_events(kClient, events);
  return events;
}

TEST(ModelRename, OnlyTheModelOfTheAnswerIsAnother) {
  EXPECT_EQ(renamed(R"({ "id":1e5, "model" : "org/b\"1" ,"choices":[]})"),
            R"({ "id":1e5, "model" : "a\"x" ,"choices":[]})");
  EXPECT_EQ(renamed(R"({"data":[[1,2]],"model":"org\/b\u00221"})"), R"({"data":[[1,2]],"model":"a\"x"})")
      << "however it is spelt, wherever it stands";
  EXPECT_EQ(renamed(R"({"type":"x","response":{"id":1,"model":"org/b\"1"}})"),
            R"({"type":"x","response":{"id":1,"model":"a\"x"}})");
  EXPECT_EQ(renamed(R"({"type":"message_start","message":{"model":"org/b\"1"}})"),
            R"({"type":"message_start","message":{"model":"a\"x"}})");
}

// OpenAI and Azure resolve a name to a dated one, and answer with that.
TEST(ModelRename, WhateverTheWorkerCallsIt) {
  for (const std::string said : {"\"org-2024-08-06\"", "\"\"", "null", R"("a\\")"})
    EXPECT_EQ(renamed(R"({"id":1,"model":)" + said + R"(,"choices":[]})"),
              R"({"id":1,"model":"a\"x","choices":[]})");
  EXPECT_EQ(renamed_events("data: {\"model\":\"org-2024\"}\n\ndata: {\"model\":null}\n\n"),
            "data: {\"model\":\"a\\\"x\"}\n\ndata: {\"model\":\"a\\\"x\"}\n\n");
}

TEST(ModelRename, AllElseStaysAsItCame) {
  for (const std::string json :
       {R"({"model":5})", R"({"model":{"x":"org/b\"1"}})", R"({"model":["org/b\"1"]})", R"({"model":nul)",
        R"({"Model":"org/b\"1"})", R"({"choices":[{"model":"org/b\"1"}]})",
        R"({"usage":{"model":"org/b\"1"}})", R"({"text":"\"model\":\"org/b\\\"1\""})",
        R"({"text":"{\"model\":\"org/b\\\"1\"}"})", R"(["model","org/b\"1"])", R"("model":"org/b\"1")",
        R"({"model":"org/b\"1)", R"({"model":"org/b\")", R"({"model")", R"({"model":)", R"({"a":"\)",
        "}}}]]{\"model\"", "model", ""})
    EXPECT_EQ(renamed(json), json);
}

TEST(ModelRename, EventsAreRenamedOneByOne) {
  const std::string named = R"(data: {"id":"1","model":"org/b\"1"})",
                    as_asked = R"(data: {"id":"1","model":"a\"x"})";
  for (const std::string end : {"\n\n", "\r\n\r\n", "\r\r"})
    EXPECT_EQ(renamed_events("event: x" + end + named + end + ": {\"model\":\"org/b\\\"1\"}" + end + named +
                             end + "data: [DONE]" + end),
              "event: x" + end + as_asked + end + ": {\"model\":\"org/b\\\"1\"}" + end + as_asked + end +
                  "data: [DONE]" + end);
  EXPECT_EQ(renamed_events("data: {\"a\":{\n" + named), "data: {\"a\":{\n" + as_asked) << "cut, or broken";
  EXPECT_EQ(renamed_events("data:" + named.substr(5)), "data:" + as_asked.substr(5));
}

}  // namespace model_rename_test
}  // namespace troupe
