// ChunkFinder: finds out where chunks lie within their extents, reading directories from SSD where
// they are not remembered.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/fetch/packed/unit_source.h"
#include "server/io/aligned_buffer.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch {

// A chunk that is needed, and the answer.
struct WantedChunk {
  UnitPlace unit;
  std::uint32_t index = 0;         // within the unit
  std::uint32_t extent_index = 0;  // in the references of Find
  catalog::PackChunk* at = nullptr;
};

// Remembers directories of extents on SSD, kRememberedBytesMax of them, the least recently used
// going first. Not thread-safe.
class ChunkFinder {
 public:
  static constexpr std::uint64_t kRememberedBytesMax = 2 << 20;

  // Fills in `at` of all; sorts them by extent. `bad` receives extents whose directory is wrong:
  // kDataLoss then.
  Status Find(UnitSource& source, std::span<const tier::ExtentRef> refs, io::IoQueue& queue,
              std::span<WantedChunk> wanted, std::vector<tier::BadExtent>& bad);

  std::uint64_t remembered_bytes() const { return remembered_bytes_; }

 private:
  struct Remembered {
    tier::ExtentKey key;
    std::uint64_t checksum = 0;  // of the directory: a copy that was made anew may have another
    std::vector<std::byte> bytes;
  };
  // The chunks [begin, end) of the sorted list, which lie in one extent.
  struct Run {
    std::uint32_t extent_index = 0;
    std::size_t begin = 0, end = 0;
  };

  const Remembered* Recall(const tier::ResidentExtent& extent);
  void Remember(const tier::ResidentExtent& extent, std::span<const std::byte> bytes);
  static Status Resolve(UnitSource& source, const tier::ExtentRef& ref,
                        std::span<const std::byte> directory, std::span<WantedChunk> wanted,
                        std::vector<tier::BadExtent>& bad);
  Status ReadDirectories(UnitSource& source, std::span<const tier::ExtentRef> refs,
                         io::IoQueue& queue, std::span<const Run> runs,
                         std::span<WantedChunk> wanted, std::vector<tier::BadExtent>& bad);

  std::list<Remembered> remembered_;  // the most recently used first
  std::unordered_map<tier::ExtentKey, std::list<Remembered>::iterator, tier::ExtentKeyHash>
      index_;
  std::uint64_t remembered_bytes_ = 0;
  io::AlignedBuffer buffer_;
};

}  // namespace forebay::fetch
