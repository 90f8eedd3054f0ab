// The admin service over gRPC. Each call makes a request from plain values, gives it a deadline,
// and turns the answer and gRPC's status into ours. Staging and verifying are streams of messages:
// they may take hours, so their deadlines are long, and a daemon that dies is noticed by the
// connection's keepalive.
#include "client/cli/daemon/admin_link.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include <grpcpp/client_context.h>

#include "client/cli/command_context.h"
#include "client/connection/daemon_connection.h"
#include "client/connection/rpc_status.h"
#include "forebay/v1/admin.grpc.pb.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

using std::chrono::milliseconds;

// gRPC wants a deadline for each call. These are beyond what staging and verifying take, so that
// only a call that will never end meets them.
constexpr std::chrono::hours kStageDeadline(7 * 24);
constexpr std::chrono::hours kVerifyDeadline(24);
// The daemon answers within PingForStatus's time for all nodes. How many there are is not known
// here; a daemon that does not answer at all is noticed by the connection's keepalive.
constexpr milliseconds kNodesDeadline(limits::kCallDeadlineMs + limits::kNodesStatusMs +
                                      limits::kNodesStatusMsPerNode *
                                          std::int64_t{limits::kNodeCountMax});

void SetDeadline(grpc::ClientContext& call, milliseconds timeout) {
  // gRPC takes the system's clock here; all other deadlines of the client are of the steady clock.
  call.set_deadline(std::chrono::system_clock::now() + timeout);
}

}  // namespace

// The generated code stays in this file: including it in each command took long to compile.
struct AdminLink::Channel {
  std::shared_ptr<const internal::DaemonConnection> connection;
  std::unique_ptr<v1::Admin::Stub> stub;
};

AdminLink::AdminLink(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
AdminLink::AdminLink(AdminLink&&) noexcept = default;
AdminLink& AdminLink::operator=(AdminLink&&) noexcept = default;
AdminLink::~AdminLink() = default;

Result<AdminLink> AdminLink::Connect(const CommandContext& context) {
  // Counted from here, so that the time to look for the daemon's address is part of it.
  const auto deadline =
      std::chrono::steady_clock::now() + milliseconds(context.connect_timeout_ms);
  FOREBAY_ASSIGN(const std::string address, DaemonAddress(context));
  auto channel = std::make_unique<Channel>();
  FOREBAY_ASSIGN(channel->connection,
                 internal::DaemonConnection::Open({.address = address,
                                                   // No job is claimed: the command may ask the
                                                   // daemon of any job of this user.
                                                   .job_id = {},
                                                   .client_name = "forebay-cli",
                                                   // The admin service sends no samples, so that
                                                   // mapping the daemon's memory would be for
                                                   // nothing.
                                                   .shared_memory = false,
                                                   .deadline = deadline}));
  channel->stub = v1::Admin::NewStub(channel->connection->channel());
  return AdminLink(std::move(channel));
}

Status AdminLink::AskStatus(v1::StatusReply& reply) const {
  grpc::ClientContext call;
  SetDeadline(call, milliseconds(limits::kCallDeadlineMs));
  return internal::StatusFromRpc(channel_->stub->Status(&call, v1::StatusRequest(), &reply));
}

Status AdminLink::AskNodes(v1::NodesReply& reply) const {
  grpc::ClientContext call;
  SetDeadline(call, kNodesDeadline);
  return internal::StatusFromRpc(channel_->stub->Nodes(&call, v1::NodesRequest(), &reply));
}

Status AdminLink::Stage(const StageCall& wanted,
                        const std::function<void(const v1::StageProgress&)>& report) const {
  grpc::ClientContext call;
  SetDeadline(call, kStageDeadline);
  v1::StageRequest request;
  for (const std::string& name : wanted.datasets) request.add_datasets(name);
  request.set_wait(wanted.wait);
  // Passed on as it is: what "rebuild" drops and reads again is the daemon's decision.
  request.set_rebuild(wanted.rebuild);
  const auto reader = channel_->stub->Stage(&call, request);
  // Read ends with the stream, in whatever way; Finish says which.
  for (v1::StageProgress progress; reader->Read(&progress);) report(progress);
  return internal::StatusFromRpc(reader->Finish());
}

Status AdminLink::Verify(const std::vector<std::string>& datasets,
                         const std::function<void(const VerifyEvent&)>& report) const {
  grpc::ClientContext call;
  SetDeadline(call, kVerifyDeadline);
  v1::VerifyRequest request;
  for (const std::string& name : datasets) request.add_datasets(name);
  const auto reader = channel_->stub->Verify(&call, request);
  for (v1::VerifyProgress progress; reader->Read(&progress);) {
    report({.done = progress.done(),
            .extents_total = progress.extents_total(),
            .extents_done = progress.extents_done(),
            .bytes_done = progress.bytes_done(),
            .extents_bad = progress.extents_bad(),
            .errors = {progress.errors().begin(), progress.errors().end()}});
  }
  return internal::StatusFromRpc(reader->Finish());
}

Result<Evicted> AdminLink::Evict(const EvictCall& wanted) const {
  grpc::ClientContext call;
  SetDeadline(call, milliseconds(limits::kCallDeadlineMs));
  v1::EvictRequest request;
  request.set_dataset(wanted.dataset);
  request.set_tier(wanted.tier);
  v1::EvictReply reply;
  FOREBAY_TRY(internal::StatusFromRpc(channel_->stub->Evict(&call, request, &reply)));
  return Evicted{.extents = reply.extents(), .bytes = reply.bytes()};
}

Status AdminLink::Drain(const DrainCall& wanted) const {
  grpc::ClientContext call;
  SetDeadline(call, milliseconds(limits::kDrainDeadlineMs));
  v1::DrainRequest request;
  request.set_after_all(wanted.after_all);
  request.set_node(wanted.node);
  request.set_hand_over_s(wanted.hand_over_s);
  v1::DrainReply reply;
  return internal::StatusFromRpc(channel_->stub->Drain(&call, request, &reply));
}

Result<std::vector<std::uint64_t>> AdminLink::Resolve(const ResolveCall& wanted) const {
  grpc::ClientContext call;
  SetDeadline(call, milliseconds(limits::kCallDeadlineMs));
  v1::ResolveRequest request;
  request.set_dataset(wanted.dataset);
  request.set_selection(wanted.selection);
  request.set_first_index(wanted.first_index);
  request.set_count(wanted.count);
  v1::ResolveReply reply;
  FOREBAY_TRY(internal::StatusFromRpc(channel_->stub->ResolveSelection(&call, request, &reply)));
  return std::vector<std::uint64_t>(reply.sample_ids().begin(), reply.sample_ids().end());
}

}  // namespace forebay::cli
