// EpochReader: reads one epoch over the bare protocol, on a thread of its own, and tells what
// came: the hash of every sample, and every error with its code.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/result.h"
#include "tests/fault/fault_case.h"
#include "tests/integration/raw_client.h"

namespace forebay::fault {

struct ReaderOptions {
  std::string socket_path;
  std::string dataset;
  OrderMode order = OrderMode::kGlobal;
  Arrival arrival = Arrival::kContiguous;
  std::uint64_t order_seed = 0;
  std::uint32_t batch = 64;
  std::uint32_t credits = 4;
  std::uint64_t pause_after = ~std::uint64_t{0};  // samples; then nothing is pulled until Resume
  std::chrono::seconds patience{60};              // for the whole epoch
};

struct EpochResult {
  std::vector<std::uint64_t> hashes;  // of what was delivered, sorted
  std::vector<Error> errors;          // of batches, and of calls that were repeated
  std::optional<Error> end;           // what ended the epoch early
  bool has_trailer = false;           // and it counts what was delivered
};

// What may be asked for again is, under the same name, until the patience is over
// (docs/failures.md); other errors are final for their batch.
class EpochReader {
 public:
  explicit EpochReader(const ReaderOptions& options);
  // Waits for the end.
  ~EpochReader();

  // Waits until the reader pauses; false where it ended before.
  bool AwaitPause();
  void Resume();
  std::uint64_t delivered() const { return delivered_; }
  // Waits for the end.
  EpochResult Join();

 private:
  struct Step {
    std::uint64_t number = 0;
    std::chrono::steady_clock::time_point not_before;
  };
  struct InlineBatch {
    v1::Batch message;
    std::string bytes;
  };

  void Run();
  void ReadEpoch(integration::RawClient& client, const v1::DescribeReply& dataset);
  std::optional<v1::DescribeReply> Describe(integration::RawClient& client);
  v1::StreamRequest OpenRequest(const v1::DescribeReply& dataset) const;
  void TakeReply(const v1::StreamReply& reply, v1::StreamRequest& request);
  void TakeBatch(const v1::Batch& batch, std::span<const std::byte> inline_bytes,
                 v1::StreamRequest& request);
  void TakeChunk(const v1::InlineChunk& chunk, v1::StreamRequest& request);
  void TakeError(const v1::BatchError& error);
  bool AppendField(const v1::FieldData& field, std::span<const std::byte> inline_bytes,
                   std::vector<std::vector<std::byte>>& samples) const;
  std::span<const std::byte> BytesOf(const WireSpan& span,
                                     std::span<const std::byte> inline_bytes) const;
  // Names what is to be pulled next. Waits where nothing else is under way.
  void AddPulls(v1::StreamRequest& request);
  bool IsAtPause();
  void PauseHere();
  std::chrono::seconds Remaining() const;
  bool MayTryAgain(const Error& error) const;
  void Wait(std::chrono::milliseconds pause);

  const ReaderOptions options_;
  const std::chrono::steady_clock::time_point deadline_;
  const integration::RawClient* client_ = nullptr;
  std::atomic<std::uint64_t> delivered_ = 0;
  EpochResult result_;
  std::deque<Step> wanted_;
  std::map<std::uint64_t, InlineBatch> arriving_;  // by id
  std::uint32_t outstanding_ = 0;                  // pulled, and not here in full
  bool has_steps_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool paused_ = false;
  bool resumed_ = false;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace forebay::fault
