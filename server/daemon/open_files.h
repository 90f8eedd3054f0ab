// Decides how many connections with other nodes a daemon may have, by the number of files that it
// may open, and tells how many it needs. forebayd raises its soft limit to the hard one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "server/daemon/config/config.h"

namespace forebay::daemon {

// Returns how many channels of gRPC to other nodes there may be: as many as the configuration says
// (peer.channels), or fewer if not enough files may be open. It leaves as many files for the
// connections that come from other nodes.
std::uint32_t PeerChannelsMax(std::uint64_t configured);

// Returns how many nodes are asked at a time if all of them are: limits::kNodesAskedAtATime, or
// PeerChannelsMax if that is less, so that connections are closed as fast as others are opened.
std::size_t NodesAskedAtATime(std::uint64_t configured);

// Returns how many connections for bytes of samples there may be in each direction: at most
// limits::kPeerPayloadConnectionsMax, and at most a sixteenth of the files. Connections that have
// not shown a certificate yet may take as many files again.
std::uint32_t PayloadConnectionsMax();

// About how many descriptors a daemon with `clients` clients has open, without other nodes.
std::uint64_t DescriptorsNeeded(const Config& config, std::uint64_t clients);

struct FewOpenFiles {
  std::string text;  // the limit, and how many files the daemon needs
  std::string remedy;
};

// What is wrong with the limit of open files for a daemon of a job of `node_count` nodes, with one
// client. std::nullopt: it is large enough, or cannot be read. A daemon serves all the same, with
// fewer connections.
std::optional<FewOpenFiles> FindFewOpenFiles(const Config& config, std::uint32_t node_count);
// Logs what FindFewOpenFiles finds, as one warning.
void WarnOfFewOpenFiles(const Config& config, std::uint32_t node_count);

}  // namespace forebay::daemon
