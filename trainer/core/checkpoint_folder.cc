#include "trainer/core/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>

#include "proto/contract/check.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporarySuffix = ".tmp";

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return Error::FromErrno(errno, path + ": write");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status SyncFolder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Error::FromErrno(errno, folder.string() + ": open");
  if (::fsync(fd.get()) != 0) return Error::FromErrno(errno, folder.string() + ": fsync");
  return {};
}

Status WriteSynced(const fs::path& path, std::span<const std::byte> bytes) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Error::FromErrno(errno, path.string() + ": open");
  FOREBAY_TRY(WriteAll(fd.get(), bytes, path.string()));
  if (::fsync(fd.get()) != 0) return Error::FromErrno(errno, path.string() + ": fsync");
  return {};
}

Result<std::vector<std::byte>> ReadWhole(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return Error::FromErrno(errno, path.string() + ": open");
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return Error::FromErrno(errno, path.string() + ": stat");
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, path.string() + ": not a regular file");
  }
  if (static_cast<std::uint64_t>(status.st_size) > kCheckpointBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 path.string() + ": larger than kCheckpointBytesMax");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::FromErrno(errno, path.string() + ": read");
    if (got == 0) return Error(ErrorCode::kDataLoss, path.string() + ": shrank while read");
    at += static_cast<std::size_t>(got);
  }
  return bytes;
}

// The step in "step-000000000042.safetensors"; nullopt for any other name.
std::optional<std::uint64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() <= kPrefix.size() + kSuffix.size()) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

Error FromErrorCode(const fs::path& path, const std::error_code& code) {
  return Error::FromErrno(code.value(), path.string());
}

}  // namespace

Status WriteCheckpoint(const fs::path& path, const Checkpoint& checkpoint) {
  const std::vector<std::byte> bytes = EncodeCheckpoint(checkpoint);
  const fs::path temporary = path.string() + std::string(kTemporarySuffix);
  Status published = WriteSynced(temporary, bytes);
  if (published.has_value() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    published = Error::FromErrno(errno, path.string() + ": rename");
  }
  if (!published.has_value()) {
    ::unlink(temporary.c_str());
    return published;
  }
  return SyncFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

Result<Checkpoint> ReadCheckpoint(const fs::path& path) {
  FOREBAY_ASSIGN(const std::vector<std::byte> bytes, ReadWhole(path));
  Result<Checkpoint> checkpoint = DecodeCheckpoint(bytes);
  if (!checkpoint.has_value()) return checkpoint.error().WithContext(path.string());
  return checkpoint;
}

Result<CheckpointFolder> CheckpointFolder::Open(fs::path folder, std::uint64_t kept) {
  FOREBAY_CHECK(kept >= 1);
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return FromErrorCode(folder, code);
  fs::directory_iterator entries(folder, code);
  if (code) return FromErrorCode(folder, code);
  for (; entries != fs::directory_iterator(); entries.increment(code)) {
    if (code) return FromErrorCode(folder, code);
    std::string name = entries->path().filename().string();
    if (!name.ends_with(kTemporarySuffix)) continue;
    name.resize(name.size() - kTemporarySuffix.size());
    if (StepOfName(name)) ::unlink(entries->path().c_str());
  }
  return CheckpointFolder(std::move(folder), kept);
}

Result<fs::path> CheckpointFolder::Save(const Checkpoint& checkpoint) {
  fs::path path =
      folder_ / fmt::format("{}{:012}{}", kPrefix, checkpoint.global_step, kSuffix);
  FOREBAY_TRY(WriteCheckpoint(path, checkpoint));
  FOREBAY_ASSIGN(const std::vector<fs::path> present, NewestFirst());
  for (std::size_t i = kept_; i < present.size(); ++i) {
    // A file that cannot be removed costs space, not correctness; the next Save tries again.
    ::unlink(present[i].c_str());
  }
  return path;
}

Result<std::optional<CheckpointFolder::Found>> CheckpointFolder::Newest(
    std::vector<std::string>& skipped) const {
  FOREBAY_ASSIGN(const std::vector<fs::path> present, NewestFirst());
  for (const fs::path& path : present) {
    Result<Checkpoint> checkpoint = ReadCheckpoint(path);
    if (checkpoint.has_value()) return Found{path, *std::move(checkpoint)};
    skipped.push_back(checkpoint.error().ToString());
  }
  return std::optional<Found>();
}

Result<std::vector<fs::path>> CheckpointFolder::NewestFirst() const {
  std::vector<std::pair<std::uint64_t, fs::path>> present;
  std::error_code code;
  fs::directory_iterator entries(folder_, code);
  if (code) return FromErrorCode(folder_, code);
  for (; entries != fs::directory_iterator(); entries.increment(code)) {
    if (code) return FromErrorCode(folder_, code);
    const auto step = StepOfName(entries->path().filename().string());
    if (step) present.emplace_back(*step, entries->path());
  }
  std::ranges::sort(present, [](const auto& a, const auto& b) { return b < a; });
  std::vector<fs::path> paths;
  for (auto& [step, path] : present) paths.push_back(std::move(path));
  return paths;
}

}  // namespace forebay::train
