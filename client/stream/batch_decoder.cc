// Turns the daemon's message into spans that the caller reads. Every span is looked up in the
// region that it names, and must lie in it; every count must equal what the schema and the other
// counts say. A field comes in one of three forms: constants, one tensor, or a list of spans (with
// a count for each sample, where samples have several pieces).
#include "client/stream/batch_decoder.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

std::string TitleOf(const v1::Batch& batch) {
  return "batch (epoch " + std::to_string(batch.epoch()) + ", step " +
         std::to_string(batch.step()) + ")";
}

// Decodes the fields of one batch, one after the other.
class FieldDecoder {
 public:
  FieldDecoder(const v1::Batch& batch, const DecodeSources& sources, Batch::State& state)
      : batch_(batch), sources_(sources), state_(state) {}

  Status Decode(std::size_t index) {
    const v1::FieldData& data = batch_.fields(static_cast<int>(index));
    const FieldSpec& spec = sources_.schema.fields[index];
    name_ = &spec.name;
    const bool has_tensor = !data.tensor().empty();
    const bool has_spans = !data.spans().empty() || data.span_counts_size() != 0;
    if (spec.source == FieldSource::kConstant) {
      if (has_tensor || has_spans) return Bad("is a constant but came with bytes");
      return DecodeConstants(data.constants());
    }
    if (!data.constants().empty()) return Bad("came with constants");
    // A field in two forms could say two different things; which one the caller would read should
    // not depend on this code.
    if (has_tensor && has_spans) return Bad("came as a tensor and as spans");
    if (has_tensor) return DecodeTensor(data.tensor(), sources_.schema.sample_bytes[index]);
    return DecodeSpans(data, sources_.schema.sample_bytes[index]);
  }

 private:
  Error Bad(const std::string& what) const {
    return Error(ErrorCode::kDataLoss, TitleOf(batch_) + ": field '" + *name_ + "' " + what);
  }

  Error OutsideMemory(const WireSpan& span) const {
    return Bad("lies outside the memory it names: region " + std::to_string(span.region) +
               ", offset " + std::to_string(span.offset) + ", length " +
               std::to_string(span.length));
  }

  // Null where the span does not lie in the memory it names.
  const std::byte* Find(const WireSpan& span) const {
    if (span.region != kInlineRegion) {
      const std::byte* const place = sources_.regions.Find(span);
      // Told here, when the batch arrives: the pages are mapped while the batch waits for its turn.
      if (place != nullptr && sources_.populator != nullptr) sources_.populator->Want(span);
      return place;
    }
    // A batch without shared memory refers to its own bytes, by a region number that no mapping
    // has. The vector is complete before decoding starts, so its addresses stay valid.
    const std::vector<std::byte>& payload = state_.inline_payload;
    if (span.offset > payload.size() || span.length > payload.size() - span.offset) {
      return nullptr;
    }
    // An empty payload has no address; an empty span in it still has a place.
    static constexpr std::byte kNothing{};
    return payload.empty() ? &kNothing : payload.data() + span.offset;
  }

  Status DecodeConstants(const std::string& bytes) {
    const std::size_t count = state_.sample_count;
    // Constants travel in the message itself: they are a few bytes a sample and lie in no region.
    if (bytes.size() != count * sizeof(std::int64_t)) {
      return Bad("has " + std::to_string(bytes.size()) + " bytes of constants for " +
                 std::to_string(count) + " samples");
    }
    Batch::State::Field field;
    field.has_constants = true;
    field.constants_begin = state_.constants.size();
    state_.constants.resize(field.constants_begin + count);
    // An empty vector may have a null address, which memcpy must not be given.
    if (count != 0) {
      std::memcpy(state_.constants.data() + field.constants_begin, bytes.data(), bytes.size());
    }
    // No spans for any sample.
    field.bounds_begin = state_.span_bounds.size();
    state_.span_bounds.resize(field.bounds_begin + count + 1, SpanCount());
    state_.fields.push_back(field);
    return {};
  }

  Status DecodeTensor(const std::string& bytes, std::uint64_t sample_bytes) {
    const std::uint64_t count = state_.sample_count;
    if (sample_bytes == 0) return Bad("has no fixed size but came as a tensor");
    if (bytes.size() != sizeof(WireSpan)) return Bad("has a malformed tensor");
    WireSpan span;
    std::memcpy(&span, bytes.data(), sizeof(span));
    // At most 2^40 bytes per sample and 2^16 samples: no overflow.
    if (span.length != count * sample_bytes) {
      return Bad("has " + std::to_string(span.length) + " bytes for " + std::to_string(count) +
                 " samples of " + std::to_string(sample_bytes));
    }
    Batch::State::Field field;
    field.tensor = Find(span);
    field.tensor_bytes = span.length;
    if (field.tensor == nullptr) return OutsideMemory(span);
    state_.payload_bytes += span.length;
    // A tensor is also readable sample by sample (Batch::Spans).
    field.bounds_begin = state_.span_bounds.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      state_.span_bounds.push_back(SpanCount());
      state_.spans.emplace_back(field.tensor + i * sample_bytes, sample_bytes);
    }
    state_.span_bounds.push_back(SpanCount());
    state_.fields.push_back(field);
    return {};
  }

  Status DecodeSpans(const v1::FieldData& data, std::uint64_t sample_bytes) {
    // Spans travel as raw bytes, and without counts where each sample has one: for a batch of small
    // samples the message is then little more than 16 bytes a sample.
    const std::size_t span_count = data.spans().size() / sizeof(WireSpan);
    const std::size_t sample_count = state_.sample_count;
    const bool counted = data.span_counts_size() != 0;
    if (data.spans().size() % sizeof(WireSpan) != 0) return Bad("has malformed spans");
    if (counted && static_cast<std::size_t>(data.span_counts_size()) != sample_count) {
      return Bad("counts the spans of " + std::to_string(data.span_counts_size()) +
                 " samples of " + std::to_string(sample_count));
    }
    if (!counted && span_count != sample_count) {
      return Bad("has " + std::to_string(span_count) + " spans for " +
                 std::to_string(sample_count) + " samples");
    }
    Batch::State::Field field;
    field.bounds_begin = state_.span_bounds.size();
    const char* next = data.spans().data();
    std::size_t left = span_count;
    for (std::size_t i = 0; i < sample_count; ++i) {
      const std::size_t pieces = counted ? data.span_counts(static_cast<int>(i)) : 1;
      // Compared with what is left, so that counts whose sum wraps around cannot pass.
      if (pieces > left) return Bad("counts more spans than it has");
      left -= pieces;
      state_.span_bounds.push_back(SpanCount());
      FOREBAY_TRY(DecodeSample({next, pieces * sizeof(WireSpan)}, sample_bytes));
      next += pieces * sizeof(WireSpan);
    }
    if (left != 0) return Bad("has more spans than it counts");
    state_.span_bounds.push_back(SpanCount());
    state_.fields.push_back(field);
    return {};
  }

  // The pieces of one sample; `sample_bytes` is 0 where the size varies.
  Status DecodeSample(std::span<const char> pieces, std::uint64_t sample_bytes) {
    std::uint64_t total = 0;
    bool absent = pieces.empty();
    for (; !pieces.empty(); pieces = pieces.subspan(sizeof(WireSpan))) {
      WireSpan span;
      std::memcpy(&span, pieces.data(), sizeof(span));
      // The daemon marks a sample without this field by one span of no region.
      if (span.region == kAbsentRegion) {
        absent = true;
        continue;
      }
      const std::byte* place = Find(span);
      if (place == nullptr) return OutsideMemory(span);
      // Far from where a sum of lengths would wrap.
      if (span.length > limits::kObjectBytesMax - total) return Bad("has an endless sample");
      total += span.length;
      state_.spans.emplace_back(place, span.length);
    }
    // Also where the marker stands beside pieces, in whatever order.
    if (absent && total != 0) return Bad("has a sample that is absent and present");
    if (!absent && sample_bytes != 0 && total != sample_bytes) {
      return Bad("has a sample of " + std::to_string(total) + " bytes instead of " +
                 std::to_string(sample_bytes));
    }
    state_.payload_bytes += total;
    return {};
  }

  std::uint32_t SpanCount() const { return static_cast<std::uint32_t>(state_.spans.size()); }

  const v1::Batch& batch_;
  const DecodeSources& sources_;
  Batch::State& state_;
  const std::string* name_ = nullptr;
};

}  // namespace

Status DecodeBatch(const v1::Batch& batch, const DecodeSources& sources, Batch::State& state) {
  const std::size_t count = batch.sample_count();
  if (count > limits::kLocalBatchMax) {
    return Error(ErrorCode::kDataLoss,
                 TitleOf(batch) + " has more samples than kLocalBatchMax");
  }
  // The counts come first: every array below is sized, and every loop bounded, by `count`.
  if (batch.padded_count() > count) {
    return Error(ErrorCode::kDataLoss, TitleOf(batch) + " has more padding than samples");
  }
  if (batch.sample_ids().size() != count * sizeof(std::uint64_t)) {
    return Error(ErrorCode::kDataLoss, TitleOf(batch) + " has " +
                                         std::to_string(batch.sample_ids().size()) +
                                         " bytes of ids for " + std::to_string(count) +
                                         " samples");
  }
  if (static_cast<std::size_t>(batch.fields_size()) != sources.schema.fields.size()) {
    return Error(ErrorCode::kDataLoss, TitleOf(batch) + " has " +
                                         std::to_string(batch.fields_size()) +
                                         " fields instead of " +
                                         std::to_string(sources.schema.fields.size()));
  }
  state.epoch = EpochId(batch.epoch());
  state.step = StepId(batch.step());
  state.micro_size = batch.micro_size();
  state.micro_index = batch.micro_index();
  state.wire_id = batch.id();
  state.first_position = batch.first_position();
  state.sample_count = batch.sample_count();
  state.padded_count = batch.padded_count();
  // Ids are sent as they lie in memory; both ends are of one machine.
  static_assert(sizeof(SampleId) == sizeof(std::uint64_t));
  state.sample_ids.resize(count);
  if (count != 0) {
    std::memcpy(static_cast<void*>(state.sample_ids.data()), batch.sample_ids().data(),
                count * sizeof(SampleId));
  }
  // Fields are decoded in the schema's order, so that a field's number is its index in the state.
  FieldDecoder decoder(batch, sources, state);
  for (std::size_t i = 0; i < sources.schema.fields.size(); ++i) FOREBAY_TRY(decoder.Decode(i));
  return {};
}

}  // namespace forebay::internal
