// The port that is tried is the port that is used: PeerServer keeps it from the first try on, so no
// other process can take it in between.
#include "server/daemon/node_listener.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/small_file.h"
#include "server/rendezvous/interface_address.h"

namespace forebay::daemon {
namespace {

std::string HostAndPort(const std::string& host, std::uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

Result<std::string> HostName() {
  std::array<char, limits::kHostNameBytesMax + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) {
    return Error::FromErrno(errno, "the name of this host (gethostname)");
  }
  return std::string(name.data());
}

Result<rendezvous::HostList> ReadHostList(const Config& config, const std::string& path) {
  FOREBAY_ASSIGN(const std::string text,
                 ReadTextFile(path, limits::kNodeFileBytesMax, "kNodeFileBytesMax"));
  const auto ports = rendezvous::ParsePortRange(config.peer_ports);
  if (!ports.has_value()) return ports.error().WithContext("peer.ports");
  // A single port is the one of all lines that give none.
  const std::uint16_t default_port = ports->first == ports->last ? ports->first : 0;
  return rendezvous::HostList::Parse(text, path, default_port);
}

Result<std::unique_ptr<peer::PeerServer>> ListenForNodes(
    const Config& config, std::uint16_t port_of_list,
    const peer::NodeCertificates& certificates, grpc::Service* clients) {
  FOREBAY_ASSIGN(const auto addresses, rendezvous::LocalAddresses());
  const auto host = rendezvous::ListenAddress(config.peer_interface, addresses);
  if (!host.has_value()) return host.error().WithContext("peer.interface");
  auto ports = rendezvous::ParsePortRange(config.peer_ports);
  if (!ports.has_value()) return ports.error().WithContext("peer.ports");
  if (port_of_list != 0) ports = rendezvous::PortRange{port_of_list, port_of_list};
  Error last(ErrorCode::kInternal, "no port was tried");
  for (std::uint32_t port = ports->first; port <= ports->last; ++port) {
    auto server = peer::PeerServer::Listen(
        {.address = HostAndPort(*host, static_cast<std::uint16_t>(port)),
         .allow_plaintext = config.peer_allow_plaintext,
         .certificates = certificates,
         .clients = clients});
    if (server.has_value()) return server;
    last = server.error();
    // An address that may not be used has nothing to do with the port.
    if (last.code() == ErrorCode::kFailedPrecondition) {
      return last.WithContext("peer.secret is not set, and peer.allow_plaintext is false");
    }
    if (last.code() != ErrorCode::kUnavailable) break;
  }
  return last.WithContext("peer.interface, peer.ports");
}

std::string_view NodeConnections(const Config& config, bool is_encrypted) {
  if (is_encrypted) return config.peer_transport == "mpi" ? "encrypted_but_mpi" : "encrypted";
  return config.peer_allow_plaintext ? "plaintext_allowed" : "plaintext_on_loopback";
}

}  // namespace forebay::daemon
