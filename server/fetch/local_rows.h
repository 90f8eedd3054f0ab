// LocalRows: answers another node's request for rows (RowSource). The rows come from the tiers of
// this node; extents that are on no tier are staged first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/fetch/fetcher.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/stage/stager.h"

namespace forebay::fetch {

// Thread-safe; everything passed in is borrowed, and outlives all requests.
class LocalRows {
 public:
  LocalRows(stage::Stager& stager, Fetcher& fetcher, io::Executor& executor, io::Clock& clock)
      : stager_(stager), fetcher_(fetcher), executor_(executor), clock_(clock) {}

  // Fills the rows, which must stay in place until `done`; each byte from SSD or the GFS is
  // verified. `fingerprint` is that of the asking node's catalog. Starts staging the data set if it
  // has not started. `done` is called once, from a thread of the executor or of the stager. Errors
  // are meant for another node (stage::ErrorForOthers). kFailedPrecondition: this node has another
  // catalog. kInvalidArgument: there is no such row, or its memory has another length.
  // kUnimplemented: the samples are packed, and have to be decoded.
  void Read(stage::Dataset& dataset, std::uint64_t fingerprint, std::vector<Row> rows,
            RowSource::Done done);

 private:
  struct Work;
  using WorkRef = std::shared_ptr<Work>;

  void Start(const WorkRef& work);
  void Advance(const WorkRef& work, io::IoQueue& queue);

  stage::Stager& stager_;
  Fetcher& fetcher_;
  io::Executor& executor_;
  io::Clock& clock_;
};

}  // namespace forebay::fetch
