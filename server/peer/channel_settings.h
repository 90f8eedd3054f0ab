// Settings of gRPC: the limits of both servers of the daemon, what both ends of a connection
// between nodes have besides, and errors as they travel. The limits come from
// proto/contract/limits.h (docs/design.md, P6).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/time.h>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/peer/job_certificates.h"

namespace forebay::peer {

// What the gRPC servers of the daemon, for clients and for other nodes, have in common.
struct ServerLimits {
  const char* name = "";      // of the quota that bounds memory and threads
  int message_bytes_max = 0;  // in both directions
  int threads_max = 0;        // for calls that occupy a thread; 0: no bound
};
void ApplyLimits(const ServerLimits& server, grpc::ServerBuilder& builder);

// Both ends of a connection between nodes. ApplySettings includes ApplyLimits. With certificates,
// the connection is encrypted (TLS), and each end must have one that the job's authority has
// signed.
grpc::ChannelArguments ChannelSettings();
std::shared_ptr<grpc::Channel> ConnectionTo(const std::string& address,
                                            const NodeCertificates& certificates);
void ApplySettings(grpc::ServerBuilder& builder);
std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const NodeCertificates& certificates);

// The text of an error as it goes to another node: cut to limits::kPeerErrorBytesMax.
std::string ErrorTextFor(const Error& error);
// `error` is one for other nodes (stage::ErrorForOthers), or says that this node is too busy
// (stage::TooBusy). Its text is that of ErrorTextFor.
grpc::Status ToGrpcStatus(const Error& error);
// Returns the error of a call to `node`. It is kUnavailable or kDeadlineExceeded only if the node
// did not answer (stage::IsNoAnswer), and stage::TooBusy only if the node has said so. It is never
// stage::NotSent, because the call was sent.
Error FromGrpcStatus(const grpc::Status& status, std::string_view node);

// The metadata that a node sends before its answer if it has to wait for the GFS or for memory, so
// that the node that asks does not take it for a slow one (LinkWatch).
void AddThatItWaits(grpc::CallbackServerContext& context);
bool SaysThatItWaits(const grpc::ClientContext& context);

// A deadline by io::Clock as gRPC wants it.
gpr_timespec GrpcDeadline(std::int64_t deadline_ns, const io::Clock& clock);

}  // namespace forebay::peer
