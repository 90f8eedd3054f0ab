#include "server/io/queues/transfer.h"

#include <cerrno>
#include <typeinfo>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::io {
namespace {

// Whether `transfer` may ask again after the kernel answered `system_errno`. Counts it.
bool MayAskAgain(Transfer& transfer, int system_errno) {
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
  if (transfer.kind == OpKind::kDataSync) return transfer.done;
  const auto moved = static_cast<std::uint64_t>(answer);
  FOREBAY_CHECK(moved <= transfer.length - transfer.done);
  transfer.done += moved;
  if (transfer.done == transfer.length) return transfer.done;
  if (moved == 0 && transfer.kind == OpKind::kRead) return transfer.done;
  if (moved == 0) return FailureOf(transfer, EIO);  // a device that takes nothing, forever
  const bool is_block_end = transfer.done % limits::kIoAlignmentBytes == 0;
  if (transfer.file->is_direct() && !is_block_end) {
    // Direct transfers move whole blocks except at the end of the file, where asking again
    // from the middle of a block would be refused as misaligned.
    if (transfer.kind == OpKind::kRead) return transfer.done;
    return FailureOf(transfer, EIO);
  }
  transfer.retries = 0;
  return std::nullopt;
}

std::string Describe(const Transfer& transfer) {
  if (transfer.kind == OpKind::kDataSync) return "data sync of " + QuotePath(transfer.file->path());
  std::string text = transfer.kind == OpKind::kRead ? "read " : "write ";
  text += std::to_string(transfer.length) + " bytes at " + std::to_string(transfer.offset);
  text += " of " + QuotePath(transfer.file->path());
  return text;
}

}  // namespace forebay::io
