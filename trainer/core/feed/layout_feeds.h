// LayoutFeeds: the streams that this rank's place in a layout asks for. Inputs go to the first
// stage of each replica, targets to the last. Stages in between open no stream.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/feed/ahead_feed.h"
#include "trainer/core/feed/feed.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

FeedShare ShareOf(const Layout& layout, std::uint32_t rank);

// Which streams are opened, and at which position.
struct FeedRequest {
  Layout layout;
  FeedPosition from;                  // the token counts on rank 0 only
  std::uint32_t training_epochs = 0;  // from there on; 0: no training feed
  std::uint32_t evaluations = 0;      // 0: no validation feed
};

// Steps and samples of a data set, the same on every rank.
struct FeedExtent {
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint64_t global_batch = 0;
};

// Not thread-safe.
class LayoutFeeds {
 public:
  // Source and communicator outlive this object. If the source allows reading ahead, training
  // batches go through `prepare` before they are due.
  LayoutFeeds(FeedSource& source, Communicator& communicator, AheadFeed::Prepare prepare = {})
      : source_(source), communicator_(communicator), prepare_(std::move(prepare)) {}

  // Finishes the open streams, at any position, and opens what `request` asks for. Collective.
  Status Open(const FeedRequest& request);

  bool trains() const { return request_.training_epochs > 0; }
  bool evaluates() const { return request_.evaluations > 0; }
  const FeedExtent& training() const { return training_extent_; }
  const FeedExtent& validation() const { return validation_extent_; }

  // Returns the batch of the step that is due. kDataLoss if the feed has another step, or another
  // number of samples than this rank's share. Never null: a rank without a stream gets a batch
  // without bytes.
  Result<std::unique_ptr<FeedBatch>> NextTraining(std::uint32_t epoch, std::uint64_t step);
  // Returns the next batch of an evaluation. Evaluations are the epochs of the validation feed, in
  // order.
  Result<std::unique_ptr<FeedBatch>> NextValidation(std::uint64_t step);

  // kDataLoss if a feed continues beyond its last epoch.
  Status Finish();

 private:
  Status FinishOpen();
  Status AgreeOnToken();
  Status AgreeOnExtents();

  FeedSource& source_;
  Communicator& communicator_;
  const AheadFeed::Prepare prepare_;
  FeedRequest request_;
  std::unique_ptr<Feed> training_;
  std::unique_ptr<Feed> validation_;
  FeedExtent training_extent_;
  FeedExtent validation_extent_;
  std::uint32_t evaluations_ = 0;  // done since Open
};

}  // namespace forebay::train
