// NodeAcceptor: accepts the connections of other nodes, and hands each to gRPC. gRPC has a listener
// of its own, which cannot be used: once no file could be opened any more when it accepted a
// connection, gRPC 1.51 never accepts another one, and the other nodes would take this one for dead
// until the end of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"
#include "server/peer/node_sockets.h"

namespace forebay::peer {

// Thread-safe, except for Start and Stop.
class NodeAcceptor {
 public:
  // Gets a connected socket that does not block.
  using HandOver = std::function<void(UniqueFd)>;

  // Listens at a numeric address; connections wait in the kernel's queue until Start. With port 0
  // the kernel chooses one. kUnavailable: the address is in use, or not one of this machine.
  static Result<std::unique_ptr<NodeAcceptor>> Listen(const std::string& host, std::uint16_t port);
  ~NodeAcceptor();

  // Calls `hand_over` for each connection from now on, on a thread of its own. To be called once.
  void Start(HandOver hand_over);
  // Accepts nothing more; later connections find nobody who listens. Connections that were handed
  // over stay. Idempotent.
  void Stop();

  std::uint16_t port() const { return listening_.port; }

 private:
  explicit NodeAcceptor(ListeningSocket listening) : listening_(std::move(listening)) {}
  void Run(const std::stop_token& stop);

  ListeningSocket listening_;
  HandOver hand_over_;
  Mutex mutex_;
  StoppableCondVar pause_;
  std::jthread thread_;
};

}  // namespace forebay::peer
