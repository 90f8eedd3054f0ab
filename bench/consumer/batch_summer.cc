// The consumer sums every sample of a batch and, in the untimed epoch, also hashes it. The peers do
// the same work (bench/peers/byte_sum.h), so a ratio compares only the loaders.
#include "bench/consumer/batch_summer.h"

#include <xxhash.h>

#include <memory>

#include "bench/peers/byte_sum.h"

namespace forebay::bench {
namespace {

using Pieces = std::span<const std::span<const std::byte>>;

std::uint64_t SumOf(Pieces pieces) {
  // Nearly every sample is one piece; one that crosses extents is summed piece by piece, and is not
  // copied together.
  if (pieces.size() == 1) return ByteSum(pieces.front());
  ByteSummer summer;
  for (const auto& piece : pieces) summer.Add(piece);
  return summer.Finish();
}

std::uint64_t HashOf(Pieces pieces) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                             XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const auto& piece : pieces) XXH3_64bits_update(state.get(), piece.data(), piece.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace

Result<FieldId> PayloadField(std::span<const FieldSpec> fields) {
  // A label that the catalog knows has no bytes to read.
  for (std::uint32_t i = 0; i < fields.size(); ++i) {
    if (fields[i].source != FieldSource::kConstant) return FieldId(i);
  }
  return Error(ErrorCode::kNotFound, "the data set has no field with bytes");
}

Status AddBatch(const Batch& batch, FieldId field, bool with_content, DeliveryDigest& digest) {
  const std::span<const SampleId> ids = batch.sample_ids();
  // Samples that pad a last batch were delivered before and would change the digest.
  const std::uint32_t fresh = batch.sample_count() - batch.padded_count();
  for (std::uint32_t i = 0; i < fresh; ++i) {
    const Pieces pieces = batch.Spans(field, i);
    std::uint64_t bytes = 0;
    for (const auto& piece : pieces) bytes += piece.size();
    // An empty sample would cost nothing and raise the rate.
    if (bytes == 0) {
      return Error(ErrorCode::kDataLoss,
                   "sample " + std::to_string(ids[i].value()) + " came without bytes");
    }
    digest.AddSum(ids[i].value(), bytes, SumOf(pieces));
    if (!with_content) continue;
    const std::uint64_t hash = HashOf(pieces);
    digest.AddContent(ids[i].value(), hash);
    digest.AddPlace(batch.first_position() + i, ids[i].value(), hash);
  }
  return {};
}

}  // namespace forebay::bench
