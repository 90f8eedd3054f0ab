// DaemonConnection: one gRPC channel to a daemon. To that of this node: one handshake, and the
// daemon's memory. To that of another node, while this node's is gone: encrypted, over TCP, without
// shared memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "client/connection/handshake.h"
#include "client/connection/interrupt.h"
#include "client/connection/page_populator.h"
#include "client/connection/region_map.h"
#include "forebay/v1/data.pb.h"
#include "proto/contract/result.h"

namespace forebay::internal {

struct ConnectionOptions {
  std::string address;         // "unix:/path"
  std::string job_id;          // empty: any
  std::string client_name;
  std::string config_text = {};  // what the daemon is to serve; empty: whatever it does
  bool shared_memory = true;
  bool may_leave = false;  // this program goes to another node if the daemon does not answer
  Deadline deadline;
  Interrupt* interrupt = nullptr;  // ends the waiting with an error; null: nothing does
};

// Thread-safe after Open. The last owner must not let go of it on one of gRPC's threads: the
// channel's destructor joins them.
class DaemonConnection {
 public:
  // Handshake and Hello. Errors as Client::Connect.
  static Result<std::shared_ptr<const DaemonConnection>> Open(const ConnectionOptions& options);
  // To the daemon of another node, at `address`, one of `others`. It may be used after Greet.
  static std::shared_ptr<DaemonConnection> ToOther(const v1::RemoteDaemons& others,
                                                   const std::string& address);
  // Connects it and says Hello; options.address is not used. May be called again after
  // kDeadlineExceeded, and then goes on with the connection that is being made. kUnavailable: the
  // node does not answer, or does not accept the certificate.
  Status Greet(const ConnectionOptions& options);

  // Whether the daemon has this catalog of the data set; false if it does not say so in time.
  bool HasCatalog(const std::string& dataset, std::uint64_t fingerprint, Deadline deadline,
                  Interrupt* interrupt) const;

  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::shared_ptr<const RegionMap>& regions() const { return regions_; }
  PagePopulator& populator() const { return *populator_; }
  const std::vector<std::string>& datasets() const { return datasets_; }
  const std::string& job_id() const { return job_id_; }
  std::uint64_t generation() const { return generation_; }
  // Whether the daemon is that of another node. Then there are no regions.
  bool is_other_node() const { return is_other_node_; }
  // As the daemon of this node has named them.
  const v1::RemoteDaemons& remote_daemons() const { return remote_daemons_; }

 private:
  DaemonConnection() = default;
  Status SayHello(const ConnectionOptions& options, std::uint64_t session);

  std::shared_ptr<const RegionMap> regions_;
  std::unique_ptr<PagePopulator> populator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string address_;
  std::vector<std::string> datasets_;
  std::string job_id_;
  std::uint64_t generation_ = 0;
  bool is_other_node_ = false;
  v1::RemoteDaemons remote_daemons_;
};

}  // namespace forebay::internal
