// ForebayFeed: the feed over libforebay. It is the only part of the trainer that knows the client.
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

// Opens streams of one connection. Payload is not copied: the tensors of a FeedBatch point into the
// memory that is shared with the daemon.
class ForebaySource final : public FeedSource {
 public:
  // Connects to the daemon, or starts a private one if there is no address. `rank` is this rank's
  // number in the job, which names the client and the delivery log.
  static Result<std::unique_ptr<ForebaySource>> Connect(const TrainConfig& config,
                                                        std::uint32_t rank);

  // Returns what the daemon knows of the training set. Blocks until the daemon has the catalog.
  // kInvalidArgument for a field that does not exist, naming those that do, and for inputs that
  // differ in size.
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
// input first, then the target at `target_offset`. Either may be absent.
struct FeedTransform {
  std::string input_field;
  std::string target_field;
  std::optional<Augmentation> input;
  std::optional<Augmentation> target;
  std::uint64_t target_offset = 0;
  std::uint64_t sample_bytes = 0;

  bool any() const { return input || target; }
};

// kInvalidArgument if the configuration does not fit the data set's fields.
Result<FeedTransform> MakeFeedTransform(const TrainConfig& config, const FeedShare& share,
                                        std::span<const FieldSpec> fields,
                                        Augmentation::Use use);

// Finds the fields that the configuration names, and returns the facts of their samples after
// augmentation. Separate from Describe so that it can be tested without a daemon.
Result<SampleFacts> FactsOf(const TrainConfig& config, const DatasetInfo& info);

// The options of the training stream at `from`. kFailedPrecondition if the token does not belong to
// that position. Separate from Connect so that it can be tested without a daemon.
Result<StreamOptions> TrainingStreamOptions(const TrainConfig& config, const FeedPosition& from);
Result<StreamOptions> ValidationStreamOptions(const TrainConfig& config, std::uint32_t replicas);

}  // namespace forebay::train
