#include "common/net/inflater.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace troupe::net_test {
namespace {

constexpr int kGzip = 15 + 16, kZlib = 15, kRaw = -15;

std::string pack(std::string_view text, int window_bits) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

Inflater::State inflate_all(ContentCoding coding, std::string_view packed, std::string& out,
                            size_t bytes_max = 4u << 20) {
  Inflater inflater(coding, bytes_max);
  Inflater::State state = Inflater::State::kMore;
  while (state == Inflater::State::kMore) state = inflater.step(packed, out);
  return state;
}

TEST(Inflater, GivesBackWhatWasPacked) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919);
  for (const auto& [coding, bits] :
       {std::pair(ContentCoding::kGzip, kGzip), std::pair(ContentCoding::kDeflate, kZlib),
        std::pair(ContentCoding::kDeflate, kRaw)}) {
    for (const std::string& sent : {text, std::string("{}"), std::string()}) {
      std::string out;
      EXPECT_EQ(inflate_all(coding, pack(sent, bits), out), Inflater::State::kDone) << bits;
      EXPECT_EQ(out, sent) << bits;
    }
  }
  std::string two;
  EXPECT_EQ(inflate_all(ContentCoding::kGzip, pack("a", kGzip) + pack("b", kGzip), two),
            Inflater::State::kDone);
  EXPECT_EQ(two, "ab");
}

TEST(Inflater, StopsAtTheBound) {
  const std::string bomb = pack(std::string(64u << 20, 'x'), kGzip);
  ASSERT_LT(bomb.size(), 100u << 10);
  std::string out;
  EXPECT_EQ(inflate_all(ContentCoding::kGzip, bomb, out, 1u << 20), Inflater::State::kTooLarge);
  EXPECT_LE(out.size(), (1u << 20) + 1);
  const std::string fits(1000, 'y');
  for (const size_t bytes_max : {999u, 1000u}) {
    out.clear();
    const auto expected = bytes_max == 1000 ? Inflater::State::kDone : Inflater::State::kTooLarge;
    EXPECT_EQ(inflate_all(ContentCoding::kGzip, pack(fits, kGzip), out, bytes_max), expected);
  }
}

// Such blocks take a processor's time, and make nothing that a bound could count.
TEST(Inflater, TakesNoMoreThanAStepOfBlocksThatMakeNothing) {
  const auto block = [](char last) { return std::string{last, 0, 0, '\xff', '\xff'}; };  // stored, empty
  std::string packed = "\x1f\x8b\x08" + std::string(7, '\0');
  for (int i = 0; i < 200'000; ++i) packed += block(0);
  packed += block(1) + std::string(8, '\0');  // CRC and size of nothing
  Inflater inflater(ContentCoding::kGzip, 1000);
  std::string out;
  std::string_view rest = packed;
  Inflater::State state = Inflater::State::kMore;
  size_t steps = 0;
  for (; state == Inflater::State::kMore; ++steps) {
    const size_t before = rest.size();
    state = inflater.step(rest, out);
    ASSERT_LE(before - rest.size(), Inflater::kPackedStepBytes);
  }
  EXPECT_EQ(state, Inflater::State::kDone);
  EXPECT_EQ(out, "");
  EXPECT_GT(steps, 10u);
}

TEST(Inflater, RefusesWhatIsBroken) {
  const std::string whole = pack("some text, some text, some text", kGzip);
  std::vector<std::string> broken = {"", "plain text", whole + "rest", whole + std::string(1, '\0')};
  for (size_t size = 1; size < whole.size(); ++size) broken.push_back(whole.substr(0, size));
  std::string other_sum = whole;
  other_sum[whole.size() - 6] ^= 1;
  broken.push_back(other_sum);
  for (const std::string& packed : broken) {
    std::string out;
    EXPECT_EQ(inflate_all(ContentCoding::kGzip, packed, out), Inflater::State::kMalformed) << packed.size();
  }
  for (const std::string& packed :
       {std::string(), std::string("no deflate"), pack("text", kZlib).substr(0, 5)}) {
    std::string out;
    EXPECT_EQ(inflate_all(ContentCoding::kDeflate, packed, out), Inflater::State::kMalformed) << packed;
  }
}

}  // namespace
}  // namespace troupe::net_test
