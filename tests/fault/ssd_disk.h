// SsdDisk: the directory of an SSD tier on a disk that a test can damage, fill or lose.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::fault {

// Unmounted and removed on destruction.
class SsdDisk {
 public:
  enum class Kind : std::uint8_t {
    kFolder,  // of the file system that is there
    kTmpfs,   // can be filled; needs the right to mount
    kLoop,    // ext4 on a loop device, which can fail; needs that right, a loop device and mkfs
  };

  // Makes the directory `folder`/ssd, and what the disk needs beside it.
  SsdDisk(const std::string& folder, Kind kind);
  ~SsdDisk();
  SsdDisk(const SsdDisk&) = delete;
  SsdDisk& operator=(const SsdDisk&) = delete;

  const std::string& path() const { return path_; }
  // Why there is no such disk on this machine; empty where there is.
  const std::string& problem() const { return problem_; }

  // Each returns how much damage it did: 0 where it did none.
  // Flips one bit in each of at most `count` segments that are there.
  std::uint64_t FlipBits(std::uint64_t count, std::uint64_t seed) const;
  // Cuts every file to nothing, removes it, and the directory. For kFolder.
  std::uint64_t Remove() const;
  // From now on every call answers EIO. For kLoop.
  std::uint64_t Fail() const;
  // Takes all room that is left. For kTmpfs.
  std::uint64_t Fill() const;

  // What published segments take now.
  std::uint64_t SegmentBytes() const;

 private:
  void MountTmpfs();
  void MountLoop(const std::string& folder);

  const std::string path_;
  std::string problem_;
  bool mounted_ = false;
};

}  // namespace forebay::fault
