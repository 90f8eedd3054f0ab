// Answers that are there wait in the order in which their requests came, and each one that ends
// begins others. What an answer brings along is called and destroyed without the mutex, because
// sending may end another answer. The table of a node's answers is walked: it has as many requests
// under way as its readers have credits, in all at most limits::kPeerCallsMax.
#include "server/peer/send_turns.h"

#include <algorithm>
#include <utility>

namespace forebay::peer {

SendTurns::Turn SendTurns::Take(std::string connection) {
  const MutexLock lock(mutex_);
  const std::uint64_t number = taken_++;
  nodes_[connection].by_number.try_emplace(number);
  return {.connection = std::move(connection), .number = number};
}

// Takes out what begins the answers whose turn it is. The caller calls it without the mutex.
SendTurns::Begins SendTurns::TakeNextLocked(Answers& answers) {
  Begins begins;
  for (auto& [number, answer] : answers.by_number) {
    if (answers.sending_bytes >= bytes_at_once_) break;
    if (answer.state != Answer::State::kWaiting) continue;
    answer.state = Answer::State::kSending;
    answers.sending_bytes += answer.bytes;
    begins.push_back(std::move(answer.begin));
  }
  return begins;
}

// Null: the node that asked has given up, and the turn has ended.
SendTurns::Found SendTurns::FindLocked(const Turn& turn) {
  const auto node = nodes_.find(turn.connection);
  if (node == nodes_.end()) return {};
  const auto answer = node->second.by_number.find(turn.number);
  if (answer == node->second.by_number.end()) return {};
  return {.answers = &node->second, .answer = &answer->second};
}

void SendTurns::Await(const Turn& turn, std::uint64_t bytes, std::function<void()> begin) {
  Begins begins;
  {
    const MutexLock lock(mutex_);
    const auto [answers, answer] = FindLocked(turn);
    if (answer == nullptr) return;
    *answer = {.state = Answer::State::kWaiting, .bytes = bytes, .begin = std::move(begin)};
    begins = TakeNextLocked(*answers);
  }
  for (const std::function<void()>& each : begins) each();
}

void SendTurns::Sent(const Turn& turn, std::uint64_t bytes) {
  Begins begins;
  {
    const MutexLock lock(mutex_);
    const auto [answers, answer] = FindLocked(turn);
    if (answer == nullptr) return;
    // Messages are a little longer than the rows in them.
    const std::uint64_t sent = std::min(bytes, answer->bytes);
    answer->bytes -= sent;
    answers->sending_bytes -= sent;
    begins = TakeNextLocked(*answers);
  }
  for (const std::function<void()>& each : begins) each();
}

void SendTurns::End(const Turn& turn) {
  Answer ended;  // destroyed without the mutex: it may hold the last reference to rows
  Begins begins;
  {
    const MutexLock lock(mutex_);
    const auto node = nodes_.find(turn.connection);
    Answers& answers = node->second;
    ended = std::move(answers.by_number.extract(turn.number).mapped());
    if (ended.state == Answer::State::kSending) answers.sending_bytes -= ended.bytes;
    begins = TakeNextLocked(answers);
    if (answers.by_number.empty()) nodes_.erase(node);
  }
  for (const std::function<void()>& each : begins) each();
}

}  // namespace forebay::peer
