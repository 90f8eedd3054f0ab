// Every registered format is described completely, so that no caller needs to check a driver.
#include "server/catalog/format_driver.h"

#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::catalog {
namespace {

using ::testing::HasSubstr;

TEST(FormatDriverTest, EachIsFoundByItsNumberAndByItsName) {
  std::set<std::string_view> names;
  for (const FormatDriver* driver : FormatDrivers()) {
    EXPECT_TRUE(names.insert(driver->name).second) << driver->name << " is registered twice";
    EXPECT_EQ(FindDriver(driver->format), driver) << driver->name;
    EXPECT_EQ(FindDriver(driver->name), driver) << driver->name;
    EXPECT_EQ(FormatName(driver->format), driver->name);
  }
  EXPECT_EQ(FindDriver("cassette"), nullptr);
  EXPECT_EQ(FindDriver(static_cast<Format>(0)), nullptr);
  EXPECT_EQ(FormatName(static_cast<Format>(0)), "unknown");
}

TEST(FormatDriverTest, EachEitherBuildsFromMetadataOrScans) {
  for (const FormatDriver* driver : FormatDrivers()) {
    EXPECT_NE(driver->build == nullptr, driver->scan == nullptr) << driver->name;
    // Planning memory for a pass divides by it.
    EXPECT_EQ(driver->scan != nullptr, driver->scanned_sample_bytes > 0) << driver->name;
    EXPECT_EQ(ScannedSampleBytes(driver->format), driver->scanned_sample_bytes) << driver->name;
  }
}

TEST(FormatDriverTest, EachThatIsDetectedSaysByWhichFiles) {
  for (const FormatDriver* driver : FormatDrivers()) {
    EXPECT_EQ(driver->detect == nullptr, driver->signs.empty()) << driver->name;
    EXPECT_EQ(driver->is_own_image == nullptr, driver->open_image == nullptr) << driver->name;
  }
}

TEST(FormatDriverTest, EachKeyTakesShowsAndDocumentsItsValue) {
  for (const FormatDriver* driver : FormatDrivers()) {
    for (const FormatKey& key : driver->keys) {
      EXPECT_NE(key.take, nullptr) << driver->name << ' ' << key.name;
      EXPECT_NE(key.show, nullptr) << driver->name << ' ' << key.name;
      EXPECT_FALSE(key.default_text.empty() || key.help.empty()) << key.name;
      EXPECT_EQ(FindFormatKey(key.name, driver->format), &key);
      EXPECT_THAT(FormatKeyHelp(key.name), HasSubstr(std::string(key.help)));
    }
  }
  EXPECT_EQ(FindFormatKey("tempo", std::nullopt), nullptr);
}

TEST(FormatDriverTest, AListKeyShowsWhatConfigurationWouldWrite) {
  DatasetSource source;
  EXPECT_EQ(ShowPaths(source), "[]");
  const SettingValue paths(std::vector<SettingValue::Scalar>{std::string("a"), std::string("b")});
  ASSERT_TRUE(TakePaths(paths, source).has_value());
  EXPECT_EQ(ShowPaths(source), "[a, b]");
}

TEST(FormatDriverTest, AValueOfAnotherKindIsRefused) {
  using Scalar = SettingValue::Scalar;
  const SettingValue number(Scalar(std::int64_t{7}));
  const SettingValue negative(Scalar(std::int64_t{-7}));
  const SettingValue text(Scalar(std::string("7")));
  const SettingValue flag{Scalar(std::monostate())};
  const SettingValue mixed(std::vector<Scalar>{std::string("a"), std::int64_t{0}});
  EXPECT_FALSE(number.Text().has_value());
  EXPECT_FALSE(flag.Text().has_value());
  EXPECT_FALSE(text.Texts().has_value());
  EXPECT_FALSE(mixed.Texts().has_value());
  EXPECT_FALSE(text.Bytes().has_value());
  EXPECT_FALSE(negative.Bytes().has_value());
  EXPECT_FALSE(number.Dimensions().has_value());
  EXPECT_FALSE(mixed.Dimensions().has_value());
  EXPECT_EQ(*number.Bytes(), 7U);
}

}  // namespace
}  // namespace forebay::catalog
