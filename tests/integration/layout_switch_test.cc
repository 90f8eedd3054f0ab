// The trainer's feeds over a real daemon while the layout switches: every switch opens the same
// streams with another number of ranks, in memory that has no room for two layouts' streams.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"
#include "trainer/comm/transport/local_transport.h"
#include "trainer/core/feed/forebay_feed.h"
#include "trainer/core/feed/layout_feeds.h"

namespace forebay::integration {
namespace {

using train::Communicator;
using train::FeedBatch;
using train::Layout;
using train::LayoutFeeds;

constexpr std::uint32_t kRanks = 2;
constexpr std::uint64_t kSwitches = 50;
constexpr std::uint32_t kBatch = 448;  // 1.75 MiB; the rig has 32 MiB of slots
constexpr std::uint64_t kSteps = 4096 / kBatch;
constexpr std::uint32_t kEpochs = kSwitches / kSteps + 1;

train::TrainConfig Config(const DaemonRig& rig) {
  train::TrainConfig config;
  config.data.address = "unix:" + rig.socket_path();
  config.data.train_dataset = config.data.validation_dataset = kDataset;
  config.data.input_field = config.data.target_field = "x";
  config.data.prefetch_depth = 3;
  config.train.global_batch = config.evaluation.evaluation_batch = kBatch;
  return config;
}

// One rank: a step on each layout, then the next one, with batches under way.
Status SwitchAndTrain(const train::TrainConfig& config, Communicator& communicator) {
  FOREBAY_ASSIGN(const auto source,
                 train::ForebaySource::Connect(config, communicator.rank()));
  LayoutFeeds feeds(*source, communicator);
  std::vector<std::byte> token;
  for (std::uint64_t at = 0; at < kSwitches; ++at) {
    const auto epoch = static_cast<std::uint32_t>(at / kSteps);
    const std::uint64_t step = at % kSteps;
    const Layout layout = at % 2 == 0 ? Layout{.replicas = 1, .stages = kRanks}
                                      : Layout{.replicas = kRanks, .stages = 1};
    const Status opened = feeds.Open({.layout = layout,
                                      .from = {epoch, step, token},
                                      .training_epochs = kEpochs - epoch,
                                      .evaluations = 1});
    if (!opened) return opened.error().WithContext("switch " + std::to_string(at));
    FOREBAY_ASSIGN(const std::unique_ptr<FeedBatch> batch, feeds.NextTraining(epoch, step));
    const auto encoded = batch->token.value().Encode();
    token.assign(encoded.begin(), encoded.end());
    FOREBAY_TRY(feeds.NextValidation(0));
  }
  return {};
}

TEST(LayoutSwitchTest, FiftySwitchesNeverFindTheStreamTaken) {
  const DaemonRig rig({.ssd = false});
  const auto daemon = rig.Start();
  const train::TrainConfig config = Config(rig);
  std::vector<std::unique_ptr<train::Transport>> ends = train::MakeLocalTransports(kRanks);
  std::vector<Status> outcomes(kRanks);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(std::move(ends[rank]));
      outcomes[rank] = SwitchAndTrain(config, communicator);
    });
  }
  threads.clear();
  for (const Status& outcome : outcomes) {
    EXPECT_TRUE(outcome.has_value()) << outcome.error().ToString();
  }
  RawClient client(rig.socket_path());
  EXPECT_TRUE(Eventually([&] { return client.Status().streams_size() == 0; }));
  EXPECT_EQ(client.Status().slot_bytes_used(), 0U);
}

}  // namespace
}  // namespace forebay::integration
