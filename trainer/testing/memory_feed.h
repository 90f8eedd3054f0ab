// MemorySource: feeds over sample sets in memory, in the published order, with real position
// tokens: what a daemon would deliver, without one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "proto/contract/ids.h"
#include "trainer/core/feed/feed.h"
#include "trainer/testing/sample_set.h"

namespace forebay::train::testing {

// Everything that a test may look at or break. Shared by all feeds of a source.
struct MemoryFeedProbe {
  std::vector<std::uint64_t> trained;    // sample ids handed out by training feeds
  std::vector<std::uint64_t> validated;  // sample ids handed out by validation feeds
  std::uint64_t finished = 0;            // feeds that were ended in order
  std::vector<FeedShare> opened;         // of training feeds
  // Faults of training feeds; `faults` counts those that came to pass.
  std::optional<std::uint64_t> fail_at_global_step;     // Next returns kUnavailable
  std::optional<std::uint64_t> skip_at_global_step;     // one step is left out
  std::optional<std::uint64_t> shrink_at_global_step;   // one sample is missing
  bool go_on_beyond_last_epoch = false;
  bool lose_validation_sample = false;
  std::uint64_t faults = 0;
};

struct MemorySourceOptions {
  std::uint32_t global_batch = 1;
  std::uint32_t validation_batch = 1;
  std::uint64_t seed = 0;
};

class MemorySource final : public FeedSource {
 public:
  // The sets and the probe outlive the source and its feeds.
  MemorySource(const MemorySourceOptions& options, const SampleSet& training,
               const SampleSet& validation, MemoryFeedProbe& probe)
      : options_(options), training_(training), validation_(validation), probe_(probe) {}

  Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare& share, const FeedPosition& from,
                                             std::uint32_t epochs) override;
  Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare& share,
                                               std::uint32_t epochs) override;

 private:
  MemorySourceOptions options_;
  const SampleSet& training_;
  const SampleSet& validation_;
  MemoryFeedProbe& probe_;
};

}  // namespace forebay::train::testing
