// The order in which a stream needs extents, against a walk through its order.
#include "server/stream/upcoming_extents.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::upcoming_extents_test {

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kPerExtent = 65;  // samples
constexpr std::uint64_t kSamples = 20 * kPerExtent - 11;
constexpr std::uint64_t kBatch = 13;

class UpcomingExtentsTest : public ::testing::Test {
 protected:
  UpcomingExtentsTest() {
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
    Serve({});
  }
  void Serve(const ServeOptions& options) {
    auto made = ServeFixture::Create(backend_, kRecordBytes, options);
    ASSERT_TRUE(made.has_value());
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
  }
  void Start(const ServeFixture::Ask& ask) {
    auto spec = ResolveStream(serve_->dataset(), *serve_->Request(ask));
    ASSERT_TRUE(spec.has_value()) << spec.error().ToString();
    spec_ = std::make_shared<const StreamSpec>(std::move(*spec));
    upcoming_ = std::make_unique<UpcomingExtents>(spec_);
  }
  // Block mode: runs of half an extent, so that most extents are in two windows.
  static ServeFixture::Ask Block() {
    return {.batch = kBatch, .mode = OrderMode::kBlock, .block_samples = 32, .window_runs = 6};
  }
  static constexpr std::uint64_t kWindow = 32 * 6;

  static StreamPlace At(std::uint32_t epoch, std::uint64_t position) {
    return {.epoch = EpochId(epoch), .position = position};
  }
  std::vector<std::uint32_t> TakeAll(const StreamPlace& reader) {
    std::vector<std::uint32_t> taken;
    while (const auto extent = upcoming_->Take(reader)) taken.push_back(extent->value());
    return taken;
  }
  // The extents of the samples at [begin, end), with the first position of each.
  std::map<std::uint32_t, std::uint64_t> Walked(std::uint32_t epoch, std::uint64_t begin,
                                                std::uint64_t end) const {
    const Order order(spec_->order, EpochId(epoch));
    std::map<std::uint32_t, std::uint64_t> first;
    for (std::uint64_t at = begin; at < std::min(end, spec_->plan.sample_count()); ++at) {
      first.try_emplace(static_cast<std::uint32_t>(order.Forward(Position(at)) / kPerExtent), at);
    }
    return first;
  }
  static std::set<std::uint32_t> Set(const std::vector<std::uint32_t>& extents) {
    return {extents.begin(), extents.end()};
  }
  static std::set<std::uint32_t> Set(const std::map<std::uint32_t, std::uint64_t>& extents) {
    std::set<std::uint32_t> set;
    for (const auto& [extent, position] : extents) set.insert(extent);
    return set;
  }

  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
  std::shared_ptr<const StreamSpec> spec_;
  std::unique_ptr<UpcomingExtents> upcoming_;
};

TEST_F(UpcomingExtentsTest, AStreamThatBeginsNeedsItsFirstWindowInTheOrderOfNeed) {
  Start(Block());
  const std::vector<std::uint32_t> taken = TakeAll(At(0, 0));
  const auto walked = Walked(0, 0, kWindow);
  EXPECT_EQ(Set(taken), Set(walked));
  EXPECT_EQ(taken.size(), walked.size()) << "each once";
  // Extents have more samples than are looked at, so the first position of an extent may be later
  // than it seems, by a few samples of the window.
  for (std::size_t i = 1; i < taken.size(); ++i) {
    EXPECT_LE(walked.at(taken[i - 1]), walked.at(taken[i]) + kBatch) << "place " << i;
  }
}

TEST_F(UpcomingExtentsTest, EachWindowIsUpcomingOnceTheReaderHasReadAQuarterOfTheOneBefore) {
  ServeFixture::Ask ask = Block();
  ask.selection = "range:0:1280";  // no short run, so that all windows have one length
  Start(ask);
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(Set(TakeAll(At(epoch, 0))), Set(Walked(epoch, 0, kWindow)));
    std::uint64_t window = 0;
    for (std::uint64_t position = 0; position < 1280; position += kBatch) {
      const std::vector<std::uint32_t> taken = TakeAll(At(epoch, position));
      const StreamPlace again = upcoming_->look_again_at();
      EXPECT_GT(again, At(epoch, position));
      const std::uint64_t next = std::min<std::uint64_t>((position + kWindow / 4 * 3) / kWindow,
                                                         1280 / kWindow);
      if (next == window) {
        EXPECT_TRUE(taken.empty()) << "position " << position;
        continue;
      }
      window = next;
      const auto walked = Walked(epoch, window * kWindow, (window + 1) * kWindow);
      EXPECT_EQ(Set(taken), Set(walked)) << "epoch " << epoch << ", window " << window;
    }
    EXPECT_EQ(upcoming_->look_again_at(), At(epoch + 1, 0)) << "whether there is one is not known";
  }
}

TEST_F(UpcomingExtentsTest, TheFirstWindowOfTheNextEpochComesBeforeTheEpochIfItWillBeRead) {
  ServeFixture::Ask ask = Block();
  ask.selection = "range:0:1280";  // no short run
  ask.end_epoch = 3;
  Start(ask);
  static_cast<void>(TakeAll(At(0, 0)));
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    const std::uint64_t near = 1280 - kWindow / 4 * 3;
    for (std::uint64_t position = kBatch; position < near; position += kBatch) {
      const auto next = Walked(epoch, position, position + 2 * kWindow);
      for (const std::uint32_t extent : TakeAll(At(epoch, position))) {
        EXPECT_TRUE(next.contains(extent)) << "epoch " << epoch << ", position " << position;
      }
    }
    EXPECT_TRUE(TakeAll(At(epoch, near - 1)).empty());
    if (epoch == 2) {
      EXPECT_EQ(upcoming_->look_again_at(), At(3, 0)) << "the reader has said that it ends here";
      EXPECT_TRUE(TakeAll(At(epoch, near)).empty());
      break;
    }
    EXPECT_EQ(upcoming_->look_again_at(), At(epoch, near));
    EXPECT_EQ(Set(TakeAll(At(epoch, near))), Set(Walked(epoch + 1, 0, kWindow)));
    EXPECT_EQ(upcoming_->look_again_at(), At(epoch + 1, kWindow / 4));
    EXPECT_TRUE(TakeAll(At(epoch, 1280)).empty());
    EXPECT_TRUE(TakeAll(At(epoch + 1, 0)).empty()) << "they were taken in the epoch before";
  }
  // A reader that reads on nevertheless is followed.
  EXPECT_EQ(Set(TakeAll(At(3, 0))), Set(Walked(3, 0, kWindow)));
}

// The reader is near the end of epoch 0, of which all was taken. The first window of epoch 1 has
// just been taken, too.
class NextEpochTest : public UpcomingExtentsTest {
 protected:
  NextEpochTest() {
    ServeFixture::Ask ask = Block();
    ask.end_epoch = 2;
    Start(ask);
    for (std::uint64_t position = 0; position < kSamples - kWindow; position += kBatch) {
      static_cast<void>(TakeAll(At(0, position)));
    }
    reader_ = upcoming_->look_again_at();
    EXPECT_EQ(reader_.epoch, EpochId(0));
    taken_ = Set(TakeAll(reader_));
    EXPECT_EQ(taken_, Set(Walked(1, 0, kWindow)));
    // These are the extents that epoch 0 still needs when a refused extent is looked at again.
    left_ = Set(Walked(0, reader_.position + kWindow / 16, kSamples));
    EXPECT_FALSE(left_.empty());
  }
  // Returns what is taken after the refusal of this extent.
  std::vector<std::uint32_t> Refuse(std::uint32_t extent) {
    upcoming_->PutBack(ExtentId(extent), reader_);
    EXPECT_TRUE(TakeAll(reader_).empty());
    EXPECT_EQ(upcoming_->look_again_at(), At(0, reader_.position + kWindow / 16));
    return TakeAll(upcoming_->look_again_at());
  }

  StreamPlace reader_;
  std::set<std::uint32_t> taken_, left_;
};

TEST_F(NextEpochTest, WhatWasRefusedForItComesAgain) {
  const auto refused = std::ranges::find_if(
      taken_, [&](std::uint32_t extent) { return !left_.contains(extent); });
  ASSERT_NE(refused, taken_.end());
  EXPECT_EQ(Refuse(*refused), std::vector<std::uint32_t>{*refused});
}

// Another thread may have begun to look at epoch 1 when the refusal comes.
TEST_F(NextEpochTest, WhatWasRefusedForTheEpochBeforeComesAgainBeforeIt) {
  const std::vector<std::uint32_t> again = Refuse(*left_.begin());
  ASSERT_GE(again.size(), left_.size());
  const auto end = again.begin() + static_cast<std::ptrdiff_t>(left_.size());
  EXPECT_EQ(std::set<std::uint32_t>(again.begin(), end), left_);
}

// A data set with few extents has a "window" that is longer than an epoch.
TEST_F(UpcomingExtentsTest, ThePlaceToLookAgainIsNeverBehindTheReader) {
  for (const OrderMode mode : {OrderMode::kSequential, OrderMode::kBlock, OrderMode::kGlobal}) {
    for (const std::uint64_t extents : {1U, 2U, 4U, 7U}) {
      for (const std::uint32_t end_epoch : {0U, 1U, 2U, 5U}) {
        ServeFixture::Ask ask = Block();
        ask.mode = mode;
        ask.selection = "range:0:" + std::to_string(extents * kPerExtent);
        ask.end_epoch = end_epoch;
        Start(ask);
        std::map<std::uint32_t, std::set<std::uint32_t>> taken;  // by the reader's epoch
        for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
          for (std::uint64_t position = 0; position <= extents * kPerExtent; position += kBatch) {
            taken[epoch].merge(Set(TakeAll(At(epoch, position))));
            ASSERT_GT(upcoming_->look_again_at(), At(epoch, position))
                << extents << " extents until epoch " << end_epoch;
          }
        }
        if (mode == OrderMode::kGlobal) continue;
        // An epoch may have been taken while the reader was in the one before it.
        EXPECT_EQ(taken[0].size(), extents);
        taken[2].merge(taken[3]);
        EXPECT_EQ(taken[2].size(), extents);
      }
    }
  }
}

TEST_F(UpcomingExtentsTest, AReaderThatLeavesAnEpochEarlyIsFollowedToWhereItGoes) {
  ServeFixture::Ask ask = Block();
  ask.end_epoch = 9;
  Start(ask);
  EXPECT_FALSE(TakeAll(At(0, kSamples)).empty()) << "what epoch 1 begins with";
  EXPECT_EQ(Set(TakeAll(At(4, 0))), Set(Walked(4, 0, kWindow)));
  EXPECT_EQ(Set(TakeAll(At(1, 0))), Set(Walked(1, 0, kWindow))) << "back to an earlier one";
}

// A short run shifts the windows behind it, which is not looked at.
TEST_F(UpcomingExtentsTest, WhatAPositionNeedsWasTakenBeforeTheReaderIsThere) {
  for (const std::uint32_t end_epoch : {0U, 5U}) {
    ServeFixture::Ask ask = Block();
    ask.end_epoch = end_epoch;
    Start(ask);
    std::map<std::uint32_t, std::uint64_t> taken;  // the last time, counted from the first epoch
    for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
      const std::uint64_t passed = epoch * kSamples;
      for (std::uint64_t position = 0; position < kSamples; position += kBatch) {
        for (const std::uint32_t extent : TakeAll(At(epoch, position))) {
          taken[extent] = passed + position;
        }
        for (const auto& [extent, at] : Walked(epoch, position, position + kBatch)) {
          ASSERT_TRUE(taken.contains(extent)) << "position " << at;
          EXPECT_GE(taken[extent] + 2 * kWindow, passed + at) << "too long ago to be there still";
        }
      }
    }
  }
}

TEST_F(UpcomingExtentsTest, NothingComesBeforeThePlaceToLookAgain) {
  Start(Block());
  EXPECT_FALSE(TakeAll(At(0, 0)).empty());
  StreamPlace again = upcoming_->look_again_at();
  while (again.epoch == EpochId(0)) {
    EXPECT_TRUE(TakeAll(At(0, again.position - 1)).empty());
    EXPECT_FALSE(TakeAll(again).empty()) << "position " << again.position;
    again = upcoming_->look_again_at();
  }
}

TEST_F(UpcomingExtentsTest, WhatWasRefusedComesAgainFirstWhenTheReaderHasReadOn) {
  Start(Block());
  const std::vector<std::uint32_t> all = TakeAll(At(0, 0));
  Start(Block());
  ASSERT_EQ(upcoming_->Take(At(0, 0))->value(), all[0]);
  ASSERT_EQ(upcoming_->Take(At(0, 0))->value(), all[1]);
  upcoming_->PutBack(ExtentId(all[1]), At(0, 0));
  EXPECT_TRUE(TakeAll(At(0, 0)).empty());
  EXPECT_EQ(upcoming_->look_again_at(), At(0, kWindow / 16));
  // Take returns the refused extent and all that are left of the window.
  std::vector<std::uint32_t> rest = TakeAll(At(0, kWindow / 16));
  EXPECT_EQ(Set(rest), std::set<std::uint32_t>(all.begin() + 1, all.end()));
  EXPECT_EQ(rest.size(), all.size() - 1) << "each once";
  // Refusals leave no second entry for later windows.
  std::size_t later = 0;
  for (std::uint64_t position = 0; position < kSamples; position += kBatch) {
    later += TakeAll(At(0, position)).size();
  }
  Start(Block());
  std::size_t without = 0;
  static_cast<void>(TakeAll(At(0, 0)));
  for (std::uint64_t position = 0; position < kSamples; position += kBatch) {
    without += TakeAll(At(0, position)).size();
  }
  EXPECT_EQ(later, without);
}

TEST_F(UpcomingExtentsTest, AReaderThatResumesInTheMiddleNeedsNothingOfWhatIsBehindIt) {
  Start(Block());
  const std::uint64_t position = 3 * kWindow + 20;
  EXPECT_EQ(Set(TakeAll(At(1, position))), Set(Walked(1, position, 4 * kWindow)));
}

// As a program does that validates on one epoch again and again.
TEST_F(UpcomingExtentsTest, AReaderThatBeginsAnEpochAgainNeedsItsExtentsAgain) {
  Start(Block());
  const std::vector<std::uint32_t> begin = TakeAll(At(3, 0));
  ASSERT_FALSE(begin.empty());
  EXPECT_FALSE(TakeAll(At(3, 4 * kWindow)).empty());
  EXPECT_EQ(TakeAll(At(3, 0)), begin);
  EXPECT_FALSE(TakeAll(At(2, 5 * kWindow)).empty()) << "an earlier epoch";
  // Answers of one pull come in any order: that is no new beginning.
  EXPECT_TRUE(TakeAll(At(2, 5 * kWindow - kBatch)).empty());
}

TEST_F(UpcomingExtentsTest, AReaderThatJumpsAboutForEverIsNotFollowed) {
  Start(Block());
  for (std::uint32_t jump = 0; jump <= UpcomingExtents::kRestartsMax; ++jump) {
    EXPECT_FALSE(TakeAll(At(1, 0)).empty());
    EXPECT_FALSE(TakeAll(At(0, 0)).empty() && jump < UpcomingExtents::kRestartsMax);
  }
  EXPECT_TRUE(TakeAll(At(1, 0)).empty());
}

TEST_F(UpcomingExtentsTest, BehindTheLastEpochThatHasANumberThereIsNone) {
  for (const ServeFixture::Ask& ask : {Block(), ServeFixture::Ask{.batch = kBatch}}) {
    Start(ask);
    const std::uint32_t last = ~std::uint32_t{0};
    static_cast<void>(TakeAll(At(last, kSamples - 1)));
    EXPECT_GT(upcoming_->look_again_at(), At(last, kSamples));
  }
}

TEST_F(UpcomingExtentsTest, WhatTheReaderHasPassedIsNotRead) {
  Start({.batch = kBatch, .mode = OrderMode::kSequential});
  ASSERT_EQ(upcoming_->Take(At(0, 0)), ExtentId(0));
  ASSERT_EQ(upcoming_->Take(At(0, 0)), ExtentId(1));
  // The batches of extents 2 to 4 have come meanwhile.
  EXPECT_EQ(upcoming_->Take(At(0, 5 * kPerExtent)), ExtentId(5));
}

TEST_F(UpcomingExtentsTest, SequentialOrdersNeedTheNextFewExtents) {
  Start({.batch = kBatch, .mode = OrderMode::kSequential});
  const std::vector<std::uint32_t> begin = TakeAll(At(0, 0));
  ASSERT_GE(begin.size(), 4U);
  EXPECT_LT(begin.size(), 20U) << "not all of the data set";
  std::uint32_t next = 0;
  for (const std::uint32_t extent : begin) EXPECT_EQ(extent, next++);
  // An extent that is in two of the stretches that count as windows comes in both.
  for (std::uint64_t position = 0; position < kSamples; position += kBatch) {
    for (const std::uint32_t extent : TakeAll(At(0, position))) {
      EXPECT_TRUE(extent == next || extent + 1 == next) << "position " << position;
      next = std::max(next, extent + 1);
    }
  }
  EXPECT_EQ(next, 20U);
}

TEST_F(UpcomingExtentsTest, OrdersThatReadHereAndThereHaveNothingUpcoming) {
  Start({.batch = kBatch});
  EXPECT_TRUE(TakeAll(At(0, 0)).empty());
  EXPECT_EQ(upcoming_->look_again_at(), At(1, 0));
}

TEST_F(UpcomingExtentsTest, ExtentsOfOtherNodesAreLeftOut) {
  Serve({.ram_bytes = 5 << 16});  // most extents have no home
  Start(Block());
  const std::vector<std::uint32_t> all = TakeAll(At(0, 0));
  std::vector<bool> remote(20, false);
  std::set<std::uint32_t> left(all.begin(), all.end());
  // SetRemote leaves extents that have a home here local.
  for (const std::uint32_t extent : all) {
    if (serve_->dataset().home(ExtentId(extent)) != plan::HomeTier::kNone) continue;
    remote[extent] = true;
    left.erase(extent);
  }
  ASSERT_LT(left.size(), all.size() / 2);
  serve_->dataset().SetRemote(remote);
  Start(Block());
  EXPECT_EQ(Set(TakeAll(At(0, 0))), left);
}

TEST_F(UpcomingExtentsTest, ASelectionThatSkipsExtentsSkipsThemHere) {
  ServeFixture::Ask ask = Block();
  ask.selection = "range:130:260";  // extents 2 to 5
  Start(ask);
  std::set<std::uint32_t> all;
  for (std::uint64_t position = 0; position < 260; position += kBatch) {
    for (const std::uint32_t extent : TakeAll(At(0, position))) all.insert(extent);
  }
  EXPECT_EQ(all, (std::set<std::uint32_t>{2, 3, 4, 5}));
}

}  // namespace forebay::stream::upcoming_extents_test
