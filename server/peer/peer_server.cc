// The gRPC service, with the callback API, so that no thread of gRPC waits: rows come from
// LocalRows, which calls back, and extents from threads of their own. Every request carries the
// digest of the identity that Hello compares, so that a node which was started again with other
// settings is refused without a Hello.
#include "server/peer/peer_server.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/log.h"
#include "server/peer/channel_settings.h"
#include "server/peer/extent_answers.h"
#include "server/peer/first_read_answers.h"
#include "server/peer/member_answers.h"
#include "server/peer/message_memory.h"
#include "server/peer/node_acceptor.h"
#include "server/peer/part_answers.h"
#include "server/peer/peer_address.h"
#include "server/peer/peer_requests.h"
#include "server/peer/reply_stream.h"
#include "server/peer/row_answers.h"
#include "server/peer/send_turns.h"
#include "server/peer/slice_pins.h"
#include "server/peer/unary_answer.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

// These get their messages as bytes, which are neither parsed nor copied by gRPC.
using Raw = v1::Peer::WithRawCallbackMethod_Extent<v1::Peer::WithRawCallbackMethod_Samples<
    v1::Peer::WithRawCallbackMethod_FirstReads<v1::Peer::WithRawCallbackMethod_CatalogPart<
        v1::Peer::WithRawCallbackMethod_ObjectStats<
            v1::Peer::WithRawCallbackMethod_Probe<
                v1::Peer::WithRawCallbackMethod_Borrow<
                    v1::Peer::WithRawCallbackMethod_Leave<
                        v1::Peer::WithRawCallbackMethod_Join<v1::Peer::Service>>>>>>>>>;
using CallbackService = v1::Peer::WithCallbackMethod_Hello<v1::Peer::WithCallbackMethod_Ping<Raw>>;

// Clients of the job have certificates of its authority, too. They are for streams only
// (docs/security.md). In plaintext, whoever can connect is taken for a node.
bool IsNode(const grpc::CallbackServerContext& context) {
  const auto caller = context.auth_context();
  if (!caller->IsPeerAuthenticated()) return true;
  return std::ranges::count(caller->GetPeerIdentity(), grpc::string_ref(kCertifiedName)) > 0;
}

Error NotANode() {
  return Error(ErrorCode::kPermissionDenied, "only nodes of the job may make this call");
}

// This side compares and the other one believes the answer: nothing is negotiated.
void AnswerHello(const PeerIdentity& ours, const v1::PeerHelloRequest& request,
                 grpc::ServerUnaryReactor& reactor) {
  const Status same = CheckSameIdentity(ours, ReadHello(request));
  reactor.Finish(same.has_value() ? grpc::Status::OK : ToGrpcStatus(same.error()));
}

}  // namespace

// What answers, and as whom.
struct PeerServer::Serving {
  PeerIdentity identity;
  std::uint64_t digest = 0;
  PeerServerParts parts;
  MemberAnswers member;
  std::shared_ptr<ExtentAnswers> extents;
  std::unique_ptr<FirstReadAnswers> first_reads;
  std::shared_ptr<PartAnswers> catalog_parts;
};

struct PeerServer::Service final : public CallbackService {
 public:
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
  grpc::ServerWriteReactor<grpc::ByteBuffer>* CatalogPart(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

  grpc::ServerUnaryReactor* FirstReads(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ObjectStats(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Borrow(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply) override;

  // A call of Hello that came before Serve. gRPC keeps the request until the call is finished.
  struct HeldHello {
    grpc::ServerUnaryReactor* reactor;
    const v1::PeerHelloRequest* request;
  };

  void Accept();
  void BeginServing(std::unique_ptr<Serving> begun);
  void StopAnswering();
  void RefuseWaiting();
  struct StreamHooks {
    std::function<void()> ended = nullptr;                 // gRPC is done with the call
    std::function<void(std::uint64_t)> written = nullptr;  // as ReplyStream says
    // Beyond the limit of calls, ends the stream in place of an error.
    void (*refuse)(ReplyStream&) = nullptr;
  };
  // If the caller is no node, and beyond the limit of calls, the stream that is returned has ended
  // already.
  std::shared_ptr<ReplyStream> OpenStream(const grpc::CallbackServerContext& context,
                                          StreamHooks hooks);
  // The data set that is asked for, or why this node does not answer.
  Result<stage::Dataset*> DatasetOf(const PeerRequest& request) const;
  // As DatasetOf, for what is read from the bytes of objects: kFailedPrecondition if the two nodes
  // have rebuilt the data set a different number of times; stage::AskNext if this one may have been
  // started again, and has not rebuilt it as often.
  Result<stage::Dataset*> SameDatasetOf(const PeerRequest& request);
  Error NotRebuilt(const stage::Dataset& dataset, std::uint32_t ours, std::uint32_t theirs);
  void AnswerRows(const grpc::ByteBuffer& request, const RowAnswers::Call& call);
  void AnswerExtent(const grpc::ByteBuffer& request, const std::shared_ptr<ReplyStream>& stream);
  // Begins to answer a call of one message. An error is the answer.
  using BeginAnswer = Status (Service::*)(const grpc::ByteBuffer& request,
                                          const std::shared_ptr<UnaryAnswer>& answer);
  Status AnswerProbe(const grpc::ByteBuffer& request, const std::shared_ptr<UnaryAnswer>& answer);
  // Calls that a node which does not serve yet cannot answer.
  template <Status (MemberAnswers::*kAnswer)(const grpc::ByteBuffer&, UnaryAnswer&) const>
  Status AnswerMember(const grpc::ByteBuffer& request, const std::shared_ptr<UnaryAnswer>& answer);
  // Only calls that may wait for the GFS count for the limit of calls, and are refused beyond it.
  // The others are answered by gRPC's thread at once (a node that is asked to leave, or that
  // another one joins, writes a file first), or have a bound of their own (FirstReadAnswers). A
  // connection has kRpcStreamsPerConnectionMax calls at a time.
  enum class Waits { kForGfs, kNotForGfs };
  grpc::ServerUnaryReactor* AnswerOnce(const grpc::CallbackServerContext& context,
                                       const grpc::ByteBuffer& request, grpc::ByteBuffer& reply,
                                       BeginAnswer begin, Waits waits);
  Status KeepFirstReads(const grpc::ByteBuffer& request,
                        const std::shared_ptr<UnaryAnswer>& answer);
  Status AnswerStats(const grpc::ByteBuffer& request, const std::shared_ptr<UnaryAnswer>& answer);
  bool IsFullLocked() const FOREBAY_REQUIRES(mutex) {
    return streams.size() + answers_that_wait >= limits::kPeerCallsMax;
  }
  Error IsFull() const {
    return stage::TooBusy(fmt::format("node {} answers {} calls at a time, and has as many",
                                      address, limits::kPeerCallsMax));
  }
  Error NotYet() const {
    return Error(ErrorCode::kUnavailable, fmt::format("node {} does not serve yet", address));
  }
  void AnswerPart(const grpc::ByteBuffer& request, const std::shared_ptr<ReplyStream>& stream);

  std::string address;
  const std::shared_ptr<SlicePins> pins = std::make_shared<SlicePins>();
  RowAnswers rows{pins};
  // Set once; read by every call without the mutex.
  std::atomic<const Serving*> serving = nullptr;
  Mutex mutex;
  std::unique_ptr<Serving> owned_serving FOREBAY_GUARDED_BY(mutex);
  bool has_stopped FOREBAY_GUARDED_BY(mutex) = false;
  std::vector<HeldHello> held FOREBAY_GUARDED_BY(mutex);
  // By Dataset::hash: the largest number of rebuilds of others that the log says this node lacks.
  // It has one entry for each data set of this daemon at most.
  std::unordered_map<std::uint64_t, std::uint32_t> rebuilds_told FOREBAY_GUARDED_BY(mutex);
  std::unordered_set<std::shared_ptr<ReplyStream>> streams FOREBAY_GUARDED_BY(mutex);
  std::unordered_set<std::shared_ptr<UnaryAnswer>> answers FOREBAY_GUARDED_BY(mutex);
  std::size_t answers_that_wait FOREBAY_GUARDED_BY(mutex) = 0;  // Waits::kForGfs
  std::unique_ptr<NodeAcceptor> acceptor;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;  // of `server`
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<PeerServer>> PeerServer::Listen(const PeerServerOptions& options) {
  const std::string& listen = options.address;
  FOREBAY_TRY(
      CheckPeerAddress(listen, options.allow_plaintext || !options.certificates.empty()));
  KeepMessageMemory();
  std::unique_ptr<PeerServer> server(new PeerServer());
  server->service_ = std::make_unique<Service>();
  Service& service = *server->service_;
  // CheckPeerAddress has refused plaintext on addresses that other machines could reach, unless
  // allowed.
  FOREBAY_ASSIGN(const PeerAddress place, ParsePeerAddress(listen));
  FOREBAY_ASSIGN(service.acceptor, NodeAcceptor::Listen(place.host, place.port));
  grpc::ServerBuilder builder;
  ApplySettings(builder);
  service.connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      CredentialsOf(options.certificates));
  builder.RegisterService(&service);
  if (options.clients != nullptr) {
    builder.RegisterService(options.clients);
    // A message for a client may be longer than any that nodes send each other.
    builder.SetMaxSendMessageSize(limits::kRpcMessageBytesMax);
  }
  service.server = builder.BuildAndStart();
  if (service.server == nullptr) {
    return Error(ErrorCode::kInternal,
                 fmt::format("gRPC cannot start a server for other nodes on {}", listen));
  }
  // With port 0, only now is it known by which address other nodes reach this one.
  server->address_ =
      fmt::format("{}:{}", listen.substr(0, listen.rfind(':')), service.acceptor->port());
  service.address = server->address_;
  service.Accept();
  return server;
}

Status PeerServer::Serve(const PeerIdentity& identity, const PeerServerParts& parts) {
  FOREBAY_ASSIGN(std::shared_ptr<ExtentAnswers> extents,
                 ExtentAnswers::Create(parts.extents, parts.backend, service_->pins));
  FOREBAY_ASSIGN(std::unique_ptr<FirstReadAnswers> first_reads,
                 FirstReadAnswers::Create(parts.first_reads, parts.backend));
  FOREBAY_ASSIGN(std::shared_ptr<PartAnswers> catalog_parts,
                 PartAnswers::Create(parts.extents, parts.backend));
  service_->BeginServing(
      std::make_unique<Serving>(Serving{.identity = identity,
                                        .digest = DigestOf(identity),
                                        .parts = parts,
                                        .member = MemberAnswers(identity, parts.member),
                                        .extents = std::move(extents),
                                        .first_reads = std::move(first_reads),
                                        .catalog_parts = std::move(catalog_parts)}));
  return {};
}

void PeerServer::StopAnswering() { service_->StopAnswering(); }
void PeerServer::RefuseWaiting() { service_->RefuseWaiting(); }

PeerServer::~PeerServer() = default;

void PeerServer::Service::Accept() {
  acceptor->Start([this](UniqueFd fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd.Release();
    connections->HandleNewConnection(&connection);
  });
}

void PeerServer::Service::BeginServing(std::unique_ptr<Serving> begun) {
  std::vector<HeldHello> waiting;
  {
    const MutexLock lock(mutex);
    owned_serving = std::move(begun);
    serving = owned_serving.get();
    waiting.swap(held);
  }
  for (const HeldHello& hello : waiting) {
    AnswerHello(serving.load()->identity, *hello.request, *hello.reactor);
  }
}

void PeerServer::Service::RefuseWaiting() {
  std::vector<std::shared_ptr<ReplyStream>> open;
  {
    const MutexLock lock(mutex);
    open.assign(streams.begin(), streams.end());
  }
  // Without the mutex, which a stream takes at its end.
  for (const std::shared_ptr<ReplyStream>& stream : open) {
    stream->EndIfItWaits(stage::AskNext());
  }
}

void PeerServer::Service::StopAnswering() {
  std::vector<HeldHello> waiting;
  {
    const MutexLock lock(mutex);
    if (has_stopped) return;
    has_stopped = true;
    waiting.swap(held);
  }
  // gRPC waits for these, because a unary call ends only if it is finished.
  for (const HeldHello& hello : waiting) {
    hello.reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the node is shutting down"));
  }
  if (acceptor) acceptor->Stop();
  // Cancels all calls; returns when gRPC is done with them.
  // A deadline in the past ends them at once: who asked goes on with a substitute.
  if (server) server->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
}

PeerServer::Service::~Service() {
  StopAnswering();
  server.reset();
  {
    // The thread that keeps first reads ends before the parts do.
    const MutexLock lock(mutex);
    if (owned_serving) owned_serving->first_reads.reset();
  }
  if (const Serving* last = serving.load()) {
    last->extents->Stop();
    last->catalog_parts->Stop();
  }
  // gRPC lets go of the last slices when it closes the connections, perhaps a little later.
  pins->AwaitNone();
}

grpc::ServerUnaryReactor* PeerServer::Service::Hello(grpc::CallbackServerContext* context,
                                                     const v1::PeerHelloRequest* request,
                                                     v1::PeerHelloReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!IsNode(*context)) {
    reactor->Finish(ToGrpcStatus(NotANode()));
    return reactor;
  }
  {
    const MutexLock lock(mutex);
    // Each node of the job says Hello once, so there are no more of them than nodes.
    if (serving == nullptr && !has_stopped && held.size() < limits::kNodeCountMax) {
      held.push_back({reactor, request});
      return reactor;
    }
  }
  if (const Serving* now = serving.load()) {
    AnswerHello(now->identity, *request, *reactor);
  } else {
    reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the node does not serve"));
  }
  return reactor;
}

// Answered by gRPC's thread alone: a node whose stager is busy answers, too.
grpc::ServerUnaryReactor* PeerServer::Service::Ping(grpc::CallbackServerContext* context,
                                                    const v1::PingRequest* request,
                                                    v1::PingReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!IsNode(*context)) {
    reactor->Finish(ToGrpcStatus(NotANode()));
    return reactor;
  }
  const Serving* const now = serving.load();
  const Status answered = now == nullptr ? Status() : now->member.Ping(*request, *reply);
  reactor->Finish(answered.has_value() ? grpc::Status::OK : ToGrpcStatus(answered.error()));
  return reactor;
}

std::shared_ptr<ReplyStream> PeerServer::Service::OpenStream(
    const grpc::CallbackServerContext& context, StreamHooks hooks) {
  // gRPC has a plain pointer to the stream; the set keeps it until gRPC is done with it.
  const auto stream = std::make_shared<ReplyStream>(
      [this, ended = std::move(hooks.ended)](const std::shared_ptr<ReplyStream>& done) {
        if (ended) ended();
        const MutexLock lock(mutex);
        streams.erase(done);
      },
      std::move(hooks.written));
  bool is_full = false;
  {
    const MutexLock lock(mutex);
    is_full = IsFullLocked();
    streams.insert(stream);
  }
  if (!IsNode(context)) stream->End(NotANode());
  if (is_full && hooks.refuse != nullptr) hooks.refuse(*stream);
  if (is_full && hooks.refuse == nullptr) stream->End(IsFull());
  return stream;
}

Result<stage::Dataset*> PeerServer::Service::DatasetOf(const PeerRequest& request) const {
  const Serving* const now = serving.load();
  // A node asks only after Hello was answered. But if this daemon takes the place of a killed one,
  // other nodes may have said Hello to the killed one, and ask this one without a Hello.
  if (now == nullptr) return NotYet();
  if (request.identity != now->digest) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} belongs to another job, or has other versions or another "
                             "configuration, than the node that asks: start all nodes alike",
                             address));
  }
  // By the hash of its name, as checksums name it: messages carry no names and no paths.
  stage::Dataset* const dataset = now->parts.find_dataset(request.dataset);
  if (dataset != nullptr) return dataset;
  return Error(ErrorCode::kNotFound,
               fmt::format("node {} has no data set with the name hash {:016x}", address,
                           request.dataset));
}

// A rebuild accepts bytes that have changed while size and time of their object have not, so the
// catalogs of before and after it may have the same fingerprint.
Result<stage::Dataset*> PeerServer::Service::SameDatasetOf(const PeerRequest& request) {
  FOREBAY_ASSIGN(stage::Dataset* const dataset, DatasetOf(request));
  const std::uint32_t ours = dataset->rebuilds();
  if (request.rebuilds == ours) return dataset;
  if (serving.load()->parts.has_returned && ours < request.rebuilds) {
    return NotRebuilt(*dataset, ours, request.rebuilds);
  }
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("data set '{0}' has been rebuilt {1} times on node {2}, and {3} times "
                           "on the node that asks: call 'forebay stage --rebuild {0}' on {4}, and "
                           "open the stream again",
                           dataset->name(), ours, address, request.rebuilds,
                           ours < request.rebuilds ? "node " + address : "the node that asks"));
}

// The others go on without this node for the data set, as they did before it came back. The node is
// neither lost nor late, so only its own log says it, once for each of their rebuilds.
Error PeerServer::Service::NotRebuilt(const stage::Dataset& dataset, std::uint32_t ours,
                                      std::uint32_t theirs) {
  const std::string why = fmt::format(
      "data set '{0}' has been rebuilt {1} times on another node, and {2} times on node {3}: call "
      "'forebay stage --rebuild {0}' on node {3}",
      dataset.name(), theirs, ours, address);
  bool is_new = false;
  {
    const MutexLock lock(mutex);
    std::uint32_t& told = rebuilds_told[dataset.hash()];
    is_new = theirs > told;
    told = std::max(told, theirs);
  }
  if (is_new) {
    log::Warn("{}; until then this node supplies nothing of it to that node, and keeps none of its "
              "checksums of first reads",
              why);
  }
  return stage::AskNext(why);
}

void PeerServer::Service::AnswerRows(const grpc::ByteBuffer& request,
                                     const RowAnswers::Call& call) {
  Result<RowsAsked> asked = ParseRowsAsked(request);
  if (!asked.has_value()) return call.stream->End(asked.error());
  const Result<stage::Dataset*> dataset = SameDatasetOf(asked->request);
  if (!dataset.has_value()) return call.stream->End(dataset.error());
  const PeerServerParts& parts = serving.load()->parts;
  if (parts.note_place && asked->place.order != 0) parts.note_place(**dataset, asked->place);
  if (parts.hear_slow && !asked->slow_nodes.empty()) parts.hear_slow(asked->slow_nodes);
  rows.Answer(parts.rows, parts.carrier, **dataset, std::move(*asked), call);
}

void PeerServer::Service::AnswerExtent(const grpc::ByteBuffer& request,
                                       const std::shared_ptr<ReplyStream>& stream) {
  const Result<ExtentAsked> asked = ParseExtentAsked(request);
  if (!asked.has_value()) return stream->End(asked.error());
  const Result<stage::Dataset*> dataset = SameDatasetOf(asked->request);
  if (!dataset.has_value()) return stream->End(dataset.error());
  serving.load()->extents->Answer(**dataset, *asked, stream);
}

Status PeerServer::Service::KeepFirstReads(const grpc::ByteBuffer& request,
                                           const std::shared_ptr<UnaryAnswer>& answer) {
  FOREBAY_ASSIGN(FirstReadsGiven given, ParseFirstReadsGiven(request));
  FOREBAY_ASSIGN(stage::Dataset* const dataset, SameDatasetOf(given.request));
  return serving.load()->first_reads->Answer(*dataset, std::move(given), request.Length(), answer);
}

// The stager's own threads ask the GFS, and the callback may run after this server was destroyed.
// It owns the answer, which has ended by then.
Status PeerServer::Service::AnswerStats(const grpc::ByteBuffer& request,
                                        const std::shared_ptr<UnaryAnswer>& answer) {
  FOREBAY_ASSIGN(const StatsAsked asked, ParseStatsAsked(request));
  FOREBAY_ASSIGN(stage::Dataset* const dataset, DatasetOf(asked.request));
  serving.load()->parts.extents.Stat(
      *dataset, asked.paths,
      [answer, batch = asked.batch](const Result<stage::LocalStats::Outcome>& outcome) {
        if (!outcome.has_value()) return answer->Fail(ToGrpcStatus(outcome.error()));
        answer->Answer(WriteStatsReply(batch, (*outcome)->infos));
      });
  return {};
}

grpc::ServerUnaryReactor* PeerServer::Service::AnswerOnce(
    const grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
    grpc::ByteBuffer& reply, BeginAnswer begin, Waits waits) {
  const std::size_t place = waits == Waits::kForGfs ? 1 : 0;
  // The set keeps it until gRPC is done with the call, as a stream.
  const auto answer = std::make_shared<UnaryAnswer>(
      reply, [this, place](const std::shared_ptr<UnaryAnswer>& ended) {
        const MutexLock lock(mutex);
        answers.erase(ended);
        answers_that_wait -= place;
      });
  bool is_full = false;
  {
    const MutexLock lock(mutex);
    is_full = waits == Waits::kForGfs && IsFullLocked();
    answers.insert(answer);
    answers_that_wait += place;
  }
  const Status begun = !IsNode(context) ? Status(NotANode())
                       : is_full        ? Status(IsFull())
                                        : (this->*begin)(request, answer);
  if (!begun.has_value()) answer->Fail(ToGrpcStatus(begun.error()));
  return answer.get();
}

grpc::ServerUnaryReactor* PeerServer::Service::FirstReads(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::KeepFirstReads, Waits::kNotForGfs);
}

grpc::ServerUnaryReactor* PeerServer::Service::ObjectStats(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::AnswerStats, Waits::kForGfs);
}

// Also by a node that answers as many calls as it may: it is alive.
grpc::ServerUnaryReactor* PeerServer::Service::Probe(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::AnswerProbe, Waits::kNotForGfs);
}

Status PeerServer::Service::AnswerProbe(const grpc::ByteBuffer& request,
                                        const std::shared_ptr<UnaryAnswer>& answer) {
  const Serving* const now = serving.load();
  return now == nullptr ? MemberAnswers::ProbeBeforeServing(request, *answer)
                        : now->member.Probe(request, answer);
}

template <Status (MemberAnswers::*kAnswer)(const grpc::ByteBuffer&, UnaryAnswer&) const>
Status PeerServer::Service::AnswerMember(const grpc::ByteBuffer& request,
                                         const std::shared_ptr<UnaryAnswer>& answer) {
  const Serving* const now = serving.load();
  return now == nullptr ? Status(NotYet()) : (now->member.*kAnswer)(request, *answer);
}

grpc::ServerUnaryReactor* PeerServer::Service::Borrow(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::AnswerMember<&MemberAnswers::Borrow>,
                    Waits::kNotForGfs);
}

grpc::ServerUnaryReactor* PeerServer::Service::Leave(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::AnswerMember<&MemberAnswers::Leave>,
                    Waits::kNotForGfs);
}

grpc::ServerUnaryReactor* PeerServer::Service::Join(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* reply) {
  return AnswerOnce(*context, *request, *reply, &Service::AnswerMember<&MemberAnswers::Join>,
                    Waits::kNotForGfs);
}

void PeerServer::Service::AnswerPart(const grpc::ByteBuffer& request,
                                     const std::shared_ptr<ReplyStream>& stream) {
  const Result<PartAsked> asked = ParsePartAsked(request);
  if (!asked.has_value()) return stream->End(asked.error());
  const Result<stage::Dataset*> dataset = DatasetOf(asked->request);
  if (!dataset.has_value()) return stream->End(dataset.error());
  serving.load()->catalog_parts->Answer(**dataset, *asked, stream);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerServer::Service::CatalogPart(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  // An error would end the cataloguing of the node that asks. This answer lets it ask again.
  const std::shared_ptr<ReplyStream> stream =
      OpenStream(*context, {.refuse = PartAnswers::SayNotYet});
  if (!stream->has_ended()) AnswerPart(*request, stream);
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerServer::Service::Samples(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  // gRPC names the connection, and a node has one to each other node.
  const std::shared_ptr<HeldTurn> turn = rows.TakeTurn(context->peer());
  const std::shared_ptr<ReplyStream> stream = OpenStream(
      *context,
      {.ended = [turn] { turn->Release(); },
       .written = [turn](std::uint64_t bytes) { turn->Sent(bytes); }});
  if (!stream->has_ended()) {
    AnswerRows(*request, {.context = *context, .stream = stream, .turn = turn});
  }
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* PeerServer::Service::Extent(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const std::shared_ptr<ReplyStream> stream = OpenStream(*context, {});
  // It always waits for a thread, and often for memory.
  stream->SayThatItWaits(*context);
  if (!stream->has_ended()) AnswerExtent(*request, stream);
  return stream.get();
}

}  // namespace forebay::peer
