// A node that does not run yet refuses the connection at once, or says nothing until the deadline.
// So nodes are asked in turn, and not always the first ones that are missing.
#include "server/daemon/first_answers.h"

#include <utility>

#include "proto/contract/thread_annotations.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kFirstAnswerNs = 1'000'000'000;

enum class Asked : std::uint8_t { kSilent, kUnderWay, kAnswered };

}  // namespace

struct FirstAnswers::Answers {
  Mutex mutex;
  std::vector<Asked> states FOREBAY_GUARDED_BY(mutex);  // of the nodes
  std::size_t under_way FOREBAY_GUARDED_BY(mutex) = 0;
  std::string last_error FOREBAY_GUARDED_BY(mutex);

  // Whether the node is to be asked now.
  bool Begin(std::size_t index, std::size_t at_a_time) {
    const MutexLock lock(mutex);
    if (under_way >= at_a_time || states[index] != Asked::kSilent) return false;
    states[index] = Asked::kUnderWay;
    ++under_way;
    return true;
  }
  void Hear(std::size_t index, const Result<peer::NodeReport>& heard) {
    const MutexLock lock(mutex);
    if (!heard.has_value()) last_error = heard.error().message();
    states[index] = heard.has_value() ? Asked::kAnswered : Asked::kSilent;
    --under_way;
  }
};

FirstAnswers::FirstAnswers(FirstAnswersParts parts)
    : parts_(std::move(parts)), answers_(std::make_shared<Answers>()) {
  const MutexLock lock(answers_->mutex);
  answers_->states.resize(parts_.nodes.size(), Asked::kSilent);
}

std::vector<NodeRank> FirstAnswers::Ask() {
  const std::int64_t deadline_ns = parts_.clock.NowNs() + kFirstAnswerNs;
  const std::size_t first = turn_;
  for (std::size_t i = 0; i < parts_.nodes.size(); ++i) {
    const std::size_t index = (first + i) % parts_.nodes.size();
    if (!answers_->Begin(index, parts_.at_a_time)) continue;
    turn_ = index + 1;
    parts_.ping(parts_.nodes[index], deadline_ns,
                [answers = answers_, index](const Result<peer::NodeReport>& heard) {
                  answers->Hear(index, heard);
                });
  }
  std::vector<NodeRank> missing;
  const MutexLock lock(answers_->mutex);
  for (std::size_t i = 0; i < parts_.nodes.size(); ++i) {
    if (answers_->states[i] != Asked::kAnswered) missing.push_back(parts_.nodes[i]);
  }
  return missing;
}

std::string FirstAnswers::last_error() const {
  const MutexLock lock(answers_->mutex);
  return answers_->last_error;
}

}  // namespace forebay::daemon
