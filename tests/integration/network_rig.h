// NetworkRig: a network for the nodes of a test. Each node has a network namespace of its own with
// one address, and a bridge in a further namespace connects them. A test can drop what a node sends
// or receives, and slow its link down. The namespaces have no names: file descriptors of this
// process, and the daemons in them, keep them alive. So the kernel removes all of it when the test
// ends, however it ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/unique_fd.h"

namespace forebay::integration {

class NetworkRig {
 public:
  explicit NetworkRig(std::uint32_t node_count);

  // Why there is no network, in one line: mostly because the user may not make namespaces. Empty:
  // there is one. Nothing else may be called without it.
  const std::string& missing() const { return missing_; }

  // The namespace of a node, for DaemonProcess.
  int node(std::uint32_t node) const { return nodes_[node].get(); }
  std::string subnet() const { return "10.77.0.0/24"; }

  // Drops what the node receives, or sends, from now on. The other end is told nothing.
  enum class Direction : std::uint8_t { kReceived, kSent };
  void Drop(std::uint32_t node, Direction direction);
  // Packets that were dropped so far.
  std::uint64_t DroppedPackets(std::uint32_t node) const;
  // Ends all drops of the node, and counts from 0 again.
  void Restore(std::uint32_t node);

  // Slows the link of the node down, in both directions.
  void Limit(std::uint32_t node, std::uint32_t megabits_per_second);
  // How often a packet had to wait on the limited link.
  std::uint64_t DelayedPackets(std::uint32_t node) const;

 private:
  std::string Make(std::uint32_t node_count);

  std::string missing_;
  UniqueFd bridge_;               // the namespace of the bridge, with one port for each node
  std::vector<UniqueFd> nodes_;
};

}  // namespace forebay::integration
