#include "tests/fault/ssd_disk.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"
#include "proto/contract/unique_fd.h"
#include "tests/integration/damage.h"

namespace forebay::fault {
namespace {

constexpr off_t kLoopBytes = 64 << 20;

// Linux has the request in <linux/ext4.h> from 6.6 on only.
constexpr unsigned long kExt4Shutdown = _IOR('X', 125, std::uint32_t);
constexpr std::uint32_t kShutdownWithoutFlush = 2;

// Runs a program without output. True where it succeeded.
bool RunProgram(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  FOREBAY_CHECK(pid >= 0);
  if (pid == 0) {
    const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null_fd, STDOUT_FILENO);
    dup2(null_fd, STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

SsdDisk::SsdDisk(const std::string& folder, Kind kind) : path_(folder + "/ssd") {
  std::filesystem::create_directory(path_);
  if (kind == Kind::kTmpfs) MountTmpfs();
  if (kind == Kind::kLoop) MountLoop(folder);
  chmod(path_.c_str(), 0700);
}

SsdDisk::~SsdDisk() {
  if (mounted_) umount2(path_.c_str(), MNT_DETACH);
}

void SsdDisk::MountTmpfs() {
  mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=64m,mode=0700") == 0;
  if (!mounted_) problem_ = std::string("a tmpfs cannot be mounted here: ") + std::strerror(errno);
}

void SsdDisk::MountLoop(const std::string& folder) {
  const std::string image = folder + "/ssd.img";
  const UniqueFd file(open(image.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool is_made = ftruncate(file.get(), kLoopBytes) == 0 &&
                       RunProgram({"mkfs.ext4", "-q", "-F", "-O", "^has_journal", image});
  mounted_ = is_made && RunProgram({"mount", "-o", "loop", image, path_});
  if (!mounted_) problem_ = "ext4 on a loop device cannot be made or mounted here";
}

std::uint64_t SsdDisk::FlipBits(std::uint64_t count, std::uint64_t seed) const {
  std::uint64_t flipped = 0;
  std::uint64_t random_state = seed;
  for (const std::string& segment : integration::SegmentPaths(path_)) {
    if (flipped == count) break;
    std::error_code gone;
    const std::uint64_t bytes = std::filesystem::file_size(segment, gone);
    if (gone || bytes == 0) continue;
    // In the first half: behind the extent's bytes there are tables and padding.
    const std::uint64_t at = NextWord64(random_state) % (bytes / 2);
    flipped += integration::FlipBitInFile(segment, at, static_cast<int>(at % 8)) ? 1 : 0;
  }
  return flipped;
}

std::uint64_t SsdDisk::Remove() const {
  std::uint64_t removed = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(path_, gone)) {
    // Whoever has it open finds nothing in it either.
    removed += truncate(entry.path().c_str(), 0) == 0 ? 1 : 0;
  }
  // The daemon may be writing another file meanwhile, and the directory is then not empty.
  for (int tries = 0; tries < 100 && std::filesystem::exists(path_); ++tries) {
    std::filesystem::remove_all(path_, gone);
  }
  // Before the daemon has written anything, it is the directory that is lost.
  return std::filesystem::exists(path_) ? 0 : std::max<std::uint64_t>(removed, 1);
}

std::uint64_t SsdDisk::Fail() const {
  const UniqueFd root(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::uint32_t how = kShutdownWithoutFlush;
  return ioctl(root.get(), kExt4Shutdown, &how) == 0 ? 1 : 0;
}

std::uint64_t SsdDisk::Fill() const {
  const UniqueFd file(open((path_ + "/foreign").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::vector<char> block(1 << 16, 'x');
  bool is_full = false;
  for (std::size_t part = block.size(); part > 0;) {
    if (write(file.get(), block.data(), part) > 0) continue;
    is_full = errno == ENOSPC;
    part /= 2;
  }
  return is_full ? 1 : 0;
}

std::uint64_t SsdDisk::SegmentBytes() const {
  std::uint64_t bytes = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(path_, gone)) {
    if (entry.path().extension() != ".seg") continue;
    const std::uint64_t size = entry.file_size(gone);
    bytes += gone ? 0 : size;
  }
  return bytes;
}

}  // namespace forebay::fault
