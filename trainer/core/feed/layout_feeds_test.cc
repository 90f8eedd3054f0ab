// In which order streams are closed and opened at a switch of layouts, with feeds that note what
// is called.
#include "trainer/core/feed/layout_feeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace forebay::train {
namespace {

using ::testing::ElementsAre;

using Events = std::vector<std::string>;

class LoggedFeed final : public Feed {
 public:
  LoggedFeed(std::string name, Events& events) : name_(std::move(name)), events_(events) {}
  ~LoggedFeed() override { events_.push_back("drop " + name_); }

  Result<std::unique_ptr<FeedBatch>> Next() override { return std::unique_ptr<FeedBatch>(); }
  std::uint64_t steps_per_epoch() const override { return 4; }
  std::uint64_t sample_count() const override { return 32; }
  std::uint64_t global_batch() const override { return 8; }
  Status Finish() override {
    events_.push_back("finish " + name_);
    return status;
  }

  Status status;

 private:
  std::string name_;
  Events& events_;
};

class LoggedSource final : public FeedSource {
 public:
  explicit LoggedSource(Events& events) : events_(events) {}

  Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare&, const FeedPosition&,
                                             std::uint32_t) override {
    return Open("training");
  }
  Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare&, std::uint32_t) override {
    return Open("validation");
  }

  std::uint32_t ReadAhead() const override { return ahead; }

  Status end_of_feeds;
  std::uint32_t ahead = 0;

 private:
  std::unique_ptr<Feed> Open(const std::string& name) {
    events_.push_back("open " + name);
    auto feed = std::make_unique<LoggedFeed>(name, events_);
    feed->status = end_of_feeds;
    return feed;
  }

  Events& events_;
};

FeedRequest Request() {
  return {.layout = {}, .from = {}, .training_epochs = 1, .evaluations = 1};
}

TEST(LayoutFeeds, OpenFinishesWhatIsOpenFirst) {
  Events events;
  LoggedSource source(events);
  Communicator alone = Communicator::Alone();
  LayoutFeeds feeds(source, alone);
  ASSERT_TRUE(feeds.Open(Request()).has_value());
  EXPECT_THAT(std::exchange(events, {}), ElementsAre("open training", "open validation"));
  ASSERT_TRUE(feeds.Open(Request()).has_value());
  EXPECT_THAT(events,
              ElementsAre("finish training", "drop training", "finish validation",
                          "drop validation", "open training", "open validation"));
}

// Its thread has ended before the feed is finished and dropped.
TEST(LayoutFeeds, AFeedThatIsReadAheadIsFinishedLikeAnother) {
  Events events;
  LoggedSource source(events);
  source.ahead = 2;
  Communicator alone = Communicator::Alone();
  LayoutFeeds feeds(source, alone);
  ASSERT_TRUE(feeds.Open(Request()).has_value());
  const auto next = feeds.NextTraining(0, 0);
  ASSERT_FALSE(next.has_value()) << "the feed has no batch";
  EXPECT_EQ(next.error().code(), ErrorCode::kDataLoss);
  events.clear();
  ASSERT_TRUE(feeds.Open(Request()).has_value());
  EXPECT_THAT(events,
              ElementsAre("finish training", "drop training", "finish validation",
                          "drop validation", "open training", "open validation"));
}

TEST(LayoutFeeds, AFeedThatDoesNotEndWellStopsTheSwitch) {
  Events events;
  LoggedSource source(events);
  source.end_of_feeds = Error(ErrorCode::kDataLoss, "another checksum");
  Communicator alone = Communicator::Alone();
  LayoutFeeds feeds(source, alone);
  ASSERT_TRUE(feeds.Open(Request()).has_value());
  events.clear();
  const Status opened = feeds.Open(Request());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(events, ElementsAre("finish training"));
}

}  // namespace
}  // namespace forebay::train
