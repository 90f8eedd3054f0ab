// The steps of a daemon in a job of several nodes that concern this node alone: its name, the list
// of hosts, and the address on which it listens for other nodes. JobNodes takes them when the
// daemon starts, and `forebayd --doctor` before a job starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/peer/peer_server.h"
#include "server/rendezvous/host_list_rendezvous.h"

namespace forebay::daemon {

// The name of this machine, as gethostname gives it.
Result<std::string> HostName();

// Reads the list of hosts at `path`, of the key nodes.rendezvous. Errors name file and line.
Result<rendezvous::HostList> ReadHostList(const Config& config, const std::string& path);

// Listens on the address of peer.interface and the first free port of peer.ports, or on
// `port_of_list` unless it is 0. `certificates`: of this node; empty: in plaintext. `clients`: as
// peer::PeerServerOptions has it. Errors name the keys.
Result<std::unique_ptr<peer::PeerServer>> ListenForNodes(
    const Config& config, std::uint16_t port_of_list,
    const peer::NodeCertificates& certificates, grpc::Service* clients = nullptr);

// Returns how the connections between nodes are protected: a value of StatusReply.node_connections.
// Without a secret and peer.allow_plaintext, all addresses are on loopback: others are refused,
// here and by peer::GrpcPeers.
std::string_view NodeConnections(const Config& config, bool is_encrypted);

}  // namespace forebay::daemon
