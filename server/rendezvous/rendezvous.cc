// Reads the key `nodes.rendezvous`. A word, or a word and a path or address with a colon between
// them.
#include "server/rendezvous/rendezvous.h"

#include <fmt/format.h>

#include "proto/contract/printable.h"
#include "server/rendezvous/host_port.h"

namespace forebay::rendezvous {
namespace {

Result<RendezvousChoice> ParseJoin(std::string_view text, std::string_view address) {
  const Result<HostPort> parsed = ParseHostPort(address);
  if (parsed.has_value() && parsed->port != 0) {
    return RendezvousChoice{.kind = RendezvousKind::kJoin, .path = parsed->Text()};
  }
  const std::string why = parsed.has_value() ? "the port is missing" : parsed.error().message();
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} is not join:HOST:PORT or join:[ADDRESS]:PORT, with the address of a "
                           "node of the running job: {}",
                           Quoted(text), why));
}

}  // namespace

Result<RendezvousChoice> ParseRendezvous(std::string_view text) {
  if (text == "none") return RendezvousChoice{};
  if (text == "pmix" || text == "pmix:events") {
    return RendezvousChoice{.kind = RendezvousKind::kPmix, .hears_losses = text != "pmix"};
  }
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  if (colon != std::string_view::npos && word == "join") {
    return ParseJoin(text, text.substr(colon + 1));
  }
  if (colon == std::string_view::npos || (word != "directory" && word != "hosts")) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is none of none, pmix, pmix:events, directory:PATH, hosts:PATH, "
                             "join:HOST:PORT",
                             Quoted(text)));
  }
  const std::string_view path = text.substr(colon + 1);
  // Daemons of a job may be started in different directories, so a relative path could name a
  // different one on each node.
  if (!path.starts_with('/')) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: the path after '{}:' must be absolute", Quoted(text), word));
  }
  return RendezvousChoice{
      .kind = word == "hosts" ? RendezvousKind::kHosts : RendezvousKind::kDirectory,
      .path = std::string(path)};
}

}  // namespace forebay::rendezvous
