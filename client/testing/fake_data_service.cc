#include "client/testing/fake_data_service.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "proto/contract/batch_digest.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::testing {
namespace {

constexpr std::uint64_t kSelectionFingerprint = 0xA11;

void AppendSpan(std::string& spans, const WireSpan& span) {
  spans.append(reinterpret_cast<const char*>(&span), sizeof(span));
}

template <typename T>
void AppendRaw(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void RaiseMax(std::atomic<std::uint64_t>& max, std::uint64_t value) {
  std::uint64_t seen = max.load();
  while (seen < value && !max.compare_exchange_weak(seen, value)) {
  }
}

// One call. It owns itself until gRPC is done with it.
class FakeStream final : public grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply> {
 public:
  static FakeStream* Begin(FakeServiceState& state) {
    auto stream = std::make_shared<FakeStream>(state);
    stream->until_done_ = stream;
    stream->StartRead(&stream->request_);
    return stream.get();
  }
  explicit FakeStream(FakeServiceState& state) : state_(state) {}

  void OnReadDone(bool ok) override {
    MutexLock lock(mutex_);
    if (!ok) {
      closed_ = closed_ || request_.finish();
      FinishOnce(grpc::Status::OK);
      return;
    }
    state_.counters.requests += 1;
    if (request_.has_open() && !Open(request_.open())) return;
    if (request_.close()) {
      closed_ = true;
      FinishOnce(grpc::Status::CANCELLED);
      return;
    }
    if (plan_) TakeRequest();
    SendIfIdle();
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (ok) SendIfIdle();
  }

  void OnCancel() override {
    MutexLock lock(mutex_);
    FinishOnce(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    const std::shared_ptr<FakeStream> self = std::move(until_done_);
    MutexLock lock(mutex_);  // unlocked before `self` goes
    state_.counters.calls_ended += 1;
    if (held_ == nullptr) return;
    state_.counters.held_at_end += held_->size();
    // A reader that was cut off may come back for what it has.
    if (closed_ || open_.reader() == 0 || open_.inline_payload()) {
      held_->ReleaseAllBut({});
      state_.readers->Forget(open_.reader());
    }
  }

 private:
  void FinishOnce(const grpc::Status& status) FOREBAY_REQUIRES(mutex_) {
    if (!std::exchange(finished_, true)) Finish(status);
  }

  bool Open(const v1::OpenStream& open) FOREBAY_REQUIRES(mutex_) {
    open_ = open;
    state_.counters.end_epoch = open.end_epoch();
    const auto bytes = std::as_bytes(std::span(open.order_spec()));
    Result<OrderSpec> spec = OrderSpec::Parse(bytes);
    if (!spec) {
      FinishOnce({grpc::StatusCode::INVALID_ARGUMENT, spec.error().message()});
      return false;
    }
    if (open.catalog_fingerprint() != 0 &&
        open.catalog_fingerprint() != state_.dataset.fingerprint()) {
      FinishOnce({grpc::StatusCode::FAILED_PRECONDITION, "another catalog fingerprint"});
      return false;
    }
    if (state_.faults.refuse_open) {
      if (const std::optional<Error> refusal = state_.faults.refuse_open(*spec)) {
        FinishOnce({static_cast<grpc::StatusCode>(refusal->code()), refusal->message()});
        return false;
      }
    }
    order_ = *spec;
    Result<StepPlan> plan = StepPlan::Create({.sample_count = spec->sample_count,
                                              .global_batch = open.global_batch(),
                                              .ranks = open.ranks(),
                                              .tail = spec->tail});
    FOREBAY_CHECK(plan.has_value());
    plan_ = *plan;
    v1::StreamReply reply;
    v1::Opened& opened = *reply.mutable_opened();
    opened.set_catalog_fingerprint(state_.dataset.fingerprint());
    opened.set_selected_count(spec->sample_count);
    opened.set_steps_per_epoch(plan_->steps());
    opened.set_dropped_per_epoch(plan_->dropped_samples());
    opened.set_padded_per_epoch(plan_->padded_samples());
    for (const std::uint64_t reader : open.gone_readers()) state_.readers->Forget(reader);
    held_ = open.reader() == 0 ? std::make_shared<FakeHeld>(state_.slots)
                               : state_.readers->Find(open.reader(), state_.slots);
    for (const std::uint64_t id : held_->ReleaseAllBut(
             {open.still_held().begin(), open.still_held().end()})) {
      opened.add_still_held(id);
    }
    if (state_.faults.open_seen) state_.faults.open_seen(open);
    state_.dataset.Describe(*opened.mutable_fields());
    if (state_.faults.opened) state_.faults.opened(opened);
    outbox_.push_back(std::move(reply));
    return true;
  }

  void TakeRequest() FOREBAY_REQUIRES(mutex_) {
    for (const std::uint64_t id : request_.release()) {
      if (held_->Release(id)) {
        state_.counters.releases += 1;
      } else {
        state_.counters.bad_releases += 1;
      }
    }
    v1::StreamReply reply;
    std::deque<v1::StreamReply> chunks;
    for (const v1::Pull& pull : request_.pulls()) {
      state_.counters.pulls += 1;
      for (std::uint32_t i = 0; i < pull.step_count(); ++i) {
        if (batches_ >= state_.faults.mute_after_batches || state_.slots.is_frozen()) continue;
        Answer(pull, pull.first_step() + i, reply, chunks);
      }
    }
    if (state_.faults.reverse_batches) {
      std::reverse(reply.mutable_batches()->begin(), reply.mutable_batches()->end());
    }
    if (reply.batches_size() + reply.errors_size() != 0) Push(std::move(reply));
    for (v1::StreamReply& chunk : chunks) Push(std::move(chunk));
    if (request_.finish()) SendTrailer();
  }

  void Push(v1::StreamReply reply) FOREBAY_REQUIRES(mutex_) {
    if (state_.faults.reply) state_.faults.reply(reply);
    outbox_.push_back(std::move(reply));
  }

  void SendTrailer() FOREBAY_REQUIRES(mutex_) {
    if (state_.faults.no_trailer) {
      FinishOnce(grpc::Status::OK);
      return;
    }
    v1::StreamReply reply;
    *reply.mutable_trailer() = trailer_;
    if (state_.faults.trailer) state_.faults.trailer(*reply.mutable_trailer());
    outbox_.push_back(std::move(reply));
  }

  void Answer(const v1::Pull& pull, std::uint64_t step, v1::StreamReply& reply,
              std::deque<v1::StreamReply>& chunks) FOREBAY_REQUIRES(mutex_) {
    const Result<StepSlice> slice =
        pull.micro_size() == 0
            ? plan_->RankSlice(StepId(step), open_.rank())
            : plan_->MicroBatchSlice({.step = StepId(step),
                                      .index = pull.micro_index(),
                                      .samples = pull.micro_size()});
    if (!slice) return Refuse(pull, step, slice.error(), reply);
    if (state_.faults.refuse) {
      const std::optional<Error> refusal = state_.faults.refuse(step);
      if (refusal) return Refuse(pull, step, *refusal, reply);
    }
    v1::Batch& batch = *reply.add_batches();
    batch.set_id(held_->Add());
    batch.set_epoch(pull.epoch());
    batch.set_step(step);
    batch.set_micro_size(pull.micro_size());
    batch.set_micro_index(pull.micro_index());
    FillBatch(*slice, batch, chunks);
    if (held_->size() > open_.credits()) state_.counters.credit_breaches += 1;
    RaiseMax(state_.counters.held_max, held_->size());
    state_.counters.batches += 1;
    ++batches_;
    trailer_.set_batches(trailer_.batches() + 1);
    trailer_.set_samples(trailer_.samples() + batch.sample_count());
    trailer_.set_padded(trailer_.padded() + batch.padded_count());
    trailer_.set_checksum(trailer_.checksum() +
                          BatchDigest({.epoch = EpochId(batch.epoch()),
                                       .step = StepId(step),
                                       .micro_size = batch.micro_size(),
                                       .micro_index = batch.micro_index(),
                                       .rank = open_.rank()},
                                      std::as_bytes(std::span(batch.sample_ids()))));
  }

  static void Refuse(const v1::Pull& pull, std::uint64_t step, const Error& why,
                     v1::StreamReply& reply) {
    v1::BatchError& error = *reply.add_errors();
    error.set_epoch(pull.epoch());
    error.set_step(step);
    error.set_micro_size(pull.micro_size());
    error.set_micro_index(pull.micro_index());
    error.set_code(static_cast<std::uint32_t>(why.code()));
    error.set_message(why.message());
  }

  void FillBatch(const StepSlice& slice, v1::Batch& batch, std::deque<v1::StreamReply>& chunks)
      FOREBAY_REQUIRES(mutex_) {
    const Order order(order_, EpochId(batch.epoch()));
    std::vector<std::uint64_t> ids;
    for (std::uint64_t p = slice.first; p < slice.first + slice.count; ++p) {
      const ResolvedPosition resolved = plan_->Resolve(p);
      ids.push_back(order.Forward(resolved.position));
      if (resolved.padded) batch.set_padded_count(batch.padded_count() + 1);
    }
    batch.set_first_position(slice.first);
    batch.set_sample_count(static_cast<std::uint32_t>(ids.size()));
    batch.set_sample_ids(ids.data(), ids.size() * sizeof(std::uint64_t));
    if (open_.inline_payload()) {
      FillInline(ids, batch, chunks);
    } else {
      FillShared(ids, batch);
    }
    v1::FieldData& labels = *batch.add_fields();
    for (const std::uint64_t id : ids) {
      AppendRaw(*labels.mutable_constants(), FakeDataset::Label(id));
    }
  }

  void FillTexts(const std::vector<std::uint64_t>& ids, v1::Batch& batch) FOREBAY_REQUIRES(mutex_) {
    v1::FieldData& texts = *batch.add_fields();
    for (const std::uint64_t id : ids) {
      const std::vector<WireSpan> spans = state_.dataset.TextSpans(id);
      texts.add_span_counts(static_cast<std::uint32_t>(spans.size()));
      for (const WireSpan& span : spans) AppendSpan(*texts.mutable_spans(), span);
    }
  }

  void FillShared(const std::vector<std::uint64_t>& ids, v1::Batch& batch)
      FOREBAY_REQUIRES(mutex_) {
    v1::FieldData& images = *batch.add_fields();
    v1::FieldData& weights = *batch.add_fields();
    std::optional<std::uint64_t> slot;
    if (open_.delivery() == static_cast<std::uint32_t>(Delivery::kViews)) {
      for (const std::uint64_t id : ids) {
        AppendSpan(*images.mutable_spans(), state_.dataset.ImageSpan(id));
        AppendSpan(*weights.mutable_spans(), state_.dataset.WeightSpan(id));
      }
    } else if (!ids.empty()) {
      slot = state_.slots.Take();
      const std::uint64_t image_bytes = state_.dataset.image_bytes();
      std::byte* next = state_.slots.region().bytes().data() + *slot;
      FOREBAY_CHECK(ids.size() * (image_bytes + sizeof(float)) <= state_.slots.slot_bytes());
      const std::byte* arena = state_.dataset.arena().bytes().data();
      for (const std::uint64_t id : ids) {
        std::memcpy(next, arena + state_.dataset.ImageSpan(id).offset, image_bytes);
        next += image_bytes;
      }
      for (const std::uint64_t id : ids) {
        std::memcpy(next, arena + state_.dataset.WeightSpan(id).offset, sizeof(float));
        next += sizeof(float);
      }
      const std::uint64_t total = ids.size() * image_bytes;
      AppendSpan(*images.mutable_tensor(),
                 {.region = FakeSlots::kSlotRegion, .offset = *slot, .length = total});
      AppendSpan(*weights.mutable_tensor(), {.region = FakeSlots::kSlotRegion,
                                             .offset = *slot + total,
                                             .length = ids.size() * sizeof(float)});
    }
    FillTexts(ids, batch);
    held_->SetSlot(batch.id(), slot);
  }

  void FillInline(const std::vector<std::uint64_t>& ids, v1::Batch& batch,
                  std::deque<v1::StreamReply>& chunks) FOREBAY_REQUIRES(mutex_) {
    std::string payload;
    const char* arena = reinterpret_cast<const char*>(state_.dataset.arena().bytes().data());
    v1::FieldData& images = *batch.add_fields();
    v1::FieldData& weights = *batch.add_fields();
    const auto inline_span = [&](const WireSpan& source) {
      const WireSpan span = {
          .region = kInlineRegion, .offset = payload.size(), .length = source.length};
      payload.append(arena + source.offset, source.length);
      return span;
    };
    for (const std::uint64_t id : ids) inline_span(state_.dataset.ImageSpan(id));
    AppendSpan(*images.mutable_tensor(),
               {.region = kInlineRegion, .offset = 0, .length = payload.size()});
    for (const std::uint64_t id : ids) {
      AppendSpan(*weights.mutable_spans(), inline_span(state_.dataset.WeightSpan(id)));
    }
    v1::FieldData& texts = *batch.add_fields();
    for (const std::uint64_t id : ids) {
      const std::vector<WireSpan> spans = state_.dataset.TextSpans(id);
      texts.add_span_counts(static_cast<std::uint32_t>(spans.size()));
      for (const WireSpan& span : spans) {
        const bool absent = span.region == kAbsentRegion;
        AppendSpan(*texts.mutable_spans(), absent ? span : inline_span(span));
      }
    }
    batch.set_inline_bytes(payload.size());
    constexpr std::size_t kChunkBytes = 100'000;
    for (std::size_t offset = 0; offset < payload.size(); offset += kChunkBytes) {
      v1::InlineChunk& chunk = *chunks.emplace_back().mutable_chunk();
      chunk.set_batch_id(batch.id());
      chunk.set_offset(offset);
      chunk.set_data(payload.substr(offset, kChunkBytes));
    }
  }

  void SendIfIdle() FOREBAY_REQUIRES(mutex_) {
    if (writing_ || finished_ || outbox_.empty()) return;
    sending_ = std::move(outbox_.front());
    outbox_.pop_front();
    writing_ = true;
    StartWrite(&sending_);
  }

  FakeServiceState& state_;
  std::shared_ptr<FakeStream> until_done_;  // itself
  Mutex mutex_;
  v1::StreamRequest request_ FOREBAY_GUARDED_BY(mutex_);
  v1::OpenStream open_ FOREBAY_GUARDED_BY(mutex_);
  OrderSpec order_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<StepPlan> plan_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<v1::StreamReply> outbox_ FOREBAY_GUARDED_BY(mutex_);
  v1::StreamReply sending_ FOREBAY_GUARDED_BY(mutex_);
  bool writing_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool finished_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool closed_ FOREBAY_GUARDED_BY(mutex_) = false;  // the reader needs nothing any more
  std::uint64_t batches_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<FakeHeld> held_ FOREBAY_GUARDED_BY(mutex_);  // null until the stream is open
  v1::Trailer trailer_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace

FakeSlots::FakeSlots(std::uint64_t slot_bytes, std::uint32_t count, bool sealed)
    : slot_bytes_(slot_bytes), region_(kSlotRegion, slot_bytes * count, sealed) {
  for (std::uint32_t i = count; i > 0; --i) free_.push_back((i - 1) * slot_bytes);
}

std::uint64_t FakeSlots::Take() {
  MutexLock lock(mutex_);
  FOREBAY_CHECK(!free_.empty());
  const std::uint64_t offset = free_.back();
  free_.pop_back();
  return offset;
}

void FakeSlots::GiveBack(std::uint64_t offset) {
  MutexLock lock(mutex_);
  if (frozen_) return;
  // What a released slot holds must not matter to anybody.
  std::fill_n(region_.bytes().begin() + static_cast<std::ptrdiff_t>(offset),
              std::min<std::uint64_t>(slot_bytes_, 64), std::byte{0xDD});
  free_.push_back(offset);
}

void FakeSlots::Freeze() {
  MutexLock lock(mutex_);
  frozen_ = true;
}

bool FakeSlots::is_frozen() const {
  MutexLock lock(mutex_);
  return frozen_;
}

std::uint64_t FakeHeld::Add() {
  const MutexLock lock(mutex_);
  slot_of_.emplace(++next_id_, std::nullopt);
  return next_id_;
}

void FakeHeld::SetSlot(std::uint64_t id, std::optional<std::uint64_t> slot) {
  const MutexLock lock(mutex_);
  slot_of_.at(id) = slot;
}

bool FakeHeld::Release(std::uint64_t id) {
  const MutexLock lock(mutex_);
  const auto held = slot_of_.find(id);
  if (held == slot_of_.end()) return false;
  if (held->second) slots_.GiveBack(*held->second);
  slot_of_.erase(held);
  return true;
}

std::vector<std::uint64_t> FakeHeld::ReleaseAllBut(const std::vector<std::uint64_t>& ids) {
  std::vector<std::uint64_t> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, slot] : slot_of_) all.push_back(id);
  }
  std::vector<std::uint64_t> kept;
  for (const std::uint64_t id : all) {
    if (std::ranges::find(ids, id) != ids.end()) {
      kept.push_back(id);
    } else {
      Release(id);
    }
  }
  return kept;
}

std::size_t FakeHeld::size() const {
  const MutexLock lock(mutex_);
  return slot_of_.size();
}

std::shared_ptr<FakeHeld> FakeReaders::Find(std::uint64_t reader, FakeSlots& slots) {
  const MutexLock lock(mutex_);
  std::shared_ptr<FakeHeld>& held = held_[reader];
  if (held == nullptr) held = std::make_shared<FakeHeld>(slots);
  return held;
}

void FakeReaders::Forget(std::uint64_t reader) {
  std::shared_ptr<FakeHeld> held;
  {
    const MutexLock lock(mutex_);
    const auto found = held_.find(reader);
    if (found == held_.end()) return;
    held = std::move(found->second);
    held_.erase(found);
  }
  held->ReleaseAllBut({});
}

std::size_t FakeReaders::size() const {
  const MutexLock lock(mutex_);
  return held_.size();
}

grpc::ServerUnaryReactor* FakeDataService::Hello(grpc::CallbackServerContext* context,
                                                 const v1::HelloRequest*,
                                                 v1::HelloReply* reply) {
  reply->set_protocol_version(kProtocolVersion);
  reply->set_layout_version(kLayoutVersion);
  reply->set_order_version(kOrderSpecVersion);
  reply->set_catalog_version(kCatalogVersion);
  reply->set_job_id(state_.job_id);
  reply->set_generation(state_.generation);
  reply->add_datasets("fake");
  if (state_.faults.hello_reply) state_.faults.hello_reply(*reply);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(state_.faults.cancel_hello ? grpc::Status::CANCELLED : grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* FakeDataService::Describe(grpc::CallbackServerContext* context,
                                                    const v1::DescribeRequest* request,
                                                    v1::DescribeReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (request->dataset() != "fake") {
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "no data set '" + request->dataset() + "'"});
    return reactor;
  }
  reply->set_dataset("fake");
  reply->set_format("arithmetic");
  reply->set_catalog_fingerprint(state_.dataset.fingerprint());
  reply->set_sample_count(state_.dataset.samples());
  reply->set_total_bytes(state_.dataset.samples() * state_.dataset.image_bytes());
  state_.dataset.Describe(*reply->mutable_fields());
  reply->set_selected_count(state_.dataset.samples());
  reply->set_selection_fingerprint(kSelectionFingerprint);
  if (state_.faults.describe_reply) state_.faults.describe_reply(*reply);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* FakeDataService::Stream(
    grpc::CallbackServerContext*) {
  return FakeStream::Begin(state_);
}

}  // namespace forebay::testing
