// The table is locked. What a receive itself holds is written by one thread, that of the
// connections, so that no lock is held while bytes are decrypted to the memory of a message.
#include "server/peer/tls/posted_receives.h"

#include <utility>

#include <fmt/format.h>

namespace forebay::peer {

struct PostedReceive {
  NodeRank node = NodeRank(0);  // that is to send
  std::uint32_t tag = 0;
  std::uint32_t connection = 0;
  Payload payload;
  PayloadCarrier::Ended ended;
  enum class State : std::uint8_t { kAwaited, kArriving, kEnded };
  std::vector<State> states;  // by message
  std::size_t left = 0;       // messages that have not ended

  std::span<const std::span<std::byte>> PiecesOf(std::size_t message) const {
    const std::size_t begin = message == 0 ? 0 : payload.ends[message - 1];
    return std::span(payload.pieces).subspan(begin, payload.ends[message] - begin);
  }
};

PayloadPlace PostedReceives::Post(NodeRank node, const Payload& payload,
                                  PayloadCarrier::Ended ended) {
  auto posted = std::make_shared<PostedReceive>();
  posted->node = node;
  posted->payload = payload;
  posted->ended = std::move(ended);
  // Everything is ready before another thread can find the receive in the table.
  posted->states.assign(payload.ends.size(), PostedReceive::State::kAwaited);
  posted->left = payload.ends.size();
  const MutexLock lock(mutex_);
  // A tag comes again after all others, and not while it is in use.
  do {
    ++last_tag_;
  } while (last_tag_ == 0 || by_tag_.contains(last_tag_));
  posted->tag = last_tag_;
  // Without a connection the number is 0. Then the node that is asked answers over gRPC, and the
  // caller cancels the receive.
  if (const auto found = connections_.find(node); found != connections_.end()) {
    posted->connection = found->second.number;
    ++found->second.receives;
  }
  const PayloadPlace place{.tag = posted->tag, .connection = posted->connection};
  by_tag_.emplace(posted->tag, std::move(posted));
  return place;
}

void PostedReceives::SetConnection(NodeRank node, std::uint32_t connection) {
  const MutexLock lock(mutex_);
  connections_[node] = {.number = connection};
}

bool PostedReceives::EndIfUnused(NodeRank node, std::uint32_t connection) {
  const MutexLock lock(mutex_);
  const auto found = connections_.find(node);
  if (found == connections_.end() || found->second.number != connection) return true;
  if (found->second.receives > 0) return false;
  connections_.erase(found);
  return true;
}

// To be called when the receive leaves the table.
void PostedReceives::ForgetLocked(const PostedReceive& receive) {
  const auto found = connections_.find(receive.node);
  if (found != connections_.end() && found->second.number == receive.connection) {
    --found->second.receives;
  }
}

void PostedReceives::EndConnection(NodeRank node, std::uint32_t connection,
                                   const std::string& why) {
  std::vector<std::shared_ptr<PostedReceive>> lost;
  {
    const MutexLock lock(mutex_);
    // The node may have made another connection meanwhile, which stays.
    const auto found = connections_.find(node);
    if (found != connections_.end() && found->second.number == connection) {
      connections_.erase(found);
    }
    std::erase_if(by_tag_, [&](const auto& entry) {
      if (entry.second->connection != connection || entry.second->node != node) return false;
      lost.push_back(entry.second);
      return true;
    });
  }
  const Error error(ErrorCode::kUnavailable,
                    fmt::format("the connection from node {} for bytes of rows has ended: {}",
                                node.value(), why));
  for (const auto& receive : lost) EndAll(*receive, error);
}

// A message that is just arriving ends as well: IsAwaited is false from then on, so nothing more is
// written to its memory.
void PostedReceives::EndAll(PostedReceive& receive, const Error& error) {
  for (std::size_t i = 0; i < receive.states.size(); ++i) {
    if (std::exchange(receive.states[i], PostedReceive::State::kEnded) !=
        PostedReceive::State::kEnded) {
      receive.ended(i, error);
    }
  }
}

PostedReceives::Arriving PostedReceives::Begin(std::uint32_t connection, std::uint32_t tag,
                                               std::uint32_t message, std::uint64_t bytes) {
  std::shared_ptr<PostedReceive> receive;
  {
    const MutexLock lock(mutex_);
    // A node may send only to receives that belong to its own connection.
    const auto found = by_tag_.find(tag);
    if (found != by_tag_.end() && found->second->connection == connection) receive = found->second;
  }
  // The number of the message comes from the other node, and a message comes once.
  if (!receive || message >= receive->states.size() ||
      receive->states[message] != PostedReceive::State::kAwaited) {
    return {};
  }
  receive->states[message] = PostedReceive::State::kArriving;
  const Arriving arriving{
      .receive = receive, .message = message, .pieces = receive->PiecesOf(message)};
  std::uint64_t awaited = 0;
  for (const std::span<std::byte> piece : arriving.pieces) awaited += piece.size();
  if (awaited == bytes) return arriving;
  const Error error(ErrorCode::kInternal,
                    fmt::format("a message with rows has {} bytes, and {} are awaited", bytes,
                                awaited));
  End(arriving, error);
  return {};
}

bool PostedReceives::IsAwaited(const Arriving& arriving) {
  return arriving.receive &&
         arriving.receive->states[arriving.message] == PostedReceive::State::kArriving;
}

bool PostedReceives::End(const Arriving& arriving, const Status& status) {
  PostedReceive& receive = *arriving.receive;
  receive.states[arriving.message] = PostedReceive::State::kEnded;
  const bool is_last = --receive.left == 0;
  if (is_last) {
    const MutexLock lock(mutex_);
    ForgetLocked(receive);
    by_tag_.erase(receive.tag);
  }
  receive.ended(arriving.message, status);
  return is_last && status.has_value();
}

void PostedReceives::Cancel(std::uint32_t tag) {
  std::shared_ptr<PostedReceive> receive;
  {
    const MutexLock lock(mutex_);
    const auto found = by_tag_.find(tag);
    if (found == by_tag_.end()) return;
    receive = std::move(found->second);
    ForgetLocked(*receive);
    by_tag_.erase(found);
  }
  EndAll(*receive, Error(ErrorCode::kCancelled, "the receive was cancelled"));
}

}  // namespace forebay::peer
