// NodeFinder finds the nodes. What follows from the list of nodes is made here once: membership,
// connections, what finds out which nodes answer, and what is said when a node comes, leaves or has
// finished.
#include "server/daemon/job_nodes.h"

#include <poll.h>

#include <algorithm>
#include <future>
#include <map>
#include <random>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/first_answers.h"
#include "server/daemon/node_listener.h"
#include "server/daemon/open_files.h"
#include "server/daemon/place_search.h"
#include "server/io/log.h"
#include "server/rendezvous/host_port.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsPerMillisecond = 1'000'000;

}  // namespace

JobNodes::JobNodes(JobLaunch launch, const JoinParts& parts)
    : parts_(parts),
      launch_(std::move(launch)),
      deadline_ns_(parts.clock.NowNs() +
                   static_cast<std::int64_t>(parts.config.nodes_rendezvous_timeout_s) * 1000 *
                       kNsPerMillisecond),
      finder_(launch_, parts_, deadline_ns_),
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
  FOREBAY_ASSIGN(std::optional<FoundNodes> found, made->finder_.Find());
  if (found) FOREBAY_TRY(made->UseNodes(std::move(*found)));
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

// Launchers take a process that is killed while it is connected for a failed task, and end the job,
// although the other nodes could go on. So the daemon stays connected only where it was told to.
void JobNodes::HearLauncherOrDisconnect() {
  // A daemon that has taken the place of a killed one has not learned the nodes of the tasks.
  if (!launch_.choice.hears_losses || !prober_ || has_returned_) return launch_.pmix.reset();
  launch_.pmix->HearLosses(
      [this](NodeRank node, std::string_view how) { prober_->HearLoss(node, how); });
}

// Makes the objects that follow from the list of nodes.
Status JobNodes::UseNodes(FoundNodes found) {
  has_returned_ = found.has_returned;
  has_joined_ = found.has_joined;
  server_ = std::move(found.server);
  certificates_ = std::move(found.certificates);
  identity_ = std::move(found.identity);
  kept_list_ = std::move(found.kept_list);
  const CarrierParts carried = {.config = parts_.config,
                                .clock = parts_.clock,
                                .self = found.self,
                                .nodes = found.nodes,
                                .certificates = certificates_,
                                .address = server_->address()};
  if (!has_returned_ && !has_joined_) FOREBAY_TRY(carriers_.OpenModule(carried));
  if (const Status opened = carriers_.OpenConnections(carried); !opened.has_value()) {
    log::Warn("{}; gRPC brings the bytes of samples from other nodes", opened.error().ToString());
  }
  table_.Set(found.nodes);
  const rendezvous::NodeEntry& own = found.nodes[found.self.value()];
  is_new_ = own.identity != own.place;
  std::vector<plan::Node> members;
  const std::vector<std::uint32_t> weights = rendezvous::NodeWeights(found.nodes);
  for (std::size_t i = 0; i < found.nodes.size(); ++i) {
    members.push_back({.rank = found.nodes[i].rank,
                       .weight = weights[i],
                       .identity = found.nodes[i].place.Id()});
  }
  membership_ = std::make_unique<plan::Membership>(found.self, std::move(members));
  std::map<NodeRank, std::string> addresses = AddressesOf(found.nodes, found.self);
  // The link of this node's own rank leads to the node that was in its place before (Arrival).
  if (has_returned_) found.address_before = kept_list_->FindAddressBefore();
  had_node_ = !found.address_before.empty();
  if (had_node_) addresses[found.self] = found.address_before;
  FOREBAY_ASSIGN(peers_, peer::GrpcPeers::Create(
                             {.identity = identity_,
                              .addresses = std::move(addresses),
                              .allow_plaintext = parts_.config.peer_allow_plaintext,
                              .certificates = certificates_,
                              .carrier = carriers_.carrier(),
                              .self = found.self,
                              .channels_max = PeerChannelsMax(parts_.config.peer_channels)},
                             parts_.clock));
  MakeProber(found.nodes);
  MakeEnd(found.nodes);
  MakeDeparture();
  MakeArrival();
  if (has_returned_) GoOnToLeave();
  if (kept_list_ && !has_returned_) {
    // This daemon serves all the same.
    if (const Status kept = kept_list_->Keep(found.nodes, found.address_before);
        !kept.has_value()) {
      log::Warn("if this daemon is killed, another one cannot take its place in the running job: "
                "{}",
                kept.error().ToString());
    }
  }
  log::Info("node {} of {} of job '{}', which others reach at {}, {}", found.self.value(),
            found.nodes.size(), launch_.launch.job.name, server_->address(),
            is_encrypted() ? "over encrypted connections" : "in plaintext");
  WarnOfFewOpenFiles(parts_.config, static_cast<std::uint32_t>(found.nodes.size()));
  return {};
}

// Makes the objects that find out which nodes answer, by probes and by requests.
void JobNodes::MakeProber(const std::vector<rendezvous::NodeEntry>& nodes) {
  std::vector<NodeRank> free;
  for (const rendezvous::NodeEntry& node : nodes) {
    if (node.is_free()) free.push_back(node.rank);
  }
  const auto name = [this](NodeRank node) { return table_.Name(node); };
  prober_ = std::make_unique<probe::NodeProber>(probe::NodeProberParts{
      .transport = *peers_,
      .nodes = *membership_,
      .clock = parts_.clock,
      .name = name,
      .seed = parts_.nonce,
      .answer_ms = static_cast<std::int64_t>(parts_.config.nodes_probe_answer_ms),
      .suspicion_ms = static_cast<std::int64_t>(parts_.config.nodes_suspicion_s) * 1'000,
      .free = std::move(free)});
  peers_->Watch({.nodes = *membership_,
                 .clock = parts_.clock,
                 .is_suspected =
                     [this](NodeRank node) {
                       return prober_->state(node) == probe::NodeState::kSuspected;
                     },
                 .name = name,
                 .late_ms = static_cast<std::int64_t>(parts_.config.nodes_late_ms)});
}

bool JobNodes::IsDead(NodeRank node) const {
  return prober_->state(node) == probe::NodeState::kDead;
}

std::int64_t JobNodes::CallDeadline() const {
  return parts_.clock.NowNs() + limits::kFinishedPingMs * kNsPerMillisecond;
}

void JobNodes::MakeEnd(const std::vector<rendezvous::NodeEntry>& nodes) {
  std::vector<NodeRank> others;
  for (const rendezvous::NodeEntry& node : nodes) {
    if (node.rank != membership_->self() && !node.is_free()) others.push_back(node.rank);
  }
  // Elsewhere no reader of a lost node can come.
  const bool may_serve_others = ClientsOfOthers(parts_, certificates_) != nullptr;
  end_ = std::make_unique<JobEnd>(JobEndParts{
      .clock = parts_.clock,
      .others = std::move(others),
      .ping =
          [this](NodeRank to, bool has_finished, JobEndParts::Heard heard) {
            peers_->Ping(to, CallDeadline(), std::move(heard), has_finished);
          },
      .is_dead = [this](NodeRank node) { return IsDead(node); },
      .name = [this](NodeRank node) { return table_.Name(node); },
      .wake = parts_.wake,
      .stay_ms = may_serve_others
                     ? static_cast<std::int64_t>(parts_.config.nodes_lost_readers_s) * 1'000
                     : 0,
      .self = membership_->self(),
      .at_a_time = NodesAskedAtATime(parts_.config.peer_channels)});
}

void JobNodes::MakeDeparture() {
  departure_ = std::make_unique<Departure>(DepartureParts{
      .nodes = *membership_,
      .clock = parts_.clock,
      .tell =
          [this](NodeRank to, std::int64_t time_ms, const DepartureParts::Told& told) {
            peers_->Leave(to, membership_->self(), time_ms, CallDeadline(), told);
          },
      .name = [this](NodeRank node) { return table_.Name(node); },
      .is_dead = [this](NodeRank node) { return IsDead(node); },
      .wake = parts_.wake,
      .at_a_time = NodesAskedAtATime(parts_.config.peer_channels)});
}

void JobNodes::MakeArrival() {
  arrival_ = std::make_unique<Arrival>(ArrivalParts{
      .nodes = *membership_,
      .table = table_,
      .clock = parts_.clock,
      .tell =
          [this](NodeRank to, const rendezvous::NodeEntry& node, const ArrivalParts::Told& told) {
            peers_->Join(to, {.entry = EntryFile(node), .takes_place = true}, CallDeadline(),
                         [told](const Result<peer::JoinAnswer>& answer) {
                           told(answer.has_value() ? Status() : Status(answer.error()));
                         });
          },
      .is_dead = [this](NodeRank node) { return IsDead(node); },
      .replaced = [this](const rendezvous::NodeEntry& node) { GiveUpPlace(node); },
      .taken = [this](const rendezvous::NodeEntry& node) { return UseNewNode(node); }});
}

// Another node has taken a place. To the rooms on the path of a byte it is a node that did not
// answer for a while, at another address.
Status JobNodes::UseNewNode(const rendezvous::NodeEntry& node) {
  FOREBAY_TRY(peers_->Redirect(node.rank, node.address.Text()));
  table_.Put(node);
  carriers_.SetHost(node.rank, node.address.host);
  membership_->EndRest(node.rank);
  departure_->Forget(node.rank);
  end_->Expect(node.rank);
  prober_->Occupy(node.rank);
  has_new_list_ = true;  // Tick writes it, because that may take long
  parts_.wake();
  return {};
}

// The others use the new node, so this one ends, as if it had left. Its readers go on elsewhere.
void JobNodes::GiveUpPlace(const rendezvous::NodeEntry& node) {
  if (has_lost_place_.exchange(true)) return;
  log::Error("{} has taken the place of this node at {}, because this one did not answer for a "
             "while: this daemon ends, and its readers go on at other nodes; it can join in "
             "another place (nodes.rendezvous = \"join:HOST:PORT\")",
             node.Text(), node.address.Text());
  parts_.wake();
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
  with_nodes.has_returned = has_returned();
  peer::MemberParts& member = with_nodes.member;
  member.prober = prober_.get();
  member.join = [this](const peer::JoinAsked& asked) { return HearArrival(asked); };
  member.leave = [this](NodeRank node, std::int64_t time_ms) {
    return HearDeparture(node, time_ms);
  };
  member.note_finished = [this](NodeRank node, bool has_finished) {
    end_->Hear(node, has_finished);
  };
  with_nodes.carrier = carriers_.carrier();
  if (server_) FOREBAY_TRY(server_->Serve(identity_, with_nodes));
  if (has_joined_) {
    arrival_->Begin(has_staged_, had_node_);
  } else if (is_new_ || had_node_) {
    arrival_->BeginToTell(had_node_);
  }
  return {};
}

Status JobNodes::AwaitNodes() {
  if (!peers_) return {};
  if (launch_.choice.kind == rendezvous::RendezvousKind::kHosts) FOREBAY_TRY(AwaitAnswers());
  return FindHosts();
}

Status JobNodes::AwaitAnswers() {
  constexpr std::int64_t kPauseMs = 100;
  const std::vector<rendezvous::NodeEntry> nodes = table_.All();
  std::vector<NodeRank> others;
  for (const rendezvous::NodeEntry& node : nodes) {
    if (node.rank != membership_->self() && !node.is_free()) others.push_back(node.rank);
  }
  // Those behind this node first, so that not all nodes of a large job ask the same ones first.
  std::ranges::rotate(others, std::ranges::upper_bound(others, membership_->self()));
  FirstAnswers answers({.clock = parts_.clock,
                        .nodes = std::move(others),
                        .at_a_time = NodesAskedAtATime(parts_.config.peer_channels),
                        .ping = [this](NodeRank node, std::int64_t deadline_ns,
                                       FirstAnswersParts::Heard heard) {
                          peers_->Ping(node, deadline_ns, std::move(heard));
                        }});
  for (;;) {
    const std::int64_t now_ns = parts_.clock.NowNs();
    const std::vector<NodeRank> missing = answers.Ask();
    if (missing.empty()) return {};
    if (now_ns >= deadline_ns_) {
      const rendezvous::NodeEntry& first = nodes[missing.front().value()];
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("{} of the {} nodes that {} lists did not answer within {} s "
                               "(nodes.rendezvous_timeout_s); the first of them is {} at {}; "
                               "peer.secret must be the same on all nodes, or none, and with one, "
                               "their clocks must differ by less than a day; the last error: {}",
                               missing.size(), nodes.size(), launch_.choice.path,
                               parts_.config.nodes_rendezvous_timeout_s, first.Text(),
                               first.address.Text(), answers.last_error()));
    }
    if (!Pause(kPauseMs)) {
      return Error(ErrorCode::kCancelled,
                   "the daemon was asked to stop while it waited for nodes");
    }
  }
}

// A list of hosts may have names, and connections for bytes of samples are made to addresses only.
// gRPC looks names up by itself.
Status JobNodes::FindHosts() {
  const auto own = rendezvous::ParseHostPort(server_->address());
  if (!carriers_.has_connections() || !own.has_value()) return {};
  // A resolver may take seconds for each name, while readers wait for the daemon.
  constexpr std::int64_t kResolveNs = 5'000'000'000;
  const std::int64_t end_ns = parts_.clock.NowNs() + kResolveNs;
  for (const rendezvous::NodeEntry& node : table_.All()) {
    const bool is_name = !rendezvous::IsNumericHost(node.address.host);
    if (node.rank == membership_->self() || node.is_free() || !is_name) continue;
    if (!Pause(0)) return Error(ErrorCode::kCancelled, "the daemon was asked to stop");
    const auto host = parts_.clock.NowNs() < end_ns
                          ? rendezvous::NumericHost(node.address.host, own->host)
                          : Error(ErrorCode::kDeadlineExceeded,
                                  fmt::format("the names of the nodes before it took more than "
                                              "{} s to be looked up",
                                              kResolveNs / 1'000'000'000));
    if (!host.has_value()) {
      log::Warn("{}: {}; gRPC brings the bytes of samples to that node", node.Text(),
                host.error().message());
    } else if (table_.At(node.rank) == node) {  // no other node has taken its place meanwhile
      carriers_.SetHost(node.rank, *host);
    }
  }
  return {};
}

void JobNodes::Tick(bool serves_client_of_lost) {
  if (!peers_) return;
  prober_->Tick();
  departure_->Tick();
  arrival_->Tick();
  KeepNewList();
  ForgetTheOneBefore();
  // This node has left for good. Should its end take too long, no daemon is to take its place.
  if (HasDeparted()) {
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
    peers_->Ping(node, CallDeadline(), [heard](const Result<peer::NodeReport>& report) {
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

void JobNodes::SetHasStaged(std::function<bool()> has_staged) {
  has_staged_ = std::move(has_staged);
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
  FOREBAY_ASSIGN(const NodeRank node, rendezvous::FindNode(table_.All(), name));
  if (node == membership_->self()) {
    FOREBAY_TRY(HearDeparture(node, time_ms));
    return {};
  }
  // Shared, because the callback may still be in set_value when get returns.
  const auto told = std::make_shared<std::promise<Result<peer::LeaveAnswer>>>();
  peers_->Leave(node, node, time_ms, CallDeadline(),
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

Result<peer::JoinAnswer> JobNodes::HearArrival(const peer::JoinAsked& asked) {
  if (carriers_.has_mpi()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "no node can join a job with peer.transport = \"mpi\", because MPI knows its "
                 "ranks from the start");
  }
  return arrival_->Hear(asked);
}

// So that a daemon that takes the place of this one knows who is in the other places.
void JobNodes::KeepNewList() {
  if (!has_new_list_.exchange(false)) return;
  const MutexLock lock(departure_mutex_);
  if (!kept_list_) return;
  const Status kept = kept_list_->Update(table_.All());
  if (kept.has_value()) return;
  log::Warn("if this daemon is killed, the one in its place does not know the nodes that have "
            "joined: {}",
            kept.error().ToString());
}

// A daemon that takes the place of this one need not tell it again.
void JobNodes::ForgetTheOneBefore() {
  if (!had_node_ || !arrival_->HasToldTheOneBefore()) return;
  had_node_ = false;
  const MutexLock lock(departure_mutex_);
  if (!kept_list_) return;
  const Status removed = kept_list_->RemoveAddressBefore();
  if (removed.has_value()) return;
  log::Warn("if this daemon is killed, the one in its place tells the node again that was there "
            "before: {}",
            removed.error().ToString());
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

std::string_view JobNodes::connections() const {
  return peers_ ? NodeConnections(parts_.config, is_encrypted()) : std::string_view();
}

std::vector<JobNodes::View> JobNodes::Ask() {
  if (!peers_) return {};
  const std::vector<rendezvous::NodeEntry> nodes = table_.All();
  std::vector<View> views;
  StatusPings pings{.clock = parts_.clock,
                    .nodes = {},
                    .at_a_time = NodesAskedAtATime(parts_.config.peer_channels),
                    .ping = [this](NodeRank node, std::int64_t deadline_ns,
                                   StatusPings::Heard heard) {
                      peers_->Ping(node, deadline_ns, std::move(heard));
                    }};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_self = nodes[i].rank == membership_->self();
    views.push_back({.rank = nodes[i].rank,
                     .name = nodes[i].identity.Text(),
                     .address = nodes[i].address.Text(),
                     .weight = membership_->nodes()[i].weight,
                     .is_self = is_self,
                     .received = is_self ? peer::LinkFigures() : peers_->figures(nodes[i].rank),
                     .is_left_out = !membership_->Lives(nodes[i].rank),
                     .is_leaving = departure_->IsLeaving(nodes[i].rank),
                     .is_free = nodes[i].is_free()});
    if (!is_self) pings.nodes.push_back(nodes[i].rank);
  }
  const std::vector<StatusPing> answers = PingForStatus(pings);
  auto answer = answers.begin();
  for (View& view : views) {
    if (!view.is_self) view.ping = *answer++;
  }
  return views;
}

// All other nodes of a small job, those behind this one first; of a large job some that are chosen
// at random, because neighbours may be lost together.
v1::RemoteDaemons JobNodes::ForClients() const {
  // A prime, so that ranks at equal distances begin at different nodes.
  constexpr std::size_t kAddressesMax = 17;
  const std::vector<rendezvous::NodeEntry> nodes = table_.All();
  if (nodes.empty() || ClientsOfOthers(parts_, certificates_) == nullptr) return {};
  v1::RemoteDaemons others;
  others.set_certified_name(peer::kCertifiedName);
  others.set_authority(certificates_.authority);
  others.set_certificate(certificates_.client);
  others.set_key(certificates_.client_key);
  const std::size_t self = membership_->self().value();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const std::size_t rank = (self + i) % nodes.size();
    if (!nodes[rank].is_free()) chosen.push_back(rank);
  }
  if (chosen.size() > kAddressesMax) {
    std::mt19937_64 random(parts_.nonce);
    for (std::size_t i = 0; i < kAddressesMax; ++i) {
      std::swap(chosen[i], chosen[i + random() % (chosen.size() - i)]);
    }
    chosen.resize(kAddressesMax);
  }
  for (const std::size_t rank : chosen) others.add_addresses(nodes[rank].address.Text());
  return others;
}

// First what asks all nodes in turn: each call that ends would begin another one.
void JobNodes::StopAsking() {
  end_->StopAsking();
  if (departure_) departure_->StopTelling();
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
  finder_.Leave();
  if (in_good_order) {
    const MutexLock lock(departure_mutex_);
    if (kept_list_) kept_list_->Remove();
  }
  carriers_.Leave();
}

}  // namespace forebay::daemon
