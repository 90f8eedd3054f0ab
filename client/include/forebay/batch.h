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

// A field of a batch as a read-only tensor: contiguous, row major, in memory that the batch keeps.
// Valid as long as a copy of the batch, or what Batch::hold returned.
struct TensorView {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Dtype dtype = Dtype::kBytes;
  bool big_endian = false;                // byte order of elements, as in the data set's files
  std::vector<std::uint64_t> shape = {};  // samples, then FieldSpec::shape
};

// A region of the daemon's memory as it is mapped in this process: read-only, and mapped as long as
// `hold` exists. The regions of a connection stay the same from its beginning to its end.
struct SharedMapping {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> hold;
};

// A handle that is cheap to copy; copies share one batch. When the last copy is gone, the batch's
// memory goes back to the daemon, which fills it with a further batch. Let go of batches soon,
// therefore: a stream has prefetch_depth + 1 of them, and Next fails while the caller holds all.
// Until then the memory stays readable and unchanged, also if the daemon dies or stands still, or
// the stream and the client are destroyed. (One exception is in docs/failures.md, "What is not
// noticed".) Immutable; thread-safe.
class Batch {
 public:
  class State;
  explicit Batch(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  EpochId epoch() const;
  StepId step() const;
  std::uint32_t sample_count() const;
  // How many samples at the end repeat earlier ones, under TailPolicy::kPad.
  std::uint32_t padded_count() const;
  std::uint64_t first_position() const;          // of sample 0 in the order of the epoch
  std::span<const SampleId> sample_ids() const;  // sample_count() of them
  std::span<const FieldSpec> fields() const;     // as FieldId numbers them
  // The index of a field by name; kNotFound names the fields there are.
  Result<FieldId> Field(std::string_view name) const;

  // A field of fixed size as one tensor, without a copy. kFailedPrecondition: its samples have
  // various sizes, or it was delivered as views (use Spans, or Gather).
  Result<TensorView> Tensor(FieldId field) const;
  Result<TensorView> Tensor(std::string_view name) const;

  // The bytes of one field of the sample with this index, in order. Usually they are one span;
  // several if a large sample lies in several places; none if the sample lacks the field.
  // Works for both deliveries. Both arguments must be in range. Fastest in the order of samples.
  std::span<const std::span<const std::byte>> Spans(FieldId field, std::uint32_t sample) const;

  // Copies a field of fixed size, of all samples, into `out`, which has sample_count times the
  // bytes of a sample. Works for both deliveries.
  Status Gather(FieldId field, std::span<std::byte> out) const;

  // The values of a constant field, one per sample: for example the number of the class folder.
  Result<std::span<const std::int64_t>> Constants(FieldId field) const;

  // What the transform hook wrote: sample_count x transform_bytes; empty without a hook.
  std::span<const std::byte> transformed() const;

  // The position after this batch, at which a later run continues: for StreamOptions::resume.
  const PositionToken& token() const;

  // The mapping that `data` of this batch lies in, for libraries that must register memory before
  // they copy from it (CUDA). Its `bytes` are empty if `data` lies in memory of this process.
  SharedMapping MappingOf(const std::byte* data) const;

  // Keeps the batch's memory as a copy of the batch does; for tensors of other libraries that
  // refer to it.
  std::shared_ptr<const void> hold() const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace forebay
