// Batches that lie about their spans, sizes, ids and place in the order. Every test asserts that
// its fault was there: the hook ran.
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "forebay/v1/data.pb.h"

namespace forebay {
namespace {

using testing::Connect;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::FakeStream;
using testing::Open;

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
  StreamOptions options = FakeStream(2);
  if (views) options.delivery = Delivery::kViews;
  auto stream = Open(*client, options);
  auto batch = stream->Next();
  EXPECT_TRUE(fault.done()) << "the fault was not injected";
  if (batch) return Error(ErrorCode::kUnknown, "nothing failed");
  // Final: the same again, not a hang and not a later batch.
  EXPECT_EQ(stream->Next().error().code(), batch.error().code());
  EXPECT_FALSE(stream->Finish().has_value());
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

}  // namespace
}  // namespace forebay
