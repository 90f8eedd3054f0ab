// Two loops, of the leader and of the others, each of which looks at the directory, does what is
// to be done, and sleeps. README.md has the protocol and the argument why it is safe. Every look
// starts from what lies in the directory, so an error that may pass is remembered for the message,
// and the next look repeats what failed.
#include "server/rendezvous/directory_rendezvous.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/failure.h"
#include "proto/contract/limits.h"
#include "proto/contract/mix64.h"
#include "server/io/log.h"
#include "server/rendezvous/launch_environment.h"

namespace forebay::rendezvous {
namespace {

constexpr std::string_view kList = "list";
constexpr std::string_view kAnswerPrefix = "node.";
constexpr std::string_view kTemporaryPrefix = "new.";
constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kFirstPauseMs = 10;
constexpr std::int64_t kFollowerPauseMsMax = 1'000;
constexpr std::int64_t kLeaderPauseMsMax = 200;  // one node only, for which all others wait
constexpr std::int64_t kCallsPerSecondMax = 10'000;  // of all nodes together, to the file system
// For how long a leader that has found a clash waits for more answers, because only daemons that
// have answered learn about it.
constexpr std::int64_t kLatecomersMs = 3'000;
// For how long a leader that leaves waits until those who have answered have read what it has
// published: without that, they would wait for a list until their time is over. And for how long
// after the list was published it waits at all: nodes that have not read it by then have most
// likely ended.
constexpr std::int64_t kAwaitReadersMs = 3'000;
constexpr std::int64_t kReadWithinMs = 60'000;

// Pauses that grow by half each time, so that a quick launch is quick and a slow one costs little.
// Each is drawn from around its value, so that nodes that started together do not stay in step.
class GrowingPause {
 public:
  GrowingPause(std::uint64_t seed, std::int64_t longest_ms)
      : random_(seed), longest_ms_(longest_ms) {}

  std::int64_t NextMs() {
    const std::int64_t drawn =
        static_cast<std::int64_t>(NextWord64(random_) % static_cast<std::uint64_t>(next_ms_));
    const std::int64_t ms = next_ms_ * 3 / 4 + drawn / 2;
    next_ms_ = std::min(longest_ms_, next_ms_ * 3 / 2);
    return ms;
  }
  void Restart() { next_ms_ = kFirstPauseMs; }

 private:
  std::uint64_t random_;
  const std::int64_t longest_ms_;
  std::int64_t next_ms_ = kFirstPauseMs;
};

// Whether the next look may succeed where this one failed. A file that vanishes between two calls,
// or is replaced while it is read on NFS, is part of the protocol.
bool MayPass(const Error& error) {
  const Remedy remedy = RemedyOf(FailureSource::kGfs, error);
  return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kDataLoss ||
         remedy == Remedy::kRetry || remedy == Remedy::kReopen;
}

// The leader's nonce is in the name, so that answers to others are never opened.
std::string AnswerPrefix(std::uint64_t leader_nonce) {
  return fmt::format("{}{:016x}.", kAnswerPrefix, leader_nonce);
}

Error NotNeeded() {
  return Error(ErrorCode::kCancelled, "the nodes of the job were found without a rendezvous");
}

}  // namespace

// One call of Exchange.
struct DirectoryRendezvous::Round {
  const NodeEntry& own;
  const std::uint32_t node_count;
  const std::int64_t deadline_ns;
  GrowingPause pause;
  // For the message when the time is over.
  std::string seen = {};
  std::string trouble = {};
  // The leader's. By rank, with its own; and the names of the answers that were read.
  std::map<NodeRank, NodeEntry> nodes = {};
  std::set<std::string, std::less<>> read = {};
  std::int64_t give_up_ns = 0;
  std::optional<Error> clash = std::nullopt;  // the first one
  // The others'. The leader that was answered last; 0: none.
  std::uint64_t answered = 0;

  // Remembers an error that may pass, and returns any other.
  Status Bear(const Status& status) {
    if (status.has_value() || !MayPass(status.error())) return status;
    trouble = status.error().ToString();
    return {};
  }
  std::string Trouble() const { return trouble.empty() ? "" : "; the last error was: " + trouble; }
};

DirectoryRendezvous::DirectoryRendezvous(DirectoryRendezvousParts parts, std::string path)
    : parts_(std::move(parts)), path_(std::move(path)) {}

Result<std::vector<NodeEntry>> DirectoryRendezvous::Exchange(const NodeEntry& own,
                                                             std::uint32_t node_count,
                                                             std::int64_t deadline_ns) {
  FOREBAY_CHECK(own.nonce != 0 && own.rank.value() < node_count);
  FOREBAY_TRY(CheckJobId(own.identity.job, "nodes.rendezvous"));
  // A job of one node needs no file system for this.
  if (node_count == 1) return std::vector<NodeEntry>{own};
  FOREBAY_ASSIGN(queue_, parts_.backend.CreateQueue({.depth = 1}));
  job_ = own.identity.job;
  temporary_ = fmt::format("{}{:016x}", kTemporaryPrefix, own.nonce);
  const bool leads = own.rank == NodeRank(0);
  const std::int64_t longest_ms =
      leads ? kLeaderPauseMsMax
            : kFollowerPauseMsMax + std::int64_t{node_count} * 1000 / kCallsPerSecondMax;
  Round round{own, node_count, deadline_ns, GrowingPause(own.nonce, longest_ms)};
  auto nodes = leads ? Lead(round) : Follow(round);
  if (!nodes.has_value()) Leave();
  return nodes;
}

// Error: Exchange is to end.
Status DirectoryRendezvous::Pause(std::int64_t ms) const {
  switch (parts_.pause(ms)) {
    case PauseEnd::kOver: return {};
    case PauseEnd::kToldToStop:
      return Error(ErrorCode::kCancelled, "the daemon was told to stop");
    case PauseEnd::kNotNeeded: break;
  }
  return NotNeeded();
}

// ---- the leader -----------------------------------------------------------------------------

Result<std::vector<NodeEntry>> DirectoryRendezvous::Lead(Round& round) {
  round.nodes.emplace(round.own.rank, round.own);
  // The leader gives up before the others do, so that they learn its reason.
  const std::int64_t now_ns = parts_.clock.NowNs();
  round.give_up_ns = now_ns + (round.deadline_ns - now_ns) / 10 * 9;
  while (true) {
    // An error here means that another daemon leads. Its list stays as it is.
    FOREBAY_TRY(round.Bear(leader_nonce_ == 0 ? PublishCall(round) : CheckLeads(round)));
    const Status collected = round.Bear(Collect(round));
    if (!collected.has_value()) return Refuse(round, collected.error());
    const bool all_answered = round.read.size() + 1 >= round.node_count;
    const bool gives_up = parts_.clock.NowNs() >= round.give_up_ns;
    if (round.clash && (all_answered || gives_up)) return Refuse(round, *round.clash);
    if (round.nodes.size() == round.node_count) break;
    if (gives_up) {
      std::vector<NodeEntry> nodes;
      for (const auto& [rank, node] : round.nodes) nodes.push_back(node);
      return Refuse(round, Error(ErrorCode::kDeadlineExceeded,
                                 fmt::format("these of {} ranks have not answered in {}: {}{}",
                                             round.node_count, Shown(kList),
                                             MissingRanks(nodes, round.node_count),
                                             round.Trouble())));
    }
    const PauseEnd paused = parts_.pause(round.pause.NextMs());
    if (paused == PauseEnd::kToldToStop) {
      return Refuse(round, Error(ErrorCode::kCancelled, "the daemon of rank 0 was told to stop"));
    }
    // No reason for the others to give up: they may find the nodes of the job in the same way.
    if (paused == PauseEnd::kNotNeeded) return NotNeeded();
  }
  NodeFile list{.kind = NodeFileKind::kComplete,
                .leader_nonce = round.own.nonce,
                .node_count = round.node_count};
  for (auto& [rank, node] : round.nodes) list.nodes.push_back(std::move(node));
  // The others would find the same clash in the list; as a refusal, it does not have to be sent.
  const Status checked = CheckNodeList(list.nodes, round.node_count);
  if (!checked.has_value()) return Refuse(round, checked.error());
  // Repeated by itself: a look at the directory would find nothing new.
  while (true) {
    const Status published = Publish(list, std::string(kList));
    if (published.has_value()) break;
    FOREBAY_TRY(round.Bear(published));
    if (parts_.clock.NowNs() >= round.deadline_ns) return published.error();
    FOREBAY_TRY(Pause(round.pause.NextMs()));
  }
  complete_ns_ = parts_.clock.NowNs();
  RemoveStale(round.own.nonce);
  return std::move(list.nodes);
}

Status DirectoryRendezvous::PublishCall(Round& round) {
  // Whatever list lies there is of an earlier launch, or of another leader, which finds out now.
  FOREBAY_TRY(Publish({.kind = NodeFileKind::kOpen,
                       .leader_nonce = round.own.nonce,
                       .node_count = round.node_count,
                       .nodes = {round.own}},
                      std::string(kList)));
  leader_nonce_ = round.own.nonce;
  return {};
}

// Checks that the call is still there, and this node's.
Status DirectoryRendezvous::CheckLeads(Round& round) {
  FOREBAY_ASSIGN(const std::optional<NodeFile> list, Read(std::string(kList)));
  // A leader of an earlier launch that shuts down only now may have removed it.
  if (!list) return PublishCall(round);
  if (list->leader_nonce == round.own.nonce) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("nodes {} and {} both claim rank 0 in {}: the daemons were started with "
                           "wrong ranks, or twice",
                           round.own.Text(),
                           list->nodes.empty() ? "(unknown)" : list->nodes.front().Text(),
                           Shown(kList)));
}

// Reads the answers that are new. Remembers the first that clashes with others.
Status DirectoryRendezvous::Collect(Round& round) {
  FOREBAY_ASSIGN(const std::vector<std::string> names, Answers(round.own.nonce));
  for (const std::string& name : names) {
    if (round.read.contains(name)) continue;
    FOREBAY_ASSIGN(std::optional<NodeFile> answer, Read(name));
    // It was removed since it was listed: its daemon has given up.
    if (!answer) continue;
    round.read.insert(name);
    round.pause.Restart();  // others are likely to be on their way, too
    const Status admitted = Admit(round, *answer, name);
    if (admitted.has_value() || round.clash) continue;
    round.clash = admitted.error();
    round.give_up_ns =
        std::min(round.give_up_ns, parts_.clock.NowNs() + kLatecomersMs * kNsPerMs);
  }
  return {};
}

// Adds the node to those of the job. What can be seen without the others is checked at once,
// because a job with a rank twice may never be complete.
Status DirectoryRendezvous::Admit(Round& round, const NodeFile& answer, const std::string& name) {
  if (answer.kind != NodeFileKind::kAnswer || answer.leader_nonce != round.own.nonce ||
      answer.nodes.size() != 1) {
    return Error(ErrorCode::kFailedPrecondition, Shown(name) + " is not an answer to rank 0");
  }
  const NodeEntry& node = answer.nodes.front();
  if (answer.node_count != round.node_count) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("nodes {} and {} were started as parts of jobs with {} and {} nodes",
                             round.own.Text(), node.Text(), round.node_count, answer.node_count));
  }
  if (node.identity.job != round.own.identity.job) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("nodes {} and {} belong to different jobs, but use {}",
                             round.own.Text(), node.Text(), Shown(kList)));
  }
  const auto [known, is_new] = round.nodes.try_emplace(node.rank, node);
  if (is_new) return {};
  // Two nodes of one rank: CheckNodeList has the message.
  return CheckNodeList(std::vector<NodeEntry>{known->second, node}, round.node_count);
}

// Publishes the reason, waits until those who answered have read it, and returns it.
Error DirectoryRendezvous::Refuse(Round& round, const Error& reason) {
  if (leader_nonce_ == 0) return reason;
  const Status published = Publish({.kind = NodeFileKind::kRefused,
                                    .leader_nonce = round.own.nonce,
                                    .node_count = round.node_count,
                                    .refusal = reason.message(),
                                    .nodes = {round.own}},
                                   std::string(kList));
  // The others then run into their deadline, with less to say.
  if (!published.has_value()) {
    log::Warn("{}: the other nodes cannot be told why rank 0 gives up: {}", Shown(kList),
              published.error().ToString());
    return reason;
  }
  AwaitReaders();
  return reason;
}

// Waits until those who answered this leader have read what it has published, or until another
// leader has taken its place. Daemons that were killed before they read it cost it the whole time.
void DirectoryRendezvous::AwaitReaders() {
  const std::int64_t end_ns = parts_.clock.NowNs() + kAwaitReadersMs * kNsPerMs;
  GrowingPause pause(leader_nonce_, kLeaderPauseMsMax);
  while (true) {
    // Another leader has no need to wait for the answers to this one.
    const auto list = Read(std::string(kList));
    if (list.has_value() ? !IsOwn(*list) : !MayPass(list.error())) return;
    // A node that has read it removes its answer.
    const auto answers = Answers(leader_nonce_);
    if (answers.has_value() ? answers->empty() : !MayPass(answers.error())) return;
    if (parts_.clock.NowNs() >= end_ns) {
      log::Warn("{} is removed, though some nodes may not have read it yet: {}", Shown(kList),
                answers.has_value() ? fmt::format("{} of their answers are left", answers->size())
                                    : answers.error().ToString());
      return;
    }
    parts_.sleep(pause.NextMs());
  }
}

// Whether this leader has published `list`.
bool DirectoryRendezvous::IsOwn(const std::optional<NodeFile>& list) const {
  return list && list->leader_nonce == leader_nonce_;
}

// The names of the answers to a leader.
Result<std::vector<std::string>> DirectoryRendezvous::Answers(std::uint64_t leader_nonce) {
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, parts_.directory.List(job_));
  const std::string prefix = AnswerPrefix(leader_nonce);
  std::vector<std::string> names;
  for (const io::DirectoryEntry& entry : entries) {
    if (entry.name.starts_with(prefix)) names.push_back(entry.name);
  }
  return names;
}

// Removes what a killed launch of this job has left. No daemon of this launch writes any more: all
// have answered, and the last call that they saw is this leader's.
void DirectoryRendezvous::RemoveStale(std::uint64_t leader_nonce) {
  const auto entries = parts_.directory.List(job_);
  if (!entries.has_value()) {
    log::Warn("{}: files of an earlier launch may be left: {}", Shown(""),
              entries.error().ToString());
    return;
  }
  // A name that no daemon gives is not ours to remove.
  for (const io::DirectoryEntry& entry : *entries) {
    const bool is_ours = entry.name.starts_with(kAnswerPrefix) ||
                         entry.name.starts_with(kTemporaryPrefix);
    if (is_ours && !entry.name.starts_with(AnswerPrefix(leader_nonce))) Remove(entry.name);
  }
}

// ---- the others -----------------------------------------------------------------------------

Result<std::vector<NodeEntry>> DirectoryRendezvous::Follow(Round& round) {
  round.seen = "rank 0 has published nothing";
  while (true) {
    const Result<std::optional<NodeFile>> list = Read(std::string(kList));
    if (list.has_value() && list->has_value()) {
      auto heeded = Heed(round, **list);
      if (heeded.has_value() && heeded->has_value()) return std::move(**heeded);
      if (!heeded.has_value()) FOREBAY_TRY(round.Bear(heeded.error()));
    } else if (!list.has_value()) {
      // A list of another version may be of an earlier launch, so it is no reason to give up.
      if (list.error().code() != ErrorCode::kFailedPrecondition) {
        FOREBAY_TRY(round.Bear(list.error()));
      }
      round.trouble = list.error().ToString();
    }
    // After a look, so that the list is read once more when the last pause is over.
    const std::int64_t left_ns = round.deadline_ns - parts_.clock.NowNs();
    if (left_ns <= 0) {
      return Error(ErrorCode::kDeadlineExceeded,
                   fmt::format("no list of all nodes in {}: {}{}", Shown(kList), round.seen,
                               round.Trouble()));
    }
    FOREBAY_TRY(Pause(std::min(round.pause.NextMs(), left_ns / kNsPerMs + 1)));
  }
}

// Does what `list` asks for. Returns the nodes if it is the list of this launch.
Result<std::optional<std::vector<NodeEntry>>> DirectoryRendezvous::Heed(Round& round,
                                                                       const NodeFile& list) {
  // Only rank 0 writes this file, and puts itself first.
  if (list.nodes.empty()) {
    return Error(ErrorCode::kDataLoss, Shown(kList) + " does not name the node of rank 0");
  }
  const NodeEntry& leader = list.nodes.front();
  if (leader.identity.job != job_) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} belongs to job {}, not to {}", Shown(kList), leader.identity.job,
                             job_));
  }
  // This leader was alive after this node had started, because it has changed its list since.
  const bool is_answered = list.leader_nonce == round.answered;
  switch (list.kind) {
    case NodeFileKind::kOpen:
      if (!is_answered) FOREBAY_TRY(Answer(round, list.leader_nonce));
      round.seen = fmt::format("node {} waits for other nodes, or is gone", leader.Text());
      return std::nullopt;
    case NodeFileKind::kRefused:
      if (!is_answered) return std::nullopt;
      return Error(ErrorCode::kFailedPrecondition, list.refusal);
    case NodeFileKind::kAnswer: return std::nullopt;
    case NodeFileKind::kComplete: break;
  }
  if (std::ranges::find(list.nodes, round.own) == list.nodes.end()) {
    round.seen = fmt::format("the one of node {} was complete before this daemon started: it is of "
                             "an earlier launch of the job, or this daemon was started again",
                             leader.Text());
    if (!is_answered) return std::nullopt;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} is not in {}, which was complete before it arrived: another "
                             "node has its rank",
                             round.own.Text(), Shown(kList)));
  }
  // The leader has checked it, too; but nothing that lies in a shared directory is trusted.
  FOREBAY_TRY(CheckNodeList(list.nodes, round.node_count));
  // Tells the leader that this node needs the list no more.
  Remove(answer_);
  answer_.clear();
  return list.nodes;
}

Status DirectoryRendezvous::Answer(Round& round, std::uint64_t leader_nonce) {
  // Rank and identity are in the name, so that two daemons with one rank, or one identity, write
  // two files and are found out. A daemon that is started again replaces its file.
  const std::string name = fmt::format("{}{}.{:016x}", AnswerPrefix(leader_nonce),
                                       round.own.rank.value(), round.own.identity.Id());
  FOREBAY_TRY(Publish({.kind = NodeFileKind::kAnswer,
                       .leader_nonce = leader_nonce,
                       .node_count = round.node_count,
                       .nodes = {round.own}},
                      name));
  // Its leader is gone, or it would not have been replaced. Removed only now, so that an error
  // above leaves one answer that Leave knows.
  if (!answer_.empty()) Remove(answer_);
  answer_ = name;
  round.answered = leader_nonce;
  round.pause.Restart();
  return {};
}

// ---- files ----------------------------------------------------------------------------------

void DirectoryRendezvous::Leave() {
  if (job_.empty()) return;
  if (!answer_.empty()) Remove(answer_);
  answer_.clear();
  Remove(temporary_);
  if (leader_nonce_ != 0) {
    // A job may end, or be stopped, before a slow node has read the list that others work with.
    const bool is_young =
        complete_ns_ && parts_.clock.NowNs() - *complete_ns_ < kReadWithinMs * kNsPerMs;
    if (is_young) AwaitReaders();
    // Another leader's list stays: this node may be the one that was started wrongly, or the next
    // launch of the job has begun.
    const auto list = Read(std::string(kList));
    if (list.has_value() && IsOwn(*list)) {
      Remove(std::string(kList));
      // Of daemons that ended before they read the list.
      const auto answers = Answers(leader_nonce_);
      if (answers.has_value()) std::ranges::for_each(*answers, [&](auto& name) { Remove(name); });
    }
  }
  leader_nonce_ = 0;
  complete_ns_.reset();
  // Fails, as it should, as long as another node's file lies there.
  const Status removed = parts_.directory.RemoveDirectory(job_);
  if (!removed.has_value()) {
    log::Debug("{} is kept: {}", Shown(""), removed.error().ToString());
  }
  job_.clear();
}

Status DirectoryRendezvous::Publish(const NodeFile& file, const std::string& name) {
  // Again each time, because a leader that shuts down removes the directory if it is empty.
  const Status made = parts_.directory.MakeDirectory(job_);
  if (!made.has_value() && made.error().code() != ErrorCode::kAlreadyExists) {
    return made.error().WithContext(Shown(""));
  }
  const Status published = WriteNodeFile(parts_.directory, *queue_, file, PathOf(name),
                                         PathOf(temporary_));
  if (!published.has_value()) return published.error().WithContext("publishing " + Shown(name));
  return {};
}

Result<std::optional<NodeFile>> DirectoryRendezvous::Read(const std::string& name) {
  Result<std::optional<NodeFile>> read =
      ReadNodeFile(parts_.directory, *queue_, PathOf(name));
  if (!read.has_value()) return read.error().WithContext(Shown(name));
  return read;
}

void DirectoryRendezvous::Remove(const std::string& name) {
  const Status removed = parts_.directory.Unlink(PathOf(name));
  if (removed.has_value() || removed.error().code() == ErrorCode::kNotFound) return;
  log::Warn("{} could not be removed: {}", Shown(name), removed.error().ToString());
}

}  // namespace forebay::rendezvous
