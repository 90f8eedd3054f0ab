// Where decoded frames go: one after the other, or each to a place of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace forebay::compress {

// Places of frames, all of one size, which the reader knows. Some may not be wanted: they have no
// place, and are decoded only as far as others need them. A value; borrows the memory.
class FrameOutput {
 public:
  // From frame `first` on, dense; those before it are not wanted.
  FrameOutput(std::span<std::byte> memory, std::size_t first = 0)
      : memory_(memory), first_(first) {}
  // Frame i at `places[i]`, which is empty where it is not wanted.
  static FrameOutput Each(std::span<const std::span<std::byte>> places) {
    FrameOutput out{std::span<std::byte>()};
    out.places_ = places;
    return out;
  }
  // The same places for frames of which `parts` make one of these.
  FrameOutput Split(std::size_t parts) const {
    FrameOutput out = *this;
    out.first_ *= parts;
    out.parts_ *= parts;
    return out;
  }

  // Whether frames lie one after the other from the first one on, so that they may be taken for
  // frames of any other size.
  bool IsDense() const { return places_.empty() && first_ == 0; }

  // Where frame `frame` goes, of `bytes` bytes; empty where it is not wanted.
  std::span<std::byte> At(std::size_t frame, std::size_t bytes) const {
    if (places_.empty()) {
      if (frame < first_) return {};
      return memory_.subspan((frame - first_) * bytes, bytes);
    }
    const std::span<std::byte> place = places_[frame / parts_];
    return place.empty() ? place : place.subspan(frame % parts_ * bytes, bytes);
  }

  // How many frames from `frame` on, which is wanted, lie one after the other; not beyond `end`.
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
