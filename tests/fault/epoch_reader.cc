#include "tests/fault/epoch_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/contract/order_spec.h"
#include "proto/contract/wire_layout.h"
#include "tests/fault/sample_files.h"

namespace forebay::fault {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBeforeAskingAgain(100);

Error ToError(const grpc::Status& status) {
  return Error(static_cast<ErrorCode>(status.error_code()), status.error_message());
}

std::vector<WireSpan> SpansIn(const std::string& bytes) {
  std::vector<WireSpan> spans(bytes.size() / sizeof(WireSpan));
  std::memcpy(spans.data(), bytes.data(), spans.size() * sizeof(WireSpan));
  return spans;
}

void Append(std::vector<std::byte>& sample, std::span<const std::byte> bytes) {
  sample.insert(sample.end(), bytes.begin(), bytes.end());
}

}  // namespace

EpochReader::EpochReader(const ReaderOptions& options)
    : options_(options), deadline_(steady_clock::now() + options.patience),
      thread_([this] { Run(); }) {}

EpochReader::~EpochReader() {
  Resume();
  if (thread_.joinable()) thread_.join();
}

bool EpochReader::AwaitPause() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return paused_ || ended_; });
  return paused_;
}

void EpochReader::Resume() {
  {
    const std::lock_guard lock(mutex_);
    resumed_ = true;
  }
  changed_.notify_all();
}

EpochResult EpochReader::Join() {
  thread_.join();
  std::ranges::sort(result_.hashes);
  return std::move(result_);
}

void EpochReader::Run() {
  integration::RawClient client(options_.socket_path);
  client_ = &client;
  if (const auto dataset = Describe(client)) ReadEpoch(client, *dataset);
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

std::chrono::seconds EpochReader::Remaining() const {
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline_ -
                                                                     steady_clock::now());
  return std::max(left, std::chrono::seconds(1));
}

bool EpochReader::MayTryAgain(const Error& error) const {
  const bool is_retryable = error.retryable() || error.code() == ErrorCode::kDeadlineExceeded;
  return is_retryable && steady_clock::now() < deadline_;
}

void EpochReader::Wait(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [] { return false; });
}

std::optional<v1::DescribeReply> EpochReader::Describe(integration::RawClient& client) {
  while (true) {
    v1::DescribeRequest request;
    request.set_dataset(options_.dataset);
    request.set_wait_for_catalog(true);
    v1::DescribeReply reply;
    const auto context = integration::NewContext(Remaining());
    const grpc::Status status = client.data().Describe(context.get(), request, &reply);
    if (status.ok()) return reply;
    const Error error = ToError(status);
    if (!MayTryAgain(error)) {
      result_.end = error.WithContext("describe");
      return std::nullopt;
    }
    result_.errors.push_back(error.WithContext("describe"));
    Wait(kBeforeAskingAgain);
  }
}

v1::StreamRequest EpochReader::OpenRequest(const v1::DescribeReply& dataset) const {
  OrderSpec order = {.seed = options_.order_seed,
                     .sample_count = dataset.selected_count(),
                     .selection_fingerprint = dataset.selection_fingerprint(),
                     .tail = TailPolicy::kShort,
                     .shape = {.mode = options_.order}};
  if (options_.order == OrderMode::kBlock) {
    // Runs of about an extent, two of them mixed.
    order.shape.block_samples = std::max<std::uint64_t>(1, order.sample_count / 12);
    order.shape.window_runs = 2;
  }
  const auto spec = order.Encode();
  v1::StreamRequest request = integration::GoodOpen(dataset, options_.batch);
  v1::OpenStream& open = *request.mutable_open();
  open.set_order_spec(spec.data(), spec.size());
  open.set_credits(options_.credits);
  const bool is_contiguous = options_.arrival == Arrival::kContiguous;
  open.set_delivery(
      static_cast<std::uint32_t>(is_contiguous ? Delivery::kContiguous : Delivery::kViews));
  open.set_inline_payload(options_.arrival == Arrival::kInline);
  return request;
}

void EpochReader::ReadEpoch(integration::RawClient& client, const v1::DescribeReply& dataset) {
  integration::RawStream stream(client, Remaining());
  stream.Write(OpenRequest(dataset));
  bool is_finished = false;
  while (const auto reply = stream.Read()) {
    v1::StreamRequest request;
    TakeReply(*reply, request);
    if (reply->has_trailer()) {
      result_.has_trailer = reply->trailer().samples() == delivered_;
      stream.HalfClose();
      continue;
    }
    if (has_steps_ && !is_finished) {
      if (IsAtPause()) {
        if (outstanding_ > 0) {
          stream.Write(request);
          continue;
        }
        // Nothing of this reader is pinned while others look at the daemon.
        stream.Write(std::exchange(request, {}));
        PauseHere();
      }
      AddPulls(request);
      is_finished = wanted_.empty() && outstanding_ == 0;
      request.set_finish(is_finished);
    }
    if (request.ByteSizeLong() > 0) stream.Write(request);
  }
  const grpc::Status status = stream.End();
  if (!status.ok()) result_.end = ToError(status).WithContext("stream");
}

void EpochReader::TakeReply(const v1::StreamReply& reply, v1::StreamRequest& request) {
  if (reply.has_opened()) {
    has_steps_ = true;
    for (std::uint64_t step = 0; step < reply.opened().steps_per_epoch(); ++step) {
      wanted_.push_back({.number = step, .not_before = {}});
    }
  }
  for (const v1::Batch& batch : reply.batches()) {
    if (batch.inline_bytes() == 0) {
      TakeBatch(batch, {}, request);
    } else {
      arriving_[batch.id()].message = batch;
    }
  }
  for (const v1::BatchError& error : reply.errors()) TakeError(error);
  if (reply.has_chunk()) TakeChunk(reply.chunk(), request);
}

void EpochReader::TakeChunk(const v1::InlineChunk& chunk, v1::StreamRequest& request) {
  const auto found = arriving_.find(chunk.batch_id());
  if (found == arriving_.end()) {
    result_.errors.emplace_back(ErrorCode::kInternal, "a chunk of no batch");
    return;
  }
  InlineBatch& batch = found->second;
  batch.bytes += chunk.data();
  if (batch.bytes.size() < batch.message.inline_bytes()) return;
  TakeBatch(batch.message, std::as_bytes(std::span(batch.bytes)), request);
  arriving_.erase(found);
}

void EpochReader::TakeError(const v1::BatchError& error) {
  --outstanding_;
  const Error& taken = result_.errors.emplace_back(
      static_cast<ErrorCode>(error.code()),
      "batch " + std::to_string(error.step()) + ": " + error.message());
  if (!MayTryAgain(taken)) return;
  wanted_.push_back(
      {.number = error.step(), .not_before = steady_clock::now() + kBeforeAskingAgain});
}

std::span<const std::byte> EpochReader::BytesOf(const WireSpan& span,
                                                std::span<const std::byte> inline_bytes) const {
  if (span.region != kInlineRegion) return client_->Bytes(span);
  if (span.offset > inline_bytes.size() || span.length > inline_bytes.size() - span.offset) {
    return {};
  }
  return inline_bytes.subspan(span.offset, span.length);
}

bool EpochReader::AppendField(const v1::FieldData& field, std::span<const std::byte> inline_bytes,
                              std::vector<std::vector<std::byte>>& samples) const {
  if (!field.tensor().empty()) {
    const std::vector<WireSpan> tensor = SpansIn(field.tensor());
    const std::span<const std::byte> rows = BytesOf(tensor.at(0), inline_bytes);
    if (rows.size() != tensor[0].length || rows.size() % samples.size() != 0) return false;
    const std::size_t row_bytes = rows.size() / samples.size();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      Append(samples[i], rows.subspan(i * row_bytes, row_bytes));
    }
    return true;
  }
  const std::vector<WireSpan> spans = SpansIn(field.spans());
  std::size_t next = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::uint32_t count =
        field.span_counts().empty() ? 1 : field.span_counts(static_cast<int>(i));
    for (std::uint32_t part = 0; part < count; ++part, ++next) {
      if (next >= spans.size()) return false;
      const std::span<const std::byte> bytes = BytesOf(spans[next], inline_bytes);
      if (bytes.size() != spans[next].length) return false;
      Append(samples[i], bytes);
    }
  }
  return next == spans.size();
}

void EpochReader::TakeBatch(const v1::Batch& batch, std::span<const std::byte> inline_bytes,
                            v1::StreamRequest& request) {
  --outstanding_;
  std::vector<std::vector<std::byte>> samples(batch.sample_count());
  for (const v1::FieldData& field : batch.fields()) {
    if (!field.constants().empty()) continue;
    if (!AppendField(field, inline_bytes, samples)) {
      result_.errors.emplace_back(ErrorCode::kInternal,
                                  "batch " + std::to_string(batch.step()) + " cannot be read");
    }
  }
  for (const std::vector<std::byte>& sample : samples) {
    result_.hashes.push_back(SampleHash(sample));
  }
  delivered_ += samples.size();
  if (batch.id() != 0) request.add_release(batch.id());
}

bool EpochReader::IsAtPause() {
  const std::lock_guard lock(mutex_);
  return delivered_ >= options_.pause_after && !resumed_;
}

void EpochReader::PauseHere() {
  std::unique_lock lock(mutex_);
  paused_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return resumed_; });
}

void EpochReader::AddPulls(v1::StreamRequest& request) {
  while (!wanted_.empty() && outstanding_ < options_.credits) {
    const Step step = wanted_.front();
    const auto pause = step.not_before - steady_clock::now();
    if (pause > steady_clock::duration::zero()) {
      // Others' answers are not kept waiting: the next of them comes here again.
      if (outstanding_ > 0) return;
      Wait(std::chrono::duration_cast<std::chrono::milliseconds>(pause) +
           std::chrono::milliseconds(1));
    }
    wanted_.pop_front();
    *request.add_pulls() = integration::PullOf(step.number, 1).pulls(0);
    ++outstanding_;
  }
}

}  // namespace forebay::fault
