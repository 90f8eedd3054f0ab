// Lease: this daemon's exclusive right to a directory. Held by a lock that the kernel drops when
// the process ends, however it ends; whoever takes it next may clear what was left behind.
#pragma once

#include <string>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::daemon {

// Move-only; released on destruction, which also removes the lock file, and the directory where
// nothing else lies in it.
class Lease {
 public:
  // Locks `directory`/forebayd.lock. The directory is made where missing (mode 0700, parents
  // too); it must be this user's, no link, and nobody else may write to it (kPermissionDenied).
  // kAlreadyExists names the pid that holds it.
  static Result<Lease> Take(const std::string& directory);
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  ~Lease();

  // Of the lock file.
  std::string path() const { return directory_ + "/forebayd.lock"; }

 private:
  Lease(UniqueFd fd, std::string directory)
      : fd_(std::move(fd)), directory_(std::move(directory)) {}
  UniqueFd fd_;
  std::string directory_;
};

// A directory of this user and job for sockets: under $XDG_RUNTIME_DIR, else under the system's
// temporary directory.
std::string DefaultRuntimeDirectory(const std::string& job_id);

}  // namespace forebay::daemon
