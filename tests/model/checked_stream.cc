#include "tests/model/checked_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/order.h"

namespace forebay::model {

using stream::BatchName;
using stream::CollectingSink;

Result<std::unique_ptr<CheckedStream>> CheckedStream::Open(
    stream::ServeFixture& rooms, std::shared_ptr<ServedModel> served,
    const stream::ServeFixture::Ask& ask) {
  std::unique_ptr<CollectingSink> sink = rooms.MakeSink();
  FOREBAY_ASSIGN(auto session, rooms.Open(ask, *sink));
  return std::unique_ptr<CheckedStream>(
      new CheckedStream(std::move(served), std::move(sink), std::move(session)));
}

Status CheckedStream::Pull(std::uint64_t steps, std::vector<Refusal>& refusals) {
  const std::uint64_t end = next_step_ + std::min(steps, steps_left());
  const std::uint64_t credits = session_->spec().credits;
  std::uint64_t under_way = 0;
  while (next_step_ < end || under_way > 0) {
    for (; next_step_ < end && under_way < credits; ++under_way) {
      FOREBAY_TRY(session_->Pull({.first = {.epoch = epoch_, .step = StepId(next_step_++)}}));
    }
    if (!AwaitNext()) {
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("a pull hangs; {} batches before step {} are under way", under_way,
                               next_step_));
    }
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      FOREBAY_TRY(Take(batch));
      FOREBAY_TRY(session_->Release({&batch.id, 1}));
      --under_way;
    }
    const std::vector<Error> errors = sink_->errors();
    const std::vector<BatchName> failed = sink_->failed();
    for (; errors_seen_ < std::min(errors.size(), failed.size()); ++errors_seen_) {
      Refusal refusal{.error = errors[errors_seen_], .samples = SamplesOf(failed[errors_seen_])};
      FOREBAY_TRY(SeeOnce(refusal.samples));
      refusals.push_back(std::move(refusal));
      --under_way;
    }
  }
  return {};
}

// A batch, or an error. The service promises one of them within its deadline for a pull.
bool CheckedStream::AwaitNext() {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(limits::kPullDeadlineMs + 10'000);
  while (!sink_->WaitFor(errors_seen_ + 1)) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

Status CheckedStream::Take(const CollectingSink::Taken& batch) {
  if (batch.sample_ids != SamplesOf(batch.name)) {
    return Error(ErrorCode::kDataLoss, fmt::format("step {} has other samples than its order",
                                                   batch.name.step.value()));
  }
  FOREBAY_TRY(SeeOnce(batch.sample_ids));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
    values.clear();
    for (const auto& field : batch.fields) values.push_back(field[i]);
    FOREBAY_TRY(served_->Deliver(batch.sample_ids[i], values));
  }
  delivered_ += batch.sample_ids.size();
  return {};
}

std::vector<std::uint64_t> CheckedStream::SamplesOf(const BatchName& name) const {
  const stream::StreamSpec& spec = session_->spec();
  const auto slice = SliceOf(spec, name);
  FOREBAY_CHECK(slice.has_value());
  const Order order(spec.order, name.epoch);
  std::vector<std::uint64_t> samples;
  const std::uint64_t end = std::min(slice->first + slice->count, spec.plan.sample_count());
  for (std::uint64_t position = slice->first; position < end; ++position) {
    samples.push_back(spec.selection->At(order.Forward(Position(position))).value());
  }
  return samples;
}

Status CheckedStream::SeeOnce(std::span<const std::uint64_t> samples) {
  for (const std::uint64_t sample : samples) {
    if (seen_.insert(sample).second) continue;
    return Error(ErrorCode::kDataLoss, fmt::format("sample {} came twice", sample));
  }
  return {};
}

Status CheckedStream::EndEpoch() {
  FOREBAY_CHECK(steps_left() == 0);
  if (seen_.size() != served_->sample_count()) {
    return Error(ErrorCode::kDataLoss, fmt::format("an epoch of {} samples ended after {}",
                                                   served_->sample_count(), seen_.size()));
  }
  seen_.clear();
  epoch_ = EpochId(epoch_.value() + 1);
  next_step_ = 0;
  return {};
}

}  // namespace forebay::model
