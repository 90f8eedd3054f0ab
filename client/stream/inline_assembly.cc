// Puts together batches that come in pieces over the socket. The daemon announces a batch with its
// number of bytes, then sends chunks, in order for each batch; chunks of several batches may
// alternate. Memory grows with what has arrived, so that an announcement alone costs nothing.
#include "client/stream/inline_assembly.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

Error BadChunk(const v1::InlineChunk& chunk, const std::string& what) {
  return Error(ErrorCode::kDataLoss, "inline chunk of batch " + std::to_string(chunk.batch_id()) +
                                         " at offset " + std::to_string(chunk.offset()) + " " +
                                         what);
}

}  // namespace

Status InlineAssembly::Begin(v1::Batch& message, std::unique_ptr<Batch::State> state) {
  if (message.inline_bytes() > limits::kSlotBytesMax) {
    return Error(ErrorCode::kDataLoss, "a batch announces " +
                                           std::to_string(message.inline_bytes()) +
                                           " inline bytes, more than kSlotBytesMax");
  }
  // With the limit on each batch, this bounds the memory that a daemon can make this process use.
  if (pending_.size() >= batches_max_) {
    return Error(ErrorCode::kDataLoss, "more batches are under way than there are credits");
  }
  for (const AssembledBatch& batch : pending_) {
    // Chunks name their batch by this id only.
    if (batch.message.id() == message.id()) {
      return Error(ErrorCode::kDataLoss,
                   "two batches under way have id " + std::to_string(message.id()));
    }
  }
  AssembledBatch& batch = pending_.emplace_back();
  // Swapped, not copied: the message has an id and a span for each sample.
  batch.message.Swap(&message);
  batch.state = std::move(state);
  return {};
}

Result<std::optional<AssembledBatch>> InlineAssembly::Add(const v1::InlineChunk& chunk) {
  const auto found =
      std::find_if(pending_.begin(), pending_.end(), [&](const AssembledBatch& batch) {
        return batch.message.id() == chunk.batch_id();
      });
  if (found == pending_.end()) return BadChunk(chunk, "belongs to no batch under way");
  if (chunk.data().empty() || chunk.data().size() > limits::kInlineChunkBytes) {
    return BadChunk(chunk, "has " + std::to_string(chunk.data().size()) +
                               " bytes, outside 1 to kInlineChunkBytes");
  }
  std::vector<std::byte>& payload = found->state->inline_payload;
  // A chunk must continue where the last one ended. A gap would be bytes that nobody has written,
  // and an overlap would let later bytes replace what was checked.
  if (chunk.offset() != payload.size()) {
    return BadChunk(chunk, "follows byte " + std::to_string(payload.size()));
  }
  // The difference cannot be negative: a batch leaves this list once it is complete.
  if (chunk.data().size() > found->message.inline_bytes() - payload.size()) {
    return BadChunk(chunk, "exceeds the announced " +
                               std::to_string(found->message.inline_bytes()) + " bytes");
  }
  const auto bytes = std::as_bytes(std::span(chunk.data()));
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  if (payload.size() < found->message.inline_bytes()) return std::optional<AssembledBatch>();
  AssembledBatch complete = std::move(*found);
  pending_.erase(found);
  return std::optional<AssembledBatch>(std::move(complete));
}

}  // namespace forebay::internal
