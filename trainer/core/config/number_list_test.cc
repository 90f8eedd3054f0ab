// Numbers and lists in texts of configuration keys: what is read, and what is refused.
#include "trainer/core/config/number_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace forebay::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(NumberList, SplitsAtSeparatorsAndTrimsSpaces) {
  EXPECT_THAT(SplitText("a; b c ;d", ';'), ElementsAre("a", "b c", "d"));
  EXPECT_THAT(SplitText("", ','), IsEmpty());
  EXPECT_THAT(SplitText("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(SplitText("a,", ','), ElementsAre("a", ""));
}

TEST(NumberList, ReadsNumbers) {
  EXPECT_THAT(ParseNumbers<std::int64_t>("3x224x224", 'x'), Optional(ElementsAre(3, 224, 224)));
  EXPECT_THAT(ParseNumbers<double>("0.5, -1e3", ','), Optional(ElementsAre(0.5, -1000.0)));
  EXPECT_THAT(ParseNumbers<std::uint32_t>("", ','), Optional(IsEmpty()));
}

TEST(NumberList, RefusesWhatIsNoNumber) {
  EXPECT_EQ(ParseNumbers<std::uint32_t>("1,,2", ','), std::nullopt);
  EXPECT_EQ(ParseNumbers<std::uint32_t>("1,2,", ','), std::nullopt);
  EXPECT_EQ(ParseNumbers<std::uint32_t>("1,x", ','), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint32_t>("12 apples"), std::nullopt);
  EXPECT_EQ(ParseNumber<double>(""), std::nullopt);
}

TEST(NumberList, RefusesWhatTheTypeCannotHold) {
  EXPECT_EQ(ParseNumber<std::uint32_t>("4294967296"), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint32_t>("-1"), std::nullopt);
  EXPECT_EQ(ParseNumber<std::uint32_t>("1.5"), std::nullopt);
}

}  // namespace
}  // namespace forebay::train
