// Both ends of a connection between nodes get the same limits here, because a limit that only one
// end has is found out by the other one as a broken connection. The limits that protect the daemon
// from hostile messages are applied in one place, so that its two servers cannot differ in them.
#include "server/peer/channel_settings.h"

#include <algorithm>
#include <string>

#include <grpc/support/time.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

// The default of 16 KiB takes a frame header, and a slice of its own on both sides, for each 16 KiB
// of payload.
constexpr int kFrameBytes = 1 << 20;
// gRPC reads from the socket into memory of this size, which its slices point into.
constexpr int kReadBytes = 1 << 20;
// A node that was down is tried again this often, whatever the number of attempts before. gRPC
// takes no smaller values for the first one.
constexpr int kReconnectMsMin = 100;
constexpr int kReconnectMsMax = 2'000;
// gRPC sends a call once more if its connection was lost before anything was received, or could not
// be made. After that the caller (RowRouter, ExtentSupplier) decides which node is asked. The pause
// is long enough for gRPC to notice everywhere that the old connection is gone, and longer than
// kReconnectMsMin with all that gRPC adds at random. So after a first failed connection the second
// attempt makes another one: gRPC 1.51 may report a connection as failed that is just being made,
// because it looks at errno after calls that change it (mended in later versions).
constexpr char kSecondAttempt[] = R"({
  "methodConfig": [{
    "name": [{"service": "forebay.v1.Peer"}],
    "retryPolicy": {
      "maxAttempts": 2,
      "initialBackoff": "0.2s",
      "maxBackoff": "0.2s",
      "backoffMultiplier": 1,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
})";

// The details of the status of a call that was refused because the node is too busy (peer.proto).
// gRPC itself uses the same code for messages that are too long, and nodes for a lack of memory.
constexpr char kTooBusy[] = "too busy";
// Likewise, if the node yields.
constexpr char kAskNext[] = "ask the next node";
constexpr char kWaitsKey[] = "forebay-waits";

}  // namespace

void ApplyLimits(const ServerLimits& server, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(server.message_bytes_max);
  builder.SetMaxSendMessageSize(server.message_bytes_max);
  // gRPC inflates a message before it checks its size, so compression is off (docs/design.md, 8).
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits::kRpcMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             limits::kRpcStreamsPerConnectionMax);
  // gRPC 1.51 receives a whole message before it compares its size with the limit above (a message
  // of 512 MiB took the daemon to 561 MiB), so only the quota bounds the memory of all connections
  // together.
  grpc::ResourceQuota quota(server.name);
  quota.Resize(limits::kRpcMemoryBytesMax);
  if (server.threads_max > 0) quota.SetMaxThreads(server.threads_max);
  builder.SetResourceQuota(quota);
}

grpc::ChannelArguments ChannelSettings() {
  grpc::ChannelArguments settings;
  settings.SetMaxReceiveMessageSize(limits::kPeerMessageBytesMax);
  settings.SetMaxSendMessageSize(limits::kPeerMessageBytesMax);
  // gRPC inflates a message before it checks its size (docs/design.md, 8).
  settings.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  settings.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  settings.SetInt(GRPC_ARG_MAX_METADATA_SIZE, limits::kRpcMetadataBytesMax);
  settings.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  settings.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytes);
  settings.SetInt(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, kReadBytes);
  settings.SetInt(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 * kReadBytes);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, limits::kPeerKeepaliveMs);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, limits::kPeerKeepaliveTimeoutMs);
  // A call that waits for a cold extent sends nothing, and is watched all the same.
  settings.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // In a large job each node probes every other one in turn. A connection that is used for nothing
  // else is closed long before its turn comes again.
  settings.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, limits::kPeerIdleMs);
  settings.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMsMin);
  settings.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, limits::kHandshakeDeadlineMs);
  settings.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  settings.SetServiceConfigJSON(kSecondAttempt);
  settings.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A site's proxy for the web must not be asked to connect two nodes.
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A connection belongs to its channel and to no other one of this process.
  settings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return settings;
}

std::shared_ptr<grpc::Channel> ConnectionTo(const std::string& address,
                                            const NodeCertificates& certificates) {
  grpc::ChannelArguments settings = ChannelSettings();
  if (certificates.empty()) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), settings);
  }
  // Addresses are numbers, and a node that comes back may have another one.
  settings.SetSslTargetNameOverride(kCertifiedName);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = certificates.authority;
  options.pem_cert_chain = certificates.node;
  options.pem_private_key = certificates.key;
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options), settings);
}

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const NodeCertificates& certificates) {
  if (certificates.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = certificates.authority;
  options.pem_key_cert_pairs = {
      {.private_key = certificates.key, .cert_chain = certificates.node}};
  return grpc::SslServerCredentials(options);
}

void ApplySettings(grpc::ServerBuilder& builder) {
  // No bound for threads: the calls of other nodes are answered without one.
  ApplyLimits({.name = "forebay peers", .message_bytes_max = limits::kPeerMessageBytesMax},
              builder);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, limits::kPeerKeepaliveMs);
  // Strangers must not hold connections for the two minutes that gRPC allows.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, limits::kHandshakeDeadlineMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, limits::kPeerKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The other end pings as often as this one. gRPC would take that for an attack.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             limits::kPeerKeepaliveMs / 2);
  // Two daemons on one port would share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::string ErrorTextFor(const Error& error) {
  std::string text = error.message().substr(0, limits::kPeerErrorBytesMax);
  text.resize(text.size() - UnfinishedBytes(text));
  return text;
}

grpc::Status ToGrpcStatus(const Error& error) {
  const std::string text = ErrorTextFor(error);
  // The other end takes UNKNOWN for a lost connection.
  if (error.code() == ErrorCode::kUnknown) return {grpc::StatusCode::INTERNAL, text};
  if (stage::IsTooBusy(error)) return {grpc::StatusCode::RESOURCE_EXHAUSTED, text, kTooBusy};
  if (stage::IsAskNext(error)) return {grpc::StatusCode::ABORTED, text, kAskNext};
  // ErrorCode has gRPC's numbers.
  return {static_cast<grpc::StatusCode>(error.code()), text};
}

Error FromGrpcStatus(const grpc::Status& status, std::string_view node) {
  // The text may come from the other node, or from gRPC.
  const std::string text =
      fmt::format("node {}: {}", node,
                  PrintableLine(status.error_message().substr(0, limits::kPeerErrorBytesMax)));
  switch (status.error_code()) {
    // Nodes never send these two: gRPC says so when a connection ends in the middle of a call.
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
      return Error(ErrorCode::kUnavailable, text);
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (status.error_details() == kTooBusy) return stage::TooBusy(text);
      break;
    case grpc::StatusCode::ABORTED:
      if (status.error_details() == kAskNext) return stage::AskNext(text);
      break;
    default:
      break;
  }
  const int code = status.error_code();
  const bool is_known = code > 0 && code <= static_cast<int>(ErrorCode::kUnauthenticated);
  return Error(is_known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal, text);
}

void AddThatItWaits(grpc::CallbackServerContext& context) {
  context.AddInitialMetadata(kWaitsKey, "1");
}

bool SaysThatItWaits(const grpc::ClientContext& context) {
  return context.GetServerInitialMetadata().contains(kWaitsKey);
}

gpr_timespec GrpcDeadline(std::int64_t deadline_ns, const io::Clock& clock) {
  const std::int64_t left_ns = std::max<std::int64_t>(0, deadline_ns - clock.NowNs());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left_ns, GPR_TIMESPAN));
}

}  // namespace forebay::peer
