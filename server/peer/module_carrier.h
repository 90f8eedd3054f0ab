// ModuleCarrier: a PayloadCarrier by a loadable module (payload_module.h), so that the daemon is
// linked with no MPI.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/payload_module.h"

namespace forebay::peer {

struct ModuleCarrierOptions {
  std::string path;  // of the module
  NodeRank self;
  std::uint32_t node_count = 0;
  std::string name;  // of this node, for messages
};

class ModuleCarrier final : public PayloadCarrier {
 public:
  // Loads the module, which stays loaded until the process ends, and blocks until all nodes have
  // come. kFailedPrecondition: the module cannot be used, or the nodes are numbered in another way
  // there; the message says what to do.
  static Result<std::unique_ptr<ModuleCarrier>> Load(const ModuleCarrierOptions& options);

  // Waits until all nodes leave, for `wait_ms` at most. False: not all have, and the launcher takes
  // the end of this process for a failure. Nothing may be under way, here or later.
  bool Leave(std::int64_t wait_ms);

  PayloadPlace Receive(NodeRank node, const Payload& payload, Ended ended) override;
  void Cancel(std::uint32_t tag) override { module_.cancel(tag); }
  void Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
            Ended ended) override;
  bool CanSend(NodeRank node, const PayloadPlace& place) override;

 private:
  ModuleCarrier(const ForebayPayloadModule& module, const ModuleCarrierOptions& options)
      : module_(module), self_(options.self), node_count_(options.node_count) {}

  const ForebayPayloadModule& module_;
  const NodeRank self_;
  const std::uint32_t node_count_;
};

}  // namespace forebay::peer
