// Relay: stands between a client and the daemon, and can stop reading the daemon's socket while
// the client is healthy.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

#include "proto/contract/unique_fd.h"

namespace forebay::integration {

// Carries one connection, without passed descriptors: the client must not ask for shared memory.
class Relay {
 public:
  // Listens on `path`; connects to `daemon_path` once a client is there.
  Relay(std::string path, std::string daemon_path);
  ~Relay();

  const std::string& path() const { return path_; }
  // From now on nothing is read from the daemon. What the client says still gets through.
  void StopReading();
  // Ends the client's side of the daemon's connection, and that alone, as no gRPC client does.
  void HalfClose();
  // Of the daemon's bytes, those that wait in the socket.
  std::size_t UnreadBytes() const;

 private:
  void Run();

  const std::string path_;
  const std::string daemon_path_;
  UniqueFd listen_fd_;
  UniqueFd wake_fd_;
  std::atomic<int> daemon_fd_number_ = -1;  // of `daemon_`, for other threads
  std::atomic<bool> reading_ = true;
  std::atomic<bool> ending_ = false;
  std::jthread thread_;
};

}  // namespace forebay::integration
