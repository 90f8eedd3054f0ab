// A client against a daemon that lies, stalls or dies. Every test asserts that its fault was
// there: the hook ran, or the counter moved.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/client.h"
#include "client/testing/fake_daemon.h"
#include "proto/contract/limits.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::FakeDaemon;
using testing::FakeDataset;

StreamOptions Options() {
  StreamOptions options;
  options.dataset = "fake";
  options.global_batch = 16;
  options.prefetch_depth = 2;
  return options;
}

Result<std::unique_ptr<Client>> Connect(const FakeDaemon& daemon, bool shared_memory = true) {
  return Client::Connect({.address = daemon.address(),
                          .shared_memory = shared_memory,
                          .connect_timeout_ms = 5'000});
}

// The first error of opening a stream and reading it to its end and trailer.
Error FirstError(const FakeDaemon& daemon, bool shared_memory = true) {
  auto client = Connect(daemon, shared_memory);
  if (!client) return client.error();
  auto stream = (*client)->Open(Options());
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

// Changes one batch, once, and remembers that it did.
class OneBatch {
 public:
  explicit OneBatch(std::function<void(v1::Batch&)> change) : change_(std::move(change)) {}
  void operator()(v1::StreamReply& reply) {
    if (done_ || reply.batches_size() == 0) return;
    change_(*reply.mutable_batches(0));
    done_ = true;
  }
  bool done() const { return done_; }

 private:
  std::function<void(v1::Batch&)> change_;
  bool done_ = false;
};

Error AfterChanging(std::function<void(v1::Batch&)> change, bool views = false,
                    bool shared_memory = true) {
  FakeDaemon daemon;
  OneBatch fault(std::move(change));
  daemon.faults.reply = [&](v1::StreamReply& reply) { fault(reply); };
  auto client = Connect(daemon, shared_memory);
  EXPECT_TRUE(client.has_value());
  StreamOptions options = Options();
  if (views) options.delivery = Delivery::kViews;
  auto stream = (*client)->Open(options);
  EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
  auto batch = (*stream)->Next();
  EXPECT_TRUE(fault.done()) << "the fault was not injected";
  if (batch) return Error(ErrorCode::kUnknown, "nothing failed");
  // Final: the same again, not a hang and not a later batch.
  EXPECT_EQ((*stream)->Next().error().code(), batch.error().code());
  EXPECT_FALSE((*stream)->Finish().has_value());
  return batch.error();
}

WireSpan SpanAt(const std::string& spans, std::size_t index) {
  WireSpan span;
  std::memcpy(&span, spans.data() + index * sizeof(span), sizeof(span));
  return span;
}

void SetSpan(std::string& spans, std::size_t index, const WireSpan& span) {
  std::memcpy(spans.data() + index * sizeof(span), &span, sizeof(span));
}

void ChangeTensor(v1::Batch& batch, const std::function<void(WireSpan&)>& change) {
  std::string& tensor = *batch.mutable_fields(0)->mutable_tensor();
  WireSpan span = SpanAt(tensor, 0);
  change(span);
  SetSpan(tensor, 0, span);
}

void ExpectDataLoss(const Error& error, const std::string& words) {
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.ToString();
  EXPECT_THAT(error.message(), HasSubstr(words));
}

TEST(HostileBatch, SpanBeyondItsRegion) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   ChangeTensor(batch, [](WireSpan& span) { span.offset = 1ULL << 26; });
                 }),
                 "outside the memory it names");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   // The last byte of the tensor is the first one beyond the slots.
                   ChangeTensor(batch, [](WireSpan& span) {
                     span.offset = (64ULL << 20) - span.length + 1;
                   });
                 }),
                 "outside the memory it names");
}

TEST(HostileBatch, OffsetThatOverflows) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   ChangeTensor(batch, [](WireSpan& span) { span.offset = ~0ULL - 8; });
                 }),
                 "outside the memory it names");
}

TEST(HostileBatch, LengthThatOverflows) {
  ExpectDataLoss(AfterChanging(
                     [](v1::Batch& batch) {
                       std::string& spans = *batch.mutable_fields(2)->mutable_spans();
                       for (std::size_t i = 0; i < spans.size() / sizeof(WireSpan); ++i) {
                         WireSpan span = SpanAt(spans, i);
                         if (span.region == kAbsentRegion) continue;
                         span.length = ~0ULL;
                         SetSpan(spans, i, span);
                       }
                     },
                     /*views=*/true),
                 "outside the memory it names");
}

TEST(HostileBatch, UnknownRegion) {
  for (const std::uint32_t region : {2U, 4095U, 4096U, 0xFFFF'FFFDU, kInlineRegion}) {
    ExpectDataLoss(AfterChanging([&](v1::Batch& batch) {
                     ChangeTensor(batch, [&](WireSpan& span) { span.region = region; });
                   }),
                   "outside the memory it names");
  }
}

TEST(HostileBatch, TensorOfAnotherSize) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   ChangeTensor(batch, [](WireSpan& span) { span.length -= 1; });
                 }),
                 "1599 bytes for 16 samples of 100");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   batch.mutable_fields(0)->mutable_tensor()->push_back('x');
                 }),
                 "malformed tensor");
}

TEST(HostileBatch, SampleOfAnotherSize) {
  ExpectDataLoss(AfterChanging(
                     [](v1::Batch& batch) {
                       std::string& spans = *batch.mutable_fields(0)->mutable_spans();
                       WireSpan span = SpanAt(spans, 3);
                       span.length = 99;
                       SetSpan(spans, 3, span);
                     },
                     true),
                 "a sample of 99 bytes instead of 100");
}

TEST(HostileBatch, SpansThatDoNotAddUp) {
  const auto with_text = [](std::function<void(v1::FieldData&)> change) {
    return AfterChanging([=](v1::Batch& batch) { change(*batch.mutable_fields(2)); });
  };
  ExpectDataLoss(with_text([](v1::FieldData& text) { text.mutable_spans()->push_back('x'); }),
                 "malformed spans");
  ExpectDataLoss(with_text([](v1::FieldData& text) { text.add_span_counts(1); }),
                 "counts the spans of 17 samples of 16");
  ExpectDataLoss(with_text([](v1::FieldData& text) { text.set_span_counts(0, 0xFFFF'FFFF); }),
                 "counts more spans than it has");
  ExpectDataLoss(with_text([](v1::FieldData& text) {
                   text.set_span_counts(15, text.span_counts(15) - 1);
                 }),
                 "more spans than it counts");
  ExpectDataLoss(with_text([](v1::FieldData& text) { text.clear_span_counts(); }),
                 "spans for 16 samples");
}

TEST(HostileBatch, AbsentAndPresentAtOnce) {
  ExpectDataLoss(AfterChanging(
                     [](v1::Batch& batch) {
                       v1::FieldData& images = *batch.mutable_fields(0);
                       for (int i = 0; i < 16; ++i) images.add_span_counts(1);
                       images.set_span_counts(0, 2);
                       const WireSpan absent = {.region = kAbsentRegion};
                       images.mutable_spans()->insert(
                           0, std::string(reinterpret_cast<const char*>(&absent), sizeof(absent)));
                     },
                     true),
                 "absent and present");
}

TEST(HostileBatch, FieldsOfTheWrongKind) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   *batch.mutable_fields(0)->mutable_spans() = batch.fields(0).tensor();
                 }),
                 "as a tensor and as spans");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   batch.mutable_fields(0)->set_constants("12345678");
                 }),
                 "came with constants");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   *batch.mutable_fields(3)->mutable_tensor() = batch.fields(0).tensor();
                 }),
                 "constant but came with bytes");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   *batch.mutable_fields(2)->mutable_tensor() = batch.fields(0).tensor();
                   batch.mutable_fields(2)->clear_spans();
                   batch.mutable_fields(2)->clear_span_counts();
                 }),
                 "no fixed size");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) {
                   batch.mutable_fields(3)->mutable_constants()->resize(127);
                 }),
                 "127 bytes of constants for 16 samples");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.add_fields(); }),
                 "5 fields instead of 4");
}

TEST(HostileBatch, IdsThatDoNotMatchTheCount) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.mutable_sample_ids()->resize(127); }),
                 "127 bytes of ids for 16 samples");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_sample_count(0xFFFF'FFFF); }),
                 "kLocalBatchMax");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_padded_count(17); }),
                 "more padding than samples");
}

TEST(HostileBatch, AnotherPartOfTheOrder) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_first_position(16); }),
                 "not the part of the order");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_padded_count(1); }),
                 "not the part of the order");
}

TEST(HostileBatch, NotAskedFor) {
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_step(40); }), "not asked for");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_epoch(1); }), "not asked for");
  ExpectDataLoss(AfterChanging([](v1::Batch& batch) { batch.set_micro_size(4); }),
                 "not asked for");
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
  StreamOptions options = Options();
  options.prefetch_depth = 1;
  auto stream = (*client)->Open(options);
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
  auto stream = (*client)->Open(Options());
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

TEST(HostileInline, AnnouncementsThatDoNotFit) {
  const auto with = [](std::function<void(v1::Batch&)> change) {
    return AfterChanging(std::move(change), false, /*shared_memory=*/false);
  };
  ExpectDataLoss(with([](v1::Batch& b) { b.set_inline_bytes(~0ULL); }), "kSlotBytesMax");
  ExpectDataLoss(with([](v1::Batch& b) { b.set_inline_bytes(b.inline_bytes() - 1); }),
                 "exceeds the announced");
  ExpectDataLoss(with([](v1::Batch& b) { b.set_id(2); }), "two batches under way");
  ExpectDataLoss(with([](v1::Batch& b) {
                   ChangeTensor(b, [](WireSpan& span) { span.offset = ~0ULL; });
                 }),
                 "outside the memory it names");
}

TEST(Handshake, NobodyThereNamesAddressAndRemedy) {
  auto client = Client::Connect({.address = "unix:/nonexistent/forebayd.sock"});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message(), HasSubstr("unix:/nonexistent/forebayd.sock"));
  EXPECT_THAT(client.error().message(), HasSubstr("FOREBAY_ADDRESS"));
}

TEST(Handshake, AddressesThatAreNone) {
  for (const std::string address : {"tcp:localhost:1", "unix:", "/path"}) {
    EXPECT_EQ(Client::Connect({.address = address}).error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(Client::Connect({.address = "unix:/" + std::string(200, 'p')}).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(Handshake, WrongMagic) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.magic ^= 1; };
  ExpectDataLoss(Connect(daemon).error(), "not a Forebay daemon");
}

TEST(Handshake, VersionMismatchNamesBothSides) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.layout_version = 9; };
  Error error = Connect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("layout version 1 of this client, version 9"));

  daemon.faults.server_hello = nullptr;
  daemon.faults.hello_reply = [](v1::HelloReply& reply) { reply.set_protocol_version(7); };
  error = Connect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("protocol version 1 of this client, version 7"));

  daemon.faults.hello_reply = [](v1::HelloReply& reply) { reply.set_catalog_version(3); };
  EXPECT_THAT(Connect(daemon).error().message(), HasSubstr("catalog version 1"));
}

TEST(Handshake, AnotherJobNamesBothSides) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .job_id = "job-2"});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(client.error().message(), HasSubstr("job 'job-2'"));
  EXPECT_THAT(client.error().message(), HasSubstr("job 'job-1'"));
}

TEST(Handshake, RefusalCarriesTheDaemonsCode) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) {
    hello.status = static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
  };
  EXPECT_EQ(Connect(daemon).error().code(), ErrorCode::kResourceExhausted);
  daemon.faults.server_hello = [](ServerHello& hello) { hello.status = 77; };
  EXPECT_EQ(Connect(daemon).error().code(), ErrorCode::kUnknown);
}

TEST(Handshake, UnsealedMemoryIsRefused) {
  FakeDaemon daemon;
  daemon.faults.unsealed_regions = true;
  const Error error = Connect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("not sealed"));
}

TEST(Handshake, RegionsThatLie) {
  const auto with = [](std::function<void(RegionEntry&)> change) {
    FakeDaemon daemon;
    daemon.faults.region_entry = std::move(change);
    return Connect(daemon).error();
  };
  ExpectDataLoss(with([](RegionEntry& entry) { entry.bytes = 1ULL << 40; }), "announced");
  ExpectDataLoss(with([](RegionEntry& entry) { entry.generation ^= 1; }), "generation");
  EXPECT_EQ(with([](RegionEntry& entry) { entry.id = 4096; }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](RegionEntry& entry) { entry.id = 1; }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](RegionEntry& entry) { entry.bytes = 0; }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(Handshake, MissingDescriptorIsDetected) {
  FakeDaemon daemon;
  daemon.faults.too_few_descriptors = true;
  ExpectDataLoss(Connect(daemon).error(), "2 regions came with 1 descriptors");
}

TEST(Handshake, TooManyRegions) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.region_count = 4097; };
  EXPECT_EQ(Connect(daemon).error().code(), ErrorCode::kResourceExhausted);
}

TEST(Handshake, AStallEndsAtTheDeadline) {
  FakeDaemon daemon;
  daemon.faults.stall_handshake = true;
  const auto began = std::chrono::steady_clock::now();
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 200});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
  EXPECT_EQ(daemon.counters.connections, 1U);
}

TEST(Handshake, AHangUpIsUnavailable) {
  FakeDaemon daemon;
  daemon.faults.drop_handshake = true;
  EXPECT_EQ(Connect(daemon).error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(daemon.counters.connections, 1U);
}

TEST(DaemonLoss, HeldBatchesStayReadableAndTheStreamGoesOn) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  auto held = (*stream)->Next();
  ASSERT_TRUE(held && *held);
  const std::uint64_t connections = daemon.counters.connections;

  daemon.Stop();
  const auto image = (*held)->Tensor("image");
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(image->data[5], FakeDataset::ImageByte((*held)->sample_ids()[0].value(), 5));

  daemon.Start();
  std::uint64_t step = 1;
  for (;; ++step) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
    if (!*batch) break;
    ASSERT_EQ((*batch)->step(), StepId(step));
    const auto tensor = (*batch)->Tensor("image");
    ASSERT_EQ(tensor->data[7], FakeDataset::ImageByte((*batch)->sample_ids()[0].value(), 7));
  }
  EXPECT_EQ(step, 62U);
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
  EXPECT_EQ(daemon.counters.connections, connections + 1);
  EXPECT_EQ(image->data[5], FakeDataset::ImageByte((*held)->sample_ids()[0].value(), 5));
  held->reset();  // of the former call: not released to the new daemon
  EXPECT_TRUE((*stream)->Finish().has_value());
  EXPECT_EQ(daemon.counters.bad_releases, 0U);
}

TEST(DaemonLoss, PullAsksAgainByName) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  daemon.Stop();
  daemon.Start();
  auto batch = (*stream)->Pull({.epoch = EpochId(2), .step = StepId(7)});
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ(batch->epoch(), EpochId(2));
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
}

TEST(DaemonLoss, AChangedCatalogIsNotResumed) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  daemon.dataset().set_fingerprint(0xBAD);
  daemon.Start();
  Error error(ErrorCode::kUnknown, "");
  for (int i = 0; i < 4 && error.code() == ErrorCode::kUnknown; ++i) {
    auto batch = (*stream)->Next();
    if (!batch) error = batch.error();
  }
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
}

TEST(DaemonLoss, GivesUpAfterTheTimeoutAndMayBeTriedAgain) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 100});
  ASSERT_TRUE(client.has_value());
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  daemon.Stop();
  // What had arrived before the client noticed may still be handed out.
  std::uint64_t step = 0;
  auto batch = (*stream)->Next();
  for (; batch.has_value() && step < 4; ++step) {
    batch->reset();
    batch = (*stream)->Next();
  }
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  daemon.Start();
  batch = (*stream)->Next();
  ASSERT_TRUE(batch.has_value()) << batch.error().ToString();
  EXPECT_EQ((**batch).step(), StepId(step));
}

TEST(DaemonLoss, FinishAsksTheDaemonThatCameBack) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  daemon.Start();
  const Status finished = (*stream)->Finish();
  EXPECT_TRUE(finished.has_value()) << finished.error().ToString();
  EXPECT_EQ((*stream)->stats().reconnects, 1U);
}

TEST(DaemonLoss, FinishWithoutATrailerIsDataLoss) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 100});
  auto stream = (*client)->Open(Options());
  ASSERT_TRUE(stream.has_value());
  ASSERT_TRUE((*stream)->Next().has_value());
  daemon.Stop();
  ExpectDataLoss((*stream)->Finish().error(), "without a trailer");
}

TEST(DaemonLoss, OpenAndDescribeReconnect) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  daemon.Stop();
  daemon.Start();
  EXPECT_TRUE((*client)->Describe("fake", "all").has_value());
  daemon.Stop();
  daemon.Start();
  EXPECT_TRUE((*client)->Open(Options()).has_value());
}

}  // namespace
}  // namespace forebay
