// DeliveryLog: who got what, one line of JSON per consumed batch (docs/delivery_log.md).
#pragma once

#include <cstdint>
#include <string>

#include "forebay/batch.h"
#include "forebay/stream_options.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::internal {

// What the log's header says about the stream.
struct DeliveryLogHeader {
  std::string dataset;
  std::string stream;
  std::string selection;
  OrderSpec order;
  std::uint64_t catalog_fingerprint = 0;
  std::uint32_t global_batch = 0;
  std::uint32_t ranks = 0;
  std::uint32_t rank = 0;
  std::uint32_t epochs = 0;  // the stream ends before the epoch of this number
  EpochId first_epoch = {};
  StepId first_step = {};
  std::int64_t opened_unix_ns = 0;
};

// Append-only; a file may hold several openings, one after the other. Each line is written
// when its batch is handed over, with one write call, so that a killed process loses at most
// the batch it was about to get. Each rank needs a file of its own. Not thread-safe.
class DeliveryLog {
 public:
  // Creates the file where there is none (mode 0600) and writes the header.
  static Result<DeliveryLog> Open(const std::string& path, const DeliveryLogHeader& header);
  // The micro-batch's name, which Batch does not show; size 0 for a rank's whole share.
  struct MicroName {
    std::uint32_t size = 0;
    std::uint32_t index = 0;
  };
  // An error (a full disk) is an error of the stream: a log with a gap proves nothing.
  Status Append(const Batch& batch, const MicroName& micro);

 private:
  DeliveryLog(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Status WriteLine();

  UniqueFd file_;
  std::string path_;
  std::string line_;
};

}  // namespace forebay::internal
