// FirstReadAnswers: has checksums of first reads kept for other nodes, on a thread of its own that
// may wait for a file.
#pragma once

#include <cstdint>
#include <memory>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/peer/peer_requests.h"
#include "server/peer/unary_answer.h"
#include "server/stage/dataset.h"
#include "server/stage/local_first_reads.h"

namespace forebay::peer {

// Thread-safe. The destructor waits for the thread, and drops what waits for it.
class FirstReadAnswers {
 public:
  // Both are borrowed.
  static Result<std::unique_ptr<FirstReadAnswers>> Create(stage::LocalFirstReads& first_reads,
                                                          io::IoBackend& backend);

  // Answers once the reads are kept; returns at once. `bytes`: of the request. TooBusy: as much as
  // limits::kPeerFirstReadsWaitingBytesMax waits to be kept, by the request's bytes or by the
  // memory of its reads, whichever is larger.
  Status Answer(stage::Dataset& dataset, FirstReadsGiven given, std::uint64_t bytes,
                std::shared_ptr<UnaryAnswer> answer);

 private:
  explicit FirstReadAnswers(stage::LocalFirstReads& first_reads) : first_reads_(first_reads) {}

  stage::LocalFirstReads& first_reads_;
  Mutex mutex_;
  std::uint64_t waiting_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;  // that thread_ has not kept yet
  // It waits for nothing else, because reader threads of other nodes wait for it, with memory that
  // others may need.
  std::unique_ptr<io::ThreadExecutor> thread_;
};

}  // namespace forebay::peer
