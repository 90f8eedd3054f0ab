// RowCopier: copies the rows of a contiguous batch into its slot, past the processor's caches where
// that is faster. The slot was read last by the reader, on another core: its lines are in the
// caches of that core, and an ordinary store has to fetch each of them from there before it
// overwrites it. Streaming stores need not. How much that saves depends on the processor
// (row_copy.cc).
#pragma once

#include <cstddef>

namespace forebay::stream {

class RowCopier {
 public:
  // The faster way of this machine's processor.
  static RowCopier Best();
  // Copies through the caches, as memcpy does.
  static RowCopier Plain() { return RowCopier(nullptr); }
  // Copies past the caches, where this is an x86-64 processor.
  static RowCopier Streaming();

  // The ranges do not overlap. Other threads may read `to` after Finish.
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Call after the last row, on the same thread.
  void Finish() const;

 private:
  // Streams whole cache lines to an address that begins one.
  using StreamLines = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
  explicit RowCopier(StreamLines stream) : stream_(stream) {}

  StreamLines stream_;  // null: memcpy
};

}  // namespace forebay::stream
