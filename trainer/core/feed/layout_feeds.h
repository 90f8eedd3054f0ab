// LayoutFeeds: the streams that this rank's place in a layout asks for. Inputs go to the first
// stage of each replica, targets to the last; stages between open none.
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

// What is opened, and where.
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
  // Source and communicator outlive it. Of a source that may be read ahead, training batches go
  // through `prepare` before they are due.
  LayoutFeeds(FeedSource& source, Communicator& communicator, AheadFeed::Prepare prepare = {})
      : source_(source), communicator_(communicator), prepare_(std::move(prepare)) {}

  // Finishes what is open, wherever it stands, and opens what `request` asks for. Collective.
  Status Open(const FeedRequest& request);

  bool trains() const { return request_.training_epochs > 0; }
  bool evaluates() const { return request_.evaluations > 0; }
  const FeedExtent& training() const { return training_extent_; }
  const FeedExtent& validation() const { return validation_extent_; }

  // The step that is due. kDataLoss where the feed has another one, or not this rank's share of
  // it. Never null: a rank without a stream gets a batch without bytes.
  Result<std::unique_ptr<FeedBatch>> NextTraining(std::uint32_t epoch, std::uint64_t step);
  // Evaluations are the validation feed's epochs, in order.
  Result<std::unique_ptr<FeedBatch>> NextValidation(std::uint64_t step);

  // kDataLoss where a feed goes on beyond its last epoch.
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
