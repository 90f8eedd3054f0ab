// Joins the job in the order that the facts depend on each other: the address to listen on, the
// port that the kernel gives, this node's entry, the entries of all, the weights. PeerServer
// listens from the second step on and lets others wait, so that no node finds another one missing
// that has only started a little later. A daemon that is started again after a kill reads the list
// of nodes that the killed one has kept, in place of exchanging entries.
#include "server/daemon/job_nodes.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <map>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/wire_layout.h"
#include "server/daemon/gfs_caps.h"
#include "server/daemon/job_secret.h"
#include "server/daemon/node_listener.h"
#include "server/daemon/launch_search.h"
#include "server/daemon/served_check.h"
#include "server/io/log.h"
#include "server/rendezvous/host_list_rendezvous.h"
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/node_file.h"

namespace forebay::daemon {
namespace {

using rendezvous::RendezvousKind;

constexpr std::int64_t kNsPerMillisecond = 1'000'000;
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
          {"peer.secret (digest of the public key that follows from it)", authority}};
}

// The addresses of all nodes but `self`. GrpcPeers needs all of them, also to ask only some: it
// refuses answers about nodes that the table does not have.
std::map<NodeRank, std::string> AddressesOf(const std::vector<rendezvous::NodeEntry>& nodes,
                                            NodeRank self) {
  std::map<NodeRank, std::string> addresses;
  for (const rendezvous::NodeEntry& node : nodes) {
    if (node.rank != self) addresses[node.rank] = node.address.Text();
  }
  return addresses;
}

}  // namespace

JobNodes::JobNodes(JobLaunch launch, const JoinParts& parts)
    : parts_(parts),
      launch_(std::move(launch)),
      deadline_ns_(parts.clock.NowNs() +
                   static_cast<std::int64_t>(parts.config.nodes_rendezvous_timeout_s) * 1000 *
                       kNsPerMillisecond),
      membership_(std::make_unique<plan::Membership>()),
      end_(std::make_unique<JobEnd>(JobEndParts{.clock = parts.clock,
                                                .others = {},
                                                .ping = nullptr,
                                                .is_dead = nullptr,
                                                .name = nullptr,
                                                .wake = nullptr})) {}

// The launcher calls the prober, and the server answers probes with members that are destroyed
// before it, so both stop first.
JobNodes::~JobNodes() {
  launch_.pmix.reset();
  StopAsking();
  StopAnswering(/*waits=*/false);
}

Result<std::unique_ptr<JobNodes>> JobNodes::Join(JobLaunch launch, const JoinParts& parts) {
  std::unique_ptr<JobNodes> made(new JobNodes(std::move(launch), parts));
  FOREBAY_TRY(made->FindNodes());
  made->HearLauncherOrDisconnect();
  return made;
}

// Sleeps; false as soon as the daemon is to stop.
bool JobNodes::Pause(std::int64_t ms) const {
  pollfd stop{parts_.stop_fd, POLLIN, 0};
  // A negative descriptor is ignored, so this is a plain sleep then. A signal ends it early, which
  // costs the caller a look at what it waits for.
  return poll(&stop, 1, static_cast<int>(ms)) <= 0;
}

// This node's place in the job. Makes what exchanges the entries, but for a directory. Sets
// `port_of_list` to the port that a list of hosts gives this node.
Result<rendezvous::NodePlace> JobNodes::FindPlace(const std::string& host_name,
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
rendezvous::PauseEnd JobNodes::PauseOrReturn(NodeRank self, std::int64_t ms) {
  using rendezvous::PauseEnd;
  constexpr std::int64_t kAskAgainMs = 3'000;
  if (!Pause(ms)) return PauseEnd::kToldToStop;
  if (!earlier_ || parts_.clock.NowNs() < next_return_ns_) return PauseEnd::kOver;
  has_returned_ = HasAnswer(self);
  next_return_ns_ = parts_.clock.NowNs() + kAskAgainMs * kNsPerMillisecond;
  return has_returned_ ? PauseEnd::kNotNeeded : PauseEnd::kOver;
}

Result<rendezvous::Rendezvous*> JobNodes::OpenRendezvous(NodeRank self) {
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

Status JobNodes::FindNodes() {
  if (launch_.choice.kind == RendezvousKind::kNone) return {};
  const Config& config = parts_.config;
  FOREBAY_ASSIGN(const std::string host_name, HostName());
  std::uint16_t port_of_list = 0;
  FOREBAY_ASSIGN(const rendezvous::NodePlace place, FindPlace(host_name, port_of_list));
  if (place.node_count == 1) return {};  // nobody to find, and nobody who asks
  FOREBAY_ASSIGN(certificates_,
                 FindCertificates(config, launch_.launch.job.name, std::time(nullptr)));
  std::string authority = "none";
  ForgetSecretVariable();
  if (is_encrypted()) {
    FOREBAY_ASSIGN(authority, peer::AuthorityDigest(certificates_));
  }
  FOREBAY_ASSIGN(const GfsCaps caps, GfsCaps::Of(config));
  const std::uint64_t data_digest = ContentDigest(config.datasets);
  const std::string caps_text = caps.Text();
  config_digest_ = data_digest ^ Checksum(std::as_bytes(std::span(caps_text)));
  rendezvous::NodeEntry own = {.identity = {.job = launch_.launch.job.name,
                                            .host = host_name,
                                            .ssd_directory = config.ssd_directory},
                               .rank = place.rank,
                               .address = {},
                               .capacity_bytes = parts_.capacity_bytes,
                               .nonce = parts_.nonce,
                               .agreed = AgreedValues(config, data_digest, authority, caps_text)};
  has_returned_ = Return(own, place.node_count);
  if (!has_returned_) {
    if (!server_) {
      FOREBAY_ASSIGN(server_,
                     ListenForNodes(config, port_of_list, certificates_, ClientsOfOthers()));
    }
    FOREBAY_ASSIGN(rendezvous::Rendezvous* const meeting, OpenRendezvous(place.rank));
    FOREBAY_ASSIGN(own.address, rendezvous::ParseHostPort(server_->address()));
    auto met = meeting->Exchange(own, place.node_count, deadline_ns_);
    // The others may answer since the last look. A daemon that is to stop does not ask them.
    if (!met.has_value() && !has_returned_ && earlier_ && Pause(0)) {
      has_returned_ = HasAnswer(place.rank);
    }
    if (!met.has_value() && !has_returned_) return met.error();
    nodes_ = has_returned_ ? std::move(*earlier_) : std::move(*met);
    FOREBAY_TRY(carriers_.OpenModule(PartsOfCarriers(place.rank)));
  }
  FOREBAY_TRY(UseNodes(place.rank));
  if (has_returned_) GoOnToLeave();
  if (kept_list_ && !has_returned_) {
    // This daemon serves all the same.
    if (const Status kept = kept_list_->Keep(nodes_); !kept.has_value()) {
      log::Warn("if this daemon is killed, another one cannot take its place in the running job: "
                "{}",
                kept.error().ToString());
    }
  }
  log::Info("node {} of {} of job '{}', which others reach at {}, {}", place.rank.value(),
            place.node_count, launch_.launch.job.name, server_->address(),
            is_encrypted() ? "over encrypted connections" : "in plaintext");
  return {};
}

// Launchers take a process that is killed while it is connected for a failed task, and end the job,
// although the other nodes could go on. So the daemon stays connected only where it was told to.
void JobNodes::HearLauncherOrDisconnect() {
  // A daemon that has taken the place of a killed one has not learned the nodes of the tasks.
  if (!launch_.choice.hears_losses || !prober_ || has_returned_) return launch_.pmix.reset();
  launch_.pmix->HearLosses(
      [this](NodeRank node, std::string_view how) { prober_->HearLoss(node, how); });
}

// A daemon of this node was killed, and left the list of nodes of its launch. If one of the others
// answers and belongs to that launch, this daemon takes the place of the one that was killed, at
// its address. To the others it is a node that did not answer for a while. False: all nodes have to
// come, as at the first start, unless one of the others answers meanwhile (PauseOrReturn).
bool JobNodes::Return(const rendezvous::NodeEntry& own, std::uint32_t node_count) {
  // A lost rank of MPI ends the job. A list of hosts is the same in each launch, so it could not be
  // told whether the others belong to the launch of the killed daemon.
  if (parts_.config.peer_transport == kMpi || launch_.choice.kind == RendezvousKind::kHosts) {
    return false;
  }
  auto opened = rendezvous::KeptList::Open(parts_.backend, parts_.socket_directory);
  if (!opened.has_value()) {
    log::Warn("if this daemon is killed, another one cannot take its place in the running job: {}",
              opened.error().ToString());
    return false;
  }
  kept_list_ = std::move(*opened);
  std::optional<std::vector<rendezvous::NodeEntry>> kept = kept_list_->Find(own, node_count);
  if (!kept) return false;
  const rendezvous::HostPort& address = (*kept)[own.rank.value()].address;
  auto listening =
      ListenForNodes(parts_.config, address.port, certificates_, ClientsOfOthers());
  if (!listening.has_value() || (*listening)->address() != address.Text()) {
    log::Warn("the list of nodes that an earlier daemon has left is not used, because others "
              "expect this node at {}, where it cannot listen{}",
              address.Text(),
              listening.has_value() ? "" : ": " + listening.error().ToString());
    return false;
  }
  server_ = std::move(*listening);
  earlier_ = std::move(*kept);
  if (!HasAnswer(own.rank)) {
    log::Info("no other node of the list that an earlier daemon has left answers: they have ended, "
              "were killed, too, or cannot be reached; waits for all nodes of the job, or for one "
              "of the list to answer");
    return false;
  }
  nodes_ = std::move(*earlier_);
  return true;
}

// Whether a node of the earlier launch answers.
bool JobNodes::HasAnswer(NodeRank self) {
  const std::string address = (*earlier_)[self.value()].address.Text();
  const std::string answers = FindAnswer(
      *earlier_,
      {.identity = IdentityAt(address, *earlier_),
       .addresses = AddressesOf(*earlier_, self),
       .allow_plaintext = parts_.config.peer_allow_plaintext,
       .certificates = certificates_,
       .self = self},
      parts_.clock);
  if (answers.empty()) return false;
  log::Info("this daemon takes the place of one that was killed, and joins the others again, "
            "because {} answers",
            answers);
  return true;
}

CarrierParts JobNodes::PartsOfCarriers(NodeRank self) const {
  return {.config = parts_.config,
          .clock = parts_.clock,
          .self = self,
          .nodes = nodes_,
          .certificates = certificates_,
          .address = server_->address()};
}

peer::PeerIdentity JobNodes::IdentityAt(const std::string& address,
                                        const std::vector<rendezvous::NodeEntry>& nodes) const {
  return {.address = address,
          .job_id = launch_.launch.job.name,
          .config_digest = config_digest_,
          .node_list_digest = rendezvous::NodeListDigest(nodes)};
}

// Makes the objects that follow from the list of nodes: membership, identity, connections, and what
// finds out which nodes answer.
Status JobNodes::UseNodes(NodeRank self) {
  std::vector<plan::Node> members;
  std::map<NodeRank, std::string> addresses = AddressesOf(nodes_, self);
  const std::vector<std::uint32_t> weights = rendezvous::NodeWeights(nodes_);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    members.push_back({.rank = nodes_[i].rank,
                       .weight = weights[i],
                       .identity = nodes_[i].identity.Id()});
  }
  std::vector<NodeRank> others;
  for (const auto& [rank, address] : addresses) others.push_back(rank);
  membership_ = std::make_unique<plan::Membership>(self, std::move(members));
  identity_ = IdentityAt(server_->address(), nodes_);
  carriers_.OpenConnections(PartsOfCarriers(self));
  FOREBAY_ASSIGN(peers_,
                 peer::GrpcPeers::Create({.identity = identity_,
                                          .addresses = std::move(addresses),
                                          .allow_plaintext = parts_.config.peer_allow_plaintext,
                                          .certificates = certificates_,
                                          .carrier = carriers_.carrier(),
                                          .self = self},
                                         parts_.clock));
  prober_ = std::make_unique<probe::NodeProber>(probe::NodeProberParts{
      .transport = *peers_,
      .nodes = *membership_,
      .clock = parts_.clock,
      .name = [this](NodeRank node) { return nodes_[node.value()].Text(); },
      .seed = parts_.nonce,
      .answer_ms = static_cast<std::int64_t>(parts_.config.nodes_probe_answer_ms),
      .suspicion_ms = static_cast<std::int64_t>(parts_.config.nodes_suspicion_s) * 1'000});
  peers_->Watch({.nodes = *membership_,
                 .clock = parts_.clock,
                 .is_suspected =
                     [this](NodeRank node) {
                       return prober_->state(node) == probe::NodeState::kSuspected;
                     },
                 .name = [this](NodeRank node) { return nodes_[node.value()].Text(); },
                 .late_ms = static_cast<std::int64_t>(parts_.config.nodes_late_ms)});
  const auto is_dead = [this](NodeRank node) {
    return prober_->state(node) == probe::NodeState::kDead;
  };
  end_ = std::make_unique<JobEnd>(JobEndParts{
      .clock = parts_.clock,
      .others = std::move(others),
      .ping =
          [this](NodeRank to, bool has_finished, JobEndParts::Heard heard) {
            peers_->Ping(to,
                         parts_.clock.NowNs() + limits::kFinishedPingMs * kNsPerMillisecond,
                         std::move(heard), has_finished);
          },
      .is_dead = is_dead,
      .name = [this](NodeRank node) { return nodes_[node.value()].Text(); },
      .wake = parts_.wake,
      // Elsewhere no reader of a lost node can come.
      .stay_ms = ClientsOfOthers() == nullptr
                     ? 0
                     : static_cast<std::int64_t>(parts_.config.nodes_lost_readers_s) * 1'000});
  departure_ = std::make_unique<Departure>(DepartureParts{
      .nodes = *membership_,
      .clock = parts_.clock,
      .tell =
          [this, self](NodeRank to, std::int64_t time_ms, const DepartureParts::Told& told) {
            peers_->Leave(to, self, time_ms,
                          parts_.clock.NowNs() + limits::kFinishedPingMs * kNsPerMillisecond, told);
          },
      .name = [this](NodeRank node) { return nodes_[node.value()].Text(); },
      .is_dead = is_dead,
      .wake = parts_.wake});
  return {};
}

// The node was asked to leave, and its daemon was killed before it had. Whoever has asked relies on
// it, and a node that has left cannot come back either.
void JobNodes::GoOnToLeave() {
  const std::optional<std::int64_t> time_ms = kept_list_->FindDeparture();
  if (!time_ms) return;
  log::Info("the daemon in whose place this one is was killed while its node left the job (forebay "
            "drain --node), so this one goes on to leave");
  departure_->Begin(*time_ms);
}

Status JobNodes::Serve(const peer::PeerServerParts& parts) {
  peer::PeerServerParts with_nodes = parts;
  if (peers_) {
    with_nodes.hear_slow = [this](std::span<const NodeRank> nodes) { peers_->HearSlow(nodes); };
  }
  with_nodes.prober = prober_.get();
  with_nodes.has_returned = has_returned_;
  with_nodes.leave = [this](NodeRank node, std::int64_t time_ms) {
    return HearDeparture(node, time_ms);
  };
  with_nodes.note_finished = [this](NodeRank node, bool has_finished) {
    end_->Hear(node, has_finished);
  };
  with_nodes.carrier = carriers_.carrier();
  return server_ ? server_->Serve(identity_, with_nodes) : Status();
}

// A node is pinged until it has answered once. The callbacks own what they write to, because one
// may still run after this function has given up.
Status JobNodes::AwaitNodes() {
  if (!peers_ || launch_.choice.kind != RendezvousKind::kHosts) return {};
  constexpr std::int64_t kPingMs = 1'000;
  constexpr std::int64_t kPauseMs = 100;
  enum class State : std::uint8_t { kSilent, kAsked, kAnswered };
  struct Answers {
    explicit Answers(std::size_t count) : states(count) {}
    std::vector<std::atomic<State>> states;
    Mutex mutex;
    std::string last_error FOREBAY_GUARDED_BY(mutex);
  };
  const auto answers = std::make_shared<Answers>(nodes_.size());
  answers->states.at(membership_->self().value()) = State::kAnswered;
  for (;;) {
    const std::int64_t now_ns = parts_.clock.NowNs();
    std::vector<NodeRank> missing;
    for (const rendezvous::NodeEntry& node : nodes_) {
      std::atomic<State>& state = answers->states.at(node.rank.value());
      if (state == State::kAnswered) continue;
      missing.push_back(node.rank);
      if (state == State::kAsked) continue;
      state = State::kAsked;
      peers_->Ping(node.rank, now_ns + kPingMs * kNsPerMillisecond,
                   [answers, &state](const Result<peer::NodeReport>& heard) {
                     if (!heard.has_value()) {
                       const MutexLock lock(answers->mutex);
                       answers->last_error = heard.error().message();
                     }
                     state = heard.has_value() ? State::kAnswered : State::kSilent;
                   });
    }
    if (missing.empty()) return {};
    if (now_ns >= deadline_ns_) {
      const rendezvous::NodeEntry& first = nodes_[missing.front().value()];
      const MutexLock lock(answers->mutex);
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("{} of the {} nodes that {} lists did not answer within {} s "
                               "(nodes.rendezvous_timeout_s); the first of them is {} at {}; "
                               "peer.secret must be the same on all nodes, or none, and with one, "
                               "their clocks must differ by less than a day; the last error: {}",
                               missing.size(), nodes_.size(), launch_.choice.path,
                               parts_.config.nodes_rendezvous_timeout_s, first.Text(),
                               first.address.Text(), answers->last_error));
    }
    if (!Pause(kPauseMs)) {
      return Error(ErrorCode::kCancelled,
                   "the daemon was asked to stop while it waited for nodes");
    }
  }
}

void JobNodes::Tick(bool serves_client_of_lost) {
  if (!peers_) return;
  prober_->Tick();
  departure_->Tick();
  // This node has left for good. Should its end take too long, no daemon is to take its place.
  if (departure_->IsOver()) {
    const MutexLock lock(departure_mutex_);
    if (kept_list_) kept_list_->Remove();
    kept_list_.reset();
  }
  end_->Tick(serves_client_of_lost);
  if (gfs_yield_) gfs_yield_->Look();
}

void JobNodes::YieldWhileSlow(std::function<stage::GfsCalls::Pace()> pace,
                              std::function<void()> begun) {
  if (!peers_) return;
  const auto ask = [this](NodeRank node, const GfsYieldParts::Heard& heard) {
    const std::int64_t deadline_ns =
        parts_.clock.NowNs() + limits::kFinishedPingMs * kNsPerMillisecond;
    peers_->Ping(node, deadline_ns, [heard](const Result<peer::NodeReport>& report) {
      if (!report.has_value()) return heard(report.error());
      heard(static_cast<std::int64_t>(report->gfs_call_us) * 1'000);
    });
  };
  gfs_yield_ = std::make_unique<GfsYield>(
      GfsYieldParts{.nodes = *membership_,
                    .clock = parts_.clock,
                    .pace = std::move(pace),
                    .ask = ask,
                    .begun = [this, begun = std::move(begun)] {
                      if (server_) server_->RefuseWaiting();
                      begun();
                    }});
}

void JobNodes::SetTakeOver(std::function<bool(bool begins)> take_over) {
  if (departure_) departure_->SetTakeOver(std::move(take_over));
}

Status JobNodes::Depart(const std::string& name, std::int64_t time_ms) {
  if (!peers_) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the job has one node, which has nobody to hand over to; 'forebay drain' without "
                 "--node ends its daemon");
  }
  FOREBAY_ASSIGN(const NodeRank node, rendezvous::FindNode(nodes_, name));
  if (node == membership_->self()) {
    FOREBAY_TRY(HearDeparture(node, time_ms));
    return {};
  }
  // Shared, because the callback may still be in set_value when get returns.
  const auto told = std::make_shared<std::promise<Result<peer::LeaveAnswer>>>();
  peers_->Leave(node, node, time_ms,
                parts_.clock.NowNs() + limits::kFinishedPingMs * kNsPerMillisecond,
                [told](const Result<peer::LeaveAnswer>& heard) { told->set_value(heard); });
  FOREBAY_TRY(told->get_future().get());
  return {};
}

Result<peer::LeaveAnswer> JobNodes::HearDeparture(NodeRank node, std::int64_t time_ms) {
  if (carriers_.has_mpi()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "with peer.transport = \"mpi\" a node cannot leave, because MPI ends the job "
                 "when a rank ends");
  }
  if (node != membership_->self()) return departure_->Hear(node, time_ms);
  KeepDeparture(time_ms);
  departure_->Begin(time_ms);
  return peer::LeaveAnswer{};
}

// So that a daemon that takes the place of this one goes on to leave.
void JobNodes::KeepDeparture(std::int64_t time_ms) {
  const MutexLock lock(departure_mutex_);
  if (!kept_list_) return;
  const Status kept = kept_list_->KeepDeparture(time_ms);
  if (kept.has_value()) return;
  log::Warn("if this daemon is killed before its node has left the job, the one in its place does "
            "not go on to leave: {}",
            kept.error().ToString());
}

std::vector<JobNodes::View> JobNodes::Ask() {
  // Shared with the callbacks. Each is called, after the deadline at the latest.
  struct Round {
    Mutex mutex;
    CondVar changed;
    std::size_t awaited FOREBAY_GUARDED_BY(mutex) = 0;
    std::vector<View> views FOREBAY_GUARDED_BY(mutex);
  };
  const auto round = std::make_shared<Round>();
  if (!peers_) return {};
  {
    const MutexLock lock(round->mutex);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool is_self = nodes_[i].rank == membership_->self();
      round->views.push_back(
          {.rank = nodes_[i].rank,
           .name = nodes_[i].identity.Text(),
           .address = nodes_[i].address.Text(),
           .weight = membership_->nodes()[i].weight,
           .is_self = is_self,
           .received = is_self ? peer::LinkFigures() : peers_->figures(nodes_[i].rank),
           .is_left_out = !membership_->Lives(nodes_[i].rank),
           .is_leaving = departure_->IsLeaving(nodes_[i].rank)});
    }
    round->awaited = nodes_.size() - 1;
  }
  const std::int64_t began_ns = parts_.clock.NowNs();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].rank == membership_->self()) continue;
    peers_->Ping(nodes_[i].rank, began_ns + limits::kNodesStatusMs * kNsPerMillisecond,
                 [this, round, began_ns, i](Result<peer::NodeReport> report) {
                   const MutexLock lock(round->mutex);
                   round->views[i].answer_ns = parts_.clock.NowNs() - began_ns;
                   round->views[i].report = std::move(report);
                   --round->awaited;
                   round->changed.NotifyAll();
                 });
  }
  UniqueLock lock(round->mutex);
  while (round->awaited > 0) round->changed.Wait(round->mutex);
  return round->views;
}

// What answers clients of other nodes; null: nothing does. In plaintext, any user could be such a
// client. A lost node ends a job that uses MPI.
grpc::Service* JobNodes::ClientsOfOthers() const {
  const bool may_serve = parts_.config.peer_remote_clients && is_encrypted() &&
                         parts_.config.peer_transport != kMpi;
  return may_serve ? parts_.clients : nullptr;
}

// All other nodes of a small job, those behind this one first; of a large job some that are chosen
// at random, because neighbours may be lost together.
v1::RemoteDaemons JobNodes::ForClients() const {
  // A prime, so that ranks at equal distances begin at different nodes.
  constexpr std::size_t kAddressesMax = 17;
  if (nodes_.empty() || ClientsOfOthers() == nullptr) return {};
  v1::RemoteDaemons others;
  others.set_certified_name(peer::kCertifiedName);
  others.set_authority(certificates_.authority);
  others.set_certificate(certificates_.client);
  others.set_key(certificates_.client_key);
  const std::size_t self = membership_->self().value();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 1; i < nodes_.size(); ++i) chosen.push_back((self + i) % nodes_.size());
  if (chosen.size() > kAddressesMax) {
    std::mt19937_64 random(parts_.nonce);
    for (std::size_t i = 0; i < kAddressesMax; ++i) {
      std::swap(chosen[i], chosen[i + random() % (chosen.size() - i)]);
    }
    chosen.resize(kAddressesMax);
  }
  for (const std::size_t rank : chosen) others.add_addresses(nodes_[rank].address.Text());
  return others;
}

void JobNodes::StopAsking() {
  if (peers_) peers_->Stop();
}

void JobNodes::StopAnswering(bool waits) {
  if (!server_) return;
  server_->StopAnswering();
  // The server waits until the rows that it answers with are sent, and a node that does not read
  // would keep it waiting.
  carriers_.StopConnections();
  if (waits) server_.reset();
}

void JobNodes::Leave(bool in_good_order) {
  if (rendezvous_) rendezvous_->Leave();
  if (in_good_order) {
    const MutexLock lock(departure_mutex_);
    if (kept_list_) kept_list_->Remove();
  }
  carriers_.Leave();
}

}  // namespace forebay::daemon
