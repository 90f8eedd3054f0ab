// The way to the daemon, of the commands that ask it for something.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/client_context.h>

#include "client/cli/command_context.h"
#include "client/connection/daemon_connection.h"
#include "forebay/v1/admin.grpc.pb.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// A connection with the admin service's stub.
struct AdminLink {
  std::shared_ptr<const internal::DaemonConnection> connection;
  std::unique_ptr<v1::Admin::Stub> stub;
};
// The daemon that is meant, as "unix:/path": the one given, else $FOREBAY_ADDRESS, else this job's.
// kInvalidArgument where several run for this job; they are named then.
Result<std::string> DaemonAddress(const CommandContext& context);
// To DaemonAddress, within context.connect_timeout_ms; errors as of DaemonConnection::Open.
Result<AdminLink> ConnectAdmin(const CommandContext& context);

// The call fails with kDeadlineExceeded where it takes longer than `timeout` from now on.
void SetDeadline(grpc::ClientContext& call, std::chrono::milliseconds timeout);

}  // namespace forebay::cli
