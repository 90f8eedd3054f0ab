// forebay::Client: the library's entry point. Connects to the daemon of this node (or starts a
// private one) and opens streams of minibatches.
//
//   // Calls `train` with the images and labels of every minibatch of an epoch.
//   forebay::Status TrainEpoch(
//       const std::function<void(forebay::TensorView, forebay::TensorView)>& train) {
//     FOREBAY_ASSIGN(const auto client, forebay::Client::Connect({}));
//     FOREBAY_ASSIGN(const auto stream,
//                    client->Open({.dataset = "fashion-mnist", .global_batch = 64}));
//     for (;;) {
//       FOREBAY_ASSIGN(const std::optional<forebay::Batch> batch, stream->Next());
//       if (!batch) break;              // the epoch has been delivered
//       FOREBAY_ASSIGN(const auto images, batch->Tensor("images"));
//       FOREBAY_ASSIGN(const auto labels, batch->Tensor("labels"));
//       train(images, labels);
//     }                                 // leaving the scope gives the batch's memory back
//     return stream->Finish();          // checks that no sample was lost or repeated
//   }
//
// FOREBAY_ASSIGN and FOREBAY_TRY return an error to the caller; Result and Error are described in
// proto/contract/result.h, which is installed as forebay/contract/result.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "forebay/batch_stream.h"
#include "forebay/stream_options.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay {

struct ClientOptions {
  // "unix:/path/to/forebayd.sock". Empty: $FOREBAY_ADDRESS, and where that is unset embedded
  // mode: the first client of this user, job and configuration on the node starts a private
  // forebayd, later ones join it, and it stops when the last has gone. Where it is killed, one of
  // its clients starts it again.
  std::string address = {};
  std::string job_id = {};       // must equal the daemon's; empty: $FOREBAY_JOB_ID or any
  std::string client_name = {};  // for logs and status; empty: program name and pid
  bool shared_memory = true;       // false: payload comes inline over the socket
  std::int64_t connect_timeout_ms = 10'000;
  // The private daemon's configuration file (docs/configuration.md; empty: $FOREBAY_CONFIG, and
  // where that is unset the one daemon of this job that already runs). A daemon at an address is
  // asked whether it serves the same data sets.
  std::string embedded_config = {};
  std::string embedded_daemon = {};  // its binary; empty: forebayd beside this program, then $PATH
};

struct FieldInfo {
  FieldSpec spec = {};
  std::vector<std::string> constant_names = {};  // of classes, where the data set names them
};

struct DatasetInfo {
  std::string name = {};
  std::string format = {};
  std::uint64_t catalog_fingerprint = 0;  // 0 while the daemon is still building the catalog
  std::uint64_t sample_count = 0;
  std::uint64_t total_bytes = 0;
  std::vector<FieldInfo> fields = {};
  std::uint64_t selected_count = 0;       // under the selection asked about
  std::uint64_t selection_fingerprint = 0;
};

// A connection. Thread-safe. Client, streams and batches may be destroyed in any order: the
// connection closes when the last of them is gone, and the daemon takes back what they held.
class Client {
 public:
  // Blocks for connect_timeout_ms at most; the same time bounds later reconnects.
  // kUnavailable: no daemon there (the message names the address and the remedy);
  // kFailedPrecondition: version, job or configuration mismatch, naming both sides;
  // kPermissionDenied: another user's daemon; kDeadlineExceeded. Embedded mode:
  // kFailedPrecondition without a configuration, kNotFound without a forebayd.
  static Result<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  virtual ~Client() = default;

  virtual const std::vector<std::string>& datasets() const = 0;
  // kNotFound names the data sets there are.
  virtual Result<DatasetInfo> Describe(const std::string& dataset,
                                       const std::string& selection) = 0;
  // The same once the daemon has built the catalog, for which it waits limits::kCatalogWaitMs (a
  // day) at most, then kDeadlineExceeded.
  virtual Result<DatasetInfo> DescribeWhenCatalogued(const std::string& dataset,
                                                     const std::string& selection) = 0;
  // Opens a stream. kFailedPrecondition where another rank opened it with another order, the
  // catalog has changed since the token was made, or ranks do not divide the global batch.
  virtual Result<std::unique_ptr<BatchStream>> Open(const StreamOptions& options) = 0;
  // The daemon's address, to hand to other ranks.
  virtual const std::string& address() const = 0;
};

}  // namespace forebay
