// Where decoders write frames: one after the other, or each to a place of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace forebay::compress {

// The places of frames of one size, which the caller of At knows. A frame that is not wanted has an
// empty place; it is decoded only as far as other frames need it. A value type; borrows the memory.
class FrameOutput {
 public:
  // Frames from `first` on lie one after the other in `memory`; frames before `first` are not
  // wanted.
  FrameOutput(std::span<std::byte> memory, std::size_t first = 0)
      : memory_(memory), first_(first) {}
  // Frame i goes to `places[i]`, which is empty if the frame is not wanted.
  static FrameOutput Each(std::span<const std::span<std::byte>> places) {
    FrameOutput out{std::span<std::byte>()};
    out.places_ = places;
    return out;
  }
  // The same places for smaller frames, `parts` of which make one of these frames.
  FrameOutput Split(std::size_t parts) const {
    FrameOutput out = *this;
    out.first_ *= parts;
    out.parts_ *= parts;
    return out;
  }

  // Whether all frames lie one after the other, so that they may be treated as frames of another
  // size.
  bool IsDense() const { return places_.empty() && first_ == 0; }

  // The place of a frame of `bytes` bytes; empty if it is not wanted.
  std::span<std::byte> At(std::size_t frame, std::size_t bytes) const {
    if (places_.empty()) {
      if (frame < first_) return {};
      return memory_.subspan((frame - first_) * bytes, bytes);
    }
    const std::span<std::byte> place = places_[frame / parts_];
    return place.empty() ? place : place.subspan(frame % parts_ * bytes, bytes);
  }

  // The number of frames from `frame`, which is wanted, to `end` that lie one after the other.
  std::size_t RunLength(std::size_t frame, std::size_t end, std::size_t bytes) const {
    if (places_.empty()) return end - frame;
    const std::byte* const begin = At(frame, bytes).data();
    std::size_t count = 1;
    while (frame + count < end && At(frame + count, bytes).data() == begin + count * bytes) {
      ++count;
    }
    return count;
  }

 private:
  std::span<std::byte> memory_;
  std::size_t first_ = 0;
  std::span<const std::span<std::byte>> places_;
  std::size_t parts_ = 1;  // of a place
};

}  // namespace forebay::compress
