#include "tests/integration/damage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "proto/contract/unique_fd.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

bool FlipBit(const UniqueFd& file, std::uint64_t byte, int bit) {
  std::uint8_t value = 0;
  const auto offset = static_cast<off_t>(byte);
  if (!file.valid() || pread(file.get(), &value, 1, offset) != 1) return false;
  value = static_cast<std::uint8_t>(value ^ (1U << bit));
  return pwrite(file.get(), &value, 1, offset) == 1;
}

// Where the process maps the file of that inode number.
std::optional<std::uint64_t> AddressOf(pid_t pid, ino_t inode) {
  std::istringstream lines(ReadText("/proc/" + std::to_string(pid) + "/maps"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string range, mode, offset, device;
    ino_t mapped = 0;
    words >> range >> mode >> offset >> device >> mapped;
    if (mapped == inode) return std::stoull(range, nullptr, 16);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> SegmentPaths(const std::string& ssd_path) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ssd_path)) {
    if (entry.path().extension() == ".seg") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

bool FlipBitInFile(const std::string& path, std::uint64_t byte, int bit) {
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return FlipBit(file, byte, bit) && fdatasync(file.get()) == 0;
}

bool FlipBitInRam(const DaemonProcess& daemon, const RawClient& client, std::uint64_t id) {
  const RawSocket& socket = client.socket();
  for (std::size_t i = 0; i < socket.entries.size(); ++i) {
    const RegionEntry& entry = socket.entries[i];
    if (entry.kind != static_cast<std::uint32_t>(RegionKind::kArena)) continue;
    // Extents begin at pages, and a record fills one.
    for (std::uint64_t at = 0; at + kRecordBytes <= entry.bytes; at += kRecordBytes) {
      const WireSpan span{.region = entry.id, .reserved = 0, .offset = at,
                          .length = kRecordBytes};
      if (!IsRecord(id, client.Bytes(span))) continue;
      struct stat info {};
      if (fstat(socket.regions[i].get(), &info) != 0) return false;
      const auto address = AddressOf(daemon.pid(), info.st_ino);
      const UniqueFd memory(
          open(("/proc/" + std::to_string(daemon.pid()) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
      return address && FlipBit(memory, *address + at + 100, 3);
    }
  }
  return false;
}

}  // namespace forebay::integration
