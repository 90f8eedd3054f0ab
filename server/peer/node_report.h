// What a node says of itself: when it is pinged (PingReply of peer.proto), and when another one
// leaves (LeaveReply).
#pragma once

#include <cstdint>

namespace forebay::peer {

struct NodeReport {
  std::uint64_t capacity_bytes = 0;  // of its tiers together
  std::uint64_t used_bytes = 0;
  std::uint64_t gfs_bytes = 0;
  std::uint64_t gfs_opens = 0;
  std::uint64_t samples = 0;         // delivered to its readers
  std::uint64_t other_samples = 0;   // of them, supplied by other nodes
  std::uint64_t waited_samples = 0;  // of them, in batches that waited for the GFS
  std::uint64_t gfs_call_us = 0;     // how long a call to the GFS takes lately; 0: nothing is known
  bool is_yielding = false;          // other nodes read the GFS in its place (plan::Membership)
  bool has_finished = false;         // its readers have ended; it stays for those of other nodes
};

struct LeaveAnswer {
  bool has_taken_over = false;
  bool has_left_out = false;
  bool operator==(const LeaveAnswer&) const = default;
};

// What a node has received from another one.
struct LinkFigures {
  std::uint64_t received_bytes = 0;  // of rows and extents
  std::uint64_t carried_bytes = 0;   // of them, by a PayloadCarrier, and so over MPI
  std::uint64_t calls = 0;           // that have ended, without pings and refused calls
  std::uint64_t failed = 0;          // of them, with an error
  // Answers whose bytes did not match their checksum. A call for rows that ends with such an error
  // has failed, too; an extent is compared after its call.
  std::uint64_t wrong = 0;
  std::uint64_t late = 0;            // requests that LinkWatch has ended, sent or not
  std::uint64_t busy_ns = 0;         // time during which at least one of them was under way
  std::uint64_t bound_bytes = 0;     // of rows that may be asked of it at a time, now (FlightBound)
};

}  // namespace forebay::peer
