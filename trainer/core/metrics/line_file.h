// LineFile: a file of lines that a run appends to, of which a full disk costs lines and not the
// run.
#pragma once

#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

// Only whole lines stay in the file: what cannot be written to its end is cut off again and lost.
// Destruction writes what was added. Movable; not thread-safe.
class LineFile {
 public:
  LineFile() = default;  // of no file: every call does nothing
  // Makes the file, or appends to it, behind its last whole line. Errors name the path.
  static Result<LineFile> Open(const std::string& path, bool append);
  ~LineFile();
  LineFile(LineFile&& other) noexcept = default;
  LineFile& operator=(LineFile&& other) noexcept = default;

  bool is_open() const { return fd_.valid(); }

  // Keeps the line, which has its newline, until Flush.
  void Add(std::string_view line);
  // Writes all lines that were added. Those of a failed call are lost; the next one tries anew.
  Status Flush();

 private:
  Status WriteAdded();
  Status CutTornLine();

  std::string path_;
  UniqueFd fd_;
  bool is_regular_ = false;
  std::string added_;
};

}  // namespace forebay::train
