#include "server/io/transfer.h"

#include <cerrno>
#include <string>
#include <typeinfo>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::io {
namespace {

TransferStep Fail(const Transfer& transfer, int system_errno, Result<std::uint64_t>& outcome) {
  outcome = FileError(system_errno, Describe(transfer));
  return TransferStep::kDone;
}

TransferStep Finish(const Transfer& transfer, Result<std::uint64_t>& outcome) {
  outcome = transfer.done;
  return TransferStep::kDone;
}

TransferStep AdvanceAfterError(Transfer& transfer, int system_errno,
                               Result<std::uint64_t>& outcome) {
  if (system_errno == EINTR && transfer.interrupts < limits::kInterruptMax) {
    ++transfer.interrupts;
    return TransferStep::kResume;
  }
  if (system_errno == EAGAIN && transfer.kind != OpKind::kDataSync &&
      transfer.retries < limits::kIoRetryMax) {
    ++transfer.retries;
    return TransferStep::kResume;
  }
  return Fail(transfer, system_errno, outcome);
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

TransferStep Advance(Transfer& transfer, std::int64_t answer, Result<std::uint64_t>& outcome) {
  if (answer < 0) return AdvanceAfterError(transfer, static_cast<int>(-answer), outcome);
  if (transfer.kind == OpKind::kDataSync) return Finish(transfer, outcome);
  const auto moved = static_cast<std::uint64_t>(answer);
  FOREBAY_CHECK(moved <= transfer.length - transfer.done);
  transfer.done += moved;
  if (transfer.done == transfer.length) return Finish(transfer, outcome);
  if (transfer.kind == OpKind::kRead && moved == 0) return Finish(transfer, outcome);
  if (moved == 0) return Fail(transfer, EIO, outcome);  // a device that takes nothing, forever
  const bool is_block_end = transfer.done % limits::kIoAlignmentBytes == 0;
  if (transfer.file->is_direct() && !is_block_end) {
    // Direct transfers move whole blocks except at the end of the file, where asking again
    // from the middle of a block would be refused as misaligned.
    return transfer.kind == OpKind::kRead ? Finish(transfer, outcome)
                                          : Fail(transfer, EIO, outcome);
  }
  transfer.retries = 0;
  return TransferStep::kResume;
}

std::string Describe(const Transfer& transfer) {
  if (transfer.kind == OpKind::kDataSync) return "data sync of " + QuotePath(transfer.file->path());
  std::string text = transfer.kind == OpKind::kRead ? "read " : "write ";
  text += std::to_string(transfer.length) + " bytes at " + std::to_string(transfer.offset);
  text += " of " + QuotePath(transfer.file->path());
  return text;
}

}  // namespace forebay::io
