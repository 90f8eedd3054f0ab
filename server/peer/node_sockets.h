// The TCP sockets between nodes: those of gRPC that are accepted, and those for bytes of rows. None
// of them blocks.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::peer {

struct ListeningSocket {
  UniqueFd socket;
  std::uint16_t port = 0;
};
// Where to listen: at the first free port of a range, or, if it begins with 0, at one that the
// kernel chooses. The host is a numeric address.
struct ListeningPlace {
  std::string host;
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
};
// kUnavailable: the address cannot be used.
Result<ListeningSocket> ListenAt(const ListeningPlace& place);

// Begins to connect to a numeric address; the socket can be written to when it is connected. Names
// are not resolved, because that may block.
Result<UniqueFd> BeginToConnect(const std::string& host, std::uint16_t port);

// Sends at once what is written, and notices as early as gRPC's keepalive a node that is gone
// without a word.
void SetConnectionOptions(int fd);

}  // namespace forebay::peer
