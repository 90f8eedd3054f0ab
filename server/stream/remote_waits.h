// RemoteWaits: the batches that wait for what other nodes of the job send: rows, and chunks of
// packed data sets. With one node there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/packed/remote_chunks.h"
#include "server/fetch/row_router.h"
#include "server/io/clock.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/batch_job.h"
#include "server/stream/gatherer.h"

namespace forebay::stream {

// Thread-safe. A part of BatchScheduler; outlives the jobs that wait.
class RemoteWaits {
 public:
  using JobRef = std::shared_ptr<BatchJob>;
  // All are borrowed.
  struct Parts {
    fetch::Fetcher& fetcher;
    fetch::RowRouter& rows;
    io::Clock& clock;
  };
  // How a wait ends. Called from any thread, without a lock.
  struct Ends {
    std::function<void(const JobRef&)> start;  // plans the batch again
    // These batches of one stream are complete, or have failed.
    std::function<void(std::span<AnsweredBatch>)> hand_over;
  };
  // A batch that has its slot, and the rows that RowRouter has to bring.
  struct RowsAwaited {
    JobRef job;
    AssembledBatch batch;
    std::vector<fetch::RoutedRow> rows;
  };

  // At most `sent_chunk_bytes` of chunks are kept for all jobs together.
  RemoteWaits(const Parts& parts, std::uint64_t sent_chunk_bytes, Ends ends);

  // Call once for each new stream.
  void Begin(StreamSlots& slots) const;

  // Adds the batch to `together`, whose rows the caller asks for by AwaitRows when its round ends,
  // or asks for its rows at once. All batches are of one stream.
  void Lack(RowsAwaited lacking, std::vector<RowsAwaited>& together);
  // Asks for the rows of these batches of one stream; may be empty.
  void AwaitRows(std::vector<RowsAwaited> batches);

  // Returns what the plan of a packed batch can count on.
  OtherNodes OthersOf(const BatchJob& job) const;
  // Asks for chunks that the batch decodes here. It is planned again when they have come, or if
  // there is no memory for them.
  void AwaitChunks(const JobRef& job, std::vector<fetch::WantedRemote> chunks);
  // Fails batches whose chunks have not come in time. Call about once a second.
  void Expire();

 private:
  void Fail(const JobRef& job, const Error& error);
  void ChunksCame(const JobRef& job, const std::vector<fetch::WantedRemote>& wanted,
                  Result<std::vector<fetch::SentChunk>> sent);
  void RowsCame(std::vector<RowsAwaited>& batches, std::int64_t asked_ns,
                const Result<fetch::RowRouter::Filled>& filled);

  const Parts parts_;
  const Ends ends_;
  fetch::RemoteChunks chunks_;
};

}  // namespace forebay::stream
