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
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "forebay/batch_stream.h"
#include "forebay/stream_options.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay {

// Which daemon a client uses, and how. `ClientOptions{}` is right for most programs: the daemon of
// the job, or a private one where the environment names a configuration.
struct ClientOptions {
  // The daemon's socket, "unix:/path/to/forebayd.sock". If it is empty, $FOREBAY_ADDRESS counts. If
  // that is unset, too, the client runs in embedded mode: the first client of this user, job and
  // configuration on the node starts a private forebayd, later clients join it, and it stops when
  // the last of them has gone. If it is killed, one of its clients starts it again.
  std::string address = {};
  // Must equal the job of the daemon. Empty: $FOREBAY_JOB_ID, or any job if that is unset.
  std::string job_id = {};
  // The name of this client in the daemon's log and in `forebay status`. Empty: the program's name
  // and process number.
  std::string client_name = {};
  // Whether batches arrive in memory that is shared with the daemon. False: their bytes come over
  // the socket, which costs copies; for machines on which memory cannot be shared.
  bool shared_memory = true;
  // How long Connect waits for a daemon that does not run yet or is being restarted, and how long a
  // stream tries to connect again after the connection broke.
  std::int64_t connect_timeout_ms = 10'000;
  // In a job of several nodes with a secret (docs/security.md): how long streams look for their
  // daemon before they go on at another node's, with the same batches, over the network. The time
  // is for a daemon that was killed and is started again; it should be shorter than
  // connect_timeout_ms. A daemon that has ended in good order is not waited for. While a stream
  // reads from another node, it looks for its own daemon as often as this, but at most once a
  // second, and goes back to it. Negative: streams never go to another node.
  std::int64_t other_node_after_ms = 5'000;
  // Called with a line of text when streams go on at another node, and when they are back, by a
  // thread that waits for a batch. It must not call the library. Empty: the line goes to standard
  // error.
  std::function<void(const std::string& line)> notice = {};
  // Embedded mode: the configuration file of the private daemon (docs/configuration.md). Empty:
  // $FOREBAY_CONFIG, and if that is unset the one daemon of this job that already runs. With an
  // address, the daemon there is asked whether it serves the data sets of this file.
  std::string embedded_config = {};
  // Embedded mode: the program to start. Empty: forebayd beside this program, else in $PATH.
  std::string embedded_daemon = {};
};

// A field of a data set. `constant_names[i]` is the name of the value i of a constant field, for
// example of a class; empty where the data set has no names for it.
struct FieldInfo {
  FieldSpec spec = {};
  std::vector<std::string> constant_names = {};
};

// What the daemon knows of a data set, for one selection of its samples.
struct DatasetInfo {
  std::string name = {};
  std::string format = {};  // "tar", "npy", ... (docs/catalog.md)
  // Identifies the catalog, and so the samples and their numbers; 0 while the daemon is still
  // building it.
  std::uint64_t catalog_fingerprint = 0;
  std::uint64_t sample_count = 0;  // of the whole data set
  std::uint64_t total_bytes = 0;   // of its objects on the GFS
  std::vector<FieldInfo> fields = {};
  std::uint64_t selected_count = 0;  // samples of the selection
  std::uint64_t selection_fingerprint = 0;
};

// A connection to the daemon of this node. A program needs one, for all of its streams.
// Thread-safe. Client, streams and batches may be destroyed in any order: the connection closes
// when the last of them is gone, and the daemon takes back the memory that they held.
class Client {
 public:
  // Connects, or starts a private daemon and connects to it. While no daemon answers, or one hangs
  // up or shuts down, it tries again. Blocks for connect_timeout_ms at most.
  //
  // - kUnavailable: no daemon answered there in that time. The message names the address and what
  //   to do.
  // - kFailedPrecondition: the daemon has another version, job or configuration (the message names
  //   both sides); or embedded mode without a configuration.
  // - kPermissionDenied: the daemon belongs to another user.
  // - kNotFound: embedded mode, and no forebayd was found.
  // - kDeadlineExceeded: the daemon did not answer in time.
  static Result<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  virtual ~Client() = default;

  // The names of the daemon's data sets, as of Connect.
  virtual const std::vector<std::string>& datasets() const = 0;
  // Asks the daemon about a data set, without waiting for a catalog that is being built.
  // kNotFound names the data sets there are.
  virtual Result<DatasetInfo> Describe(const std::string& dataset,
                                       const std::string& selection) = 0;
  // As Describe, but waits until the daemon has built the catalog: limits::kCatalogWaitMs (a day)
  // at most, then kDeadlineExceeded.
  virtual Result<DatasetInfo> DescribeWhenCatalogued(const std::string& dataset,
                                                     const std::string& selection) = 0;
  // Opens a stream, and asks for its first batches. A program may read several streams, each on a
  // thread of its own. kOutOfRange, kInvalidArgument: an option cannot be; the message names it.
  // kFailedPrecondition: another rank opened a stream of that name with another order, the catalog
  // has changed since the token was made, or the ranks do not divide the global batch.
  // kResourceExhausted: the daemon has no memory left for the stream's batches, or this process may
  // have no more threads.
  virtual Result<std::unique_ptr<BatchStream>> Open(const StreamOptions& options) = 0;
  // The daemon's address, to hand to other ranks.
  virtual const std::string& address() const = 0;
};

}  // namespace forebay
