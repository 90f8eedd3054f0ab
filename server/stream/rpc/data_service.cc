#include "server/stream/rpc/data_service.h"

#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/wire_layout.h"
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
  if (!request.job_id().empty() && request.job_id() != options.job_id) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("this daemon serves job '{}', the client belongs to job '{}'",
                        options.job_id, request.job_id())};
  }
  return grpc::Status::OK;
}

Error ShuttingDown() { return Error(ErrorCode::kUnavailable, "the daemon is shutting down"); }

// A client's word for itself stands in logs and tables: no more than a name, and visible.
std::string ShownName(std::string name) {
  if (name.size() > limits::kNameBytesMax) name.resize(limits::kNameBytesMax);
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name;
}

}  // namespace

grpc::Status ToGrpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code()), error.message()};
}

DataService::DataService(DataServiceOptions options, DataServiceParts parts)
    : options_(std::move(options)), parts_(std::move(parts)) {}

DataService::~DataService() = default;

void DataService::Connected(const std::string& peer, const ClientIdentity& client) {
  std::lock_guard lock(mutex_);
  clients_[peer] = client;
}

ClientIdentity DataService::ClientOf(const std::string& peer) const {
  std::lock_guard lock(mutex_);
  const auto found = clients_.find(peer);
  return found == clients_.end() ? ClientIdentity{.name = peer} : found->second;
}

grpc::ServerUnaryReactor* DataService::Hello(grpc::CallbackServerContext* context,
                                             const v1::HelloRequest* request,
                                             v1::HelloReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status status = CheckHello(*request, options_);
  if (status.ok() && !parts_.knows_session(request->session())) {
    status = {grpc::StatusCode::UNAUTHENTICATED, "unknown session: handshake first"};
  }
  if (status.ok() && !request->config().empty()) {
    const Status serves = parts_.check_serves(request->config());
    if (!serves.has_value()) status = ToGrpc(serves.error());
  }
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    ClientIdentity& client = clients_[context->peer()];
    client.name = ShownName(request->client_name());
  }
  reply->set_protocol_version(kProtocolVersion);
  reply->set_layout_version(kLayoutVersion);
  reply->set_order_version(kOrderSpecVersion);
  reply->set_catalog_version(kCatalogVersion);
  reply->set_job_id(options_.job_id);
  reply->set_generation(options_.generation);
  for (const std::string& name : parts_.dataset_names()) reply->add_datasets(name);
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* DataService::Describe(grpc::CallbackServerContext* context,
                                                const v1::DescribeRequest* request,
                                                v1::DescribeReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  stage::Dataset* dataset = parts_.find_dataset(request->dataset());
  if (dataset == nullptr) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND,
                     fmt::format("no data set '{}'; configured are: {}", request->dataset(),
                                 fmt::join(parts_.dataset_names(), ", "))});
    return reactor;
  }
  parts_.ensure_staging(*dataset);
  auto answer = [reactor, request, reply, dataset](const Status& catalogued) {
    if (!catalogued.has_value()) return reactor->Finish(ToGrpc(catalogued.error()));
    const auto catalog = dataset->catalog();
    reply->set_dataset(dataset->name());
    if (!catalog) return reactor->Finish(grpc::Status::OK);
    const auto selection = ResolveSelection(*dataset, *catalog, request->selection());
    if (!selection.has_value()) return reactor->Finish(ToGrpc(selection.error()));
    reply->set_format(std::string(catalog::FormatName(catalog->format())));
    reply->set_catalog_fingerprint(catalog->fingerprint());
    reply->set_sample_count(catalog->sample_count());
    reply->set_total_bytes(catalog->total_bytes());
    for (std::uint32_t i = 0; i < catalog->fields().size(); ++i) {
      FillField(*catalog, FieldId(i), *reply->add_fields());
    }
    reply->set_selected_count((*selection)->size());
    reply->set_selection_fingerprint((*selection)->fingerprint());
    reactor->Finish(grpc::Status::OK);
  };
  if (request->wait_for_catalog()) {
    dataset->WhenCatalogued(answer);
  } else {
    answer(Status());
  }
  return reactor;
}

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* DataService::Stream(
    grpc::CallbackServerContext* context) {
  const auto reactor = std::make_shared<StreamReactor>(*this, ClientOf(context->peer()));
  bool draining = false;
  {
    std::lock_guard lock(mutex_);
    streams_.insert(reactor);
    draining = draining_;
  }
  if (draining) reactor->End(ShuttingDown());
  reactor->Begin();
  return reactor.get();
}

void DataService::Left(const std::shared_ptr<StreamReactor>& stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
  if (streams_.empty()) all_left_.notify_all();
}

void DataService::Drain() {
  std::vector<std::shared_ptr<StreamReactor>> open;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    open.assign(streams_.begin(), streams_.end());
  }
  for (const std::shared_ptr<StreamReactor>& stream : open) stream->End(ShuttingDown());
}

bool DataService::WaitDrained(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  return all_left_.wait_for(lock, wait, [this] { return streams_.empty(); });
}

}  // namespace forebay::stream
