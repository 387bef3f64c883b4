#include "worker/model/load/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/worker/model/tiny_model.h"

namespace troupe {
namespace safetensors_test {

using testing::HasSubstr;

const std::string k16(16, 'x');

TEST(Safetensors, ReadsEntriesInTheOrderOfTheirOffsets) {
  const auto parsed = parse_safetensors(safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[4],"data_offsets":[8,16]},)"
      R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"none":{"dtype":"I64","shape":[0,9],"data_offsets":[8,8]}}  )",
      k16));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->entries.size(), 3u);
  EXPECT_EQ(parsed->entries[0].name, "a");
  EXPECT_EQ(parsed->entries[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(parsed->entries[1].name, "none");
  EXPECT_EQ(parsed->entries[2].dtype, "F16");
  EXPECT_EQ(parsed->entries[2].end, 16u);
}

TEST(Safetensors, AcceptsFileWithoutTensors) {
  EXPECT_TRUE(parse_safetensors(safetensors_bytes("{}", "")).ok());
}

struct BadHeader {
  std::string header;
  std::string error;
};

class BadHeaders : public testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, AreRefusedByName) {
  const auto parsed = parse_safetensors(safetensors_bytes(GetParam().header, k16));
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(GetParam().error));
}

// One tensor 'x' with the given fields.
std::string entry_header(const std::string& fields) {
  return "{\"x\":{" + fields + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, BadHeaders,
    testing::Values(
        BadHeader{"", "does not begin with '{'"}, BadHeader{" {}", "does not begin with '{'"},
        BadHeader{"[]", "does not begin with '{'"}, BadHeader{"{", "header"}, BadHeader{"{} x", "header"},
        BadHeader{R"({"x":1})", "tensor 'x': is not an object"},
        BadHeader{R"({"__metadata__":{"a":1}})", "__metadata__ is not an object of strings"},
        BadHeader{R"({"__metadata__":"a"})", "__metadata__ is not an object of strings"},
        BadHeader{R"({"x":{"dtype":"I8","shape":[8],"data_offsets":[0,8]},)"
                  R"("x":{"dtype":"I8","shape":[8],"data_offsets":[8,16]}})",
                  "x"},
        BadHeader{entry_header(R"("shape":[4],"data_offsets":[0,16])"), "key 'dtype' is missing"},
        BadHeader{entry_header(R"("dtype":"F32","data_offsets":[0,16])"), "key 'shape' is missing"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4])"), "key 'data_offsets' is missing"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1)"),
                  "unknown key 'more'"},
        BadHeader{entry_header(R"("dtype":"F31","shape":[4],"data_offsets":[0,16])"),
                  "dtype 'F31' is unknown"},
        BadHeader{entry_header(R"("dtype":32,"shape":[4],"data_offsets":[0,16])"), "dtype is not a string"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), "shape holds -4"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"), "shape holds"},
        BadHeader{entry_header(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), "shape is not an array"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])"),
                  "overflows"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,0])"),
                  "overflows"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16])"),
                  "shape holds 18446744073709551615"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4],"data_offsets":[0])"), "not a pair"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4],"data_offsets":[0,-16])"), "not a pair"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"),
                  "end before they begin"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[8],"data_offsets":[0,32])"),
                  "offsets [0, 32) reach beyond the file's 16 bytes"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[5],"data_offsets":[0,16])"),
                  "hold 16 bytes, but its shape and dtype F32 need 20"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"),
                  "last 4 of 16 data bytes"},
        BadHeader{entry_header(R"("dtype":"F32","shape":[3],"data_offsets":[4,16])"), "leave bytes [0, 4)"},
        BadHeader{R"({"x":{"dtype":"I8","shape":[12],"data_offsets":[0,12]},)"
                  R"("y":{"dtype":"I8","shape":[8],"data_offsets":[8,16]}})",
                  "tensor 'y': offsets [8, 16) overlap tensor 'x' at [0, 12)"},
        BadHeader{"{}", "last 16 of 16 data bytes"}));

TEST(Safetensors, RefusesInvalidLengths) {
  const std::string good =
      safetensors_bytes(R"({"x":{"dtype":"I8","shape":[16],"data_offsets":[0,16]}})", k16);
  ASSERT_TRUE(parse_safetensors(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_safetensors(std::string_view(good).substr(0, size)).ok()) << "cut to " << size;
  }
  for (const unsigned char byte : {0x01, 0x80, 0xff}) {
    for (size_t i = 1; i < 8; ++i) {  // each makes the length larger than the file
      std::string lying = good;
      lying[i] = static_cast<char>(byte);
      EXPECT_THAT(std::string(parse_safetensors(lying).status().message()), HasSubstr("header length"));
    }
  }
}

TEST(Safetensors, OpenNamesTheFile) {
  const TempDir dir;
  for (const auto& [name, content] :
       {std::pair<std::string, std::string>{"empty.safetensors", ""}, {"short.safetensors", "abc"}}) {
    const std::string path = dir.write(name, content);
    EXPECT_THAT(std::string(SafetensorsFile::open(path).status().message()), HasSubstr(path + ": "));
  }
  EXPECT_THAT(std::string(SafetensorsFile::open(dir.path() + "/none").status().message()),
              HasSubstr("cannot open"));
  EXPECT_THAT(std::string(SafetensorsFile::open(dir.path()).status().message()),
              HasSubstr("is a directory; a regular file is needed"));
}

}  // namespace safetensors_test
}  // namespace troupe
