// A node that does not answer, or refuses, lends nothing; the next call of Tick asks others. So
// errors need no further treatment.
#include "server/stage/gfs/share_borrower.h"

namespace forebay::stage {
namespace {

// A later answer is of little use: a loan counts from the moment at which it was asked for.
constexpr std::int64_t kAnswerNs = 1'000'000'000;

}  // namespace

void ShareBorrower::Tick() {
  const auto lives = [this](NodeRank node) { return nodes_.Lives(node); };
  for (const CapShare::Ask& ask : throttle_.Tick(lives)) {
    const std::int64_t asked_ns = clock_.NowNs();
    source_.Borrow(ask.lender, ask.wanted, asked_ns + kAnswerNs,
                   [&throttle = throttle_, lender = ask.lender,
                    asked_ns](const Result<CapRates>& lent) {
                     if (lent.has_value()) throttle.Borrowed(lender, *lent, asked_ns);
                   });
  }
}

}  // namespace forebay::stage
