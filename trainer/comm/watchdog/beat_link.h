// Heartbeats between processes: records of one size over TCP, apart from the transport that the
// main thread uses. When a process dies, the kernel closes its connections at once.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

// Meanings of Beat::last.
inline constexpr std::uint8_t kLastOfRank = 1;  // it has done its work
inline constexpr std::uint8_t kLastOfJob = 2;   // it ends the job, and has said why

// A heartbeat. It is sent as it lies in memory, because the processes of a job run on one kind of
// machine.
struct Beat {
  std::uint64_t job = 0;  // the same on all ranks; a stranger does not know it
  std::uint64_t changes = 0;
  std::uint32_t rank = 0;
  std::uint8_t waits = 0;
  std::uint8_t last = 0;  // kLastOfRank, kLastOfJob
  std::array<char, 60> host = {};   // texts end in a zero, shortened where need be
  std::array<char, 176> text = {};
};

void SetText(std::span<char> room, const std::string& text);
std::string TextOf(std::span<const char> room);

// One end of a connection. Nothing here waits.
class BeatConnection {
 public:
  explicit BeatConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // Sends a heartbeat, or drops it if the peer does not read. Returns false if the connection is
  // closed.
  bool Send(const Beat& beat);
  // Appends the heartbeats that have arrived to `beats`. Returns false if the connection is closed.
  bool Receive(std::vector<Beat>& beats);

 private:
  bool Flush();

  UniqueFd fd_;
  std::vector<std::byte> unsent_;  // the rest of a beat
  std::vector<std::byte> partial_;  // the beginning of one
};

// The address of rank 0, which all ranks get before they connect.
struct MeetingPoint {
  std::uint64_t job = 0;
  std::uint32_t count = 0;
  in_port_t port = 0;                      // network order, as the addresses
  std::array<in_addr, 8> addresses = {};   // of its interfaces, but loopback
  std::array<char, 60> host = {};
};

std::string HostName();

// Listens on a free port of all interfaces, and fills in addresses, port and host of `point`.
Result<UniqueFd> ListenForBeats(MeetingPoint& point);
// Accepts a connection; returns an invalid descriptor if there is none.
UniqueFd AcceptBeats(int listener);
// Tries the addresses one by one, loopback first if it is this host, with `timeout_ms` for each.
// kUnavailable names all of them.
Result<UniqueFd> ConnectBeats(const MeetingPoint& point, int timeout_ms);

}  // namespace forebay::train
