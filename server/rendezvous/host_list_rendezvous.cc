// Reads a list of hosts line by line, and makes the entries of all nodes from it. What a node
// cannot know about others (SSD directory, agreed values) it takes from itself, because all daemons
// of a job have the same configuration.
#include "server/rendezvous/host_list_rendezvous.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::rendezvous {
namespace {

// Lines may end with a carriage return if the list was written on another system.
constexpr std::string_view kBlanks = " \t\r";

// Takes the first word off `text`.
std::string_view TakeWord(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

std::string_view ShortName(std::string_view host) { return host.substr(0, host.find('.')); }

// Whether both name the same host. If one of them has no domain, the domain of the other does not
// matter. Addresses have dots, too, and are compared whole.
bool IsSameHost(std::string_view one, std::string_view other) {
  const bool both_have_domains =
      one.find('.') != std::string_view::npos && other.find('.') != std::string_view::npos;
  return both_have_domains ? one == other : ShortName(one) == ShortName(other);
}

}  // namespace

Result<HostList> HostList::Parse(std::string_view text, std::string name,
                                 std::uint16_t default_port) {
  HostList list;
  list.name_ = std::move(name);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;  // also of empty lines, so that an editor shows the line under this number
    const auto wrong = [&](std::string_view why) {
      return Error(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", list.name_, number, why));
    };
    line = line.substr(0, line.find('#'));
    const std::string_view host = TakeWord(line);
    if (host.empty()) continue;
    const std::string_view capacity = TakeWord(line);
    // The word is kept as it is written, too: it is the node's name, and its host and port are not.
    const Result<HostPort> address = ParseHostPort(host);
    if (!address.has_value()) return wrong(address.error().message());
    Line found{.word = std::string(host), .address = *address, .number = number};
    if (found.address.port == 0) found.address.port = default_port;
    if (found.address.port == 0) {
      return wrong(fmt::format("{} has no port, and peer.ports is not a single port",
                               Quoted(host)));
    }
    // A capacity of 0 is refused, because such a node would own nothing, yet be asked.
    const auto [last, error] = std::from_chars(
        capacity.data(), capacity.data() + capacity.size(), found.capacity);
    if (!capacity.empty() && (error != std::errc() || last != capacity.data() + capacity.size() ||
                              found.capacity == 0)) {
      return wrong(fmt::format("the capacity {} is not a whole number of at least 1",
                               Quoted(capacity)));
    }
    if (!TakeWord(line).empty()) return wrong("a line has a host and, at most, a capacity");
    // Before the line is added, so that a huge file costs no more memory than a list may.
    if (list.lines_.size() == limits::kNodeCountMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("{} lists more than kNodeCountMax ({}) hosts", list.name_,
                               limits::kNodeCountMax));
    }
    list.lines_.push_back(std::move(found));
  }
  if (list.lines_.empty()) {
    return Error(ErrorCode::kInvalidArgument, list.name_ + " lists no host");
  }
  return list;
}

Result<NodePlace> HostList::Place(const Launch& launch, std::string_view host_name) const {
  // The list is of this launch, or it is a mistake: with fewer nodes than lines, daemons would ask
  // nodes that are not there.
  if (launch.node_count && launch.node_count->value != node_count()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} lists {} hosts, but {}={}", name_, node_count(),
                             launch.node_count->source, launch.node_count->value));
  }
  if (launch.rank) {
    if (launch.rank->value < node_count()) {
      return NodePlace{NodeRank(launch.rank->value), node_count()};
    }
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} lists {} hosts, so none is for {}={}", name_, node_count(),
                             launch.rank->source, launch.rank->value));
  }
  // All lines are looked at, because a second match means that the name does not decide.
  std::optional<std::uint32_t> found;
  for (std::uint32_t rank = 0; rank < node_count(); ++rank) {
    if (!IsSameHost(lines_[rank].address.host, host_name)) continue;
    if (found) {
      return Error(ErrorCode::kFailedPrecondition,
                   fmt::format("lines {} and {} of {} both name this host ({}): give --node-rank",
                               lines_[*found].number, lines_[rank].number, name_,
                               Quoted(host_name)));
    }
    found = rank;
  }
  if (!found) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("no line of {} names this host, {}: add it, or give --node-rank",
                             name_, Quoted(host_name)));
  }
  return NodePlace{NodeRank(*found), node_count()};
}

std::vector<NodeEntry> HostList::Entries(const NodeEntry& own) const {
  std::vector<NodeEntry> entries;
  entries.reserve(lines_.size());
  for (std::uint32_t rank = 0; rank < node_count(); ++rank) {
    const Line& line = lines_[rank];
    // Also for this node itself nothing is taken from `own` that another node could not know.
    const NodeIdentity identity = {.job = own.identity.job, .host = line.word};
    entries.push_back({.identity = identity,
                       .place = identity,
                       .rank = NodeRank(rank),
                       .address = line.address,
                       .capacity_bytes = line.capacity,
                       .agreed = own.agreed});
  }
  return entries;
}

Result<std::vector<NodeEntry>> HostListRendezvous::Exchange(const NodeEntry& own,
                                                            std::uint32_t node_count,
                                                            std::int64_t) {
  std::vector<NodeEntry> entries = hosts_.Entries(own);
  // Finds an address that is listed twice.
  FOREBAY_TRY(CheckNodeList(entries, node_count));
  return entries;
}

}  // namespace forebay::rendezvous
