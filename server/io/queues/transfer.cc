// The rules for the kernel's answers. io_uring and the thread pool differ only in how they ask;
// both pass the answer to Advance and ask again while it returns nullopt.
#include "server/io/queues/transfer.h"

#include <cerrno>
#include <typeinfo>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::io {
namespace {

// Whether the request of `transfer` may be repeated after `system_errno`. Counts the repetition.
bool MayAskAgain(Transfer& transfer, int system_errno) {
  // EINTR has a large bound of its own: on a network or FUSE file system each completion of another
  // request may interrupt this one.
  if (system_errno == EINTR) return transfer.interrupts++ < limits::kInterruptMax;
  if (system_errno == EAGAIN && transfer.kind != OpKind::kDataSync) {
    return transfer.retries++ < limits::kIoRetryMax;
  }
  return false;
}

Error FailureOf(const Transfer& transfer, int system_errno) {
  return FileError(system_errno, Describe(transfer));
}

}  // namespace

Transfer TransferOf(const Operation& operation) {
  // A file of the memory back end has no descriptor; to pass it here is a mistake of the test.
  FOREBAY_CHECK(typeid(*operation.file) == typeid(PosixFile));
  Transfer transfer;
  transfer.file = static_cast<const PosixFile*>(operation.file);
  transfer.kind = operation.kind;
  transfer.offset = operation.offset;
  transfer.tag = operation.tag;
  if (operation.kind == OpKind::kRead) {
    transfer.memory = operation.buffer.data();
    transfer.length = operation.buffer.size();
  } else if (operation.kind == OpKind::kWrite) {
    // Never written through: a write only reads its memory. One pointer serves both kinds.
    transfer.memory = const_cast<std::byte*>(operation.data.data());
    transfer.length = operation.data.size();
  }
  return transfer;
}

std::optional<Result<std::uint64_t>> Advance(Transfer& transfer, std::int64_t answer) {
  if (answer < 0) {
    const int system_errno = static_cast<int>(-answer);
    if (MayAskAgain(transfer, system_errno)) return std::nullopt;
    return FailureOf(transfer, system_errno);
  }
  // The answer of a sync is 0 and counts no bytes.
  if (transfer.kind == OpKind::kDataSync) return transfer.done;
  const auto moved = static_cast<std::uint64_t>(answer);
  // More bytes than were asked for would lie beyond the caller's memory.
  FOREBAY_CHECK(moved <= transfer.length - transfer.done);
  transfer.done += moved;
  if (transfer.done == transfer.length) return transfer.done;
  if (moved == 0 && transfer.kind == OpKind::kRead) return transfer.done;  // the end of the file
  if (moved == 0) return FailureOf(transfer, EIO);  // repeating it could go on for ever
  const bool is_block_end = transfer.done % limits::kIoAlignmentBytes == 0;
  if (transfer.file->is_direct() && !is_block_end) {
    // A direct read transfers whole blocks, except at the end of the file. To ask again from the
    // middle of a block would be refused as misaligned.
    if (transfer.kind == OpKind::kRead) return transfer.done;
    return FailureOf(transfer, EIO);
  }
  // Progress was made, so the bound on retries starts again.
  transfer.retries = 0;
  return std::nullopt;
}

std::string Describe(const Transfer& transfer) {
  if (transfer.kind == OpKind::kDataSync) return "data sync of " + Quoted(transfer.file->path());
  std::string text = transfer.kind == OpKind::kRead ? "read " : "write ";
  text += std::to_string(transfer.length) + " bytes at " + std::to_string(transfer.offset);
  text += " of " + Quoted(transfer.file->path());
  return text;
}

}  // namespace forebay::io
