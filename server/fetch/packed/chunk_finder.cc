// Find goes through the wanted chunks extent by extent. An extent of a pack needs no directory; the
// directory of an extent in RAM is read in place; the one of an extent on SSD is taken from the
// cache of this finder, or read together with others, up to kDecodeReadBytesMax at a time. A wrong
// directory makes the copy of the extent bad: the caller has it fetched again and repeats the
// batch. Called by the worker that assembles a batch, or that answers another node.
#include "server/fetch/packed/chunk_finder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"

namespace forebay::fetch {
namespace {

catalog::Range DirectoryRange(const UnitSource& source, ExtentId extent) {
  return {.extent = extent, .offset = 0, .length = source.DirectoryBytes(extent)};
}

}  // namespace

Status ChunkFinder::Find(UnitSource& source, std::span<const tier::ExtentRef> refs,
                         io::IoQueue& queue, std::span<WantedChunk> wanted,
                         std::vector<tier::BadExtent>& bad) {
  // Every directory is then opened once, however many chunks of it are wanted.
  std::ranges::stable_sort(wanted, {}, &WantedChunk::extent_index);
  std::vector<Run> unread;  // of extents whose directory must be read
  std::uint64_t unread_bytes = 0;
  const auto read_directories = [&]() -> Status {
    unread_bytes = 0;
    return ReadDirectories(source, refs, queue, std::exchange(unread, {}), wanted, bad);
  };
  for (std::size_t begin = 0; begin < wanted.size();) {
    Run run{.extent_index = wanted[begin].extent_index, .begin = begin, .end = begin};
    while (run.end < wanted.size() && wanted[run.end].extent_index == run.extent_index) ++run.end;
    begin = run.end;
    const std::span<WantedChunk> chunks = wanted.subspan(run.begin, run.end - run.begin);
    const tier::ExtentRef& ref = refs[run.extent_index];
    const catalog::Range range = DirectoryRange(source, ref->key.extent);
    // The length comes from the data set's form, the size from the copy. Without this check the
    // span below would reach beyond the image.
    if (range.length > ref->image_bytes) {
      const Error error(ErrorCode::kDataLoss, fmt::format("extent {} is shorter than its directory",
                                                          tier::KeyText(ref->key)));
      bad.push_back({ref, error});
      return error;
    }
    if (range.length == 0) {
      FOREBAY_TRY(Resolve(source, ref, {}, chunks, bad));
    } else if (ref->tier == tier::TierKind::kRam) {
      // Images in RAM were verified when they were filled; the scrubber verifies them later.
      FOREBAY_TRY(Resolve(source, ref, ref->block.bytes().first(range.length), chunks, bad));
    } else if (const Remembered* known = Recall(*ref)) {
      FOREBAY_TRY(Resolve(source, ref, known->bytes, chunks, bad));
    } else {
      const std::uint64_t bytes = tier::AlignedBytes(range);
      if (!unread.empty() && bytes > limits::kDecodeReadBytesMax - unread_bytes) {
        FOREBAY_TRY(read_directories());
      }
      unread.push_back(run);
      // A directory beyond the bound is read alone. The sum stops at the bound, so that the
      // subtraction above cannot wrap around.
      unread_bytes = std::min(limits::kDecodeReadBytesMax, unread_bytes + bytes);
    }
  }
  return unread.empty() ? Status() : read_directories();
}

Status ChunkFinder::ReadDirectories(UnitSource& source, std::span<const tier::ExtentRef> refs,
                                    io::IoQueue& queue, std::span<const Run> runs,
                                    std::span<WantedChunk> wanted,
                                    std::vector<tier::BadExtent>& bad) {
  std::uint64_t bytes = 0;
  for (const Run& run : runs) {
    bytes += tier::AlignedBytes(DirectoryRange(source, refs[run.extent_index]->key.extent));
  }
  if (buffer_.size() < bytes) {
    buffer_ = io::AlignedBuffer();  // never both at once
    FOREBAY_ASSIGN(buffer_, io::AlignedBuffer::Create(static_cast<std::size_t>(bytes)));
  }
  std::vector<tier::PieceRead> reads;
  std::uint64_t used = 0;
  for (const Run& run : runs) {
    const tier::ResidentExtent& extent = *refs[run.extent_index];
    // Piece 0 is the directory. Without its checksum its bytes could not be verified.
    if (extent.sums().pieces.empty()) {
      const Error error(ErrorCode::kDataLoss, fmt::format("extent {} was stored without pieces",
                                                          tier::KeyText(extent.key)));
      bad.push_back({refs[run.extent_index], error});
      return error;
    }
    const catalog::Range range = DirectoryRange(source, extent.key.extent);
    const std::uint64_t cell = tier::AlignedBytes(range);
    reads.push_back({.extent = &extent, .piece = range, .checksum = extent.sums().pieces.front(),
                     .memory = buffer_.span().subspan(used, cell)});
    used += cell;
  }
  std::vector<tier::PieceFailure> failures;
  FOREBAY_TRY(tier::ReadPieces(queue, reads, failures));
  // The directories that were read well are dropped, too. The batch is repeated soon, and this is
  // rare.
  if (!failures.empty()) {
    return tier::BlameCopies(
        failures,
        [&](std::size_t index) -> const tier::ExtentRef& {
          return refs[runs[index].extent_index];
        },
        bad);
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const tier::ExtentRef& ref = refs[run.extent_index];
    const std::span<const std::byte> directory = reads[i].memory.first(reads[i].piece.length);
    FOREBAY_TRY(Resolve(source, ref, directory,
                        wanted.subspan(run.begin, run.end - run.begin), bad));
    Remember(*ref, directory);
  }
  return {};
}

Status ChunkFinder::Resolve(UnitSource& source, const tier::ExtentRef& ref,
                            std::span<const std::byte> directory,
                            std::span<WantedChunk> wanted, std::vector<tier::BadExtent>& bad) {
  // The source opens one directory at a time, so all chunks of the extent are looked up before the
  // next one is opened.
  if (!directory.empty()) {
    const Status opened = source.OpenDirectory(*ref, directory);
    if (!opened.has_value()) {
      bad.push_back({ref, opened.error()});
      return opened;
    }
  }
  for (WantedChunk& chunk : wanted) {
    const Result<catalog::PackChunk> at = source.ChunkOf(chunk.unit, chunk.index);
    if (!at.has_value()) {
      bad.push_back({ref, at.error()});
      return at.error();
    }
    *chunk.at = *at;
  }
  return {};
}

const ChunkFinder::Remembered* ChunkFinder::Recall(const tier::ResidentExtent& extent) {
  const auto found = index_.find(extent.key);
  if (found == index_.end()) return nullptr;
  const auto& pieces = extent.sums().pieces;
  // The extent was fetched and compressed again since: the same samples may lie elsewhere now.
  if (pieces.empty() || found->second->checksum != pieces.front()) return nullptr;
  // The list is in order of use; moving a node leaves the iterators of index_ valid.
  remembered_.splice(remembered_.begin(), remembered_, found->second);
  return &remembered_.front();
}

void ChunkFinder::Remember(const tier::ResidentExtent& extent,
                           std::span<const std::byte> bytes) {
  // It would evict all others, and the subtraction below would wrap around.
  if (bytes.size() > kRememberedBytesMax) return;
  // A directory of an earlier copy, which Recall has refused.
  if (const auto old = index_.find(extent.key); old != index_.end()) {
    remembered_bytes_ -= old->second->bytes.size();
    remembered_.erase(old->second);
    index_.erase(old);
  }
  while (remembered_bytes_ > kRememberedBytesMax - bytes.size()) {
    remembered_bytes_ -= remembered_.back().bytes.size();
    index_.erase(remembered_.back().key);
    remembered_.pop_back();
  }
  remembered_.push_front({.key = extent.key,
                          .checksum = extent.sums().pieces.front(),
                          .bytes = {bytes.begin(), bytes.end()}});
  index_[extent.key] = remembered_.begin();
  remembered_bytes_ += bytes.size();
}

}  // namespace forebay::fetch
