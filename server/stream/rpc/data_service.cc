// Answers the calls of clients: Hello compares versions and the job, Describe tells what a data set
// has, and Stream hands the call to a StreamReactor. gRPC calls from its own threads, which must
// not be blocked: a call that has to wait for a catalog is answered by a callback, and a selection
// that takes long, or reads a file of the GFS, is resolved by DataServiceParts::resolvers. mutex_
// guards the list of clients and of open calls; a reactor is never called under it.
#include "server/stream/rpc/data_service.h"

#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/wire_layout.h"
#include "server/io/log.h"
#include "server/stream/rpc/stream_reactor.h"
#include "server/stream/rpc/wire_batch.h"

namespace forebay::stream {
namespace {

struct VersionPair {
  const char* what;
  std::uint32_t ours;
  std::uint32_t theirs;
};

grpc::Status CheckHello(const v1::HelloRequest& request, const DataServiceOptions& options) {
  // Nothing is negotiated. Client and daemon are installed together, and a layout that is misread
  // would give wrong bytes.
  const VersionPair versions[] = {
      {"protocol", kProtocolVersion, request.protocol_version()},
      {"layout", kLayoutVersion, request.layout_version()},
      {"order", kOrderSpecVersion, request.order_version()},
      {"catalog", kCatalogVersion, request.catalog_version()},
  };
  for (const VersionPair& version : versions) {
    if (version.ours == version.theirs) continue;
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("the daemon speaks {} version {}, the client {}: install the same "
                        "Forebay on both sides",
                        version.what, version.ours, version.theirs)};
  }
  // On a node that several jobs share, a client may have found the socket of another job.
  if (!request.job_id().empty() && request.job_id() != options.job_id) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("this daemon serves job '{}', the client belongs to job '{}'",
                        options.job_id, request.job_id())};
  }
  return grpc::Status::OK;
}

Error ShuttingDown() { return Error(ErrorCode::kUnavailable, "the daemon is shutting down"); }

// A client chooses its name, which appears in logs and tables: it is shortened, and control
// characters are replaced so that it cannot forge lines.
std::string ShownName(std::string name) {
  if (name.size() > limits::kNameBytesMax) name.resize(limits::kNameBytesMax);
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name;
}

}  // namespace

grpc::Status ToGrpc(const Error& error) {
  // ErrorCode has gRPC's numbers.
  return {static_cast<grpc::StatusCode>(error.code()), error.message()};
}

DataService::DataService(DataServiceOptions options, DataServiceParts parts)
    : options_(std::move(options)), parts_(std::move(parts)) {}

DataService::~DataService() = default;

void DataService::Connected(const std::string& peer, const ClientIdentity& client) {
  const MutexLock lock(mutex_);
  // Replaces the entry of an earlier connection that had the same name.
  clients_[peer] = client;
}

ClientIdentity DataService::ClientOf(const std::string& peer) const {
  const MutexLock lock(mutex_);
  const auto found = clients_.find(peer);
  // Only a name for the log: a call without a handshake is refused elsewhere.
  return found == clients_.end() ? ClientIdentity{.name = peer} : found->second;
}

grpc::ServerUnaryReactor* DataService::Hello(grpc::CallbackServerContext* context,
                                             const v1::HelloRequest* request,
                                             v1::HelloReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status status = CheckHello(*request, options_);
  // The session number was given to a process of the job's user over the Unix socket.
  if (status.ok() && !parts_.knows_session(request->session())) {
    status = {grpc::StatusCode::UNAUTHENTICATED, "unknown session: handshake first"};
  }
  // A daemon with the same data-set names may serve other directories than the client means.
  if (status.ok() && !request->config().empty()) {
    const Status serves = parts_.check_serves(request->config());
    if (!serves.has_value()) status = ToGrpc(serves.error());
  }
  if (status.ok()) {
    const MutexLock lock(mutex_);
    ClientIdentity& client = clients_[context->peer()];
    client.name = ShownName(request->client_name());
  }
  // gRPC sends the reply only with an OK status, so it may be filled in any case.
  FillHello(*reply);
  if (options_.remote_daemons.addresses_size() > 0) {
    *reply->mutable_remote_daemons() = options_.remote_daemons;
  }
  reactor->Finish(status);
  return reactor;
}

void DataService::FillHello(v1::HelloReply& reply) const {
  reply.set_protocol_version(kProtocolVersion);
  reply.set_layout_version(kLayoutVersion);
  reply.set_order_version(kOrderSpecVersion);
  reply.set_catalog_version(kCatalogVersion);
  reply.set_job_id(options_.job_id);
  reply.set_generation(options_.generation);
  for (const std::string& name : parts_.dataset_names()) reply.add_datasets(name);
}

// The certificate has shown that the client belongs to the job, so there is no session. It gets no
// addresses of other nodes, because it has those of its own daemon.
grpc::ServerUnaryReactor* DataService::RemoteHello(grpc::CallbackServerContext* context,
                                                   const v1::HelloRequest* request,
                                                   v1::HelloReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status status = CheckHello(*request, options_);
  if (status.ok() && !request->config().empty()) {
    const Status serves = parts_.check_serves(request->config());
    if (!serves.has_value()) status = ToGrpc(serves.error());
  }
  if (status.ok()) LogRemote(ShownName(request->client_name()), context->peer());
  FillHello(*reply);
  reactor->Finish(status);
  return reactor;
}

// A client that comes again and again must not fill the log.
void DataService::LogRemote(const std::string& client, const std::string& peer) {
  constexpr std::int64_t kMinuteNs = 60'000'000'000;
  constexpr std::uint32_t kLinesMax = 16;
  std::uint32_t left_out = 0;
  {
    const MutexLock lock(mutex_);
    const std::int64_t now_ns = parts_.clock.NowNs();
    if (remote_lines_ > 0 && now_ns - remote_lines_since_ns_ >= kMinuteNs) {
      left_out = remote_lines_ > kLinesMax ? remote_lines_ - kLinesMax : 0;
      remote_lines_ = 0;
    }
    if (remote_lines_ == 0) remote_lines_since_ns_ = now_ns;
    if (++remote_lines_ > kLinesMax) return;
  }
  log::Info("client '{}' of another node, at {}, is served in place of its own daemon, which is "
            "gone{}",
            client, peer,
            left_out > 0 ? fmt::format("; {} more came before, without a line", left_out) : "");
}

grpc::ServerUnaryReactor* DataService::Describe(grpc::CallbackServerContext* context,
                                                const v1::DescribeRequest* request,
                                                v1::DescribeReply* reply) {
  // Once: each call of DefaultReactor makes the reactor anew.
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Answer({.reactor = reactor, .request = request, .reply = reply});
  return reactor;
}

grpc::ServerUnaryReactor* DataService::RemoteDescribe(grpc::CallbackServerContext* context,
                                                      const v1::DescribeRequest* request,
                                                      v1::DescribeReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Answer({.reactor = reactor, .request = request, .reply = reply, .may_wait = false});
  return reactor;
}

void DataService::Answer(const DescribeCall& call) {
  stage::Dataset* dataset = parts_.find_dataset(call.request->dataset());
  if (dataset == nullptr) {
    return call.reactor->Finish(
        {grpc::StatusCode::NOT_FOUND,
         fmt::format("no data set '{}'; configured are: {}", call.request->dataset(),
                     fmt::join(parts_.dataset_names(), ", "))});
  }
  {
    const MutexLock lock(mutex_);
    // A stream would be refused, too, and a client of another daemon must not come back for it.
    if (draining_) return call.reactor->Finish(ToGrpc(ShuttingDown()));
  }
  // The first client that asks about a data set starts its cataloguing.
  parts_.ensure_staging(*dataset);
  // Request and reply stay in place until Finish, so the callback may run much later.
  auto answer = [this, call, dataset](const Status& catalogued) {
    v1::DescribeReply& reply = *call.reply;
    if (!catalogued.has_value()) return call.reactor->Finish(ToGrpc(catalogued.error()));
    const auto catalog = dataset->catalog();
    if (!catalog && call.request->wait_for_catalog()) {
      return call.reactor->Finish(
          {grpc::StatusCode::UNAVAILABLE,
           fmt::format("the catalog of '{}' is still being built on this node, where clients of "
                       "other nodes do not wait for it",
                       dataset->name())});
    }
    reply.set_dataset(dataset->name());
    // The client did not want to wait; fingerprint 0 tells it that there is no catalog yet.
    if (!catalog) return call.reactor->Finish(grpc::Status::OK);
    AnswerWith(call, *dataset, catalog);
  };
  const bool has_failed = dataset->progress().state == stage::DatasetState::kFailed;
  if (call.request->wait_for_catalog() && (call.may_wait || has_failed)) {
    // Runs it at once if the catalog is there, or cannot be built; otherwise on the thread that
    // ends the cataloguing.
    dataset->WhenCatalogued(answer);
  } else {
    answer(Status());
  }
}

void DataService::AnswerWith(const DescribeCall& call, stage::Dataset& dataset,
                             const std::shared_ptr<const catalog::Catalog>& catalog) {
  // A copy: once Drain has ended the call, its request is gone.
  const std::string selection = call.request->selection();
  if (!TakesLong(selection)) {
    return Finish(call, *catalog, ResolveSelection(dataset, *catalog, selection));
  }
  bool draining = false;
  {
    const MutexLock lock(mutex_);
    draining = draining_;
    if (!draining) described_.insert(call.reactor);
  }
  if (draining) return call.reactor->Finish(ToGrpc(ShuttingDown()));
  const Status begun = Resolve([this, call, &dataset, catalog, selection] {
    const auto resolved = ResolveSelection(dataset, *catalog, selection);
    if (TakeDescribed(call)) Finish(call, *catalog, resolved);
  });
  if (!begun.has_value() && TakeDescribed(call)) call.reactor->Finish(ToGrpc(begun.error()));
}

bool DataService::TakeDescribed(const DescribeCall& call) {
  const MutexLock lock(mutex_);
  return described_.erase(call.reactor) > 0;
}

Status DataService::Resolve(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (draining_) return ShuttingDown();
    if (resolving_ >= limits::kSelectionsResolvedMax) {
      return Error(ErrorCode::kUnavailable,
                   fmt::format("{} selections wait for split files, the most that do "
                               "(kSelectionsResolvedMax): is the GFS answering?",
                               resolving_));
    }
    ++resolving_;
  }
  parts_.resolvers.Post([this, work = std::move(work)](io::IoQueue&) {
    work();
    const MutexLock lock(mutex_);
    --resolving_;
  });
  return {};
}

void DataService::Finish(const DescribeCall& call, const catalog::Catalog& catalog,
                         const Result<std::shared_ptr<const catalog::Selection>>& selection) {
  if (!selection.has_value()) return call.reactor->Finish(ToGrpc(selection.error()));
  v1::DescribeReply& reply = *call.reply;
  reply.set_format(std::string(catalog::FormatName(catalog.format())));
  reply.set_catalog_fingerprint(catalog.fingerprint());
  reply.set_sample_count(catalog.sample_count());
  reply.set_total_bytes(catalog.total_bytes());
  for (std::uint32_t i = 0; i < catalog.fields().size(); ++i) {
    FillField(catalog, FieldId(i), *reply.add_fields());
  }
  reply.set_selected_count((*selection)->size());
  reply.set_selection_fingerprint((*selection)->fingerprint());
  call.reactor->Finish(grpc::Status::OK);
}

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* DataService::Stream(
    grpc::CallbackServerContext* context) {
  return Begin(ClientOf(context->peer()));
}

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* DataService::RemoteStream(
    grpc::CallbackServerContext* context) {
  // Its certificate is one of the job, and so of the daemon's user.
  return Begin({.name = context->peer(), .uid = geteuid(), .is_remote = true});
}

StreamReactor* DataService::Begin(ClientIdentity client) {
  const bool is_remote = client.is_remote;
  const auto reactor = std::make_shared<StreamReactor>(*this, std::move(client));
  bool draining = false;
  bool is_full = false;
  {
    const MutexLock lock(mutex_);
    // Under the lock of Drain: either Drain finds this call in the list, or this call finds
    // draining_.
    streams_.insert(reactor);
    draining = draining_;
    if (is_remote) {
      is_full = ++remote_streams_ > limits::kClientsMax;
      silent_since_ns_[reactor.get()] = parts_.clock.NowNs();
    }
  }
  // Before Begin, which then reads nothing. gRPC still reports the end, so the reactor stays in the
  // list until it is told.
  if (draining) reactor->End(ShuttingDown());
  if (is_full) {
    reactor->End(Error(ErrorCode::kUnavailable,
                       fmt::format("this daemon serves {} calls of clients of other nodes, the "
                                   "most that it does (kClientsMax)",
                                   limits::kClientsMax)));
  }
  reactor->Begin();
  return reactor.get();
}

bool DataService::has_remote_clients() const {
  // For a program that has one stream after another.
  constexpr std::int64_t kBetweenStreamsNs = 10'000'000'000;
  const MutexLock lock(mutex_);
  // Those that are still being opened count, too: their readers have come in time.
  return remote_streams_ > silent_since_ns_.size() ||
         (remote_left_ns_ && parts_.clock.NowNs() - *remote_left_ns_ < kBetweenStreamsNs);
}

void DataService::HasSpoken(const StreamReactor& stream) {
  const MutexLock lock(mutex_);
  silent_since_ns_.erase(&stream);
}

void DataService::HasOpened(const StreamReactor& stream) {
  if (!stream.client().is_remote) return;
  const MutexLock lock(mutex_);
  remote_open_.insert(&stream);
}

void DataService::EndSilentCalls() {
  constexpr std::int64_t kPatienceNs = limits::kHandshakeDeadlineMs * 1'000'000;
  std::vector<std::shared_ptr<StreamReactor>> silent;
  {
    const MutexLock lock(mutex_);
    const std::int64_t now_ns = parts_.clock.NowNs();
    for (const std::shared_ptr<StreamReactor>& stream : streams_) {
      const auto found = silent_since_ns_.find(stream.get());
      if (found == silent_since_ns_.end() || now_ns - found->second < kPatienceNs) continue;
      silent.push_back(stream);
      silent_since_ns_.erase(found);  // it is told once
    }
  }
  for (const std::shared_ptr<StreamReactor>& stream : silent) {
    // A client that was only slow asks the next node.
    stream->End(Error(ErrorCode::kUnavailable,
                      fmt::format("the call has opened no stream within {} ms",
                                  limits::kHandshakeDeadlineMs)));
  }
}

void DataService::Left(const std::shared_ptr<StreamReactor>& stream) {
  const MutexLock lock(mutex_);
  if (stream->client().is_remote) {
    --remote_streams_;
    silent_since_ns_.erase(stream.get());
    if (remote_open_.erase(stream.get()) > 0) remote_left_ns_ = parts_.clock.NowNs();
  }
  streams_.erase(stream);
  if (streams_.empty()) all_left_.NotifyAll();
}

void DataService::Drain() {
  std::vector<std::shared_ptr<StreamReactor>> open;
  std::unordered_set<grpc::ServerUnaryReactor*> described;
  {
    const MutexLock lock(mutex_);
    draining_ = true;
    described.swap(described_);
    // A copy that owns them: End calls back to a session, and OnDone takes mutex_ to leave the
    // list.
    open.assign(streams_.begin(), streams_.end());
  }
  for (grpc::ServerUnaryReactor* const call : described) call->Finish(ToGrpc(ShuttingDown()));
  parts_.registry.KeepWhatReadersHave();
  for (const std::shared_ptr<StreamReactor>& stream : open) stream->End(ShuttingDown());
}

bool DataService::WaitDrained(std::chrono::milliseconds wait) {
  const MutexLock lock(mutex_);
  // Bounded, because gRPC waits for the reader to take its last messages.
  return all_left_.WaitFor(mutex_, wait,
                           [this]() FOREBAY_REQUIRES(mutex_) { return streams_.empty(); });
}

}  // namespace forebay::stream
