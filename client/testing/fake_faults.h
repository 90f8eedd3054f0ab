// What a FakeDaemon does wrong, and what it saw.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"
#include "proto/contract/wire_layout.h"

namespace forebay::v1 {
class DescribeReply;
class HelloReply;
class OpenStream;
class Opened;
class StreamReply;
class Trailer;
}  // namespace forebay::v1

namespace forebay::testing {

// Set before the daemon starts, or before the call that they concern. Hooks change a message
// just before it is sent; what they change is not what the daemon believes it sent.
struct FakeFaults {
  std::function<void(ServerHello&)> server_hello;
  std::function<void(RegionEntry&)> region_entry;
  bool stall_handshake = false;      // accept, then say nothing
  std::atomic<bool> drop_handshake = false;  // hang up after the client's hello
  bool unsealed_regions = false;
  bool too_few_descriptors = false;
  std::function<void(v1::HelloReply&)> hello_reply;
  std::atomic<bool> cancel_hello = false;  // as a daemon does that shuts down
  std::function<void(v1::DescribeReply&)> describe_reply;
  std::function<std::optional<Error>(const OrderSpec&)> refuse_open;  // instead of `opened`
  std::function<void(const v1::OpenStream&)> open_seen;
  std::function<void(v1::Opened&)> opened;
  std::function<void(v1::StreamReply&)> reply;  // with batches, errors, chunks
  std::function<std::optional<Error>(std::uint64_t step)> refuse;  // said instead of a batch
  std::function<void(v1::Trailer&)> trailer;
  bool no_trailer = false;           // end the call with OK instead
  bool reverse_batches = false;      // answer each request's pulls last first
  std::uint64_t mute_after_batches = ~0ULL;  // answer no pulls beyond
};

// Counted by the daemon; read by tests.
struct FakeCounters {
  std::atomic<std::uint64_t> connections{0};
  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::uint64_t> pulls{0};
  std::atomic<std::uint64_t> batches{0};
  std::atomic<std::uint64_t> releases{0};
  std::atomic<std::uint64_t> held_max{0};        // batches of one call held at once
  std::atomic<std::uint64_t> bad_releases{0};    // of ids that are not held
  std::atomic<std::uint64_t> credit_breaches{0}; // pulls beyond the credits
  std::atomic<std::uint64_t> calls_ended{0};
  std::atomic<std::uint64_t> held_at_end{0};     // sum over ended calls
  std::atomic<std::uint32_t> end_epoch{0};       // as the last call that was opened has said
};

}  // namespace forebay::testing
