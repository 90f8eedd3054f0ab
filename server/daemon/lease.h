// Lease: this daemon's exclusive right to use a directory. It is a file lock, which the kernel
// drops when the process ends, in whatever way. So the next daemon that takes the lease knows that
// files of an earlier one are stale, and may remove them.
#pragma once

#include <string>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::daemon {

// Move-only. Destruction releases the lease and removes the lock file, and also the directory if it
// is empty.
class Lease {
 public:
  // Locks `directory`/forebayd.lock. Creates the directory (mode 0700) and its parents if they do
  // not exist. Waits for a holder that is ending, as long as a daemon may drain
  // (limits::kDrainDeadlineMs): one that was killed keeps the lock until the kernel has freed its
  // memory, which takes seconds for a large RAM tier. Errors: kPermissionDenied: the directory
  // belongs to another user, is a symbolic link, or others may write to it; kAlreadyExists: another
  // daemon holds the lease (the message names its pid); kUnavailable: other daemons took and
  // released it at every attempt; kCancelled: `stop_fd` became readable during the wait.
  static Result<Lease> Take(const std::string& directory, int stop_fd = -1);
  // Succeeds if no daemon holds the lease of `directory`; kAlreadyExists names the pid of the one
  // that does. Creates nothing. A daemon that calls Take in the same instant may find the lease
  // taken.
  static Status CheckFree(const std::string& directory);
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  ~Lease();

  // Notes in the lock file that this daemon is ending, so that the next one waits for it.
  void MarkEnding() const;

  // The path of the lock file.
  std::string path() const { return directory_ + "/forebayd.lock"; }

 private:
  Lease(UniqueFd fd, std::string directory)
      : fd_(std::move(fd)), directory_(std::move(directory)) {}
  UniqueFd fd_;
  std::string directory_;
};

// Succeeds if `path` is a directory of this user in which no other user can replace files, as
// Lease::Take demands it. kPermissionDenied if it is not; kNotFound if there is none.
Status CheckPrivateDirectory(const std::string& path);

// The directory for the sockets of this user and job: beneath $XDG_RUNTIME_DIR or, if that is not
// set, beneath the system's temporary directory. Does not create it.
std::string DefaultRuntimeDirectory(const std::string& job_id);

}  // namespace forebay::daemon
