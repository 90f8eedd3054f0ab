// Batch: one minibatch (or micro-batch) of this rank, in memory shared with the daemon. Its fields
// are read in place; nothing is copied unless Gather is called.
//
//   #include <string>
//
//   // The sum of all pixels of a field whose samples have one size.
//   forebay::Result<std::uint64_t> SumOfImages(const forebay::Batch& batch) {
//     FOREBAY_ASSIGN(const forebay::TensorView images, batch.Tensor("images"));
//     std::uint64_t sum = 0;
//     for (const std::byte pixel : std::span(images.data, images.bytes)) {
//       sum += std::to_integer<std::uint64_t>(pixel);
//     }
//     return sum;
//   }
//
//   // A sample of a field whose samples have any length. Its bytes may lie in several pieces.
//   std::string TextOf(const forebay::Batch& batch, forebay::FieldId text, std::uint32_t sample) {
//     std::string joined;
//     for (const std::span<const std::byte> piece : batch.Spans(text, sample)) {
//       joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
//     }
//     return joined;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/order_token.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay {

// A read-only tensor: rows x FieldSpec::shape elements, row major, contiguous.
struct TensorView {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Dtype dtype = Dtype::kBytes;
  bool big_endian = false;
  std::vector<std::uint64_t> shape = {};  // {samples, ...field shape}
};

// A region of the daemon's memory as it is mapped here: read-only, and there as long as `hold` is.
// A connection has the same ones from its begin to its end.
struct SharedMapping {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> hold;
};

// A value handle. Copies share the batch; when the last copy is gone, the batch's memory goes
// back to the daemon (that return is the credit), so do not keep batches longer than needed:
// prefetch_depth + 1 is all there are. Memory stays readable until then, also when the daemon
// dies meanwhile. Immutable and thread-safe.
class Batch {
 public:
  class State;
  explicit Batch(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  EpochId epoch() const;
  StepId step() const;
  std::uint32_t sample_count() const;
  std::uint32_t padded_count() const;            // the last samples that repeat earlier ones
  std::uint64_t first_position() const;          // of sample 0 in the epoch's order
  std::span<const SampleId> sample_ids() const;  // sample_count() of them
  std::span<const FieldSpec> fields() const;
  // The index of a field by name; kNotFound names the fields there are.
  Result<FieldId> Field(std::string_view name) const;

  // A fixed-size field as one tensor. kFailedPrecondition for a variable-size field, and for
  // fields delivered as views (use Spans, or Gather).
  Result<TensorView> Tensor(FieldId field) const;
  Result<TensorView> Tensor(std::string_view name) const;

  // The bytes of one sample's field, in order; usually one span, several where a large sample
  // crosses extents, none where the sample lacks the field. Works for every delivery.
  std::span<const std::span<const std::byte>> Spans(FieldId field, std::uint32_t sample) const;

  // Copies a fixed-size field of every sample into `out` (sample_count x bytes per sample).
  Status Gather(FieldId field, std::span<std::byte> out) const;

  // Values of a constant field, one per sample.
  Result<std::span<const std::int64_t>> Constants(FieldId field) const;

  // What the transform hook wrote: sample_count x transform_bytes; empty without a hook.
  std::span<const std::byte> transformed() const;

  // Where a restart continues once this batch is consumed: the next step.
  const PositionToken& token() const;

  // The mapping that `data` lies in, for a library that must know memory before it copies from it
  // (CUDA); without bytes where that is memory of this process.
  SharedMapping MappingOf(const std::byte* data) const;

  // Keeps the batch's memory alive; for zero-copy tensors of another library.
  std::shared_ptr<const void> hold() const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace forebay
