// Trials of a directory that the daemon owns: of its socket, of saved catalogs, of the SSD tier.
// They create no directory, and a file only without a name, so that nothing is left behind, also if
// the doctor is killed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "proto/contract/result.h"
#include "server/daemon/doctor/node_check.h"
#include "server/io/io_backend.h"

namespace forebay::daemon {

struct OwnDirectory {
  std::string path;
  bool exists = false;
  std::string nearest;  // `path`, or where the daemon creates it
  // "/local/ssd", "/local/ssd, which the daemon creates": for texts of findings.
  std::string Described() const;
};

// Looks whether the daemon can take `path`, the absolute path that `key` names: it belongs to this
// user alone and no other daemon uses it, or it can be created. Otherwise reports the failure, and
// returns nothing.
std::optional<OwnDirectory> TryDirectory(const std::string& path, const std::string& key,
                                         CheckReport& report);

// An empty file without a name: its space is free again as soon as it is closed, in whatever way
// the process ends. Both members may be the same.
struct TrialFile {
  std::shared_ptr<io::File> writer;
  std::shared_ptr<io::File> reader;
};
// Creates one in `directory`, with O_DIRECT if `direct` is set and the file system allows it.
Result<TrialFile> CreateTrialFile(io::Directory& directory, bool direct);

// Writes a page to a trial file in `directory`, and syncs the file and the directory.
Status TryToWrite(io::IoBackend& backend, const std::string& directory);

// Returns the remedy for an error of a directory or a file that `key` names.
std::string DirectoryRemedy(const Error& error, const std::string& key);

}  // namespace forebay::daemon
