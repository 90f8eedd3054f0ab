// ForebayFeed: the feed over libforebay. The only part of the trainer that knows the client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forebay/client.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/feed/augmentation.h"
#include "trainer/core/feed/feed.h"

namespace forebay::train {

// Opens streams of one connection. Neither copies payload: FeedBatch's tensors point into the
// memory shared with the daemon.
class ForebaySource final : public FeedSource {
 public:
  // Connects to the daemon, or starts a private one where no address is given.
  // `rank` is the job's: it names the client and the delivery log.
  static Result<std::unique_ptr<ForebaySource>> Connect(const TrainConfig& config,
                                                        std::uint32_t rank);

  // What the daemon knows of the training set. Blocks until it has the catalog. kInvalidArgument
  // for a field that is not there, naming those that are, and for inputs that differ in size.
  Result<SampleFacts> Describe() const;

  Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare& share, const FeedPosition& from,
                                             std::uint32_t epochs) override;
  Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare& share,
                                               std::uint32_t epochs) override;
  // A delivery log is taken back to where the next stream begins (docs/delivery_log.md).
  // Of the credits, prefetch_depth + 1, two are for the batches of this step and the one before.
  std::uint32_t ReadAhead() const override;

 private:
  ForebaySource(const TrainConfig& config, std::uint32_t rank) : config_(config), rank_(rank) {}
  Result<std::vector<FieldSpec>> FieldsOf(const StreamOptions& of) const;
  Result<std::unique_ptr<Feed>> Open(const FeedShare& share, StreamOptions options,
                                     Augmentation::Use use);

  TrainConfig config_;
  std::uint32_t rank_;
  std::shared_ptr<Client> client_;  // feeds keep it alive
};

// What the transform hook of a rank's stream does, and where its results lie: of each sample the
// input's, then the target's, each behind its offset. Either may be absent.
struct FeedTransform {
  std::string input_field;
  std::string target_field;
  std::optional<Augmentation> input;
  std::optional<Augmentation> target;
  std::uint64_t target_offset = 0;
  std::uint64_t sample_bytes = 0;

  bool any() const { return input || target; }
};

// kInvalidArgument where the configuration does not fit the data set's fields.
Result<FeedTransform> MakeFeedTransform(const TrainConfig& config, const FeedShare& share,
                                        std::span<const FieldSpec> fields,
                                        Augmentation::Use use);

// The fields that the configuration names among those of the training set, augmented; apart from
// Describe so that it is testable without a daemon.
Result<SampleFacts> FactsOf(const TrainConfig& config, const DatasetInfo& info);

// The training stream's options at `from`; apart from Connect so that it is testable without a
// daemon. kFailedPrecondition where the token does not belong to that place.
Result<StreamOptions> TrainingStreamOptions(const TrainConfig& config, const FeedPosition& from);
Result<StreamOptions> ValidationStreamOptions(const TrainConfig& config, std::uint32_t replicas);

}  // namespace forebay::train
