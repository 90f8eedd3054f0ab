// A client against a daemon from memory: the ways that end well, and their boundaries.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "client/testing/fake_dataset.h"
#include "proto/contract/limits.h"
#include "proto/contract/order.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::Connect;
using testing::FakeDaemon;
using testing::FakeDataset;
using testing::Open;

StreamOptions Options() {
  StreamOptions options = testing::FakeStream();
  options.seed = 7;
  return options;
}

std::string Concatenate(std::span<const std::span<const std::byte>> spans) {
  std::string text;
  for (const auto span : spans) {
    text.append(reinterpret_cast<const char*>(span.data()), span.size());
  }
  return text;
}

void ExpectContent(const Batch& batch, const FakeDaemon& daemon) {
  const std::uint64_t image_bytes = const_cast<FakeDaemon&>(daemon).dataset().image_bytes();
  std::vector<std::byte> images(batch.sample_count() * image_bytes);
  ASSERT_TRUE(batch.Gather(*batch.Field("image"), images).has_value());
  std::vector<float> weights(batch.sample_count());
  ASSERT_TRUE(batch.Gather(*batch.Field("weight"),
                           std::as_writable_bytes(std::span(weights))).has_value());
  const auto labels = batch.Constants(*batch.Field("label"));
  ASSERT_TRUE(labels.has_value());
  ASSERT_EQ(labels->size(), batch.sample_count());
  for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
    const std::uint64_t id = batch.sample_ids()[i].value();
    for (std::uint64_t b = 0; b < image_bytes; ++b) {
      ASSERT_EQ(images[i * image_bytes + b], FakeDataset::ImageByte(id, b)) << "sample " << id;
    }
    EXPECT_EQ(weights[i], FakeDataset::Weight(id));
    EXPECT_EQ((*labels)[i], FakeDataset::Label(id));
    const auto text = batch.Spans(*batch.Field("text"), i);
    EXPECT_EQ(Concatenate(text), FakeDataset::HasText(id) ? FakeDataset::Text(id) : "");
    if (!FakeDataset::HasText(id)) {
      EXPECT_TRUE(text.empty());
    } else {
      EXPECT_EQ(text.size(), id % 3 == 0 ? 2U : 1U);
    }
  }
}

// All sample ids of a stream in the order of delivery; contents are checked on the way.
std::vector<std::uint64_t> Drain(BatchStream& stream, const FakeDaemon& daemon) {
  std::vector<std::uint64_t> ids;
  for (;;) {
    auto batch = stream.Next();
    EXPECT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!batch || !*batch) return ids;
    ExpectContent(**batch, daemon);
    for (const SampleId id : (*batch)->sample_ids()) ids.push_back(id.value());
  }
}

std::vector<std::uint64_t> ExpectedIds(const BatchStream& stream, std::uint32_t first_epoch,
                                       std::uint32_t epochs, std::uint64_t count) {
  std::vector<std::uint64_t> ids;
  for (std::uint32_t e = first_epoch; e < first_epoch + epochs; ++e) {
    const Order order(stream.token().order, EpochId(e));
    for (std::uint64_t p = 0; p < count; ++p) ids.push_back(order.Forward(Position(p)));
  }
  return ids;
}

TEST(Stream, DeliversEveryEpochInOrderAsTensors) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.epochs = 3;
  auto stream = Open(*client, options);
  EXPECT_EQ(stream->selected_count(), 1000U);
  EXPECT_EQ(stream->steps_per_epoch(), 62U);
  EXPECT_EQ(stream->fields().size(), 4U);
  EXPECT_EQ(Drain(*stream, daemon), ExpectedIds(*stream, 0, 3, 62 * 16));
  EXPECT_TRUE(stream->Finish().has_value()) << stream->Finish().error().ToString();
  EXPECT_EQ(stream->stats().batches, 186U);
  EXPECT_EQ(stream->stats().samples, 186U * 16);
  EXPECT_GT(stream->stats().first_batch_ns, 0U);
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

TEST(Stream, TensorsHaveTheShapeOfTheField) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  auto batch = stream->Next();
  ASSERT_TRUE(batch && *batch);
  const auto image = (*batch)->Tensor("image");
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->shape, (std::vector<std::uint64_t>{16, 100}));
  EXPECT_EQ(image->dtype, Dtype::kU8);
  EXPECT_EQ(image->bytes, 1600U);
  const auto weight = (*batch)->Tensor("weight");
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->shape, std::vector<std::uint64_t>{16});
  EXPECT_EQ((*batch)->token().next_step, StepId(1));
  EXPECT_EQ((*batch)->first_position(), 0U);
}

TEST(Stream, ViewsPointIntoTheArenaWithoutACopy) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.delivery = Delivery::kViews;
  auto stream = Open(*client, options);
  EXPECT_EQ(Drain(*stream, daemon), ExpectedIds(*stream, 0, 1, 62 * 16));
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, InlinePayloadGivesTheSameBatches) {
  testing::FakeDaemonOptions large;
  large.image_bytes = 50'000;  // several chunks a batch
  large.samples = 64;
  large.slot_bytes = 16 * 50'004;
  FakeDaemon daemon(large);
  auto client = Connect(daemon, /*shared_memory=*/false);
  auto stream = Open(*client, Options());
  EXPECT_EQ(Drain(*stream, daemon), ExpectedIds(*stream, 0, 1, 64));
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, RepliesOutOfOrderAreHandedOutInOrder) {
  FakeDaemon daemon;
  daemon.faults.reverse_batches = true;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.prefetch_depth = 8;
  auto stream = Open(*client, options);
  EXPECT_EQ(Drain(*stream, daemon), ExpectedIds(*stream, 0, 1, 62 * 16));
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, PullsAndReleasesShareRequests) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.epochs = 10;
  options.prefetch_depth = 8;
  auto stream = Open(*client, options);
  Drain(*stream, daemon);
  ASSERT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(daemon.counters.batches, 620U);
  EXPECT_LT(daemon.counters.requests, 620U);
  EXPECT_LT(daemon.counters.pulls, 620U);
}

TEST(Stream, RanksTogetherSeeEverySampleOnce) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  std::multiset<std::uint64_t> seen;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    StreamOptions options = Options();
    options.ranks = 4;
    options.rank = rank;
    options.tail = TailPolicy::kShort;
    auto stream = Open(*client, options);
    EXPECT_EQ(stream->steps_per_epoch(), 63U);
    for (const std::uint64_t id : Drain(*stream, daemon)) seen.insert(id);
    EXPECT_TRUE(stream->Finish().has_value());
  }
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(std::set<std::uint64_t>(seen.begin(), seen.end()).size(), 1000U);
}

TEST(Stream, PartialOrderIsMadeOfTheOptions) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.mode = OrderMode::kPartial;
  options.block_samples = 10;
  options.canonical_nodes = 4;
  options.exchange_millionths = 200'000;
  auto stream = Open(*client, options);
  EXPECT_EQ(stream->token().order.shape, (OrderShape{.mode = OrderMode::kPartial,
                                                     .block_samples = 10,
                                                     .canonical_nodes = 4,
                                                     .exchange_millionths = 200'000,
                                                     .global_batch = 16}));
  EXPECT_EQ(Drain(*stream, daemon), ExpectedIds(*stream, 0, 1, 62 * 16));
  options.canonical_nodes = 5;
  auto refused = client->Open(options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("does not divide the global batch 16"));
}

TEST(Stream, PaddedSamplesAreFlagged) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.tail = TailPolicy::kPad;
  auto stream = Open(*client, options);
  std::uint64_t padded = 0;
  for (;;) {
    auto batch = stream->Next();
    ASSERT_TRUE(batch.has_value());
    if (!*batch) break;
    padded += (*batch)->padded_count();
  }
  EXPECT_EQ(padded, 8U);
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, ResumesAtATokenWithAnotherNumberOfRanks) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.epochs = 2;
  auto stream = Open(*client, options);
  std::vector<std::uint64_t> ids;
  PositionToken token;
  for (int step = 0; step < 70; ++step) {
    auto batch = stream->Next();
    ASSERT_TRUE(batch && *batch);
    for (const SampleId id : (*batch)->sample_ids()) ids.push_back(id.value());
    token = (*batch)->token();
  }
  EXPECT_EQ(stream->token(), token);
  const auto encoded = token.Encode();
  options.resume = *PositionToken::Parse(encoded);
  options.ranks = 2;
  std::vector<std::unique_ptr<BatchStream>> streams;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    streams.push_back(Open(*client, options));
  }
  for (bool more = true; more;) {
    for (const auto& rank : streams) {
      auto batch = rank->Next();
      ASSERT_TRUE(batch.has_value());
      more = batch->has_value();
      if (!more) continue;
      for (const SampleId id : (*batch)->sample_ids()) ids.push_back(id.value());
    }
  }
  EXPECT_EQ(ids, ExpectedIds(*stream, 0, 2, 62 * 16));
}

TEST(Stream, TokenMovesPastABatchWhenItIsLetGoOf) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  EXPECT_EQ(stream->token().next_step, StepId(0));
  auto batch = stream->Next();
  ASSERT_TRUE(batch && *batch);
  EXPECT_EQ(stream->token().next_step, StepId(0));
  batch->reset();
  EXPECT_EQ(stream->token().next_step, StepId(1));
}

TEST(Stream, PullsAnyBatchByName) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  auto first = stream->Next();
  ASSERT_TRUE(first && *first);
  auto named = stream->Pull({.epoch = EpochId(5), .step = StepId(61)});
  ASSERT_TRUE(named.has_value()) << named.error().ToString();
  ExpectContent(*named, daemon);
  EXPECT_EQ(named->first_position(), 61U * 16);
  auto micro = stream->Pull({.epoch = EpochId(0), .step = StepId(3), .micro_size = 4,
                             .micro_index = 2});
  ASSERT_TRUE(micro.has_value()) << micro.error().ToString();
  ExpectContent(*micro, daemon);
  EXPECT_EQ(micro->first_position(), 3U * 16 + 8);
  EXPECT_EQ(micro->sample_count(), 4U);
  first->reset();
  EXPECT_EQ(Drain(*stream, daemon).size(), 61U * 16);
  named = Error(ErrorCode::kNotFound, "let go");
  micro = Error(ErrorCode::kNotFound, "let go");
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_EQ(daemon.counters.credit_breaches, 0U);
}

TEST(Stream, WorksWithoutPrefetching) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.prefetch_depth = 0;
  auto stream = Open(*client, options);
  EXPECT_EQ(Drain(*stream, daemon).size(), 62U * 16);
  EXPECT_EQ(daemon.counters.held_max, 1U);
}

TEST(Stream, TellsTheDaemonWhichEpochsItWillRead) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.first_epoch = 3;
  options.epochs = 4;
  auto stream = Open(*client, options);
  auto batch = stream->Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(daemon.counters.end_epoch, 7U);
}

TEST(Stream, AnEpochWithoutStepsIsEmpty) {
  FakeDaemon daemon({.samples = 10});
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  auto batch = stream->Next();
  ASSERT_TRUE(batch.has_value());
  EXPECT_FALSE(batch->has_value());
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, ThreeStreamsShareOneConnection) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  std::vector<std::unique_ptr<BatchStream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(Open(*client, Options()));
  for (const auto& stream : streams) {
    EXPECT_EQ(Drain(*stream, daemon).size(), 62U * 16);
    EXPECT_TRUE(stream->Finish().has_value());
  }
  EXPECT_EQ(daemon.counters.connections, 1U);
}

TEST(Stream, CreditsComeBackWhenBatchesAreDestroyed) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.prefetch_depth = 2;
  auto stream = Open(*client, options);
  std::vector<Batch> held;
  for (int i = 0; i < 3; ++i) {
    auto batch = stream->Next();
    ASSERT_TRUE(batch && *batch);
    held.push_back(**batch);
  }
  auto refused = stream->Next();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("holds all 3 batches"));
  EXPECT_EQ(stream->Pull({.epoch = EpochId(0), .step = StepId(9)}).error().code(),
            ErrorCode::kResourceExhausted);
  held.clear();
  EXPECT_EQ(Drain(*stream, daemon).size(), 59U * 16);
  EXPECT_TRUE(stream->Finish().has_value());
  EXPECT_LE(daemon.counters.held_max, 3U);
}

// In the middle of the order, with batches under way: the next stream may need their memory.
TEST(Stream, FinishedStreamsHoldNothingAtTheDaemon) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.transform_bytes = 1;
  options.transform = [](const TransformInput&) -> Status { return {}; };
  for (std::uint64_t round = 1; round <= 20; ++round) {
    auto stream = Open(*client, options);
    ASSERT_TRUE(stream->Next().has_value());
    ASSERT_TRUE(stream->Finish().has_value());
    while (daemon.counters.calls_ended != round) std::this_thread::yield();
  }
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

TEST(Stream, HeldBatchesOutliveFinishStreamAndClient) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  auto batch = stream->Next();
  ASSERT_TRUE(batch && *batch);
  EXPECT_TRUE(stream->Finish().has_value());
  ExpectContent(**batch, daemon);
  EXPECT_EQ(stream->Next().error().code(), ErrorCode::kFailedPrecondition);
  stream.reset();
  client.reset();
  ExpectContent(**batch, daemon);
  EXPECT_EQ(daemon.counters.calls_ended, 0U) << "the call must live as long as the batch";
}

TEST(Stream, HoldKeepsTheMemoryForOtherLibraries) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  std::shared_ptr<const void> hold;
  std::span<const std::byte> image;
  SharedMapping mapping;
  std::uint64_t id = 0;
  {
    auto batch = stream->Next();
    ASSERT_TRUE(batch && *batch);
    hold = (*batch)->hold();
    image = (*batch)->Spans(FieldId(0), 0)[0];
    id = (*batch)->sample_ids()[0].value();
    mapping = (*batch)->MappingOf(image.data());
    EXPECT_LE(mapping.bytes.data(), image.data());
    EXPECT_LE(image.data() + image.size(), mapping.bytes.data() + mapping.bytes.size());
    EXPECT_EQ((*batch)->MappingOf(mapping.bytes.data() + mapping.bytes.size()).hold, nullptr);
    const std::byte own = {};
    EXPECT_TRUE((*batch)->MappingOf(&own).bytes.empty());
  }
  stream.reset();
  client.reset();
  EXPECT_EQ(image[3], FakeDataset::ImageByte(id, 3));
  hold.reset();
  void* const mapped = const_cast<std::byte*>(mapping.bytes.data());
  EXPECT_EQ(::msync(mapped, mapping.bytes.size(), MS_ASYNC), 0) << "it has a hold of its own";
}

TEST(Stream, TransformsRunOnWorkersInOrderWithTheSamplesSeed) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  std::atomic<bool> on_caller{false};
  const std::thread::id caller = std::this_thread::get_id();
  options.transform_bytes = 16;
  options.transform_threads = 3;
  options.transform = [&](const TransformInput& input) -> Status {
    if (std::this_thread::get_id() == caller) on_caller = true;
    const std::uint64_t words[2] = {input.sample.value(), input.seed};
    std::memcpy(input.output.data(), words, sizeof(words));
    return {};
  };
  auto stream = Open(*client, options);
  std::uint64_t step = 0;
  for (;; ++step) {
    auto batch = stream->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step));
    ASSERT_EQ((*batch)->transformed().size(), 16U * 16);
    for (std::uint32_t i = 0; i < 16; ++i) {
      std::uint64_t words[2];
      std::memcpy(words, (*batch)->transformed().data() + i * 16, 16);
      const SampleId id = (*batch)->sample_ids()[i];
      ASSERT_EQ(words[0], id.value());
      ASSERT_EQ(words[1], TransformSeed(7, EpochId(0), id));
    }
  }
  EXPECT_EQ(step, 62U);
  EXPECT_FALSE(on_caller);
  EXPECT_TRUE(stream->Finish().has_value());
}

TEST(Stream, ATransformsErrorEndsTheStream) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.transform_bytes = 1;
  options.transform = [](const TransformInput& input) -> Status {
    if (input.batch.step() == StepId(2)) return Error(ErrorCode::kDataLoss, "cannot decode");
    return {};
  };
  auto stream = Open(*client, options);
  ASSERT_TRUE(stream->Next().has_value());
  ASSERT_TRUE(stream->Next().has_value());
  for (int i = 0; i < 2; ++i) {
    auto failed = stream->Next();
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().message(), "cannot decode");
  }
}

TEST(Stream, AThrowingTransformIsAnError) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.transform = [](const TransformInput&) -> Status {
    throw std::runtime_error("out of paper");
  };
  auto stream = Open(*client, options);
  auto failed = stream->Next();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(failed.error().message(), HasSubstr("out of paper"));
}

TEST(Stream, ATransformThatThrowsNoStdExceptionIsAnError) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.transform = [](const TransformInput&) -> Status { throw 42; };
  auto stream = Open(*client, options);
  auto failed = stream->Next();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(failed.error().message(), HasSubstr("the transform threw on sample"));
}

TEST(Stream, DestroyingAStreamAmidTransformsIsSafe) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.transform_threads = 2;
  std::promise<void> begun;
  std::shared_future<void> go_on = begun.get_future().share();
  std::atomic<int> runs{0};
  options.transform = [&](const TransformInput&) -> Status {
    runs += 1;
    go_on.wait();
    return {};
  };
  auto stream = Open(*client, options);
  std::thread consumer([&] { (void)stream->Next(); });
  while (runs == 0) std::this_thread::yield();
  begun.set_value();
  consumer.join();
  stream.reset();
  EXPECT_GT(runs, 0);
}

TEST(Stream, AccessorsRefuseWhatAFieldIsNot) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  StreamOptions options = Options();
  options.delivery = Delivery::kViews;
  auto stream = Open(*client, options);
  auto next = stream->Next();
  ASSERT_TRUE(next && *next);
  const Batch& batch = **next;
  EXPECT_EQ(batch.Tensor("image").error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(batch.Tensor("text").error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(batch.Tensor("label").error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(batch.Tensor(FieldId(9)).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(batch.Constants(FieldId(0)).error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(batch.Constants(FieldId(9)).error().code(), ErrorCode::kNotFound);
  std::vector<std::byte> out(10);
  EXPECT_EQ(batch.Gather(FieldId(0), out).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(batch.Gather(FieldId(2), out).error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(batch.Gather(FieldId(9), out).error().code(), ErrorCode::kNotFound);
  const auto missing = batch.Field("mask");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("image, weight, text, label"));
}

TEST(Stream, RefusesOptionsThatCannotBe) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  const auto code = [&](const StreamOptions& options) {
    auto stream = client->Open(options);
    return stream ? ErrorCode::kUnknown : stream.error().code();
  };
  StreamOptions options = Options();
  options.rank = 1;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = Options();
  options.ranks = 3;
  EXPECT_EQ(code(options), ErrorCode::kInvalidArgument);
  options = Options();
  options.prefetch_depth = limits::kCreditsMax;
  EXPECT_EQ(code(options), ErrorCode::kOutOfRange);
  options = Options();
  options.dataset = "none";
  EXPECT_EQ(code(options), ErrorCode::kNotFound);
  options = Options();
  options.first_epoch = 0xFFFF'FFFF;
  EXPECT_EQ(code(options), ErrorCode::kOutOfRange);
  options = Options();
  options.global_batch = 0;
  EXPECT_EQ(code(options), ErrorCode::kOutOfRange);
  options = Options();
  options.mode = OrderMode::kWeighted;
  EXPECT_EQ(code(options), ErrorCode::kUnimplemented);
  options.mode = OrderMode::kPartial;  // without canonical_nodes
  EXPECT_EQ(code(options), ErrorCode::kOutOfRange);
}

TEST(Stream, RefusesATokenOfAnotherStream) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  const PositionToken token = stream->token();
  const auto refused = [&](StreamOptions options, PositionToken changed) {
    options.resume = changed;
    auto opened = client->Open(options);
    EXPECT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code(), ErrorCode::kFailedPrecondition);
    return opened ? "" : opened.error().message();
  };
  PositionToken foreign = token;
  foreign.catalog_fingerprint += 1;
  EXPECT_THAT(refused(Options(), foreign), HasSubstr("catalog fingerprint"));
  StreamOptions options = Options();
  options.seed = 8;
  EXPECT_THAT(refused(options, token), HasSubstr("seed 7, this stream has 8"));
  options = Options();
  options.global_batch = 32;
  EXPECT_THAT(refused(options, token), HasSubstr("global batch 16"));
  options = Options();
  options.tail = TailPolicy::kPad;
  EXPECT_THAT(refused(options, token), HasSubstr("order fingerprint"));
}

TEST(Stream, PullRefusesNamesThatDoNotExist) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = Open(*client, Options());
  EXPECT_EQ(stream->Pull({.step = StepId(62)}).error().code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(stream->Pull({.micro_size = 5}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(stream->Pull({.micro_size = 4, .micro_index = 4}).error().code(),
            ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace forebay
