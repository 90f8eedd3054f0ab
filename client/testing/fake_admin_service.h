// FakeAdminService: answers every admin call with what the test has put in.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "forebay/v1/admin.pb.h"

namespace grpc {
class Service;
}

namespace forebay::testing {

// Set the replies before the daemon starts. Answers are sent as they are.
class FakeAdminService {
 public:
  FakeAdminService();
  ~FakeAdminService();

  // For FakeDaemonOptions::admin.
  grpc::Service* service();

  v1::StatusReply status;
  v1::NodesReply nodes;
  std::vector<v1::StageProgress> stage;
  std::vector<v1::VerifyProgress> verify;
  v1::EvictReply evict;
  std::vector<std::uint64_t> selected_ids;  // of every selection but "all"
  std::vector<std::string> known = {"fake"};
  // Seen.
  std::chrono::system_clock::time_point nodes_deadline;  // of the last call of Nodes
  v1::StageRequest stage_request;
  v1::EvictRequest evict_request;
  v1::DrainRequest drain_request;
  int drains = 0;
  int drains_after_all = 0;

 private:
  class Service;  // gRPC's side; its generated code is compiled in one source

  std::unique_ptr<Service> service_;
};

}  // namespace forebay::testing
