// An integer may be written as 7.0 wherever a body has one: languages without integers write it so.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/api/api.h"
#include "common/api/prefix.h"
#include "common/api/tokenize.h"

namespace troupe::api_integers_test {

constexpr const char* kChat = R"({"model":"m","messages":[{"role":"user","content":"hi"}])";
constexpr const char* kPrompt = R"({"model":"m","prompt":"hi")";
constexpr const char* kResume =
    R"({"model":"m","prompt":"hi","stream":true,"troupe_resume":{"ids":[1],"seed":2)";

std::string chat_error(const std::string& body) {
  const auto parsed = parse_chat_request(body);
  return parsed.ok() ? "" : parsed.error().message;
}
std::string completion_error(const std::string& body) {
  const auto parsed = parse_completion_request(body);
  return parsed.ok() ? "" : parsed.error().message;
}
std::string prefix_error(const std::string& body) {
  const auto parsed = parse_prefix_request(body);
  return parsed.ok() ? "" : parsed.error().message;
}
std::string detokenize_error(const std::string& body) {
  const auto parsed = parse_detokenize_request(body);
  return parsed.ok() ? "" : parsed.error().message;
}

struct IntegerField {
  std::string begin;  // of a body, up to the integer
  int right = 1;      // a value that is taken
  std::string end;
  std::string (*error)(const std::string& body);
};

std::vector<IntegerField> integer_fields() {
  std::vector<IntegerField> fields;
  for (const std::string name :
       {"max_tokens", "max_completion_tokens", "top_k", "n", "seed", "priority", "best_of"}) {
    fields.push_back({std::string(kChat) + ",\"" + name + "\":", 1, "}", chat_error});
    fields.push_back({std::string(kPrompt) + ",\"" + name + "\":", 1, "}", completion_error});
  }
  const std::vector<IntegerField> others = {
      {std::string(kChat) + R"(,"logprobs":true,"top_logprobs":)", 2, "}", chat_error},
      {std::string(kChat) + R"(,"min_tokens":)", 0, "}", chat_error},
      {std::string(kChat) + R"(,"typical_p":)", 1, "}", chat_error},
      {std::string(kChat) + R"(,"stop_token_ids":[)", 3, "]}", chat_error},
      {std::string(kPrompt) + R"(,"logprobs":)", 2, "}", completion_error},
      {R"({"model":"m","prompt":[)", 3, "]}", completion_error},
      {R"({"model":"m","prompt":[[)", 3, "]]}", completion_error},
      {R"({"model":"m","prompt":"hi","stream":true,"troupe_resume":{"seed":1,"ids":[)", 3, "]}}",
       completion_error},
      {R"({"model":"m","prompt":"hi","stream":true,"troupe_resume":{"ids":[1],"seed":)", 3, "}}",
       completion_error},
      {std::string(kResume) + R"(,"created":)", 3, "}}", completion_error},
      {std::string(kPrompt) + R"(,"ttl_s":)", 60, "}", prefix_error},
      {R"({"model":"m","tokens":[)", 3, "]}", detokenize_error},
  };
  fields.insert(fields.end(), others.begin(), others.end());
  return fields;
}

TEST(ApiIntegers, MayBeWrittenAsFloats) {
  for (const IntegerField& field : integer_fields()) {
    const std::string number = std::to_string(field.right);
    for (const std::string& written : {number, number + ".0", number + "e0", number + ".000"})
      EXPECT_EQ(field.error(field.begin + written + field.end), "") << field.begin << written;
    for (const std::string& written : {number + ".5", std::string("1e300"), std::string("true")})
      EXPECT_NE(field.error(field.begin + written + field.end), "") << field.begin << written;
  }
}

TEST(ApiIntegers, AFloatsSeedIsTheIntegers) {
  const auto seed_of = [](const std::string& written) {
    return parse_chat_request(std::string(kChat) + ",\"seed\":" + written + "}").value().seed;
  };
  EXPECT_EQ(seed_of("7.0"), seed_of("7"));
  EXPECT_EQ(seed_of("-2.0"), seed_of("-2"));
  EXPECT_EQ(seed_of("-1.0"), std::nullopt) << "draw one";
  EXPECT_EQ(seed_of("18446744073709551615"), ~uint64_t{0});
  EXPECT_NE(chat_error(std::string(kChat) + R"(,"seed":18446744073709551616.0})"), "")
      << "beyond 2^53 a float may stand for another integer";
}

}  // namespace troupe::api_integers_test
