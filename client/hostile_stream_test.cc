// A daemon that lies about a stream, repeats or withholds parts of it, or says nothing. Every test
// asserts that its fault was there: the hook ran, or the error names it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/limits.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::Connect;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::TryConnect;

// The first error of opening a stream and reading it to its end and trailer.
Error FirstError(const FakeDaemon& daemon, bool shared_memory = true) {
  auto client = TryConnect(daemon, shared_memory);
  if (!client) return client.error();
  auto stream = (*client)->Open(FakeStream(2));
  if (!stream) return stream.error();
  for (;;) {
    auto batch = (*stream)->Next();
    if (!batch) return batch.error();
    if (!*batch) break;
  }
  Status finished = (*stream)->Finish();
  if (!finished) return finished.error();
  return Error(ErrorCode::kUnknown, "nothing failed");
}

TEST(HostileStream, TheSameBatchTwice) {
  FakeDaemon daemon;
  bool done = false;
  daemon.faults.reply = [&](v1::StreamReply& reply) {
    if (done || reply.batches_size() == 0) return;
    *reply.add_batches() = reply.batches(0);
    done = true;
  };
  ExpectDataLoss(FirstError(daemon), "not asked for");
  EXPECT_TRUE(done);
}

TEST(HostileStream, AnErrorForABatchThatWasNotAskedFor) {
  FakeDaemon daemon;
  bool done = false;
  daemon.faults.reply = [&](v1::StreamReply& reply) {
    if (!done) reply.add_errors()->set_step(50);
    done = true;
  };
  ExpectDataLoss(FirstError(daemon), "refused a batch that was not asked for");
  EXPECT_TRUE(done);
}

TEST(HostileStream, ABatchesErrorReachesTheCaller) {
  FakeDaemon daemon;
  daemon.faults.reply = [&](v1::StreamReply& reply) {
    for (int i = 0; i < reply.batches_size(); ++i) {
      if (reply.batches(i).step() != 3) continue;
      reply.mutable_batches()->DeleteSubrange(i, 1);
      v1::BatchError& error = *reply.add_errors();
      error.set_step(3);
      error.set_code(static_cast<std::uint32_t>(ErrorCode::kDataLoss));
      error.set_message("sample 17 does not match its checksum");
    }
  };
  const Error error = FirstError(daemon);
  ExpectDataLoss(error, "sample 17 does not match its checksum");
}

TEST(HostileStream, APassingErrorMayBeTriedAgain) {
  FakeDaemon daemon;
  int refusals = 0;
  daemon.faults.reply = [&](v1::StreamReply& reply) {
    if (refusals > 0 || reply.batches_size() == 0) return;
    ++refusals;
    v1::BatchError& error = *reply.add_errors();
    error.set_step(reply.batches(0).step());
    error.set_code(static_cast<std::uint32_t>(ErrorCode::kUnavailable));
    error.set_message("the GFS is away");
    reply.mutable_batches()->DeleteSubrange(0, 1);
  };
  auto client = Connect(daemon);
  StreamOptions options = FakeStream(2);
  options.prefetch_depth = 1;
  options.retry_for_ms = 0;
  auto stream = client->Open(options);
  ASSERT_TRUE(stream.has_value());
  auto first = (*stream)->Next();
  ASSERT_FALSE(first.has_value());
  EXPECT_EQ(first.error().code(), ErrorCode::kUnavailable);
  auto again = (*stream)->Next();
  ASSERT_TRUE(again.has_value()) << again.error().ToString();
  EXPECT_EQ((**again).step(), StepId(0));
  EXPECT_EQ(refusals, 1);
}

// Whether a thread of this process waits in the kernel.
bool Sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.substr(name_end + 2, 1) == "S";
}

TEST(HostileStream, AWaitForADaemonThatIsSilentIsCancelled) {
  FakeDaemon daemon;
  daemon.faults.mute_after_batches = 1;
  auto client = Connect(daemon);
  auto stream = client->Open(FakeStream(2));
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  ErrorCode met = ErrorCode::kUnknown;
  const auto began = std::chrono::steady_clock::now();
  {
    std::atomic<pid_t> reads = 0;
    std::jthread reader([&] {
      reads = gettid();
      const auto next = (*stream)->Next();
      if (!next.has_value()) met = next.error().code();
    });
    while (!Sleeps(reads)) std::this_thread::yield();
    (*stream)->Cancel();
  }
  EXPECT_EQ(met, ErrorCode::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - began,
            std::chrono::milliseconds(limits::kPullDeadlineMs / 4))
      << "it was not woken";
  const auto later = (*stream)->Next();
  ASSERT_FALSE(later.has_value());
  EXPECT_EQ(later.error().code(), ErrorCode::kCancelled);
  const auto named = (*stream)->Pull({.step = StepId(5)});
  ASSERT_FALSE(named.has_value());
  EXPECT_EQ(named.error().code(), ErrorCode::kCancelled);
  const Status finished = (*stream)->Finish();
  ASSERT_FALSE(finished.has_value());
  EXPECT_EQ(finished.error().code(), ErrorCode::kCancelled);
}

TEST(HostileStream, MissingTrailer) {
  FakeDaemon daemon;
  daemon.faults.no_trailer = true;
  ExpectDataLoss(FirstError(daemon), "without a trailer");
}

TEST(HostileStream, TrailersThatDiffer) {
  const auto with = [](std::function<void(v1::Trailer&)> change) {
    FakeDaemon daemon;
    daemon.faults.trailer = std::move(change);
    return FirstError(daemon);
  };
  ExpectDataLoss(with([](v1::Trailer& t) { t.set_checksum(t.checksum() + 1); }), "checksum");
  ExpectDataLoss(with([](v1::Trailer& t) { t.set_batches(t.batches() + 1); }),
                 "batches 62 here, 63 at the daemon");
  ExpectDataLoss(with([](v1::Trailer& t) { t.set_samples(0); }), "samples 992 here, 0");
  ExpectDataLoss(with([](v1::Trailer& t) { t.set_padded(1); }), "padded samples 0 here, 1");
}

TEST(HostileStream, TrailerThatWasNotAskedFor) {
  FakeDaemon daemon;
  daemon.faults.reply = [](v1::StreamReply& reply) { reply.mutable_trailer(); };
  ExpectDataLoss(FirstError(daemon), "trailer that was not asked for");
}

TEST(HostileStream, LostIdsShowInTheChecksum) {
  // A batch whose ids were swapped on the way has the right counts and the wrong checksum.
  FakeDaemon daemon;
  bool done = false;
  daemon.faults.reply = [&](v1::StreamReply& reply) {
    if (done || reply.batches_size() == 0) return;
    std::string& ids = *reply.mutable_batches(0)->mutable_sample_ids();
    std::swap_ranges(ids.begin(), ids.begin() + 8, ids.begin() + 8);
    done = true;
  };
  ExpectDataLoss(FirstError(daemon), "checksum");
  EXPECT_TRUE(done);
}

TEST(HostileStream, OpenedWithAnotherStream) {
  const auto with = [](std::function<void(v1::Opened&)> change) {
    FakeDaemon daemon;
    daemon.faults.opened = std::move(change);
    return FirstError(daemon);
  };
  Error error = with([](v1::Opened& o) { o.set_catalog_fingerprint(1); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("fingerprint"));
  error = with([](v1::Opened& o) { o.set_selected_count(999); });
  EXPECT_THAT(error.message(), HasSubstr("1000 here, 999 at the daemon"));
  error = with([](v1::Opened& o) { o.set_steps_per_epoch(1); });
  EXPECT_THAT(error.message(), HasSubstr("steps of an epoch"));
  error = with([](v1::Opened& o) { o.mutable_fields(0)->set_dtype(99); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  error = with([](v1::Opened& o) { o.mutable_fields(0)->add_shape(1ULL << 50); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
  error = with([](v1::Opened& o) { o.mutable_fields(0)->set_name(std::string(256, 'n')); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
  error = with([](v1::Opened& o) {
    for (int i = 0; i < 9; ++i) o.mutable_fields(0)->add_shape(1);
  });
  EXPECT_THAT(error.message(), HasSubstr("kDimensionCountMax"));
  error = with([](v1::Opened& o) {
    for (int i = 0; i < 64; ++i) *o.add_fields() = o.fields(0);
  });
  EXPECT_THAT(error.message(), HasSubstr("kFieldCountMax"));
}

TEST(HostileStream, ForeignFingerprintAfterDescribe) {
  FakeDaemon daemon;
  daemon.faults.describe_reply = [](v1::DescribeReply& r) { r.set_catalog_fingerprint(5); };
  const Error error = FirstError(daemon);
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
}

TEST(HostileStream, OversizeMessageIsRefused) {
  FakeDaemon daemon;
  daemon.faults.reply = [](v1::StreamReply& reply) {
    reply.mutable_chunk()->set_data(std::string(limits::kRpcMessageBytesMax + 1, 'x'));
  };
  EXPECT_EQ(FirstError(daemon).code(), ErrorCode::kResourceExhausted);
}

TEST(HostileInline, ChunksThatDoNotFit) {
  const auto with = [](std::function<void(v1::InlineChunk&)> change) {
    FakeDaemon daemon;
    bool done = false;
    daemon.faults.reply = [&](v1::StreamReply& reply) {
      if (done || !reply.has_chunk()) return;
      change(*reply.mutable_chunk());
      done = true;
    };
    const Error error = FirstError(daemon, /*shared_memory=*/false);
    EXPECT_TRUE(done);
    return error;
  };
  ExpectDataLoss(with([](v1::InlineChunk& c) { c.mutable_data()->push_back('x'); }),
                 "exceeds the announced");
  ExpectDataLoss(with([](v1::InlineChunk& c) { c.set_offset(1); }), "follows byte 0");
  ExpectDataLoss(with([](v1::InlineChunk& c) { c.set_offset(~0ULL); }), "follows byte 0");
  ExpectDataLoss(with([](v1::InlineChunk& c) { c.set_batch_id(999); }), "no batch under way");
  ExpectDataLoss(with([](v1::InlineChunk& c) { c.clear_data(); }), "outside 1 to");
  ExpectDataLoss(with([](v1::InlineChunk& c) {
                   c.set_data(std::string(limits::kInlineChunkBytes + 1, 'x'));
                 }),
                 "outside 1 to kInlineChunkBytes");
}

}  // namespace
}  // namespace forebay
