// ForebayFeed: the feed over libforebay. The only part of the trainer that knows the client.
#pragma once

#include <cstdint>
#include <memory>

#include "client/client.h"
#include "trainer/core/feed.h"
#include "trainer/core/train_config.h"

namespace forebay::train {

// Opens streams of one connection. Neither copies payload: FeedBatch's tensors point into the
// memory shared with the daemon.
class ForebaySource final : public FeedSource {
 public:
  // Connects to the daemon, or starts a private one where no address is given.
  // `rank` is the job's: it names the client and the delivery log.
  static Result<std::unique_ptr<ForebaySource>> Connect(const TrainConfig& config,
                                                        std::uint32_t rank);

  Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare& share, const FeedPosition& from,
                                             std::uint32_t epochs) override;
  Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare& share,
                                               std::uint32_t epochs) override;

 private:
  ForebaySource(const TrainConfig& config, std::uint32_t rank) : config_(config), rank_(rank) {}
  Result<std::unique_ptr<Feed>> Open(const FeedShare& share, StreamOptions options);

  TrainConfig config_;
  std::uint32_t rank_;
  std::shared_ptr<Client> client_;  // feeds keep it alive
};

// The training stream's options at `from`; apart from Connect so that it is testable without a
// daemon. kFailedPrecondition where the token does not belong to that place.
Result<StreamOptions> TrainingStreamOptions(const TrainConfig& config, const FeedPosition& from);
Result<StreamOptions> ValidationStreamOptions(const TrainConfig& config, std::uint32_t replicas);

}  // namespace forebay::train
