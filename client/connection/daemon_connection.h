// DaemonConnection: one handshake, one gRPC channel, the daemon's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "client/connection/handshake.h"
#include "client/connection/page_populator.h"
#include "client/connection/region_map.h"
#include "proto/contract/result.h"

namespace forebay::internal {

struct ConnectionOptions {
  std::string address;         // "unix:/path"
  std::string job_id;          // empty: any
  std::string client_name;
  std::string config_text = {};  // what the daemon is to serve; empty: whatever it does
  bool shared_memory = true;
  Deadline deadline;
};

// Thread-safe after Open. The last owner must not let go of it on one of gRPC's threads: the
// channel's destructor joins them.
class DaemonConnection {
 public:
  // Handshake and Hello. Errors as Client::Connect.
  static Result<std::shared_ptr<const DaemonConnection>> Open(const ConnectionOptions& options);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::shared_ptr<const RegionMap>& regions() const { return regions_; }
  PagePopulator& populator() const { return *populator_; }
  const std::vector<std::string>& datasets() const { return datasets_; }
  const std::string& job_id() const { return job_id_; }
  std::uint64_t generation() const { return generation_; }

 private:
  DaemonConnection() = default;
  Status SayHello(const ConnectionOptions& options, std::uint64_t session);

  std::shared_ptr<const RegionMap> regions_;
  std::unique_ptr<PagePopulator> populator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<std::string> datasets_;
  std::string job_id_;
  std::uint64_t generation_ = 0;
};

}  // namespace forebay::internal
