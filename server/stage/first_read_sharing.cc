// Works in rounds, usually two. In each, every read that has too few keepers is given to one
// further node. A node is asked once for a read, so there are no more rounds than nodes. A read
// goes to its nodes one after the other: if the first one knows other bytes, the second one is not
// given a checksum that may be wrong, for example of a stale page of this node.
//
// One request to a node is under way at a time (for each data set). Reads that come meanwhile wait
// in the node's line, and go together in the next request, which one of the callers that wait
// sends. So many small extents cost few requests, although each caller waits for the answers about
// its own.
#include "server/stage/first_read_sharing.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/extent_source.h"

namespace forebay::stage {
namespace {

// With two, one of the nodes that have the checksum is alive unless three of a group's nodes die.
constexpr std::size_t kKeepers = 2;
// A node whose daemon.state_dir hangs answers pings, and so is taken for alive again and again.
constexpr std::int64_t kLeftOutNs = 60'000'000'000;

using Outcome = Result<std::vector<std::uint32_t>>;

}  // namespace

struct FirstReadSharing::Progress {
  std::size_t keepers = 0;
  std::vector<NodeRank> asked;
};

// A read is to be given to a node.
struct FirstReadSharing::Question {
  std::size_t read = 0;  // index
  NodeRank node;
};

struct FirstReadSharing::Answer {
  std::shared_ptr<const Error> error;  // null: the node keeps the read
  bool differs = false;
};

// The questions of one caller of Give in one round. It lives until all of them are answered.
struct FirstReadSharing::Round {
  std::vector<Answer> answers;
  std::size_t awaited = 0;
};

// A question in a line or in a request.
struct FirstReadSharing::Waiting {
  Round* round;
  std::size_t question;  // index
  FirstRead read;
};

// Shared with the callbacks of requests, the last of which may end after Give has returned.
struct FirstReadSharing::Lines {
  struct Line {
    bool is_asked = false;  // a request is under way
    std::vector<Waiting> waiting;
  };

  void Add(NodeRank node, const Dataset& dataset, const Waiting& waiting)
      FOREBAY_REQUIRES(mutex) {
    lines[{node, &dataset}].waiting.push_back(waiting);
  }
  std::vector<Waiting> TakeNext(Line& line) FOREBAY_REQUIRES(mutex);
  void Answered(NodeRank node, const Dataset* dataset, std::span<const Waiting> asked,
                const Outcome& outcome);

  Mutex mutex;
  CondVar changed;
  std::map<std::pair<NodeRank, const Dataset*>, Line> lines FOREBAY_GUARDED_BY(mutex);
};

std::vector<FirstReadSharing::Waiting> FirstReadSharing::Lines::TakeNext(Line& line) {
  const auto count = static_cast<std::ptrdiff_t>(
      std::min<std::size_t>(line.waiting.size(), limits::kPeerFirstReadsMax));
  std::vector<Waiting> next(line.waiting.begin(), line.waiting.begin() + count);
  line.waiting.erase(line.waiting.begin(), line.waiting.begin() + count);
  line.is_asked = true;
  return next;
}

void FirstReadSharing::Lines::Answered(NodeRank node, const Dataset* dataset,
                                       std::span<const Waiting> asked, const Outcome& outcome) {
  const MutexLock lock(mutex);
  const auto answer = [](const Waiting& waiting, const Answer& given) {
    waiting.round->answers[waiting.question] = given;
    --waiting.round->awaited;
  };
  const auto line = lines.find({node, dataset});
  line->second.is_asked = false;
  if (outcome.has_value()) {
    // The indexes rise, and ParseFirstReadsReply has compared them with the number of reads.
    auto differing = outcome->begin();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const bool differs = differing != outcome->end() && *differing == i;
      if (differs) ++differing;
      answer(asked[i], {.error = nullptr, .differs = differs});
    }
  } else {
    const Answer failed{.error = std::make_shared<const Error>(outcome.error()), .differs = false};
    for (const Waiting& waiting : asked) answer(waiting, failed);
    // They would wait for the same node as long again.
    for (const Waiting& waiting : line->second.waiting) answer(waiting, failed);
    line->second.waiting.clear();
  }
  // The data set may go before the next read of one with the same address comes.
  if (line->second.waiting.empty()) lines.erase(line);
  changed.NotifyAll();
}

FirstReadSharing::FirstReadSharing(plan::Membership& nodes, FirstReadKeepers& keepers,
                                   io::Clock& clock)
    : nodes_(nodes), keepers_(keepers), clock_(clock), lines_(std::make_shared<Lines>()) {}

std::vector<FirstReadSharing::Question> FirstReadSharing::NextQuestions(
    std::span<const SharedRead> reads, std::vector<Progress>& progress) {
  std::vector<NodeRank> left_out;
  {
    const MutexLock lock(mutex_);
    const std::int64_t now_ns = clock_.NowNs();
    std::erase_if(failed_, [&](const auto& node) { return node.second.until_ns <= now_ns; });
    for (const auto& [node, failure] : failed_) {
      if (failure.is_left_out) left_out.push_back(node);
    }
  }
  std::vector<Question> questions;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const bool is_of_other = reads[i].is_of_other;
    if (progress[i].keepers >= (is_of_other ? 1 : kKeepers)) continue;
    std::vector<NodeRank> asked = left_out;
    asked.insert(asked.end(), progress[i].asked.begin(), progress[i].asked.end());
    const std::optional<NodeRank> node =
        is_of_other ? nodes_.FirstToAsk(reads[i].group_key, asked)
                    : nodes_.NextSubstitute(reads[i].group_key, asked);
    if (!node) continue;
    questions.push_back({.read = i, .node = *node});
    progress[i].asked.push_back(*node);
  }
  return questions;
}

void FirstReadSharing::Send(NodeRank node, const Dataset& dataset,
                            std::vector<Waiting> asked) {
  KeepRequest request{.node = node,
                      .from = nodes_.self(),
                      .dataset = dataset,
                      .reads = {},
                      .deadline_ns =
                          clock_.NowNs() + limits::kPeerFirstReadsDeadlineMs * 1'000'000};
  request.reads.reserve(asked.size());
  for (const Waiting& waiting : asked) request.reads.push_back(waiting.read);
  keepers_.Keep(std::move(request), [lines = lines_, node, name = &dataset,
                                     asked = std::move(asked)](const Outcome& outcome) {
    lines->Answered(node, name, asked, outcome);
  });
}

std::vector<FirstReadSharing::Answer> FirstReadSharing::Ask(const Dataset& dataset,
                                                            std::span<const SharedRead> reads,
                                                            std::span<const Question> questions) {
  Round round{.answers = std::vector<Answer>(questions.size()), .awaited = questions.size()};
  std::vector<NodeRank> nodes;  // of the questions
  UniqueLock lock(lines_->mutex);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    lines_->Add(question.node, dataset,
                {.round = &round, .question = i, .read = reads[question.read].read});
    if (std::ranges::count(nodes, question.node) == 0) nodes.push_back(question.node);
  }
  while (round.awaited > 0) {
    bool has_sent = false;
    for (const NodeRank node : nodes) {
      const auto line = lines_->lines.find({node, &dataset});
      if (line == lines_->lines.end() || line->second.is_asked) continue;
      std::vector<Waiting> asked = lines_->TakeNext(line->second);
      // Without the lock, because the answer may come within the call.
      lock.Unlock();
      Send(node, dataset, std::move(asked));
      lock.Lock();
      has_sent = true;
    }
    // Something may have been answered while the lock was free.
    if (!has_sent) lines_->changed.Wait(lines_->mutex);
  }
  return std::move(round.answers);
}

// The extents are served all the same. If this node and the substitutes that did answer die, a
// change of the objects is not noticed, so the log has to say it; once in a while, because there
// may be a million extents.
void FirstReadSharing::NoteError(NodeRank node, const Dataset& dataset, const Error& error) {
  if (IsNoAnswer(error)) nodes_.SetLives(node, false);
  // It lacks a rebuild, and has said so itself, in its log. It is asked again for the next reads,
  // because it answers at once, and keeps reads as soon as it is rebuilt.
  if (IsAskNext(error)) return;
  {
    const MutexLock lock(mutex_);
    // A node that has not rebuilt the data set yet answers at once, keeps reads of others, and will
    // keep these, too.
    const bool is_left_out = error.code() != ErrorCode::kFailedPrecondition;
    const auto [failure, is_new] =
        failed_.try_emplace(node, Failure{.until_ns = clock_.NowNs() + kLeftOutNs});
    failure->second.is_left_out = failure->second.is_left_out || is_left_out;
    // Several threads may have asked the node at the same time.
    if (!is_new) return;
  }
  log::Warn("data set '{}': node {} keeps no checksums of first reads for this node; the next "
            "node of each ranking is asked in its place: {}",
            dataset.name(), node.value(), error.message());
}

Result<std::vector<Contradiction>> FirstReadSharing::Give(const Dataset& dataset,
                                                          std::span<const SharedRead> reads) {
  std::vector<Progress> progress(reads.size());
  std::vector<Contradiction> contradictions;
  for (;;) {
    const std::vector<Question> questions = NextQuestions(reads, progress);
    if (questions.empty()) return contradictions;
    const std::vector<Answer> answers = Ask(dataset, reads, questions);
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const auto& [read, node] = questions[i];
      if (const std::shared_ptr<const Error>& error = answers[i].error) {
        // What nobody else has been told must not be served by a daemon that ends.
        if (error->code() == ErrorCode::kCancelled) return *error;
        NoteError(node, dataset, *error);
        continue;
      }
      ++progress[read].keepers;
      if (!answers[i].differs) continue;
      contradictions.push_back({.read = read, .node = node});
      // It will be refused, so nobody else needs it.
      progress[read].keepers = kKeepers;
    }
  }
}

std::size_t FirstReadSharing::waiting() const {
  std::size_t count = 0;
  const MutexLock lock(lines_->mutex);
  for (const auto& [name, line] : lines_->lines) count += line.waiting.size();
  return count;
}

}  // namespace forebay::stage
