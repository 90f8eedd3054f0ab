// What all transports share: texts for errors, and a wait made of AwaitAny and Test.
#include "trainer/comm/transport/transport.h"

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::train {

std::string ToString(const MessageTag& tag) {
  return fmt::format("step {}, micro-batch {}, edge {}, samples {:016x}", tag.step,
                     tag.micro_batch, tag.edge, tag.samples_hash);
}

Error Overdue(std::uint32_t rank, std::uint32_t peer, const MessageTag& tag,
              std::uint64_t timeout_ns) {
  return Error(ErrorCode::kDeadlineExceeded,
               fmt::format("rank {} waited {:.1f} s for rank {}: {}", rank,
                           static_cast<double>(timeout_ns) * 1e-9, peer, ToString(tag)));
}

Status Transport::Wait(Ticket ticket, std::uint64_t timeout_ns) {
  FOREBAY_TRY(AwaitAny({&ticket, 1}, timeout_ns));
  // AwaitAny also returns when a transfer has failed; Test then returns that error. It was the
  // only ticket, so a transfer without an error is done.
  FOREBAY_ASSIGN(const bool done, Test(ticket));
  FOREBAY_CHECK(done);
  return {};
}

}  // namespace forebay::train
