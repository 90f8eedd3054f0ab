// OwnedPayload and Outcomes: what tests of a PayloadCarrier send and receive, and how it ended.
// Header-only, because the test of the MPI module is a program of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <future>
#include <span>
#include <vector>

#include "server/peer/payload_carrier.h"

namespace forebay::peer {

// A payload with memory of its own: messages of the given lengths, each cut into pieces. The bytes
// depend on the seed.
struct OwnedPayload {
  OwnedPayload(const std::vector<std::size_t>& lengths, std::size_t piece_bytes, int seed) {
    std::size_t bytes = 0;
    for (const std::size_t length : lengths) bytes += length;
    memory.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      memory[i] = static_cast<std::byte>((i * 31 + i / 251) * static_cast<std::size_t>(seed));
    }
    std::size_t at = 0;
    for (const std::size_t length : lengths) {
      for (std::size_t left = length; left > 0;) {
        const std::size_t piece = std::min(left, piece_bytes);
        payload.pieces.push_back(std::span(memory).subspan(at, piece));
        at += piece;
        left -= piece;
      }
      payload.ends.push_back(payload.pieces.size());
    }
  }
  std::vector<std::byte> memory;
  Payload payload;
};

// Collects the outcomes of the messages of a payload.
class Outcomes {
 public:
  explicit Outcomes(std::size_t messages) : outcomes_(messages) {}
  PayloadCarrier::Ended Ended() {
    return [this](std::size_t message, const Status& status) {
      outcomes_[message].set_value(status);
    };
  }
  // Blocks until the message has ended. Once for each message.
  Status Await(std::size_t message = 0) { return outcomes_[message].get_future().get(); }

 private:
  std::vector<std::promise<Status>> outcomes_;
};

}  // namespace forebay::peer
