// One connection: the handshake on the socket, then gRPC on the same socket, then Hello, in which
// both sides compare their versions. To another node, certificates take the place of the handshake.
// The channel neither compresses nor retries: batches are in shared memory, and asking again is the
// stream's business, which knows what it has received.
#include "client/connection/daemon_connection.h"

#include <fcntl.h>

#include <cerrno>
#include <initializer_list>
#include <utility>

#include <grpc/compression.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "client/connection/rpc_status.h"
#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"

namespace forebay::internal {
namespace {

// A daemon that was killed closes the socket, which is noticed at once. These times are for one
// that hangs: after at most their sum every call on the connection ends with an error.
struct Keepalive {
  int period_ms = 0;
  int answer_ms = 0;
};
constexpr Keepalive kHome = {limits::kClientKeepaliveMs, limits::kClientKeepaliveTimeoutMs};
constexpr Keepalive kLoneHome = {limits::kLoneClientKeepaliveMs,
                                 limits::kLoneClientKeepaliveTimeoutMs};
// Batches may fill a slow link for longer than a Unix socket.
constexpr Keepalive kOtherNode = {limits::kPeerKeepaliveMs, limits::kPeerKeepaliveTimeoutMs};

grpc::ChannelArguments ChannelSettings(const Keepalive& keepalive) {
  grpc::ChannelArguments settings;
  // gRPC inflates a message before it checks its size (docs/design.md, 8), so no compression is
  // allowed. The switch for decompression per message would drop messages and still report OK.
  settings.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  settings.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  settings.SetMaxReceiveMessageSize(limits::kRpcMessageBytesMax);
  settings.SetMaxSendMessageSize(limits::kRpcMessageBytesMax);
  settings.SetInt(GRPC_ARG_MAX_METADATA_SIZE, limits::kRpcMetadataBytesMax);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.period_ms);
  settings.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.answer_ms);
  // A stream that waits for the GFS sends nothing for a while, and is watched all the same.
  settings.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  settings.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // retries are by name, in this library
  return settings;
}

// gRPC takes deadlines of the system clock; only the time that is left is carried over.
void SetDeadline(grpc::ClientContext& context, Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
}

struct VersionPair {
  const char* name;
  std::uint32_t here;
  std::uint32_t there;
};

Status CheckVersions(std::initializer_list<VersionPair> versions) {
  for (const VersionPair& version : versions) {
    if (version.here == version.there) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 std::string(version.name) + " version " + std::to_string(version.here) +
                     " of this client, version " + std::to_string(version.there) +
                     " of the daemon: use a client and a daemon of one release");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const DaemonConnection>> DaemonConnection::Open(
    const ConnectionOptions& options) {
  FOREBAY_ASSIGN(std::string path, ParseUnixAddress(options.address));
  FOREBAY_ASSIGN(Handshake shaken, ShakeHands({.path = std::move(path),
                                               .shared_memory = options.shared_memory,
                                               .deadline = options.deadline,
                                               .interrupt_fd = options.interrupt == nullptr
                                                                   ? -1
                                                                   : options.interrupt->fd()}));
  std::shared_ptr<DaemonConnection> connection(new DaemonConnection());
  connection->regions_ = std::move(shaken.regions);
  connection->populator_ = std::make_unique<PagePopulator>(connection->regions_);
  connection->generation_ = shaken.generation;
  // gRPC owns the descriptor from here on. It cannot connect again by itself, having no address: a
  // new connection needs the handshake anyway. The word is the authority, which nobody resolves.
  const bool may_leave = shaken.others_serve && options.may_leave;
  connection->channel_ = grpc::CreateCustomInsecureChannelFromFd(
      "forebayd", shaken.socket.Release(), ChannelSettings(may_leave ? kHome : kLoneHome));
  FOREBAY_TRY(connection->SayHello(options, shaken.session));
  return std::shared_ptr<const DaemonConnection>(std::move(connection));
}

std::shared_ptr<DaemonConnection> DaemonConnection::ToOther(const v1::RemoteDaemons& others,
                                                            const std::string& address) {
  std::shared_ptr<DaemonConnection> connection(new DaemonConnection());
  connection->is_other_node_ = true;
  connection->address_ = address;
  connection->regions_ = std::make_shared<const RegionMap>();
  connection->populator_ = std::make_unique<PagePopulator>(connection->regions_);
  grpc::ChannelArguments settings = ChannelSettings(kOtherNode);
  // Nodes have one name in all certificates: who has a certificate of the job is a node of it.
  settings.SetSslTargetNameOverride(others.certified_name());
  // A site's proxy for the web must not be asked, and no other channel shares the connection.
  settings.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  settings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  connection->channel_ = grpc::CreateCustomChannel(
      address,
      grpc::SslCredentials({.pem_root_certs = others.authority(),
                            .pem_private_key = others.key(),
                            .pem_cert_chain = others.certificate()}),
      settings);
  return connection;
}

Status DaemonConnection::Greet(const ConnectionOptions& options) {
  ConnectionOptions there = options;
  there.address = address_;
  const Status greeted = SayHello(there, /*session=*/0);
  return greeted ? Status() : greeted.error().WithContext("node " + address_);
}

bool DaemonConnection::HasCatalog(const std::string& dataset, std::uint64_t fingerprint,
                                  Deadline deadline, Interrupt* interrupt) const {
  grpc::ClientContext context;
  const Interrupt::Guarded guarded(interrupt, context);
  SetDeadline(context, deadline);
  v1::DescribeRequest request;
  request.set_dataset(dataset);
  v1::DescribeReply reply;
  const auto stub = v1::Data::NewStub(channel_);
  return stub->Describe(&context, request, &reply).ok() &&
         reply.catalog_fingerprint() == fingerprint;
}

Status DaemonConnection::SayHello(const ConnectionOptions& options, std::uint64_t session) {
  grpc::ClientContext context;
  const Interrupt::Guarded guarded(options.interrupt, context);
  SetDeadline(context, options.deadline);
  v1::HelloRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_layout_version(kLayoutVersion);
  request.set_order_version(kOrderSpecVersion);
  request.set_catalog_version(kCatalogVersion);
  request.set_job_id(options.job_id);
  // Shows the daemon that this channel began with a handshake: nothing else reaches its gRPC
  // server.
  request.set_session(session);
  request.set_client_name(options.client_name);
  // The daemon refuses a client whose configuration describes other data sets than it serves.
  request.set_config(options.config_text);
  v1::HelloReply reply;
  const std::unique_ptr<v1::Data::Stub> stub = v1::Data::NewStub(channel_);
  FOREBAY_TRY(StatusFromRpc(stub->Hello(&context, request, &reply)));
  FOREBAY_TRY(CheckVersions({{"protocol", kProtocolVersion, reply.protocol_version()},
                             {"layout", kLayoutVersion, reply.layout_version()},
                             {"order", kOrderSpecVersion, reply.order_version()},
                             {"catalog", kCatalogVersion, reply.catalog_version()}}));
  // Two jobs of a user may run on one node. Reading another job's daemon would work, and use memory
  // and GFS reads that are not this job's.
  if (!options.job_id.empty() && options.job_id != reply.job_id()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "this client belongs to job '" + options.job_id + "', the daemon at " +
                     options.address + " to job '" + reply.job_id() + "'");
  }
  // Regions carry the generation of the handshake. Another one here would mean that offsets refer
  // to memory that this process has not mapped.
  if (!is_other_node_ && reply.generation() != generation_) {
    return Error(ErrorCode::kDataLoss, "the daemon's generation changed during the handshake");
  }
  generation_ = reply.generation();
  if (reply.datasets_size() > static_cast<int>(limits::kDatasetCountMax)) {
    return Error(ErrorCode::kResourceExhausted, "the daemon names more data sets than "
                                                "kDatasetCountMax");
  }
  datasets_.assign(reply.datasets().begin(), reply.datasets().end());
  address_ = options.address;
  job_id_ = reply.job_id();
  remote_daemons_ = std::move(*reply.mutable_remote_daemons());
  return {};
}

}  // namespace forebay::internal
