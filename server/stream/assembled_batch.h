// AssembledBatch: a minibatch ready to be handed over, and what keeps its bytes in place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/contract/wire_layout.h"
#include "server/fetch/source_counts.h"
#include "server/stream/stream_spec.h"
#include "server/stream/view_pins.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

// One field of every sample; exactly one of the three forms is used.
struct AssembledField {
  bool is_tensor = false;
  WireSpan tensor;                        // sample_count rows
  std::vector<WireSpan> spans;            // per sample, or span_counts[i] for sample i
  std::vector<std::uint32_t> span_counts; // empty: one each
  std::vector<std::int64_t> constants;
};

// What a client holds while it uses a batch; giving it up frees the memory.
struct BatchHold {
  std::shared_ptr<const ViewPins::Pinned> views;  // the extents that views point into
  tier::ArenaBlock slot;
};

// What decoding a batch took; nothing where the data set is not packed.
struct DecodeCounts {
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;        // that came out
  std::uint64_t ns = 0;           // of this batch's thread
  std::uint64_t kept_samples = 0; // values that were decoded already
  std::uint64_t kept_units = 0;   // the runs of samples they lay in

  void Add(const DecodeCounts& other) {
    chunks += other.chunks;
    bytes += other.bytes;
    ns += other.ns;
    kept_samples += other.kept_samples;
    kept_units += other.kept_units;
  }
};

// Where the samples of a batch, or of a whole stream, came from, and what they took.
struct BatchCounts : fetch::SourceCounts {
  // Samples of which other nodes supplied rows or chunks. RemoteWaits counts those of rows.
  std::uint64_t other_samples = 0;
  std::uint64_t copied_views = 0;  // samples that were copied, so that views pin less
  DecodeCounts decode;

  void Add(const BatchCounts& other) {
    SourceCounts::Add(other);
    other_samples += other.other_samples;
    copied_views += other.copied_views;
    decode.Add(other.decode);
  }
};

struct AssembledBatch : BatchCounts {
  BatchName name;
  std::uint64_t first_position = 0;
  std::uint32_t padded_count = 0;
  std::vector<std::uint64_t> sample_ids;
  std::vector<AssembledField> fields;
  BatchHold hold;
  std::uint64_t payload_bytes = 0;
};

}  // namespace forebay::stream
