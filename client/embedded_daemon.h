// EmbeddedDaemon: the private forebayd of a job without a configured one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "client/handshake.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::internal {

struct EmbeddedOptions {
  std::string job_id;      // names the daemon among this user's; empty: CurrentJob()
  std::string config;      // its configuration file
  std::string binary;      // empty: forebayd beside this program, then on $PATH
  std::string directory;   // for socket and lock; empty: EmbeddedDirectory(job)
  Deadline deadline;
};

// $FOREBAY_JOB_ID, else the batch system's, else "local": as forebayd names it.
std::string CurrentJob();

// $XDG_RUNTIME_DIR/forebay-<job>, else <temporary folder>/forebay-<uid>-<job>: where forebayd
// puts its socket by default.
std::string EmbeddedDirectory(const std::string& job_id);

// The first process of a user and job on the node starts the daemon, later ones find it; a
// lock file, there only while somebody looks, decides who is first. The daemon ends itself
// some seconds after its last client has gone, also when clients are killed: nobody has to
// stop it, and nothing stays behind.
class EmbeddedDaemon {
 public:
  // Blocks until the daemon answers at address(). kFailedPrecondition: no configuration, or
  // the directory belongs to somebody else; kNotFound: no forebayd; kDeadlineExceeded.
  static Result<std::shared_ptr<EmbeddedDaemon>> StartOrJoin(const EmbeddedOptions& options);
  // Collects the daemon's exit status where this process started it and it has ended.
  ~EmbeddedDaemon();
  EmbeddedDaemon(const EmbeddedDaemon&) = delete;
  EmbeddedDaemon& operator=(const EmbeddedDaemon&) = delete;

  const std::string& address() const { return address_; }
  bool started_here() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }

 private:
  EmbeddedDaemon() = default;

  std::string address_;
  pid_t pid_ = -1;  // of the daemon where this process started it
};

}  // namespace forebay::internal
