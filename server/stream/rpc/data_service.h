// DataService: the gRPC face of streams (proto/forebay/v1/data.proto). Callback API: a slow
// reader costs its own credits, never a thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/stage/dataset.h"
#include "server/stream/stream_spec.h"
#include "server/stream/stream_registry.h"

namespace forebay::stream {

grpc::Status ToGrpc(const Error& error);

struct DataServiceOptions {
  std::string job_id;
  std::uint64_t generation = 0;
  v1::RemoteDaemons remote_daemons = {};  // for clients of this node; no address: there are none
};

// What the daemon lends the service; must outlive it.
struct DataServiceParts {
  StreamRegistry& registry;
  io::Clock& clock;
  // Runs tasks on threads that the GFS may block: these read split files, and compute selections
  // that take long. The threads of gRPC are few, and answer other nodes as well.
  io::Executor& resolvers;
  // The data set of that name, or null.
  std::function<stage::Dataset*(const std::string&)> find_dataset;
  std::function<std::vector<std::string>()> dataset_names;
  // True for the session number of a connection that passed the handshake.
  std::function<bool(std::uint64_t)> knows_session;
  // kFailedPrecondition where the daemon does not serve what this configuration's text asks for.
  std::function<Status(const std::string&)> check_serves;
  // Starts cataloguing and staging where nothing has yet.
  std::function<void(stage::Dataset&)> ensure_staging;
  // A stream was opened; it may be closed again by now. What is returned is kept until it is
  // closed.
  std::function<std::shared_ptr<void>(const StreamSpec&)> opened;
};

class StreamReactor;

// Thread-safe. After Drain, new streams are refused, and open ones end with kUnavailable. Tasks of
// DataServiceParts::resolvers may still run then: they end before the service goes.
class DataService final : public forebay::v1::Data::CallbackService {
 public:
  DataService(DataServiceOptions options, DataServiceParts parts);
  ~DataService() override;

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::HelloRequest* request,
                                  v1::HelloReply* reply) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* Stream(
      grpc::CallbackServerContext* context) override;

  // As Hello, Describe and Stream, for a client of another node (RemoteDataService). Describe does
  // not wait for a catalog, so that such calls hold nothing: it ends with kUnavailable, and the
  // client asks the next node. At most limits::kClientsMax calls of Stream are served at a time;
  // one that does not open its stream is ended (EndSilentCalls).
  grpc::ServerUnaryReactor* RemoteHello(grpc::CallbackServerContext* context,
                                        const v1::HelloRequest* request, v1::HelloReply* reply);
  grpc::ServerUnaryReactor* RemoteDescribe(grpc::CallbackServerContext* context,
                                           const v1::DescribeRequest* request,
                                           v1::DescribeReply* reply);
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* RemoteStream(
      grpc::CallbackServerContext* context);
  // Whether a client of another node has a stream open or asks for one, or had one until 10 s ago:
  // it may open its next one. A call that asks for no stream does not count.
  bool has_remote_clients() const;
  // Ends calls of other nodes that have not sent `open` within limits::kHandshakeDeadlineMs, for
  // each has the place of a client that needs it. Call about once a second.
  void EndSilentCalls();

  // Before a connection's first call: who it is. `peer` is what gRPC calls the connection.
  void Connected(const std::string& peer, const ClientIdentity& client);

  // Ends every stream, and every call of Describe whose selection is being resolved; returns at
  // once.
  void Drain();
  // Waits until all have ended; false where `wait` was too short for a reader that does not take
  // its last messages.
  bool WaitDrained(std::chrono::milliseconds wait);

 private:
  friend class StreamReactor;
  // When gRPC is done with it, and it holds nothing any more.
  void Left(const std::shared_ptr<StreamReactor>& stream);
  // A call has sent `open`, whatever comes of it; its stream is open.
  void HasSpoken(const StreamReactor& stream);
  void HasOpened(const StreamReactor& stream);
  ClientIdentity ClientOf(const std::string& peer) const;
  void FillHello(v1::HelloReply& reply) const;
  struct DescribeCall {
    grpc::ServerUnaryReactor* reactor;
    const v1::DescribeRequest* request;
    v1::DescribeReply* reply;
    bool may_wait = true;  // for the catalog
  };
  void Answer(const DescribeCall& call);
  void AnswerWith(const DescribeCall& call, stage::Dataset& dataset,
                  const std::shared_ptr<const catalog::Catalog>& catalog);
  void Finish(const DescribeCall& call, const catalog::Catalog& catalog,
              const Result<std::shared_ptr<const catalog::Selection>>& selection);
  // Whether the call is still to be answered; false: Drain has done it.
  bool TakeDescribed(const DescribeCall& call);
  // Runs `work` later on a thread that may be blocked. kUnavailable, and nothing is run, where the
  // daemon is shutting down or too many wait.
  Status Resolve(std::function<void()> work);
  // Logs that a client of another node has come, in a few lines a minute.
  void LogRemote(const std::string& client, const std::string& peer);
  StreamReactor* Begin(ClientIdentity client);

  const DataServiceOptions options_;
  DataServiceParts parts_;
  mutable Mutex mutex_;
  CondVar all_left_;
  std::uint32_t resolving_ FOREBAY_GUARDED_BY(mutex_) = 0;  // given to resolvers, and not ended
  // Calls of Describe whose selections these resolve.
  std::unordered_set<grpc::ServerUnaryReactor*> described_ FOREBAY_GUARDED_BY(mutex_);
  // By the name of a connection. A name comes back with another connection, so there are never
  // more than were open at once.
  std::unordered_map<std::string, ClientIdentity> clients_ FOREBAY_GUARDED_BY(mutex_);
  bool draining_ FOREBAY_GUARDED_BY(mutex_) = false;
  // Those that gRPC is not done with.
  std::unordered_set<std::shared_ptr<StreamReactor>> streams_ FOREBAY_GUARDED_BY(mutex_);
  std::uint32_t remote_streams_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of these, of other nodes
  // The streams of other nodes that have not sent `open` yet, with the time at which they began.
  std::unordered_map<const StreamReactor*, std::int64_t> silent_since_ns_
      FOREBAY_GUARDED_BY(mutex_);
  // The calls of other nodes whose streams are open.
  std::unordered_set<const StreamReactor*> remote_open_ FOREBAY_GUARDED_BY(mutex_);
  // When the last stream of another node has ended; nullopt: there was none.
  std::optional<std::int64_t> remote_left_ns_ FOREBAY_GUARDED_BY(mutex_);
  // Lines of LogRemote in the minute since then, and those that were left out.
  std::int64_t remote_lines_since_ns_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint32_t remote_lines_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stream
