// Client::Connect finds the daemon (options, then the environment) or starts a private one, and
// describes data sets. Streams are RemoteStream's: Open describes the data set first, because the
// order and the steps of a stream follow from the numbers of its catalog.
#include "forebay/client.h"

#include <errno.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <grpcpp/client_context.h>

#include "client/connection/connection_source.h"
#include "client/connection/embedded_daemon.h"
#include "client/connection/rpc_status.h"
#include "client/remote_stream.h"
#include "client/stream/stream_schema.h"
#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/limits.h"

namespace forebay {
namespace internal {
namespace {

using std::chrono::milliseconds;

// The pause between calls that end at once, while nobody has the catalog yet.
constexpr milliseconds kAskAgain(500);

std::string EnvironmentOr(const char* name, std::string fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::move(fallback);
}

// Names the process in `forebay status` of a node on which several trainers run.
std::string DefaultClientName() {
  return std::string(program_invocation_short_name) + "[" + std::to_string(::getpid()) + "]";
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined.empty() ? "none" : joined;
}

// std::thread throws this where the process may have no more threads.
Error NoThread(const char* what, const std::system_error& error) {
  return {ErrorCode::kResourceExhausted,
          std::string("no thread could be started for ") + what + ": " + error.what() +
              "; raise the limit on processes (ulimit -u, or that of the container)"};
}

class ConnectedClient final : public Client {
 public:
  ConnectedClient(std::shared_ptr<ConnectionSource> source, std::vector<std::string> datasets)
      : source_(std::move(source)), datasets_(std::move(datasets)) {}

  const std::vector<std::string>& datasets() const override { return datasets_; }
  const std::string& address() const override { return source_->address(); }

  Result<DatasetInfo> Describe(const std::string& dataset,
                               const std::string& selection) override {
    return DescribeOnce(dataset, selection, /*wait_for_catalog=*/false);
  }

  Result<DatasetInfo> DescribeWhenCatalogued(const std::string& dataset,
                                             const std::string& selection) override {
    // Many short calls in place of a long one: if the daemon dies meanwhile, the next call notices
    // that and connects again. A call that ends with another error than its deadline has an answer.
    const auto end = std::chrono::steady_clock::now() + milliseconds(limits::kCatalogWaitMs);
    for (;;) {
      const auto began = std::chrono::steady_clock::now();
      Result<DatasetInfo> info = DescribeOnce(dataset, selection, /*wait_for_catalog=*/true);
      const bool is_late = !info && info.error().code() == ErrorCode::kDeadlineExceeded;
      if (!is_late || std::chrono::steady_clock::now() >= end) return info;
      std::this_thread::sleep_until(began + kAskAgain);
    }
  }

  Result<std::unique_ptr<BatchStream>> Open(const StreamOptions& options) override {
    FOREBAY_ASSIGN(const DatasetInfo info,
                   options.wait_for_catalog
                       ? DescribeWhenCatalogued(options.dataset, options.selection)
                       : Describe(options.dataset, options.selection));
    // A fingerprint of 0 says that there is no catalog yet. The order would be one of 0 samples,
    // and the stream would end at once, which looks like success.
    if (info.catalog_fingerprint == 0) {
      return Error(ErrorCode::kUnavailable,
                   "the catalog of '" + options.dataset + "' is still being built");
    }
    // An empty selection is nearly always a misspelt one, and a stream of it would end without a
    // batch.
    if (info.selected_count == 0) {
      return Error(ErrorCode::kInvalidArgument, "selection '" + options.selection + "' of '" +
                                                    options.dataset + "' has no samples");
    }
    // A stream has a thread that sends, and those of its transform.
    try {
      return RemoteStream::Open(source_, options, info);
    } catch (const std::system_error& error) {
      return NoThread("the stream", error);
    }
  }

 private:
  Result<DatasetInfo> DescribeOnce(const std::string& dataset, const std::string& selection,
                                   bool wait_for_catalog) {
    std::shared_ptr<const DaemonConnection> connection = source_->current();
    Result<DatasetInfo> info = CallDescribe(*connection, dataset, selection, wait_for_catalog);
    // A describing call has no side effects, so it may be repeated whatever became of the first
    // one.
    if (info || info.error().code() != ErrorCode::kUnavailable) return info;
    // The daemon may have been restarted since the last call: once more on a new connection.
    const auto deadline = std::chrono::steady_clock::now() +
                          milliseconds(source_->options().connect_timeout_ms);
    FOREBAY_ASSIGN(connection, source_->Replace(connection.get(), deadline));
    info = CallDescribe(*connection, dataset, selection, wait_for_catalog);
    // Nodes that serve in place of this one do not wait for their catalogs.
    const bool may_come = wait_for_catalog && connection->is_other_node() && !info &&
                          info.error().code() == ErrorCode::kUnavailable;
    if (may_come) return Error(ErrorCode::kDeadlineExceeded, info.error().message());
    return info;
  }

  Result<DatasetInfo> CallDescribe(const DaemonConnection& connection, const std::string& dataset,
                                   const std::string& selection, bool wait_for_catalog) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         milliseconds(limits::kCallDeadlineMs));
    v1::DescribeRequest request;
    request.set_dataset(dataset);
    request.set_selection(selection);
    request.set_wait_for_catalog(wait_for_catalog);
    v1::DescribeReply reply;
    const auto stub = v1::Data::NewStub(connection.channel());
    const grpc::Status status = stub->Describe(&context, request, &reply);
    // The daemon's message says which name it does not know; the list shows what was meant.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      return Error(ErrorCode::kNotFound, status.error_message() + " (data sets of this daemon: " +
                                             Join(connection.datasets()) + ")");
    }
    FOREBAY_TRY(StatusFromRpc(status));
    return ParseDescription(reply);
  }

  static Result<DatasetInfo> ParseDescription(const v1::DescribeReply& reply) {
    // The reply is checked as a stream's fields are: sizes in it are used to allocate tensors.
    FOREBAY_ASSIGN(StreamSchema schema, ParseSchema(reply.fields()));
    DatasetInfo info = {.name = reply.dataset(),
                        .format = reply.format(),
                        .catalog_fingerprint = reply.catalog_fingerprint(),
                        .sample_count = reply.sample_count(),
                        .total_bytes = reply.total_bytes(),
                        .fields = {},
                        .selected_count = reply.selected_count(),
                        .selection_fingerprint = reply.selection_fingerprint()};
    for (std::size_t i = 0; i < schema.fields.size(); ++i) {
      const auto& names = reply.fields(static_cast<int>(i)).constant_names();
      info.fields.push_back({.spec = std::move(schema.fields[i]),
                             .constant_names = {names.begin(), names.end()}});
    }
    return info;
  }

  std::shared_ptr<ConnectionSource> source_;
  std::vector<std::string> datasets_;
};

}  // namespace
}  // namespace internal

Result<std::unique_ptr<Client>> Client::Connect(const ClientOptions& given) {
  ClientOptions options = given;
  // An option that the program sets goes before the environment: the program names the daemon that
  // it means, while a job script sets the environment for all programs of the job.
  if (options.address.empty()) options.address = internal::EnvironmentOr("FOREBAY_ADDRESS", "");
  if (options.job_id.empty()) options.job_id = internal::EnvironmentOr("FOREBAY_JOB_ID", "");
  if (options.client_name.empty()) options.client_name = internal::DefaultClientName();

  if (options.embedded_config.empty()) {
    options.embedded_config = internal::EnvironmentOr("FOREBAY_CONFIG", "");
  }
  // The file is read once. The private daemon's directory, what Hello announces and a later restart
  // then rest on one text, even if somebody edits the file meanwhile. With an address it is read,
  // too: the daemon at that address compares it with what it serves.
  std::string config_text;
  if (!options.embedded_config.empty()) {
    FOREBAY_ASSIGN(config_text, internal::ReadConfigText(options.embedded_config));
  }

  // One deadline for all: a private daemon that starts slowly leaves less time to connect to it.
  const auto deadline = std::chrono::steady_clock::now() +
                        internal::milliseconds(options.connect_timeout_ms);
  std::shared_ptr<internal::EmbeddedDaemon> embedded;
  std::string address = options.address;
  if (address.empty()) {
    FOREBAY_ASSIGN(embedded, internal::EmbeddedDaemon::StartOrJoin(
                                 {.job_id = options.job_id,
                                  .config = options.embedded_config,
                                  .config_text = config_text,
                                  .binary = options.embedded_daemon,
                                  .directory = {},
                                  .deadline = deadline}));
    address = embedded->address();
  }
  auto source = std::make_shared<internal::ConnectionSource>(
      std::move(options), std::move(config_text), std::move(address), embedded);
  try {
    // Connecting now, not with the first stream, lets a wrong address fail where it is given.
    FOREBAY_ASSIGN(auto connection, source->Replace(nullptr, deadline));
    return std::unique_ptr<Client>(std::make_unique<internal::ConnectedClient>(
        std::move(source), connection->datasets()));
  } catch (const std::system_error& error) {
    return internal::NoThread("the connection", error);
  }
}

}  // namespace forebay
