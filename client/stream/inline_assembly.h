// InlineAssembly: puts together batches whose bytes follow in InlineChunk messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/stream/batch_state.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"

namespace forebay::internal {

// A batch and the state that holds its inline bytes.
struct AssembledBatch {
  v1::Batch message;
  std::unique_ptr<Batch::State> state;
};

// Not thread-safe. Memory follows what arrives, never what is announced; announcements are
// bounded by limits::kSlotBytesMax each and `batches_max` of them.
class InlineAssembly {
 public:
  explicit InlineAssembly(std::size_t batches_max) : batches_max_(batches_max) {}

  // Begins a batch that announces inline bytes. Takes the message's content.
  Status Begin(v1::Batch& message, std::unique_ptr<Batch::State> state);
  // Adds a chunk; returns the batch when it is complete. kDataLoss for a chunk of an unknown
  // batch, out of order, beyond what was announced, or larger than kInlineChunkBytes.
  Result<std::optional<AssembledBatch>> Add(const v1::InlineChunk& chunk);
  void Clear() { pending_.clear(); }

 private:
  std::size_t batches_max_;
  std::vector<AssembledBatch> pending_;
};

}  // namespace forebay::internal
