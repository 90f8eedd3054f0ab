// Evictions become one log line a minute for each data set, tier and cause, and none is lost.
#include "server/daemon/eviction_summary.h"

#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/manual_clock.h"

namespace forebay::daemon {
namespace {

using tier::EvictionCause;
using tier::TierKind;

constexpr std::int64_t kSecondNs = 1'000'000'000;

class EvictionSummaryTest : public ::testing::Test {
 protected:
  EvictionSummaryTest() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(logger);
  }
  ~EvictionSummaryTest() override { spdlog::set_default_logger(before_); }

  // What was logged since the last call.
  std::string Logged() {
    std::string text = text_.str();
    text_.str("");
    return text;
  }

  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
  io::ManualClock clock_;
  tier::EvictionLedger ledger_;
  EvictionSummary summary_{ledger_, clock_, [](std::uint64_t dataset) {
                             return dataset == 1 ? std::string("train") : std::string();
                           }};
};

TEST_F(EvictionSummaryTest, AMinuteOfThrashingIsOneLinePerDataSetTierAndCause) {
  for (int second = 0; second < 59; ++second) {
    for (int i = 0; i < 1000; ++i) {
      ledger_.Count({.dataset = 1, .tier = TierKind::kRam, .cause = EvictionCause::kRoom}, i < 10);
    }
    clock_.AdvanceNs(kSecondNs);
    summary_.Tick();
    EXPECT_EQ(Logged(), "");
  }
  ledger_.Count({.dataset = 1, .tier = TierKind::kSsd, .cause = EvictionCause::kAsked}, true);
  ledger_.Count({.dataset = 1, .tier = TierKind::kSsd, .cause = EvictionCause::kDamaged}, false);
  ledger_.Count({.dataset = 0xAB, .tier = TierKind::kSsd, .cause = EvictionCause::kRoom}, true);
  clock_.AdvanceNs(kSecondNs);
  summary_.Tick();
  EXPECT_EQ(Logged(),
            "info data set 'train': 59000 extents left tier ram within 60 s to make space for "
            "others; 590 of them are now on no tier\n"
            "info data set 'train': 1 extents left tier ssd within 60 s because of 'forebay "
            "evict', a rebuild or a failed pass; 1 of them are now on no tier\n"
            "warning data set 'train': 1 extents left tier ssd within 60 s because they did not "
            "match their checksums; 0 of them are now on no tier\n"
            "info data set '(not configured: 00000000000000ab)': 1 extents left tier ssd within "
            "60 s to make space for others; 1 of them are now on no tier\n");
}

TEST_F(EvictionSummaryTest, QuietMinutesSayNothingAndDoNotCount) {
  for (int minute = 0; minute < 3; ++minute) {
    clock_.AdvanceNs(60 * kSecondNs);
    summary_.Tick();
  }
  ledger_.Count({.dataset = 1, .tier = TierKind::kRam, .cause = EvictionCause::kRoom}, false);
  clock_.AdvanceNs(60 * kSecondNs);
  summary_.Tick();
  EXPECT_THAT(Logged(), ::testing::HasSubstr("within 60 s")) << "not since the start";
}

TEST_F(EvictionSummaryTest, TheEndDoesNotWaitForTheMinute) {
  ledger_.Count({.dataset = 1, .tier = TierKind::kRam, .cause = EvictionCause::kRoom}, false);
  clock_.AdvanceNs(7 * kSecondNs);
  summary_.Tick();
  EXPECT_EQ(Logged(), "");
  summary_.Log();
  EXPECT_THAT(Logged(), ::testing::HasSubstr("1 extents left tier ram within 7 s"));
  summary_.Log();
  EXPECT_EQ(Logged(), "") << "said once";
}

}  // namespace
}  // namespace forebay::daemon
