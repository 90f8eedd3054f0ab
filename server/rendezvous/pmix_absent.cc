// Takes the place of pmix_rendezvous.cc where libpmix was not found.
#include "proto/contract/check.h"
#include "server/rendezvous/pmix_rendezvous.h"

namespace forebay::rendezvous {

struct PmixRendezvous::Session {};

Result<std::unique_ptr<PmixRendezvous>> PmixRendezvous::Connect(const io::Clock&) {
  return Error(ErrorCode::kUnimplemented,
               "this forebayd was built without PMIx (install libpmix-dev and build again): use "
               "nodes.rendezvous = \"directory:PATH\" or \"hosts:PATH\"");
}

PmixRendezvous::~PmixRendezvous() = default;

// Connect makes no object, so the rest is never called.
PmixTask PmixRendezvous::task() const {
  FOREBAY_CHECK(session_ != nullptr);
  return {};
}

Result<std::vector<NodeEntry>> PmixRendezvous::Exchange(const NodeEntry&, std::uint32_t,
                                                        std::int64_t) {
  return Error(ErrorCode::kUnimplemented, "this forebayd was built without PMIx");
}

void PmixRendezvous::HearLosses(std::function<void(NodeRank, std::string_view)>) {}

}  // namespace forebay::rendezvous
