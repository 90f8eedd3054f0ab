#include "server/fetch/piece_reader.h"

#include <algorithm>

#include "proto/contract/limits.h"

namespace forebay::fetch {
namespace {

constexpr std::uint64_t kBlock = limits::kIoAlignmentBytes;

Status Examine(const PieceRead& read, const io::Completion& completion) {
  if (!completion.bytes.has_value()) return completion.bytes.error();
  const std::uint64_t lead = LeadBytes(read.piece);
  if (*completion.bytes < lead + read.piece.length) {
    return Error(ErrorCode::kDataLoss, "a segment on SSD is shorter than its extent");
  }
  return tier::VerifyPiece(read.extent->key, read.piece, read.checksum,
                           read.memory.subspan(lead, read.piece.length));
}

}  // namespace

std::uint64_t LeadBytes(const catalog::Range& piece) { return piece.offset % kBlock; }

std::uint64_t AlignedBytes(const catalog::Range& piece) {
  return (LeadBytes(piece) + piece.length + kBlock - 1) / kBlock * kBlock;
}

Status ReadPieces(io::IoQueue& queue, std::span<const PieceRead> reads,
                  std::vector<PieceFailure>& failures) {
  std::vector<io::Operation> operations;
  std::vector<io::Completion> completions;
  Status submitted;
  std::size_t next = 0;
  std::size_t in_flight = 0;
  while (next < reads.size() || in_flight > 0) {
    operations.clear();
    while (submitted.has_value() && next < reads.size() &&
           in_flight + operations.size() < queue.depth()) {
      const PieceRead& read = reads[next];
      io::Operation operation;
      operation.file = read.extent->segment->file.get();
      operation.offset = read.piece.offset - LeadBytes(read.piece);
      operation.buffer = read.memory;
      operation.tag = next++;
      operations.push_back(operation);
    }
    if (!operations.empty()) {
      submitted = queue.Submit(operations);
      if (submitted.has_value()) in_flight += operations.size();
    }
    if (in_flight == 0) break;
    completions.clear();
    in_flight -= queue.Wait(1, completions);
    for (const io::Completion& completion : completions) {
      const Status status = Examine(reads[completion.tag], completion);
      if (!status.has_value()) failures.push_back({completion.tag, status.error()});
    }
  }
  return submitted;
}

}  // namespace forebay::fetch
