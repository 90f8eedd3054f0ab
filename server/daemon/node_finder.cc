// Finds the nodes in the order that the facts depend on each other: the address to listen on, the
// port that the kernel gives, this node's entry, the entries of all. PeerServer listens from the
// second step on and lets others wait, so that no node finds another one missing that has only
// started a little later. A daemon that is started again after a kill reads the list of nodes that
// the killed one has kept, in place of exchanging entries. One that joins gets it from another
// node.
#include "server/daemon/node_finder.h"

#include <poll.h>

#include <charconv>
#include <chrono>
#include <ctime>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/printable.h"
#include "proto/contract/wire_layout.h"
#include "server/daemon/gfs_caps.h"
#include "server/daemon/job_secret.h"
#include "server/daemon/launch_search.h"
#include "server/daemon/node_listener.h"
#include "server/daemon/place_search.h"
#include "server/daemon/served_check.h"
#include "server/io/log.h"
#include "server/rendezvous/host_list_rendezvous.h"
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/node_file.h"

namespace forebay::daemon {
namespace {

using rendezvous::RendezvousKind;

constexpr const char* kMpi = "mpi";

// Lists what all nodes must have alike. If two nodes differ, the rendezvous shows the texts of
// both. Hello compares the same values again, between the daemons that really talk.
std::vector<rendezvous::AgreedValue> AgreedValues(const Config& config,
                                                  std::uint64_t data_digest,
                                                  const std::string& authority,
                                                  const std::string& caps) {
  return {{"protocol version", fmt::to_string(kPeerProtocolVersion)},
          {"order version", fmt::to_string(kOrderSpecVersion)},
          {"catalog version", fmt::to_string(kCatalogVersion)},
          {"data sets (digest of their configuration)", fmt::format("{:016x}", data_digest)},
          {"peer.transport", config.peer_transport},
          {"caps of the job (stage.job_...)", caps},
          {"nodes.free_places", fmt::to_string(config.nodes_free_places)},
          {"peer.secret (digest of the public key that follows from it)", authority}};
}

Result<NodeRank> ParseRank(const std::string& text) {
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error == std::errc() && end == text.data() + text.size()) return NodeRank(rank);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--node-rank is {}, and not a rank", Quoted(text)));
}

}  // namespace

std::map<NodeRank, std::string> AddressesOf(const std::vector<rendezvous::NodeEntry>& nodes,
                                            NodeRank self) {
  std::map<NodeRank, std::string> addresses;
  for (const rendezvous::NodeEntry& node : nodes) {
    if (node.rank != self) addresses[node.rank] = node.is_free() ? "" : node.address.Text();
  }
  return addresses;
}

// In plaintext, any user could be a client of another node. And a job that uses MPI ends when it
// loses a node, so no reader of a lost node comes.
grpc::Service* ClientsOfOthers(const JoinParts& parts,
                               const peer::NodeCertificates& certificates) {
  const bool may_serve = parts.config.peer_remote_clients && !certificates.empty() &&
                         parts.config.peer_transport != kMpi;
  return may_serve ? parts.clients : nullptr;
}

// Sleeps; false as soon as the daemon is to stop.
bool NodeFinder::Pause(std::int64_t ms) const {
  pollfd stop{parts_.stop_fd, POLLIN, 0};
  // A negative descriptor is ignored, so this is a plain sleep then. A signal ends it early, which
  // costs the caller a look at what it waits for.
  return poll(&stop, 1, static_cast<int>(ms)) <= 0;
}

// This node's place in the job. Makes what exchanges the entries, but for a directory. Sets
// `port_of_list` to the port that a list of hosts gives this node.
Result<rendezvous::NodePlace> NodeFinder::FindPlace(const std::string& host_name,
                                                  std::uint16_t& port_of_list) {
  if (launch_.choice.kind != RendezvousKind::kHosts) return rendezvous::PlaceOf(launch_.launch);
  FOREBAY_ASSIGN(auto hosts, ReadHostList(parts_.config, launch_.choice.path));
  FOREBAY_ASSIGN(const rendezvous::NodePlace place, hosts.Place(launch_.launch, host_name));
  port_of_list = hosts.address(place.rank).port;
  rendezvous_ = std::make_unique<rendezvous::HostListRendezvous>(std::move(hosts));
  return place;
}

// Sleeps in the rendezvous, which is left if a node of the earlier launch answers that did not
// before: then this daemon returns after all.
rendezvous::PauseEnd NodeFinder::PauseOrReturn(NodeRank self, std::int64_t ms) {
  using rendezvous::PauseEnd;
  constexpr std::int64_t kAskAgainNs = 3'000'000'000;
  if (!Pause(ms)) return PauseEnd::kToldToStop;
  if (!earlier_ || parts_.clock.NowNs() < next_return_ns_) return PauseEnd::kOver;
  found_.has_returned = HasAnswer(self);
  next_return_ns_ = parts_.clock.NowNs() + kAskAgainNs;
  return found_.has_returned || lost_place_ ? PauseEnd::kNotNeeded : PauseEnd::kOver;
}

Result<rendezvous::Rendezvous*> NodeFinder::OpenRendezvous(NodeRank self) {
  if (launch_.pmix) {
    launch_.pmix->StopAt(parts_.stop_fd);
    return launch_.pmix.get();
  }
  if (launch_.choice.kind != RendezvousKind::kDirectory) return rendezvous_.get();
  auto directory = parts_.backend.OpenDirectory(launch_.choice.path);
  if (!directory.has_value()) return directory.error().WithContext("nodes.rendezvous");
  directory_ = std::move(*directory);
  rendezvous_ = std::make_unique<rendezvous::DirectoryRendezvous>(
      rendezvous::DirectoryRendezvousParts{
          .backend = parts_.backend,
          .directory = *directory_,
          .clock = parts_.clock,
          .pause = [this, self](std::int64_t ms) { return PauseOrReturn(self, ms); },
          .sleep = [](std::int64_t ms) {
            std::this_thread::sleep_for(std::chrono::milliseconds(ms));
          }},
      launch_.choice.path);
  return rendezvous_.get();
}

Result<std::optional<FoundNodes>> NodeFinder::Find() {
  const auto alone = [] {
    ForgetSecretVariable();  // without other nodes it has no use
    return std::nullopt;
  };
  if (launch_.choice.kind == RendezvousKind::kNone) return alone();
  FOREBAY_ASSIGN(const std::string host_name, HostName());
  if (launch_.choice.kind == RendezvousKind::kJoin) {
    FOREBAY_TRY(Join(host_name));
  } else {
    std::uint16_t port_of_list = 0;
    FOREBAY_ASSIGN(const rendezvous::NodePlace place, FindPlace(host_name, port_of_list));
    // Nobody to find, and nobody who asks, now or later.
    if (place.node_count == 1 && parts_.config.nodes_free_places == 0) return alone();
    FOREBAY_ASSIGN(rendezvous::NodeEntry own, PrepareEntry(place.rank, host_name));
    FOREBAY_TRY(Meet(std::move(own), place, port_of_list));
  }
  found_.identity = IdentityAt(found_.server->address(), found_.nodes);
  return std::optional(std::move(found_));
}

// This node's entry, without its address, and what it and the identity need.
Result<rendezvous::NodeEntry> NodeFinder::PrepareEntry(NodeRank rank,
                                                       const std::string& host_name) {
  const Config& config = parts_.config;
  FOREBAY_ASSIGN(found_.certificates,
                 FindCertificates(config, launch_.launch.job.name, std::time(nullptr)));
  if (const std::string risk = SecretFileRisk(config); !risk.empty()) {
    log::Warn("{}; {}", risk, kSecretFileRemedy);
  }
  std::string authority = "none";
  ForgetSecretVariable();
  if (!found_.certificates.empty()) {
    FOREBAY_ASSIGN(authority, peer::AuthorityDigest(found_.certificates));
  }
  FOREBAY_ASSIGN(const GfsCaps caps, GfsCaps::Of(config));
  const bool has_caps = caps.has_any();
  if (config.nodes_free_places > 0 && (has_caps || config.peer_transport == kMpi)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("nodes.free_places is {}, which excludes {}; without free places a "
                             "node can still join in the place of one that is lost",
                             config.nodes_free_places,
                             has_caps ? "the caps of the job (stage.job_...): a part of them would "
                                        "belong to places without a node"
                                      : "peer.transport = \"mpi\": MPI knows its ranks from the "
                                        "start"));
  }
  const std::uint64_t data_digest = ContentDigest(config.datasets);
  const std::string caps_text = caps.Text();
  config_digest_ = data_digest ^ Checksum(std::as_bytes(std::span(caps_text)));
  const rendezvous::NodeIdentity identity = {.job = launch_.launch.job.name,
                                             .host = host_name,
                                             .ssd_directory = config.ssd_directory};
  return rendezvous::NodeEntry{.identity = identity,
                               .place = identity,
                               .rank = rank,
                               .address = {},
                               .capacity_bytes = parts_.capacity_bytes,
                               .nonce = parts_.nonce,
                               .agreed = AgreedValues(config, data_digest, authority, caps_text)};
}

// Exchanges entries with all nodes, unless a daemon of this node was killed and another node of its
// launch answers.
Status NodeFinder::Meet(rendezvous::NodeEntry own, const rendezvous::NodePlace& place,
                        std::uint16_t port_of_list) {
  found_.self = place.rank;
  const auto free_places = static_cast<std::uint32_t>(parts_.config.nodes_free_places);
  // A lost rank of MPI ends the job. A list of hosts is the same in each launch, so it could not be
  // told whether the others belong to the launch of the killed daemon.
  if (parts_.config.peer_transport != kMpi && launch_.choice.kind != RendezvousKind::kHosts) {
    OpenKeptList();
  }
  if (found_.kept_list) {
    auto kept = found_.kept_list->Find(own, place.node_count + free_places);
    found_.has_returned = kept && ReturnTo(place.rank, std::move(*kept));
    if (found_.has_returned) return {};
    if (lost_place_) return *lost_place_;
  }
  FOREBAY_TRY(Listen(port_of_list));
  FOREBAY_ASSIGN(rendezvous::Rendezvous* const meeting, OpenRendezvous(place.rank));
  FOREBAY_ASSIGN(own.address, rendezvous::ParseHostPort(found_.server->address()));
  auto met = meeting->Exchange(own, place.node_count, deadline_ns_);
  // The others may answer since the last look. A daemon that is to stop does not ask them.
  const bool may_return = !met.has_value() && !found_.has_returned && !lost_place_ && earlier_;
  if (may_return && Pause(0)) found_.has_returned = HasAnswer(place.rank);
  if (lost_place_) return *lost_place_;
  if (found_.has_returned) {
    found_.nodes = std::move(*earlier_);
    return {};
  }
  if (!met.has_value()) return met.error();
  FOREBAY_ASSIGN(found_.nodes, rendezvous::WithFreePlaces(std::move(*met), free_places));
  return {};
}

// The job runs already. A daemon that has joined it, and was killed, has a place in it.
Status NodeFinder::Join(const std::string& host_name) {
  if (parts_.config.peer_transport == kMpi) {
    return Error(ErrorCode::kInvalidArgument,
                 "nodes.rendezvous = \"join:...\" and peer.transport = \"mpi\" exclude each other, "
                 "because MPI knows its ranks from the start");
  }
  FOREBAY_ASSIGN(rendezvous::NodeEntry own, PrepareEntry(NodeRank(0), host_name));
  OpenKeptList();
  if (found_.kept_list) {
    if (auto kept = found_.kept_list->FindOwn(own)) {
      found_.has_returned = ReturnTo(kept->rank, std::move(kept->nodes));
      if (found_.has_returned) {
        found_.self = kept->rank;
        return {};
      }
    }
  }
  if (lost_place_) log::Info("{}", lost_place_->message());
  // Nobody is waited for any more: the daemons of that launch have ended, or cannot be reached.
  earlier_.reset();
  FOREBAY_TRY(Listen(/*port_of_list=*/0));
  FOREBAY_ASSIGN(own.address, rendezvous::ParseHostPort(found_.server->address()));
  std::optional<NodeRank> wanted;
  if (!parts_.config.node_rank.empty()) {
    FOREBAY_ASSIGN(wanted, ParseRank(parts_.config.node_rank));
  }
  PlaceSearchParts parts = SearchFor(std::move(own));
  parts.wanted = wanted;
  PlaceSearch search(std::move(parts));
  auto taken = search.Run(deadline_ns_);
  if (!taken.has_value()) return taken.error().WithContext("nodes.rendezvous");
  found_.self = taken->rank;
  found_.nodes = std::move(taken->nodes);
  found_.has_joined = true;
  found_.address_before = std::move(taken->address_before);
  return {};
}

Status NodeFinder::Listen(std::uint16_t port_of_list) {
  // A daemon that wanted to return listens already.
  if (found_.server) return {};
  FOREBAY_ASSIGN(found_.server,
                 ListenForNodes(parts_.config, port_of_list, found_.certificates,
                                ClientsOfOthers(parts_, found_.certificates)));
  return {};
}

void NodeFinder::OpenKeptList() {
  auto opened = rendezvous::KeptList::Open(parts_.backend, parts_.socket_directory);
  if (opened.has_value()) {
    found_.kept_list = std::move(*opened);
    return;
  }
  log::Warn("if this daemon is killed, another one cannot take its place in the running job: {}",
            opened.error().ToString());
}

// A daemon of this node was killed, and left the list of nodes of its launch. If one of the others
// answers and belongs to that launch, this daemon takes the place of the one that was killed, at
// its address. To the others it is a node that did not answer for a while. False: all nodes have to
// come, as at the first start, unless one of the others answers meanwhile (PauseOrReturn).
bool NodeFinder::ReturnTo(NodeRank self, std::vector<rendezvous::NodeEntry> kept) {
  const rendezvous::HostPort& address = kept[self.value()].address;
  auto listening = ListenForNodes(parts_.config, address.port, found_.certificates,
                                  ClientsOfOthers(parts_, found_.certificates));
  if (!listening.has_value() || (*listening)->address() != address.Text()) {
    log::Warn("the list of nodes that an earlier daemon has left is not used, because others "
              "expect this node at {}, where it cannot listen{}",
              address.Text(),
              listening.has_value() ? "" : ": " + listening.error().ToString());
    return false;
  }
  found_.server = std::move(*listening);
  earlier_ = std::move(kept);
  if (!HasAnswer(self)) {
    if (lost_place_) return false;
    log::Info("no other node of the list that an earlier daemon has left answers: they have ended, "
              "were killed, too, or cannot be reached; waits for all nodes of the job, or for one "
              "of the list to answer");
    return false;
  }
  found_.nodes = std::move(*earlier_);
  return true;
}

// Whether a node of the earlier launch answers.
bool NodeFinder::HasAnswer(NodeRank self) {
  const rendezvous::NodeEntry own = (*earlier_)[self.value()];
  const std::optional<NodeRank> answers =
      FindAnswer(*earlier_,
                 {.identity = IdentityAt(own.address.Text(), *earlier_),
                  .addresses = AddressesOf(*earlier_, self),
                  .allow_plaintext = parts_.config.peer_allow_plaintext,
                  .certificates = found_.certificates,
                  .self = self},
                 parts_.clock);
  if (!answers) return false;
  const rendezvous::NodeEntry other = (*earlier_)[answers->value()];
  // That node knows who has joined since the list was kept. If it does not send its list, the kept
  // one is used.
  auto now = PlaceSearch(SearchFor(own)).List(other.address.Text());
  if (now.has_value() && now->size() == earlier_->size()) {
    const rendezvous::NodeEntry& place = (*now)[self.value()];
    if (place != own) {
      lost_place_ =
          Error(ErrorCode::kFailedPrecondition,
                fmt::format("{} has taken the place of this node at {} meanwhile, as {} says; with "
                            "nodes.rendezvous = \"join:{}\" this daemon joins in another place",
                            place.Text(), place.address.Text(), other.Text(),
                            other.address.Text()));
      return false;
    }
    earlier_ = std::move(*now);
  }
  log::Info("this daemon takes the place of one that was killed, and joins the others again, "
            "because {} answers",
            other.Text());
  return true;
}

PlaceSearchParts NodeFinder::SearchFor(rendezvous::NodeEntry own) const {
  const std::string address = own.address.Text();
  return {.clock = parts_.clock,
          .address = launch_.choice.path,
          .identity = IdentityAt(address, {}),
          .own = std::move(own),
          .allow_plaintext = parts_.config.peer_allow_plaintext,
          .certificates = found_.certificates,
          .pause = [this](std::int64_t ms) { return Pause(ms); }};
}

peer::PeerIdentity NodeFinder::IdentityAt(const std::string& address,
                                        const std::vector<rendezvous::NodeEntry>& nodes) const {
  return {.address = address,
          .job_id = launch_.launch.job.name,
          .config_digest = config_digest_,
          .node_list_digest = rendezvous::NodeListDigest(nodes)};
}

void NodeFinder::Leave() {
  if (rendezvous_) rendezvous_->Leave();
}

}  // namespace forebay::daemon
