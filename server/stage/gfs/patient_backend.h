// PatientBackend: an I/O back end that repeats failed calls to the GFS. A call that fails with a
// transient error (proto/contract/failure.h) is repeated, with growing pauses, until it succeeds or
// `retry_for_ms` has passed. Its users see a slow GFS instead of a failed one, so cataloguing,
// staging and streams need no retries of their own. Each try waits until the job's caps allow it
// (GfsThrottle): nothing reads data sets in another way, so this is the one place that keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_patience.h"
#include "server/stage/gfs/gfs_throttle.h"

namespace forebay::stage {

// Everything is borrowed. Each call is registered in `calls` while it is under way, and before that
// waits for `throttle`. Opens, stats by path and listings count as opens; a stat of an open file
// belongs to its open. As thread-safe as `inner`.
class PatientBackend final : public io::IoBackend {
 public:
  PatientBackend(io::IoBackend& inner, GfsPatience& patience, GfsCalls& calls,
                 GfsThrottle& throttle)
      : inner_(inner),
        patience_(patience),
        calls_(calls),
        throttle_(throttle),
        name_("patient(" + std::string(inner.name()) + ")") {}

  std::string_view name() const override { return name_; }
  // A directory of the local node: calls are not repeated.
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    return inner_.OpenDirectory(path);
  }
  // A directory of the GFS. A wrong path is an error at once; if opening fails with a transient
  // error, the first call of the directory opens it. The directory's own calls and reads of its
  // files are repeated. If its mount has become stale, the directory is opened again, once its path
  // is on a file system of the same type as at first.
  Result<std::unique_ptr<io::Directory>> OpenGfsDirectory(std::string_view path);
  // The queue takes operations on files of the local node and of the GFS.
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override;

 private:
  io::IoBackend& inner_;
  GfsPatience& patience_;
  GfsCalls& calls_;
  GfsThrottle& throttle_;
  const std::string name_;
};

}  // namespace forebay::stage
