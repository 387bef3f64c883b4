// Files of faults: parsing, and the words of refusals.

#include "sim/fleet/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::sim {
namespace {

TEST(Faults, FileIsReadInOrderOfTime) {
  const auto faults = parse_faults(
      "{\"at_s\": 90, \"return\": 3}\n\n{\"at_s\": 60, \"kill\": 3}\r\n{\"at_s\": 60.5, \"slow\": 1, "
      "\"factor\": 2, \"for_s\": 30}",
      "f");
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_EQ(faults->size(), 3u);
  EXPECT_EQ((*faults)[0].kind, Fault::Kind::kKill);
  EXPECT_EQ((*faults)[0].target, 3);
  EXPECT_EQ((*faults)[1].factor, 2);
  EXPECT_EQ((*faults)[1].for_s, 30);
  EXPECT_EQ((*faults)[2].kind, Fault::Kind::kReturn);
  EXPECT_TRUE(check_faults(*faults, 4, 1).ok());
}

TEST(Faults, InvalidFaultsAreNamed) {
  const auto says = [](std::string_view text, const char* words) {
    EXPECT_THAT(std::string(parse_faults(text, "f").status().message()), ::testing::HasSubstr(words)) << text;
  };
  says("\n{\"at_s\": 1}", "f:2: says no fault");
  says("{\"kill\": 1}", "'at_s': is missing");
  says("{\"at_s\": -1, \"kill\": 1}", "'at_s': must be a number from 0");
  says("{\"at_s\": 1, \"kill\": -1}", "'kill': must be a whole number from 0");
  says("{\"at_s\": 1, \"join\": 0}", "'join': must be a whole number from 1");
  says("{\"at_s\": 1, \"kill\": 1, \"join\": 1}", "one fault a line");
  says("{\"at_s\": 1, \"slow\": 1, \"for_s\": 3}", "'factor': is missing");
  says("{\"at_s\": 1, \"slow\": 1, \"factor\": 0.5, \"for_s\": 3}", "'factor': must be a number from 1");
  says("{\"at_s\": 1, \"stall\": 1}", "'for_s': is missing");
  says("{\"at_s\": 1, \"kill\": 1, \"for_s\": 1}", "no end of its own");
  says("{\"at_s\": 1, \"exlode\": 1}", "'exlode': is not known");
  says("[]", "must be a JSON object");
  says("{\"at_s\": 1, \"kill\": 1", "f:1: ");
}

TEST(Faults, FaultsMustFitTheFleet) {
  const auto says = [](std::string_view text, const char* words) {
    const auto faults = parse_faults(text, "f");
    ASSERT_TRUE(faults.ok()) << faults.status();
    EXPECT_THAT(std::string(check_faults(*faults, 4, 2).message()), ::testing::HasSubstr(words)) << text;
  };
  says("\n{\"at_s\": 1, \"kill\": 4}", "f:2: fault 'kill' at 1 s: there is no node 4, only 4");
  says("{\"at_s\": 1, \"restart_gateway\": 2}", "there is no gateway 2");
  says("{\"at_s\": 1, \"return\": 2}", "node 2 is up then");
  says("{\"at_s\": 1, \"kill\": 2}\n{\"at_s\": 2, \"kill\": 2}",
       "f:2: fault 'kill' at 2 s: node 2 is down then");
  says("{\"at_s\": 9, \"kill\": 7}\n{\"at_s\": 2, \"kill\": 2}", "f:1: fault 'kill' at 9 s: there is no");
  const auto joined = parse_faults("{\"at_s\": 1, \"join\": 2}\n{\"at_s\": 2, \"kill\": 5}", "f");
  EXPECT_TRUE(check_faults(*joined, 4, 1).ok());
}

TEST(Faults, DrainingNodeTakesNoOtherFaultUntilItsEnd) {
  const auto checked = [](std::string_view then) {
    const auto faults = parse_faults("{\"at_s\": 5, \"drain\": 2, \"for_s\": 10}\n" + std::string(then), "f");
    EXPECT_TRUE(faults.ok()) << faults.status();
    return std::string(check_faults(*faults, 4, 1).message());
  };
  EXPECT_EQ(checked("{\"at_s\": 15.1, \"return\": 2}"), "");
  EXPECT_THAT(checked("{\"at_s\": 15, \"return\": 2}"),
              ::testing::HasSubstr("f:2: fault 'return' at 15 s: node 2 may be draining until 15 s"));
  EXPECT_THAT(checked("{\"at_s\": 8, \"kill\": 2}"), ::testing::HasSubstr("node 2 is down then"));
  EXPECT_THAT(std::string(parse_faults("{\"at_s\": 1, \"drain\": 1}", "f").status().message()),
              ::testing::HasSubstr("'for_s': is missing"));
}

}  // namespace
}  // namespace troupe::sim
