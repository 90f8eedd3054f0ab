// EmbeddedDaemon: the private forebayd of a job without a configured one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/connection/handshake.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::internal {

struct EmbeddedOptions {
  std::string job_id;      // names the daemon among this user's; empty: CurrentJob()
  std::string config;      // its configuration file; empty: one that runs already is joined
  std::string config_text = {};  // what that file said when it was read; empty: it is read now
  std::string binary;      // empty: forebayd beside this program, then on $PATH
  std::string directory;   // for socket and lock; empty: EmbeddedDirectory(job, config_text)
  Deadline deadline;
};

// $FOREBAY_JOB_ID, else the batch system's, else "local": as forebayd names it.
std::string CurrentJob();

// $XDG_RUNTIME_DIR/forebay-<job>, else <temporary folder>/forebay-<uid>-<job>: where forebayd
// puts its socket by default. A private daemon's has "-" and eight digits behind that, a checksum
// of its configuration: programs of equal configuration share one, others get their own.
std::string EmbeddedDirectory(const std::string& job_id, std::string_view config_text = {});

// "unix:/path" of each socket in such directories of this user and job, sorted. A daemon need not
// answer there.
std::vector<std::string> AddressesOfJob(const std::string& job_id);
// The addresses of AddressesOfJob at which a daemon answers.
std::vector<std::string> DaemonsOfJob(const std::string& job_id, Deadline deadline);

// The program to start as forebayd: the one beside the running program if there is one, else a bare
// name that is to be searched in $PATH.
std::string DaemonProgram();

// The text of a configuration file. kNotFound; kResourceExhausted: beyond kConfigFileBytesMax.
Result<std::string> ReadConfigText(const std::string& path);

// The first process of a user, job and configuration on the node starts the daemon, later ones find
// it; a lock file, there only while somebody looks, decides who is first. The daemon ends itself
// some seconds after its last client has gone, also when clients are killed: nobody has to
// stop it, and nothing stays behind.
class EmbeddedDaemon {
 public:
  // Blocks until the daemon answers at address(). kFailedPrecondition: no configuration, and not
  // exactly one daemon of the job that could be joined; kPermissionDenied: the directory belongs to
  // somebody else; kNotFound: no forebayd, or no such configuration; kDeadlineExceeded.
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
  static Result<std::shared_ptr<EmbeddedDaemon>> Join(const std::string& job, Deadline deadline);

  std::string address_;
  pid_t pid_ = -1;  // of the daemon where this process started it
};

}  // namespace forebay::internal
