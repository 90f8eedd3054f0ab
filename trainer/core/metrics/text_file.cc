// Writes a document by plain stdio. Summary, trace and reports are written once, at the end of a
// run, and are not worth an fsync: a machine that crashes then loses a figure, not a weight.
#include "trainer/core/metrics/text_file.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace forebay::train {

Status WriteTextFile(const std::filesystem::path& path, std::string_view text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"),
                                                             &std::fclose);
  if (file == nullptr) return Error::FromErrno(errno, path.string());
  if (std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
      std::fflush(file.get()) == 0) {
    return {};
  }
  const int cause = errno;
  // Devices and pipes, such as /dev/stdout, stay.
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
  return Error::FromErrno(cause, path.string());
}

}  // namespace forebay::train
