// A receive is taken off the table before its memory is written, so that it ends once.
#include "server/peer/testing/in_process_carrier.h"

#include <cstring>
#include <string>
#include <utility>

namespace forebay::peer {
namespace {

// Returns the bytes of one message, whatever its pieces are.
std::string BytesOfMessage(const Payload& payload, std::size_t message) {
  std::string bytes;
  for (std::size_t i = message == 0 ? 0 : payload.ends[message - 1]; i < payload.ends[message];
       ++i) {
    bytes.append(reinterpret_cast<const char*>(payload.pieces[i].data()),
                 payload.pieces[i].size());
  }
  return bytes;
}

Status Write(const std::string& bytes, const Payload& payload, std::size_t message) {
  if (BytesOfMessage(payload, message).size() != bytes.size()) {
    return Error(ErrorCode::kInternal, "a message of another length");
  }
  std::size_t at = 0;
  for (std::size_t i = message == 0 ? 0 : payload.ends[message - 1]; i < payload.ends[message];
       ++i) {
    std::memcpy(payload.pieces[i].data(), bytes.data() + at, payload.pieces[i].size());
    at += payload.pieces[i].size();
  }
  return {};
}

void EndAll(const Payload& payload, const PayloadCarrier::Ended& ended, const Status& status) {
  for (std::size_t i = 0; i < payload.ends.size(); ++i) ended(i, status);
}

}  // namespace

void InProcessCarrier::SetWay(Way way) {
  const std::lock_guard lock(mutex_);
  way_ = way;
}

PayloadPlace InProcessCarrier::Receive(NodeRank, const Payload& payload, Ended ended) {
  const std::lock_guard lock(mutex_);
  posted_[++last_tag_] = {.payload = payload, .ended = std::move(ended)};
  return {.tag = last_tag_};
}

void InProcessCarrier::Cancel(std::uint32_t tag) {
  Posted cancelled;
  {
    const std::lock_guard lock(mutex_);
    const auto found = posted_.find(tag);
    if (found == posted_.end() || found->second.is_matched) return;
    cancelled = std::move(found->second);
    posted_.erase(found);
    cancelled_messages_ += cancelled.payload.ends.size();
  }
  EndAll(cancelled.payload, cancelled.ended, Error(ErrorCode::kCancelled, "cancelled"));
}

void InProcessCarrier::Send(NodeRank, const PayloadPlace& place, const Payload& payload,
                            Ended ended) {
  Sent sent{.tag = place.tag, .payload = payload, .ended = std::move(ended)};
  Way way;
  {
    const std::lock_guard lock(mutex_);
    way = way_;
    if (way == Way::kHold || way == Way::kHoldMatched) {
      if (way == Way::kHoldMatched) posted_.at(place.tag).is_matched = true;
      held_.push_back(std::move(sent));
      return;
    }
  }
  Deliver(sent, way);
}

void InProcessCarrier::Release(Way way) {
  std::vector<Sent> held;
  {
    const std::lock_guard lock(mutex_);
    held.swap(held_);
    way_ = Way::kDeliver;
  }
  for (const Sent& sent : held) Deliver(sent, way);
}

void InProcessCarrier::Deliver(const Sent& sent, Way way) {
  Posted posted;
  {
    const std::lock_guard lock(mutex_);
    const auto found = posted_.find(sent.tag);
    if (found == posted_.end()) {
      ++thrown_away_;
    } else {
      posted = std::move(found->second);
      posted_.erase(found);
    }
  }
  for (std::size_t i = 0; i < posted.payload.ends.size(); ++i) {
    if (way == Way::kFail) {
      posted.ended(i, Error(ErrorCode::kUnavailable, "the carrier has failed"));
      continue;
    }
    std::string bytes = BytesOfMessage(sent.payload, i);
    if (way == Way::kFlipBit && i == 0) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    const Status written = Write(bytes, posted.payload, i);
    {
      const std::lock_guard lock(mutex_);
      delivered_bytes_ += bytes.size();
    }
    posted.ended(i, written);
  }
  EndAll(sent.payload, sent.ended, {});
}

std::uint64_t InProcessCarrier::delivered_bytes() const {
  const std::lock_guard lock(mutex_);
  return delivered_bytes_;
}

std::uint64_t InProcessCarrier::cancelled_messages() const {
  const std::lock_guard lock(mutex_);
  return cancelled_messages_;
}

std::uint64_t InProcessCarrier::thrown_away() const {
  const std::lock_guard lock(mutex_);
  return thrown_away_;
}

std::size_t InProcessCarrier::held() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

}  // namespace forebay::peer
