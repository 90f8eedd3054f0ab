// Every registered format is described completely, so that no caller needs to check a driver.
#include "server/catalog/format_driver.h"

#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::catalog {
namespace {

using ::testing::ElementsAre;
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
    // Divided by when memory for a pass is planned.
    EXPECT_EQ(driver->scan != nullptr, driver->scanned_sample_bytes > 0) << driver->name;
    EXPECT_EQ(ScannedSampleBytes(driver->format), driver->scanned_sample_bytes) << driver->name;
  }
}

TEST(FormatDriverTest, EachThatIsDetectedSaysByWhichFiles) {
  for (const FormatDriver* driver : FormatDrivers()) {
    EXPECT_EQ(driver->detect == nullptr, driver->detected_by.empty()) << driver->name;
    EXPECT_EQ(driver->is_own_image == nullptr, driver->open_image == nullptr) << driver->name;
  }
}

TEST(FormatDriverTest, EachKeyChecksAndDocumentsItsValue) {
  for (const FormatDriver* driver : FormatDrivers()) {
    for (const FormatKey& key : driver->keys) {
      ASSERT_NE(key.check, nullptr) << driver->name << ' ' << key.name;
      EXPECT_FALSE(key.check(SettingValue(SettingValue::Scalar())).has_value()) << key.name;
      EXPECT_FALSE(key.default_text.empty() || key.help.empty()) << key.name;
      EXPECT_EQ(FindFormatKey(key.name, driver->format), &key);
      EXPECT_THAT(FormatKeyHelp(key.name), HasSubstr(std::string(key.help)));
    }
  }
  EXPECT_EQ(FindFormatKey("tempo", std::nullopt), nullptr);
}

TEST(FormatDriverTest, ASettingIsShownAsConfigurationWritesIt) {
  DatasetSource source;
  source.format = Format::kRaw;
  EXPECT_EQ(ShownSetting("dtype", source), "u8") << "the default";
  EXPECT_EQ(ShownSetting("files", source), "(found)");
  source.settings.SetTexts("files", {"x=a", "y=b"});
  source.settings.SetNumbers("shape", {28, 3});
  source.settings.SetNumber("header", 7);
  source.settings.SetText("dtype", "f32");
  EXPECT_EQ(ShownSetting("files", source), "[x=a, y=b]");
  EXPECT_EQ(ShownSetting("shape", source), "[28, 3]");
  EXPECT_EQ(ShownSetting("header", source), "7");
  EXPECT_EQ(ShownSetting("dtype", source), "f32");
  EXPECT_EQ(ShownSetting("tempo", source), "") << "no format has this key";
}

TEST(FormatDriverTest, ASettingIsReplacedClearedAndUnsetByAnEmptyList) {
  FormatSettings settings;
  EXPECT_EQ(settings.Find("files"), nullptr);
  settings.SetText("files", "a");
  settings.SetTexts("files", {"b", "c"});
  EXPECT_THAT(settings.Find("files")->Texts().value(), ElementsAre("b", "c"));
  settings.SetTexts("files", {});
  EXPECT_EQ(settings.Find("files"), nullptr);
  settings.SetText("files", "a");
  settings.Clear("files");
  settings.Clear("files");
  EXPECT_EQ(settings.Find("files"), nullptr);
}

// A new key without an `identify` function.
TEST(FormatDriverTest, DifferentSettingsAreToldApart) {
  using Scalar = SettingValue::Scalar;
  const SettingValue values[] = {
      SettingValue(Scalar(std::string("1"))), SettingValue(Scalar(std::int64_t{1})),
      SettingValue(std::vector<Scalar>{std::string("1")}),
      SettingValue(std::vector<Scalar>{std::string("a"), std::string("b")}),
      SettingValue(std::vector<Scalar>{std::string("a, b")})};
  std::set<std::vector<std::byte>> seen;
  for (const SettingValue& value : values) {
    DatasetSource source;
    source.settings.Set("tempo", value);
    ByteWriter writer;
    IdentifySetting("tempo", source, writer);
    EXPECT_TRUE(seen.emplace(writer.bytes().begin(), writer.bytes().end()).second)
        << value.Shown();
  }
  ByteWriter writer;
  IdentifySetting("tempo", DatasetSource(), writer);
  EXPECT_TRUE(writer.bytes().empty()) << "what is not set appends nothing";
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
