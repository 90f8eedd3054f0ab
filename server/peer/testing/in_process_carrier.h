// InProcessCarrier: a PayloadCarrier between nodes of one process, which copies a payload when it
// is sent. A test can hold payloads back, before or after they have met their receive, alter them,
// or have them fail. Part of forebay::peer_testing.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "server/peer/payload_carrier.h"

namespace forebay::peer {

class InProcessCarrier final : public PayloadCarrier {
 public:
  enum class Way : std::uint8_t {
    kDeliver,
    kHold,         // until Release; a cancel ends the receive
    kHoldMatched,  // until Release; a cancel comes too late
    kFlipBit,      // in the last byte of the first message
    kFail,         // the receive ends with kUnavailable
  };
  void SetWay(Way way);
  // Delivers what was held back, or throws it away if its receive has gone. Nothing is held from
  // now on.
  void Release(Way way = Way::kDeliver);

  // What has happened so far.
  std::uint64_t delivered_bytes() const;
  std::uint64_t cancelled_messages() const;
  std::uint64_t thrown_away() const;  // payloads
  std::size_t held() const;           // payloads

  PayloadPlace Receive(NodeRank node, const Payload& payload, Ended ended) override;
  void Cancel(std::uint32_t tag) override;
  void Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
            Ended ended) override;
  bool CanSend(NodeRank, const PayloadPlace& place) override { return place.tag != 0; }

 private:
  struct Posted {
    Payload payload;
    Ended ended;
    bool is_matched = false;
  };
  struct Sent {
    std::uint32_t tag = 0;
    Payload payload;
    Ended ended;
  };
  void Deliver(const Sent& sent, Way way);

  mutable std::mutex mutex_;
  Way way_ = Way::kDeliver;
  std::uint32_t last_tag_ = 0;
  std::map<std::uint32_t, Posted> posted_;
  std::vector<Sent> held_;
  std::uint64_t delivered_bytes_ = 0;
  std::uint64_t cancelled_messages_ = 0;
  std::uint64_t thrown_away_ = 0;
};

}  // namespace forebay::peer
