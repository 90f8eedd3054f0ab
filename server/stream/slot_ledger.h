// SlotLedger: who may take how much slot memory, so that what one stream takes never makes another
// wait that was promised its own (promise P6).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "proto/contract/result.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// Slot memory of one batch, in bytes of whole pages; 0 where it takes none.
struct SlotNeed {
  std::uint64_t held_bytes = 0;     // while the reader has it; of unknown size: of an average one
  std::uint64_t scratch_bytes = 0;  // besides, while pieces are read from SSD for it
};

struct SlotPolicy {
  bool has_ssd = false;
  std::uint64_t view_pin_bytes = 0;  // what views of one stream may pin; the rest is copied
};

// The most that a batch of the stream can take; where fields of variable size leave that unknown,
// what an average one takes.
SlotNeed SlotNeedOf(const StreamSpec& spec, const SlotPolicy& policy);

// Three shares of one capacity: what streams were promised (so many batches of held_bytes each),
// scratch (never less than the largest batch needs, so that one batch can always be put together),
// and what is left: excess, for batches that were promised to nobody, or are larger than expected.
// Logic only; not thread-safe.
class SlotLedger {
 public:
  // A batch that was not promised may take excess as long as its stream has at most this many times
  // what is left then: whoever stops reading leaves room to others, however many credits it has.
  // (Dynamic thresholds: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
  // packet switches", 1998.)
  static constexpr std::uint64_t kExcessPerFree = 3;

  explicit SlotLedger(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // A stream comes: kResourceExhausted, with the figures, where it does not fit.
  Status Reserve(const SlotNeed& need, std::uint32_t batches);
  void GiveBack(const SlotNeed& need, std::uint32_t batches);

  // Scratch for a batch about to be put together: false where it must wait for others'.
  // `alone`: waits until nobody has any, and keeps others from it, for a batch of unknown size.
  bool TakeScratch(std::uint64_t bytes, bool alone);
  void EndScratch(std::uint64_t bytes, bool alone);

  // What a batch takes beyond what was promised for it. `of_stream`: the excess that its stream has
  // already, where nothing was promised for this batch; nullopt where it is merely larger. kNever:
  // not even without others' excess, as long as the streams that are open stay.
  enum class Excess : std::uint8_t { kTaken, kNotNow, kNever };
  Excess TakeExcess(std::uint64_t bytes, std::optional<std::uint64_t> of_stream);
  void EndExcess(std::uint64_t bytes);
  // What TakeExcess would answer with kTaken.
  bool HasExcess(std::uint64_t bytes, std::optional<std::uint64_t> of_stream) const;

 private:
  std::uint64_t LargestScratch() const;

  const std::uint64_t capacity_bytes_;
  std::uint64_t held_bytes_ = 0;                            // reserved
  std::map<std::uint64_t, std::uint32_t> scratch_streams_;  // scratch_bytes -> streams
  std::uint64_t scratch_bytes_ = 0;                         // taken
  std::uint32_t scratch_takers_ = 0;
  bool is_taken_alone_ = false;
  std::uint64_t excess_bytes_ = 0;                          // taken
};

}  // namespace forebay::stream
