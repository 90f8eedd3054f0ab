// A rank opens the streams that its stage needs, and no stage opens more than that. Ranks without a
// stream get batches without bytes, whose counts follow from the layout, so that the loop is the
// same on all ranks. What the daemon tells a rank with a stream (steps, samples) is shared with the
// others.
#include "trainer/core/feed/layout_feeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::train {
namespace {

// Its length travels in a byte.
constexpr std::size_t kTokenBytesMax = std::min<std::size_t>(limits::kPositionTokenBytesMax, 255);

// What all ranks have to agree on about a feed.
FeedExtent ExtentOf(const Feed& feed) {
  return {.steps = feed.steps_per_epoch(),
          .samples = feed.sample_count(),
          .global_batch = feed.global_batch()};
}

// Ranks on different nodes may talk to different daemons: a data set that differs between them is
// found here, before a step is trained.
Status CheckExtent(const char* name, const Feed* feed, const FeedExtent& leaders) {
  if (feed == nullptr) return {};
  const FeedExtent own = ExtentOf(*feed);
  if (own.steps == leaders.steps && own.samples == leaders.samples &&
      own.global_batch == leaders.global_batch) {
    return {};
  }
  return Error(ErrorCode::kDataLoss,
               fmt::format("the {} set has {} samples in {} steps here, {} in {} on rank 0", name,
                           own.samples, own.steps, leaders.samples, leaders.steps));
}

}  // namespace

// The first stage of a replica needs inputs, the last one targets. A single stage needs both.
FeedShare ShareOf(const Layout& layout, std::uint32_t rank) {
  const std::uint32_t stage = layout.StageOf(rank);
  return {.replica = layout.ReplicaOf(rank),
          .replicas = layout.replicas,
          .input = stage == 0,
          .target = stage + 1 == layout.stages};
}

// Closes the streams of the layout before, waits until all ranks have done so, and opens those of
// the new one at rank 0's token.
Status LayoutFeeds::Open(const FeedRequest& request) {
  FOREBAY_TRY(FinishOpen());
  request_ = request;
  evaluations_ = 0;
  // No rank opens its part of a stream before all have left the one of the last layout.
  FOREBAY_TRY(communicator_.Barrier());
  FOREBAY_TRY(AgreeOnToken());
  // What this rank's stage and replica need.
  const FeedShare share = ShareOf(request.layout, communicator_.rank());
  if (trains() && share.any()) {
    FOREBAY_ASSIGN(training_,
                   source_.OpenTraining(share, request_.from, request_.training_epochs));
    if (const std::uint32_t depth = source_.ReadAhead(); depth > 0) {
      training_ = std::make_unique<AheadFeed>(std::move(training_), depth, prepare_);
    }
  }
  if (evaluates() && share.any()) {
    FOREBAY_ASSIGN(validation_, source_.OpenValidation(share, request_.evaluations));
  }
  return AgreeOnExtents();
}

// A stream that was only dropped keeps its place at the daemon until that hears of it.
Status LayoutFeeds::FinishOpen() {
  for (std::unique_ptr<Feed>* const feed : {&training_, &validation_}) {
    if (*feed != nullptr) FOREBAY_TRY((*feed)->Finish());
    feed->reset();
  }
  return {};
}

// A rank that had no stream has no token; all go on from rank 0's.
Status LayoutFeeds::AgreeOnToken() {
  if (communicator_.size() == 1) return {};
  std::array<std::byte, kTokenBytesMax + 1> message = {};
  std::vector<std::byte>& token = request_.from.token;
  if (communicator_.rank() == 0) {
    if (token.size() > kTokenBytesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("a position token of {} bytes; {} are allowed", token.size(),
                               kTokenBytesMax));
    }
    message[0] = static_cast<std::byte>(token.size());
    std::ranges::copy(token, message.begin() + 1);
  }
  FOREBAY_TRY(communicator_.Broadcast(message, 0));
  const auto size = std::to_integer<std::ptrdiff_t>(message[0]);
  token.assign(message.begin() + 1, message.begin() + 1 + size);
  return {};
}

// Ranks without a stream learn from rank 0 how many steps there are. Ranks with one check that
// theirs agrees.
Status LayoutFeeds::AgreeOnExtents() {
  std::array<FeedExtent, 2> extents;
  if (training_ != nullptr) extents[0] = ExtentOf(*training_);
  if (validation_ != nullptr) extents[1] = ExtentOf(*validation_);
  FOREBAY_TRY(communicator_.Broadcast(std::as_writable_bytes(std::span(extents)), 0));
  training_extent_ = extents[0];
  validation_extent_ = extents[1];
  FOREBAY_TRY(CheckExtent("training", training_.get(), training_extent_));
  return CheckExtent("validation", validation_.get(), validation_extent_);
}

// Checks that the batch is the one that is due, whatever the feed says.
Result<std::unique_ptr<FeedBatch>> LayoutFeeds::NextTraining(std::uint32_t epoch,
                                                             std::uint64_t step) {
  // Every replica's share of a training step is the same.
  const std::uint64_t due = training_extent_.global_batch / request_.layout.replicas;
  if (training_ == nullptr) {
    auto none = std::make_unique<FeedBatch>();
    none->epoch = epoch;
    none->step = step;
    none->sample_count = static_cast<std::uint32_t>(due);
    none->step_samples = training_extent_.global_batch;
    return none;
  }
  FOREBAY_ASSIGN(std::unique_ptr<FeedBatch> next, training_->Next());
  if (next == nullptr) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the training feed ended before epoch {} step {}", epoch, step));
  }
  if (next->epoch != epoch || next->step != step) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the feed delivered epoch {} step {}, due was epoch {} step {}",
                             next->epoch, next->step, epoch, step));
  }
  if (next->sample_count != due) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("epoch {} step {} has {} samples for this rank, due were {}", epoch,
                             step, next->sample_count, due));
  }
  next->step_samples = training_extent_.global_batch;
  return next;
}

// The last step may be short, so shares of replicas differ by one sample.
Result<std::unique_ptr<FeedBatch>> LayoutFeeds::NextValidation(std::uint64_t step) {
  const std::uint32_t epoch = evaluations_;
  const std::uint64_t step_samples =
      std::min(validation_extent_.global_batch,
               validation_extent_.samples - step * validation_extent_.global_batch);
  // The next call belongs to the next evaluation, which is the next epoch of the feed.
  if (step + 1 == validation_extent_.steps) ++evaluations_;
  std::unique_ptr<FeedBatch> next;
  if (validation_ == nullptr) {
    const FeedShare share = ShareOf(request_.layout, communicator_.rank());
    next = std::make_unique<FeedBatch>();
    next->epoch = epoch;
    next->step = step;
    next->sample_count =
        // As the daemon divides a short step among ranks.
        static_cast<std::uint32_t>(step_samples * (share.replica + 1) / share.replicas -
                                   step_samples * share.replica / share.replicas);
  } else {
    FOREBAY_ASSIGN(next, validation_->Next());
  }
  if (next == nullptr || next->epoch != epoch || next->step != step) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the validation feed lost its step {}", step));
  }
  next->step_samples = step_samples;
  next->evaluates = true;
  return next;
}

// A feed must be at its end: one more batch would mean that samples were missed.
Status LayoutFeeds::Finish() {
  for (Feed* const feed : {training_.get(), validation_.get()}) {
    if (feed == nullptr) continue;
    FOREBAY_ASSIGN(const std::unique_ptr<FeedBatch> beyond, feed->Next());
    if (beyond) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("the feed goes on beyond its last epoch: epoch {} step {}",
                               beyond->epoch, beyond->step));
    }
    FOREBAY_TRY(feed->Finish());
  }
  return {};
}

}  // namespace forebay::train
