// PiecesPool: keeps SamplePieces for the requests of other nodes. Each has a table with an entry
// for every extent of a catalog, of which there may be millions: too many to make one for each
// request.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/fetch/sample_pieces.h"

namespace forebay::fetch {

// Thread-safe. Holds as many as were ever in use at a time.
class PiecesPool {
 public:
  class GiveBack {
   public:
    explicit GiveBack(std::shared_ptr<PiecesPool> pool) : pool_(std::move(pool)) {}
    void operator()(SamplePieces* pieces) const {
      const MutexLock lock(pool_->mutex_);
      pool_->idle_.emplace_back(pieces);
    }

   private:
    std::shared_ptr<PiecesPool> pool_;  // the last request may end after everything else
  };
  using Pieces = std::unique_ptr<SamplePieces, GiveBack>;

  static Pieces Take(const std::shared_ptr<PiecesPool>& pool) {
    auto pieces = std::make_unique<SamplePieces>();
    {
      const MutexLock lock(pool->mutex_);
      if (!pool->idle_.empty()) {
        pieces = std::move(pool->idle_.back());
        pool->idle_.pop_back();
      }
    }
    return {pieces.release(), GiveBack(pool)};
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<SamplePieces>> idle_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::fetch
