// The contents of short messages between nodes (peer.proto): what a node says of itself when it is
// pinged (PingReply), what it answers when another one leaves (LeaveReply), and what is asked and
// answered when another one joins (JoinRequest, JoinReply).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/contract/ids.h"
#include "server/peer/peer_identity.h"

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
  bool is_joining = false;           // likewise, because it has joined the job just now
  bool has_finished = false;         // its readers have ended; it stays for those of other nodes
};

struct LeaveAnswer {
  bool has_taken_over = false;
  bool has_left_out = false;
  bool operator==(const LeaveAnswer&) const = default;
};

// A node joins the job. What is in node files is not known here (server/rendezvous).
struct JoinAsked {
  PeerIdentity node = {};             // that joins; GrpcPeers::Join sets it
  std::vector<std::byte> entry = {};  // a node file with its entry; 1 byte to 64 KiB
  bool takes_place = false;           // it takes the place that the entry names
  std::uint32_t first = 0;            // otherwise: the rank of the first node that it asks for
};

// All of it is empty for a node that takes a place.
struct JoinAnswer {
  std::vector<std::byte> nodes = {};  // a node file with places of the job
  std::uint32_t node_count = 0;       // of all places
  std::vector<NodeRank> free = {};    // those in `nodes` that may be taken, in rising order
  bool operator==(const JoinAnswer&) const = default;
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
