// FakeDaemon: a daemon in the test's own process, which may be told to misbehave.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/testing/fake_faults.h"
#include "proto/contract/thread_annotations.h"
#include "proto/contract/unique_fd.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace forebay::testing {

class FakeDataService;
class FakeDataset;
class FakeSlots;

struct FakeDaemonOptions {
  std::uint64_t samples = 1000;
  std::uint64_t image_bytes = 100;
  std::uint64_t slot_bytes = 1 << 20;
  std::uint32_t slots = 64;
  std::string job_id = "job-1";
  grpc::Service* admin = nullptr;  // borrowed; served beside the data service
  std::string socket_path = {};    // empty: in a temporary folder of its own
  // Also serves clients of other nodes, over TCP, with the certificates of fake_certificates.h.
  bool is_other_node = false;
};

// Listens on its socket until destroyed. Stop and Start stand
// for a crash and a restart: connections break without a goodbye, and the next generation has
// other memory.
class FakeDaemon {
 public:
  explicit FakeDaemon(FakeDaemonOptions options = {});
  ~FakeDaemon();

  FakeFaults faults;
  FakeCounters counters;

  void Start();
  void Stop();
  // Ends all connections, without a goodbye; the daemon goes on.
  void CutConnections();
  // Streams that are open, or have batches that are kept for them.
  std::size_t reader_count() const;
  std::string address() const { return "unix:" + path_; }
  // "HOST:PORT" for clients of other nodes.
  std::string node_address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Clients of this daemon are told that these serve them when it is gone; before it has clients.
  void NameOtherNodes(const std::vector<std::string>& addresses, const char* certificate);
  // The temporary folder; empty where the socket has a path of its own.
  const std::string& folder() const { return folder_; }
  FakeDataset& dataset() { return *dataset_; }

 private:
  void Listen();
  void Serve(UniqueFd socket);
  bool ShakeHands(const UniqueFd& socket);
  bool SendRegions(const UniqueFd& socket);

  FakeDaemonOptions options_;
  std::string folder_;
  std::string path_;
  int port_ = 0;
  std::uint64_t generation_ = 100;
  std::unique_ptr<FakeDataset> dataset_;
  std::unique_ptr<FakeSlots> slots_;
  std::unique_ptr<FakeDataService> service_;
  std::unique_ptr<grpc::Server> server_;
  UniqueFd listener_;
  UniqueFd wake_;
  std::vector<UniqueFd> stalled_;
  Mutex serving_mutex_;
  // Duplicates, to cut connections with.
  std::vector<UniqueFd> serving_ FOREBAY_GUARDED_BY(serving_mutex_);
  std::jthread acceptor_;
};

}  // namespace forebay::testing
