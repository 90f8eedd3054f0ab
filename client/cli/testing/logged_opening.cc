// The lines are made by a JSON library and not by client/delivery_log.cc, so that the audit is
// tested with the format that the document has.
#include "client/cli/testing/logged_opening.h"

#include "client/cli/testing/forebay_run.h"
#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli {

std::string LoggedHeader(const LoggedStream& stream) {
  const OrderSpec order = {.seed = 1, .sample_count = kLoggedSamples,
                           .tail = TailPolicy::kDrop,
                           .shape = {.mode = OrderMode::kSequential}};
  std::string hex;
  for (const std::byte byte : order.Encode()) {
    for (const unsigned digit : {std::to_integer<unsigned>(byte) >> 4,
                                 std::to_integer<unsigned>(byte) & 15}) {
      hex += "0123456789abcdef"[digit];
    }
  }
  const std::uint64_t back = stream.names_end_of_epoch ? 1 : 0;
  const Json header = {{"forebay_delivery_log", 1},
                       {"opened_unix_ns", stream.opened},
                       {"dataset", "d"},
                       {"stream", "train"},
                       {"selection", "all"},
                       {"catalog_fingerprint", 3},
                       {"samples", kLoggedSamples},
                       {"global_batch", kLoggedBatch},
                       {"ranks", stream.ranks},
                       {"rank", stream.rank},
                       {"first_epoch", stream.first / kLoggedSteps - back},
                       {"first_step", stream.first % kLoggedSteps + back * kLoggedSteps},
                       {"epochs", stream.epochs},
                       {"order_spec", hex}};
  return header.dump() + "\n";
}

std::string LoggedBatchOf(const LoggedStream& stream, std::uint64_t step) {
  const StepPlan plan = *StepPlan::Create({.sample_count = kLoggedSamples,
                                           .global_batch = kLoggedBatch,
                                           .ranks = stream.ranks});
  const StepSlice share = *plan.RankSlice(StepId(step % kLoggedSteps), stream.rank);
  Json batch = {{"epoch", step / kLoggedSteps}, {"step", step % kLoggedSteps},
                {"position", share.first}};
  for (std::uint64_t i = 0; i < share.count; ++i) batch["ids"].push_back(share.first + i);
  return batch.dump() + "\n";
}

}  // namespace forebay::cli
