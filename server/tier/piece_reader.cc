// Reads from SSD go to the queue, as many as fit, and each completion is verified at once while
// others are in flight. Reads from the GFS come afterwards, grouped by data set, because a
// PieceSource uses the same queue and needs it idle. A failure of one piece does not stop the
// others.
#include "server/tier/piece_reader.h"

#include <map>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kBlock = limits::kIoAlignmentBytes;

std::span<std::byte> PieceBytes(const PieceRead& read) {
  return read.memory.subspan(LeadBytes(read.piece), read.piece.length);
}

// Verifies one completed read. The tests named in the README fail without the comparison here.
Status Examine(const PieceRead& read, const io::Completion& completion) {
  // An error of the device is passed on as it is: the cache retires an SSD by it, but not after a
  // wrong checksum.
  if (!completion.bytes.has_value()) return completion.bytes.error();
  const std::uint64_t lead = LeadBytes(read.piece);
  if (*completion.bytes < lead + read.piece.length) {
    return Error(ErrorCode::kDataLoss, "the segment on SSD ends before this piece of its extent");
  }
  return VerifyPiece(read.extent->key, read.piece, read.checksum, PieceBytes(read));
}

// Reads pieces from the GFS, those of one data set together.
void ReadFromSources(io::IoQueue& queue, std::span<const PieceRead> reads,
                     std::span<const std::size_t> indices, std::vector<PieceFailure>& failures) {
  // A batch has few sources, mostly one; a map keeps their reads together at the price of an
  // allocation each.
  std::map<const PieceSource*, std::vector<std::size_t>> by_source;
  for (const std::size_t index : indices) {
    by_source[reads[index].extent->source.get()].push_back(index);
  }
  std::vector<SourceRead> wanted;
  for (const auto& [source, group] : by_source) {
    wanted.clear();
    for (const std::size_t index : group) {
      const PieceRead& read = reads[index];
      wanted.push_back({.extent = read.piece.extent,
                        .offset = read.piece.offset,
                        .memory = PieceBytes(read)});
    }
    // A source answers for all its pieces at once: after an error none of them can be trusted.
    const Status status = source->Read(queue, wanted);
    for (const std::size_t index : group) {
      const PieceRead& read = reads[index];
      const Status outcome =
          status.has_value()
              ? VerifyPiece(read.extent->key, read.piece, read.checksum, PieceBytes(read))
              : status;
      if (!outcome.has_value()) failures.push_back({index, outcome.error()});
    }
  }
}

}  // namespace

std::uint64_t LeadBytes(const catalog::Range& piece) { return piece.offset % kBlock; }

std::uint64_t AlignedBytes(const catalog::Range& piece) {
  return AlignUp(LeadBytes(piece) + piece.length, kBlock);
}

Status ReadPieces(io::IoQueue& queue, std::span<const PieceRead> reads,
                  std::vector<PieceFailure>& failures) {
  std::vector<io::Operation> operations;
  std::vector<io::Completion> completions;
  std::vector<std::size_t> of_sources;
  Status submitted;
  std::size_t next = 0;
  std::size_t in_flight = 0;
  while (next < reads.size() || in_flight > 0) {
    operations.clear();
    // Operations are collected first and submitted together, because each submission is a system
    // call.
    while (submitted.has_value() && next < reads.size() &&
           in_flight + operations.size() < queue.depth()) {
      const PieceRead& read = reads[next];
      if (read.extent->source) {
        of_sources.push_back(next++);
        continue;
      }
      io::Operation operation;
      operation.file = read.extent->segment->file.get();
      // The read begins at the block in which the piece begins. PieceBytes skips the bytes before
      // it, and Examine verifies only the piece's own.
      operation.offset = read.piece.offset - LeadBytes(read.piece);
      operation.buffer = read.memory;
      operation.tag = next++;
      operations.push_back(operation);
    }
    if (!operations.empty()) {
      submitted = queue.Submit(operations);
      if (submitted.has_value()) in_flight += operations.size();
    }
    if (in_flight == 0) break;  // nothing left, or the queue refused operations
    completions.clear();
    // One completion is enough to go on: its piece is verified while the device works on the
    // others.
    in_flight -= queue.Wait(1, completions);
    for (const io::Completion& completion : completions) {
      const Status status = Examine(reads[completion.tag], completion);
      if (!status.has_value()) failures.push_back({completion.tag, status.error()});
    }
  }
  // If the queue has refused operations, some pieces were never read, and the caller treats the
  // whole call as failed.
  if (submitted.has_value()) ReadFromSources(queue, reads, of_sources, failures);
  return submitted;
}

}  // namespace forebay::tier
