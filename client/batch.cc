// A Batch is a reference to a Batch::State, which was filled and checked when the batch arrived
// (batch_decoder.h). So these functions only look things up; they check what the caller passes, not
// what the daemon sent. Gather is the only one that copies payload.
#include "forebay/batch.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "client/stream/batch_state.h"
#include "proto/contract/check.h"

namespace forebay {
namespace {

// The samples of views lie where the processor does not expect them. A reader that goes through a
// batch in order would wait for memory at each sample. While it reads one sample, the beginning of
// the sample after the next one is therefore prefetched; the processor's own prefetcher brings the
// rest.
constexpr std::uint32_t kSamplesAhead = 2;
constexpr std::size_t kPrefetchedBytes = 256;
constexpr std::size_t kCacheLineBytes = 64;

void Prefetch(std::span<const std::byte> bytes) {
  const std::size_t end = std::min(kPrefetchedBytes, bytes.size());
  for (std::size_t at = 0; at < end; at += kCacheLineBytes) __builtin_prefetch(&bytes[at]);
}

Error NoSuchField(FieldId field, std::size_t count) {
  return Error(ErrorCode::kNotFound, "field " + std::to_string(field.value()) +
                                         " of a batch that has " + std::to_string(count));
}

}  // namespace

EpochId Batch::epoch() const { return state_->epoch; }
StepId Batch::step() const { return state_->step; }
std::uint32_t Batch::sample_count() const { return state_->sample_count; }
std::uint32_t Batch::padded_count() const { return state_->padded_count; }
std::uint64_t Batch::first_position() const { return state_->first_position; }
std::span<const SampleId> Batch::sample_ids() const { return state_->sample_ids; }
std::span<const FieldSpec> Batch::fields() const { return state_->schema->fields; }
std::span<const std::byte> Batch::transformed() const { return state_->transformed; }
const PositionToken& Batch::token() const { return state_->token; }
std::shared_ptr<const void> Batch::hold() const { return state_; }

// A linear search: a daemon passes few regions, and a caller asks once for each region that it
// registers, not for each sample. The bytes of a batch that came inside messages lie in no region,
// so nothing is found for them.
SharedMapping Batch::MappingOf(const std::byte* data) const {
  if (!state_->regions) return {};
  // The built-in `<=` has no defined result on pointers into different objects; this function
  // object orders all pointers.
  const std::less_equal<> not_behind;
  for (const auto& region : state_->regions->regions()) {
    if (!region || !not_behind(region->data(), data)) continue;
    if (not_behind(region->data() + region->bytes(), data)) continue;
    return {.bytes = {region->data(), region->bytes()}, .hold = region};
  }
  return {};
}

Result<FieldId> Batch::Field(std::string_view name) const {
  const std::vector<FieldSpec>& fields = state_->schema->fields;
  for (std::uint32_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == name) return FieldId(i);
  }
  // An error that lists the fields shows a misspelt name at once.
  std::string known;
  for (const FieldSpec& field : fields) known += (known.empty() ? "" : ", ") + field.name;
  return Error(ErrorCode::kNotFound,
               "no field '" + std::string(name) + "'; there are: " + known);
}

Result<TensorView> Batch::Tensor(FieldId field) const {
  const State& state = *state_;
  if (field.value() >= state.fields.size()) return NoSuchField(field, state.fields.size());
  const State::Field& data = state.fields[field.value()];
  const FieldSpec& spec = state.schema->fields[field.value()];
  if (spec.source == FieldSource::kConstant) {
    return Error(ErrorCode::kFailedPrecondition,
                 "field '" + spec.name + "' is a constant of the catalog: use Constants");
  }
  // The daemon delivers views, and fields whose size varies, as one span or more for each sample.
  if (data.tensor == nullptr) {
    return Error(ErrorCode::kFailedPrecondition,
                 "field '" + spec.name + "' did not arrive as one tensor: use Spans" +
                     (spec.is_fixed() ? ", or Gather" : ""));
  }
  TensorView view = {.data = data.tensor,
                     .bytes = data.tensor_bytes,
                     .dtype = spec.dtype,
                     .big_endian = spec.big_endian,
                     .shape = {}};
  // The first dimension is the batch's own: a last batch of an epoch may be smaller than the
  // others.
  view.shape.reserve(spec.shape.size() + 1);
  view.shape.push_back(state.sample_count);
  view.shape.insert(view.shape.end(), spec.shape.begin(), spec.shape.end());
  return view;
}

Result<TensorView> Batch::Tensor(std::string_view name) const {
  FOREBAY_ASSIGN(const FieldId field, Field(name));
  return Tensor(field);
}

// Called once for each sample, in the innermost loop of most readers. An index out of range is a
// defect of the caller, so it ends the program instead of costing every caller a Result.
std::span<const std::span<const std::byte>> Batch::Spans(FieldId field,
                                                         std::uint32_t sample) const {
  FOREBAY_CHECK(field.value() < state_->fields.size());
  FOREBAY_CHECK(sample < state_->sample_count);
  const State::Field& data = state_->fields[field.value()];
  // The rows of a tensor lie one after another, which the processor does expect.
  if (data.tensor == nullptr && sample + kSamplesAhead < state_->sample_count) {
    const auto ahead = state_->SpansOf(data, sample + kSamplesAhead);
    if (!ahead.empty()) Prefetch(ahead.front());
  }
  return state_->SpansOf(data, sample);
}

Status Batch::Gather(FieldId field, std::span<std::byte> out) const {
  const State& state = *state_;
  if (field.value() >= state.fields.size()) return NoSuchField(field, state.fields.size());
  const std::uint64_t sample_bytes = state.schema->sample_bytes[field.value()];
  const std::string& name = state.schema->fields[field.value()].name;
  if (sample_bytes == 0) {
    return Error(ErrorCode::kFailedPrecondition, "field '" + name + "' has no fixed size");
  }
  // The bytes must fit exactly: a larger target would keep old bytes at its end, which a caller
  // that takes the whole of it would train on.
  if (out.size() / sample_bytes != state.sample_count || out.size() % sample_bytes != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "field '" + name + "' needs " + std::to_string(state.sample_count) + " x " +
                     std::to_string(sample_bytes) + " bytes, the target has " +
                     std::to_string(out.size()));
  }
  const State::Field& data = state.fields[field.value()];
  for (std::uint32_t sample = 0; sample < state.sample_count; ++sample) {
    const auto spans = state.SpansOf(data, sample);
    // A sample may lack the field. Nothing sensible could stand in its place, so the copy stops
    // here; the target then has the samples before this one.
    if (spans.empty()) {
      return Error(ErrorCode::kNotFound,
                   "sample " + std::to_string(state.sample_ids[sample].value()) +
                       " has no field '" + name + "'");
    }
    for (const std::span<const std::byte> span : spans) {
      std::memcpy(out.data(), span.data(), span.size());
      out = out.subspan(span.size());
    }
  }
  return {};
}

Result<std::span<const std::int64_t>> Batch::Constants(FieldId field) const {
  const State& state = *state_;
  if (field.value() >= state.fields.size()) return NoSuchField(field, state.fields.size());
  const State::Field& data = state.fields[field.value()];
  if (!data.has_constants) {
    return Error(ErrorCode::kFailedPrecondition,
                 "field '" + state.schema->fields[field.value()].name +
                     "' is not a constant of the catalog: use Tensor or Spans");
  }
  return std::span(state.constants).subspan(data.constants_begin, state.sample_count);
}

}  // namespace forebay
