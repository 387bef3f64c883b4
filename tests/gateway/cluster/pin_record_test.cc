#include "gateway/cluster/pin_record.h"

#include <gmock/gmock.h>

#include "common/json/json.h"

namespace troupe {
namespace pin_record_test {

using ::testing::HasSubstr;

PinRecord record_of(bool salted = false) {
  PinRecord record;
  route::Pin& pin = record.pin;
  pin.prefix = hash_bytes("prefix");
  pin.owner = std::string(64, 'a');
  pin.model = "org/demo";
  pin.tokens = 120;
  pin.key.set = hash_bytes("set");
  pin.key.prefix_messages = 1;
  pin.key.prefix_bytes = 700;
  pin.key.prompt_bytes = 700;
  pin.key.chat = true;
  pin.answer = R"({"id":"prefix-1","pinned":true})";
  pin.salted = salted;
  pin.body = salted ? R"({"model":"demo","prompt":"\u00e9 \" x","cache_salt":)" : R"({"prompt":"x","ttl_s":)";
  pin.expires = true;
  pin.claims = {{"10.0.0.1:31000", "epoch-1"}};
  record.until_unix_s = 1'800'000'000;
  return record;
}

TEST(PinRecord, IsReadAsItWasWritten) {
  for (const bool salted : {false, true}) {
    const PinRecord written = record_of(salted);
    const auto read = parse_pin_record(pin_record_json(written));
    ASSERT_TRUE(read.ok()) << read.status();
    const route::Pin &pin = read->pin, &before = written.pin;
    EXPECT_EQ(pin.prefix, before.prefix);
    EXPECT_EQ(pin.owner, before.owner);
    EXPECT_EQ(pin.model, before.model);
    EXPECT_EQ(pin.tokens, before.tokens);
    EXPECT_EQ(pin.key.set, before.key.set);
    EXPECT_EQ(pin.key.prefix_messages, 1);
    EXPECT_EQ(pin.key.prefix_bytes, 700u);
    EXPECT_TRUE(pin.key.chat);
    EXPECT_EQ(pin.answer, before.answer);
    EXPECT_EQ(pin.body, before.body);
    EXPECT_EQ(pin.salted, salted);
    EXPECT_TRUE(pin.expires && pin.shared);
    EXPECT_EQ(read->until_unix_s, written.until_unix_s);
    ASSERT_EQ(pin.claims.size(), 1u);
    EXPECT_EQ(pin.claims[0].node, "10.0.0.1:31000");
    EXPECT_EQ(pin.claims[0].cache_epoch, "epoch-1");
  }
}

TEST(PinRecord, WhatIsNoRecordIsRefusedByItsFieldsName) {
  const auto error_with = [](const char* field, const bj::value& value) {
    bj::value root = *parse_json(pin_record_json(record_of()));
    root.as_object()[field] = value;
    const auto read = parse_pin_record(to_json(root));
    return read.ok() ? "ok" : std::string(read.status().message());
  };
  EXPECT_EQ(error_with("more", 1), "ok") << "of a later version";
  for (const char* field : {"owner", "model", "set", "answer", "body"})
    EXPECT_THAT(error_with(field, 7), HasSubstr(field));
  for (const char* field : {"tokens", "until", "prefix_messages", "prefix_bytes", "prompt_bytes"})
    EXPECT_THAT(error_with(field, -1), HasSubstr(field));
  for (const char* field : {"expires", "salted", "chat"})
    EXPECT_THAT(error_with(field, "x"), HasSubstr(field));
  EXPECT_THAT(error_with("set", "xyz"), HasSubstr("set"));
  EXPECT_THAT(error_with("nodes", bj::array{1}), HasSubstr("nodes"));
  EXPECT_THAT(error_with("nodes", bj::array(65, bj::object())), HasSubstr("nodes"));
  EXPECT_THAT(error_with("answer", "[]"), HasSubstr("answer"));
  EXPECT_THAT(error_with("body", "{\"a\":1,"), HasSubstr("body"));
  EXPECT_THAT(error_with("body", R"({"prompt":"x"},{"ttl_s":)"), HasSubstr("body"));
  EXPECT_THAT(error_with("salted", true), HasSubstr("body")) << "it ends before its ttl_s";
  EXPECT_THAT(error_with("owner", bj::string(5000, 'x')), HasSubstr("owner"));
  for (const std::string text : {"", "[]", "{}", "nonsense"})
    EXPECT_FALSE(parse_pin_record(text).ok()) << text;
  EXPECT_FALSE(parse_pin_record(std::string(kPinRecordBytesMax + 1, ' ')).ok());
}

}  // namespace pin_record_test
}  // namespace troupe
