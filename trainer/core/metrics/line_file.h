// LineFile: a file of lines that a run appends to. A full disk costs some lines, not the run.
#pragma once

#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

// Only whole lines stay in the file: a line that cannot be written to its end is cut off again and
// lost. Destruction writes what was added. Movable; not thread-safe.
class LineFile {
 public:
  LineFile() = default;  // of no file: every call does nothing
  // Makes the file, or appends to it after its last whole line. Errors name the path.
  static Result<LineFile> Open(const std::string& path, bool append);
  ~LineFile();
  LineFile(LineFile&& other) noexcept = default;
  LineFile& operator=(LineFile&& other) noexcept = default;

  bool is_open() const { return fd_.valid(); }

  // Keeps the line, which ends in a newline, until Flush.
  void Add(std::string_view line);
  // Writes all lines that were added. If the call fails these lines are lost; later calls try again
  // with theirs.
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
