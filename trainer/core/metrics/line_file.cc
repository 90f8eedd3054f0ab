// Lines are collected in memory and written by one call to write for a flush. If the disk takes
// only a part of them, the file is cut back to where it was. So the file ends with a whole line at
// every time, except while the process is killed in the middle of a write; the next run that
// appends cuts off that rest.
#include "trainer/core/metrics/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace forebay::train {

Result<LineFile> LineFile::Open(const std::string& path, bool append) {
  LineFile file;
  file.path_ = path;
  // O_APPEND is not set: after a failed write the file is cut back, and writing goes on at the
  // position that lseek sets.
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (append ? 0 : O_TRUNC);
  file.fd_ = UniqueFd(::open(path.c_str(), flags, 0644));
  if (!file.fd_.valid()) return Error::FromErrno(errno, path);
  struct stat status = {};
  if (::fstat(file.fd_.get(), &status) != 0) return Error::FromErrno(errno, path);
  // Pipes and terminals can be written to, but not cut.
  file.is_regular_ = S_ISREG(status.st_mode);
  if (append && file.is_regular_) FOREBAY_TRY(file.CutTornLine());
  return file;
}

LineFile::~LineFile() {
  // Who wants to know flushes before.
  if (is_open() && !Flush().has_value()) added_.clear();
}

// A run that was killed may have left one: what follows would be part of it.
Status LineFile::CutTornLine() {
  std::array<char, 65'536> piece = {};
  off_t end = ::lseek(fd_.get(), 0, SEEK_END);
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(piece.size()));
    const ssize_t got =
        ::pread(fd_.get(), piece.data(), static_cast<std::size_t>(end - begin), begin);
    if (got < 0) return Error::FromErrno(errno, path_ + ": read");
    const std::size_t newline =
        std::string_view(piece.data(), static_cast<std::size_t>(got)).rfind('\n');
    end = newline == std::string_view::npos ? begin : begin + static_cast<off_t>(newline) + 1;
    if (newline != std::string_view::npos) break;
  }
  if (end < 0 || ::ftruncate(fd_.get(), end) != 0 || ::lseek(fd_.get(), end, SEEK_SET) < 0) {
    return Error::FromErrno(errno, path_ + ": cut behind the last whole line");
  }
  return {};
}

void LineFile::Add(std::string_view line) {
  if (is_open()) added_ += line;
}

Status LineFile::Flush() {
  if (added_.empty()) return {};
  // Where the last whole line ends.
  const off_t before = is_regular_ ? ::lseek(fd_.get(), 0, SEEK_CUR) : -1;
  Status written = WriteAdded();
  // Lines that the disk refused are dropped, too, because a run must not fill its memory with lines
  // when the disk is full.
  added_.clear();
  if (written.has_value() || before < 0) return written;
  if (::ftruncate(fd_.get(), before) != 0 || ::lseek(fd_.get(), before, SEEK_SET) < 0) {
    return written.error().WithContext("half a line stays behind");
  }
  return written;
}

Status LineFile::WriteAdded() {
  std::string_view rest = added_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace forebay::train
