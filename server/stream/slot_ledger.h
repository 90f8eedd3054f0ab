// SlotLedger: how much slot memory each stream may take, so that no stream can take memory that was
// promised to another (promise P6).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "proto/contract/result.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// Slot memory of one batch, in bytes of whole pages; 0 where it takes none.
struct SlotNeed {
  std::uint64_t held_bytes = 0;     // while the reader has the batch
  std::uint64_t scratch_bytes = 0;  // in addition, while pieces are read from SSD for it
};

struct SlotPolicy {
  bool has_ssd = false;
  bool has_other_nodes = false;      // that supply rows
  std::uint64_t view_pin_bytes = 0;  // views of all streams may pin so much; the rest is copied
};

// The most that a batch of the stream can take. With fields of variable size this is unknown; then
// what an average batch takes.
SlotNeed SlotNeedOf(const StreamSpec& spec, const SlotPolicy& policy);

// Divides one capacity into three shares. *Promised*: a number of batches of held_bytes for each
// stream. *Scratch*: at least what the largest batch needs, so that one batch can always be
// assembled. *Excess*: the rest, for batches beyond a promise or larger than expected.
// Logic only; not thread-safe.
class SlotLedger {
 public:
  // A batch beyond its stream's promise may take excess if the stream's excess is then at most this
  // many times the excess that is left. So a reader that stops leaves memory for others, however
  // many credits it has.
  // (Dynamic thresholds: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
  // packet switches", 1998.)
  static constexpr std::uint64_t kExcessPerFree = 3;

  explicit SlotLedger(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Promises memory to a new stream. kResourceExhausted, with the figures: it does not fit.
  Status Reserve(const SlotNeed& need, std::uint32_t batches);
  void GiveBack(const SlotNeed& need, std::uint32_t batches);

  // Takes scratch for a batch that is about to be assembled; false: try again when others have
  // ended theirs. `alone`, for a batch of unknown size: only if nobody else has any, and nobody
  // else gets any until EndScratch.
  bool TakeScratch(std::uint64_t bytes, bool alone);
  void EndScratch(std::uint64_t bytes, bool alone);

  // Takes memory for a batch beyond its promise. `of_stream`: the excess that its stream has
  // already; nullopt if the batch was promised but is larger than expected. kNever: would not fit
  // even if nobody had any excess, as long as the open streams stay.
  enum class Excess : std::uint8_t { kTaken, kNotNow, kNever };
  Excess TakeExcess(std::uint64_t bytes, std::optional<std::uint64_t> of_stream);
  void EndExcess(std::uint64_t bytes);
  // Whether TakeExcess would return kTaken.
  bool HasExcess(std::uint64_t bytes, std::optional<std::uint64_t> of_stream) const;

 private:
  std::uint64_t LargestScratch() const;

  const std::uint64_t capacity_bytes_;
  std::uint64_t held_bytes_ = 0;                            // promised
  std::map<std::uint64_t, std::uint32_t> scratch_streams_;  // scratch_bytes -> streams
  std::uint64_t scratch_bytes_ = 0;                         // taken
  std::uint32_t scratch_takers_ = 0;
  bool is_taken_alone_ = false;
  std::uint64_t excess_bytes_ = 0;                          // taken
};

}  // namespace forebay::stream
