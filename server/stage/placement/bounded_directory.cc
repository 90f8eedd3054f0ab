// Wraps another directory and checks the clock before each call that may block.
#include "server/stage/placement/bounded_directory.h"

#include <utility>

namespace forebay::stage {

Result<std::unique_ptr<io::File>> BoundedDirectory::Open(std::string_view path,
                                                         io::OpenMode mode) {
  const bool is_read = mode == io::OpenMode::kRead || mode == io::OpenMode::kReadDirect;
  // A check must not create or change files, whatever a builder of catalogs would like to write.
  if (!is_read) return Refusal();
  FOREBAY_TRY(CheckTime());
  return inner_->Open(path, mode);
}

Result<io::FileInfo> BoundedDirectory::Stat(std::string_view path) {
  FOREBAY_TRY(CheckTime());
  // Counted for the message that says how far the time was enough.
  ++stats_;
  return inner_->Stat(path);
}

Result<std::vector<io::DirectoryEntry>> BoundedDirectory::List(std::string_view path) {
  FOREBAY_TRY(CheckTime());
  return inner_->List(path);
}

Error BoundedDirectory::Refusal() {
  return Error(ErrorCode::kUnimplemented, "a bounded directory is read-only");
}

Status BoundedDirectory::CheckTime() const {
  // A call that is under way at the deadline is not ended by this; its caller watches the thread.
  if (clock_.NowNs() < deadline_ns_) return {};
  return Error(ErrorCode::kDeadlineExceeded, "the time to look at this directory is used up");
}

}  // namespace forebay::stage
