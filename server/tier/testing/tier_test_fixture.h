// Shared by the tests of this room: extents whose bytes follow from a number, so that a test can
// make the same extent again and compare.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "server/io/aligned_buffer.h"
#include "server/io/io_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::tier::testing {

using io::testing::CodeOf;
using io::testing::Take;
using io::testing::TempFolder;

// Extent number `number` of a made-up data set: its size, bytes and pieces follow from it.
struct TestExtent {
  ExtentKey key;
  io::AlignedBuffer memory;  // padded
  std::size_t image_bytes = 0;
  std::vector<catalog::Range> pieces;
  ExtentChecksums checksums;

  std::span<std::byte> image() { return memory.span().first(image_bytes); }
};

inline ExtentKey KeyOfNumber(std::uint32_t number) {
  return {DatasetHash("made-up"), ExtentId(number), 0x9E3779B97F4A7C15ULL * (number + 1)};
}

// `image_bytes` 0: between 1 and about 10,000, by the number.
inline TestExtent MakeExtent(std::uint32_t number, std::size_t image_bytes = 0) {
  TestExtent extent;
  extent.key = KeyOfNumber(number);
  extent.image_bytes = image_bytes != 0 ? image_bytes : 1 + number * 997 % 10'000;
  extent.memory = Take(io::AlignedBuffer::Create(extent.image_bytes));
  for (std::size_t i = 0; i < extent.image_bytes; ++i) {
    extent.memory.span()[i] = io::testing::PatternByte(i, number + 1);
  }
  const std::size_t piece_bytes = std::max<std::size_t>(extent.image_bytes / 7, 100);
  for (std::size_t offset = 0; offset < extent.image_bytes; offset += piece_bytes) {
    extent.pieces.push_back({extent.key.extent, static_cast<std::uint32_t>(offset),
                             std::min(piece_bytes, extent.image_bytes - offset)});
  }
  extent.checksums = ComputeChecksums(extent.key, extent.image(), extent.pieces);
  return extent;
}

// Reads a segment's image; its padding comes along where the file is direct.
inline Result<io::AlignedBuffer> ReadImage(io::IoQueue& queue, const Segment& segment) {
  FOREBAY_ASSIGN(io::AlignedBuffer image, io::AlignedBuffer::Create(segment.image_bytes));
  FOREBAY_TRY(io::ReadFully(queue, *segment.file, 0, image.span()));
  return image;
}

// Every piece of a segment against its checksum; kDataLoss names the first that is wrong.
inline Status VerifySegment(io::IoQueue& queue, const Segment& segment,
                            std::span<const catalog::Range> pieces) {
  FOREBAY_ASSIGN(const io::AlignedBuffer image, ReadImage(queue, segment));
  if (segment.checksums.pieces.size() != pieces.size()) {
    return Error(ErrorCode::kDataLoss, "another number of pieces");
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    FOREBAY_TRY(VerifyPiece(segment.key, pieces[i], segment.checksums.pieces[i],
                            image.span().subspan(pieces[i].offset, pieces[i].length)));
  }
  return {};
}

// Names in a directory that are neither the manifest nor a segment: there should be none.
inline std::vector<std::string> StrayNames(io::Directory& directory) {
  std::vector<std::string> strays;
  for (const io::DirectoryEntry& entry : Take(directory.List(""))) {
    if (entry.name != "manifest" && !entry.name.ends_with(".seg")) strays.push_back(entry.name);
  }
  return strays;
}

}  // namespace forebay::tier::testing
