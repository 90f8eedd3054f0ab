// The gRPC service, with the callback API, so that no thread of gRPC waits: rows come from
// LocalRows, which calls back, and extents from threads of their own. Every request carries the
// digest of the identity that Hello compares, so that a node which was started again with other
// settings is refused without a Hello.
#include "server/peer/peer_server.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/peer/channel_settings.h"
#include "server/peer/chunk_buffers.h"
#include "server/peer/extent_answers.h"
#include "server/peer/message_memory.h"
#include "server/peer/peer_address.h"
#include "server/peer/peer_requests.h"
#include "server/peer/reply_stream.h"
#include "server/peer/row_sender.h"
#include "server/peer/slice_pins.h"

namespace forebay::peer {
namespace {

// Extent and Samples get their messages as bytes, which are neither parsed nor copied by gRPC.
using Raw = v1::Peer::WithRawCallbackMethod_Extent<
    v1::Peer::WithRawCallbackMethod_Samples<v1::Peer::Service>>;
using CallbackService = v1::Peer::WithCallbackMethod_Hello<v1::Peer::WithCallbackMethod_Ping<Raw>>;

PeerIdentity IdentityOf(const v1::PeerHelloRequest& hello) {
  return {.address = hello.address(),
          .protocol_version = hello.protocol_version(),
          .order_version = hello.order_version(),
          .catalog_version = hello.catalog_version(),
          .job_id = hello.job_id(),
          .config_digest = hello.config_digest()};
}

}  // namespace

struct PeerServer::Service final : public CallbackService {
 public:
  Service(const PeerIdentity& own, const PeerServerParts& borrowed)
      : identity(own), digest(DigestOf(own)), parts(borrowed) {}
  ~Service() override;

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::PeerHelloRequest* request,
                                  v1::PeerHelloReply* reply) override;
  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context,
                                 const v1::PingRequest* request, v1::PingReply* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Extent(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Samples(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request) override;

  std::shared_ptr<ReplyStream> OpenStream();
  Result<stage::Dataset*> DatasetOf(const PeerRequest& request);
  void AnswerRows(const grpc::ByteBuffer& request, const std::shared_ptr<ReplyStream>& stream);
  void AnswerExtent(const grpc::ByteBuffer& request, const std::shared_ptr<ReplyStream>& stream);

  PeerIdentity identity;
  const std::uint64_t digest;
  const PeerServerParts parts;
  const std::shared_ptr<SlicePins> pins = std::make_shared<SlicePins>();
  const std::shared_ptr<ChunkBuffers> buffers = std::make_shared<ChunkBuffers>();
  std::shared_ptr<ExtentAnswers> extents;
  Mutex mutex;
  std::unordered_set<std::shared_ptr<ReplyStream>> streams FOREBAY_GUARDED_BY(mutex);
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<PeerServer>> PeerServer::Start(const PeerServerOptions& options,
                                                      const PeerServerParts& parts) {
  const std::string& listen = options.identity.address;
  FOREBAY_TRY(CheckPeerAddress(listen, options.allow_plaintext));
  KeepMessageMemory();
  std::unique_ptr<PeerServer> server(new PeerServer());
  server->service_ = std::make_unique<Service>(options.identity, parts);
  Service& service = *server->service_;
  FOREBAY_ASSIGN(service.extents,
                 ExtentAnswers::Create(parts.extents, parts.backend, service.pins));
  grpc::ServerBuilder builder;
  ApplySettings(builder);
  int port = 0;
  // CheckPeerAddress has refused addresses that other machines could reach, unless allowed.
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  service.server = builder.BuildAndStart();
  if (service.server == nullptr || port == 0) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("cannot listen for other nodes on {}: the address is in use, or not "
                             "one of this machine",
                             listen));
  }
  // With port 0, only now is it known by which address other nodes reach this one.
  server->address_ = fmt::format("{}:{}", listen.substr(0, listen.rfind(':')), port);
  service.identity.address = server->address_;
  return server;
}

PeerServer::~PeerServer() = default;

PeerServer::Service::~Service() {
  // Cancels all calls; returns when gRPC is done with them.
  // A deadline in the past ends them at once: who asked goes on with a substitute.
  if (server) server->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
  server.reset();
  if (extents) extents->Stop();
  // gRPC lets go of the last slices when it closes the connections, perhaps a little later.
  pins->AwaitNone();
}

grpc::ServerUnaryReactor* PeerServer::Service::Hello(grpc::CallbackServerContext* context,
                                                     const v1::PeerHelloRequest* request,
                                                     v1::PeerHelloReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // This side compares and the other one believes the answer: nothing is negotiated.
  const Status same = CheckSameIdentity(identity, IdentityOf(*request));
  reactor->Finish(same.has_value() ? grpc::Status::OK : ToGrpcStatus(same.error()));
  return reactor;
}

// Answered by gRPC's thread alone: a node whose stager is busy answers, too.
grpc::ServerUnaryReactor* PeerServer::Service::Ping(grpc::CallbackServerContext* context,
                                                    const v1::PingRequest*, v1::PingReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

// Beyond the limit, the stream that is returned has ended already.
std::shared_ptr<ReplyStream> PeerServer::Service::OpenStream() {
  // gRPC has a plain pointer to the stream; the set keeps it until gRPC is done with it.
  const auto stream =
      std::make_shared<ReplyStream>([this](const std::shared_ptr<ReplyStream>& ended) {
        const MutexLock lock(mutex);
        streams.erase(ended);
      });
  bool is_full = false;
  {
    const MutexLock lock(mutex);
    is_full = streams.size() >= limits::kPeerCallsMax;
    streams.insert(stream);
  }
  if (is_full) {
    stream->End(Error(ErrorCode::kResourceExhausted,
                      fmt::format("node {} answers {} calls at a time", identity.address,
                                  limits::kPeerCallsMax)));
  }
  return stream;
}

Result<stage::Dataset*> PeerServer::Service::DatasetOf(const PeerRequest& request) {
  if (request.identity != digest) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} belongs to another job, or has other versions or another "
                             "configuration, than the node that asks: start all nodes alike",
                             identity.address));
  }
  // By the hash of its name, as checksums name it: messages carry no names and no paths.
  stage::Dataset* const dataset = parts.find_dataset(request.dataset);
  if (dataset != nullptr) return dataset;
  return Error(ErrorCode::kNotFound,
               fmt::format("node {} has no data set with the name hash {:016x}", identity.address,
                           request.dataset));
}

void PeerServer::Service::AnswerRows(const grpc::ByteBuffer& request,
                                     const std::shared_ptr<ReplyStream>& stream) {
  Result<RowsAsked> asked = ParseRowsAsked(request);
  if (!asked.has_value()) return stream->End(asked.error());
  const Result<stage::Dataset*> dataset = DatasetOf(asked->request);
  if (!dataset.has_value()) return stream->End(dataset.error());
  // Named before the rows are moved away.
  const std::uint64_t hash = (*dataset)->hash();
  std::vector<fetch::Row> rows = asked->rows;
  // The callback may run after this server was destroyed, so it owns all that it refers to. The
  // stream has ended by then, and Send does nothing.
  parts.rows.Find(
      **dataset, asked->request.catalog_fingerprint, std::move(asked->rows),
      limits::kPeerCallBytesMax,
      [hash, rows = std::move(rows), stream, slices = pins,
       copies = buffers](Result<std::shared_ptr<const fetch::FoundRows>> found) {
        if (!found.has_value()) return stream->End(found.error());
        const auto sender =
            std::make_shared<RowSender>(hash, rows, std::move(*found), slices, copies);
        stream->Send([sender](grpc::ByteBuffer& chunk) { return sender->Next(chunk); });
      });
}

void PeerServer::Service::AnswerExtent(const grpc::ByteBuffer& request,
                                       const std::shared_ptr<ReplyStream>& stream) {
  const Result<ExtentAsked> asked = ParseExtentAsked(request);
  if (!asked.has_value()) return stream->End(asked.error());
  const Result<stage::Dataset*> dataset = DatasetOf(asked->request);
  if (!dataset.has_value()) return stream->End(dataset.error());
  extents->Answer(**dataset, *asked, stream);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerServer::Service::Samples(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  const std::shared_ptr<ReplyStream> stream = OpenStream();
  if (!stream->has_ended()) AnswerRows(*request, stream);
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerServer::Service::Extent(
    grpc::CallbackServerContext*, const grpc::ByteBuffer* request) {
  const std::shared_ptr<ReplyStream> stream = OpenStream();
  if (!stream->has_ended()) AnswerExtent(*request, stream);
  return stream.get();
}

}  // namespace forebay::peer
