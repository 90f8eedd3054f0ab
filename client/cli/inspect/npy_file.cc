// NumPy's format 1.0: a magic, the length of a text that is a Python dictionary, padded so that the
// array begins at a multiple of 64 bytes, then the elements.
#include "client/cli/inspect/npy_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/align_up.h"

namespace forebay::cli {
namespace {

const char* NpyType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBytes:
    case Dtype::kU8: return "|u1";
    case Dtype::kI8: return "|i1";
    case Dtype::kU16:
    // NumPy has no bfloat16. The bits are kept as integers, and the user's program gives them their
    // type.
    case Dtype::kBf16: return "<u2";
    case Dtype::kI16: return "<i2";
    case Dtype::kI32: return "<i4";
    case Dtype::kI64: return "<i8";
    case Dtype::kF16: return "<f2";
    case Dtype::kF32: return "<f4";
    case Dtype::kF64: return "<f8";
  }
  return "|V1";
}

}  // namespace

std::string NpyHeader(Dtype dtype, std::span<const std::uint64_t> shape) {
  std::string tuple;
  for (const std::uint64_t extent : shape) tuple += fmt::format("{}, ", extent);
  // A tuple of one has its comma; others go without the last.
  if (shape.size() == 1) tuple.pop_back();
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  std::string dictionary = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", NpyType(dtype), tuple);
  // The format asks for a multiple of 64, so that the array can be mapped and read by vector
  // instructions.
  constexpr std::size_t kPrefix = 10, kMultiple = 64;
  // The prefix is 6 bytes of magic, 2 of version and 2 of length; 1 is the newline at the end.
  const std::size_t whole = AlignUp(kPrefix + dictionary.size() + 1, kMultiple);
  dictionary.append(whole - kPrefix - dictionary.size() - 1, ' ');
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xFF);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

Result<NewFile> NewFile::Create(int folder, const std::string& name, std::string path) {
  // O_EXCL refuses what is there, links included, so that nothing is overwritten or written
  // through.
  UniqueFd file(openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid() && errno == EEXIST) {
    return Error(ErrorCode::kAlreadyExists,
                 path + ": exists already and is not overwritten; give another folder");
  }
  if (!file.valid()) return Error::FromErrno(errno, path + ": creating");
  return NewFile(folder, name, std::move(path), std::move(file));
}

NewFile::~NewFile() {
  if (!file_.valid()) return;
  file_.Reset();
  Remove();
}

Status NewFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, path_ + ": writing");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status NewFile::Finish() {
  if (close(file_.Release()) == 0) return {};
  // Network file systems report here that bytes written before did not arrive (a quota, for
  // example). The descriptor is gone all the same, so the destructor does not remove the file.
  Error error = Error::FromErrno(errno, path_ + ": closing");
  Remove();
  return error;
}

void NewFile::Remove() {
  // Nothing can be done about a failure here: the error that led here is what is reported.
  static_cast<void>(unlinkat(folder_, name_.c_str(), 0));
}

}  // namespace forebay::cli
