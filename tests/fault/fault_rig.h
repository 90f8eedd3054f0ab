// FaultRig: a data set behind a mounted gfs_emu, an SSD that can be damaged, and the daemon.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "tests/fault/fault_case.h"
#include "tests/fault/sample_files.h"
#include "tests/fault/ssd_disk.h"
#include "tests/integration/daemon_process.h"

namespace forebay::fault {

inline constexpr const char* kDataset = "set";
inline constexpr std::uint64_t kDatasetBytes = 12 << 20;
inline constexpr std::uint64_t kSmallRamBytes = 8 << 20;
// stage.retry_for, in seconds: of cases whose outages are outlived, and of the others.
inline constexpr int kPatienceS = 120;
inline constexpr int kShortPatienceS = 1;

// Looks again until `met` or the patience ends; other processes make it true. Between two looks it
// leaves them the processors.
template <typename Condition>
bool Await(std::chrono::seconds patience, const Condition& met) {
  constexpr int kBetweenLooksMs = 2;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!met()) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(nullptr, 0, kBetweenLooksMs);
  }
  return true;
}

// Everything ends and goes with it.
class FaultRig {
 public:
  explicit FaultRig(const FaultCase& fault_case);
  ~FaultRig();
  FaultRig(const FaultRig&) = delete;
  FaultRig& operator=(const FaultRig&) = delete;

  // Why the case cannot be run on this machine; empty where it can.
  std::string WhyImpossible() const;

  // Starts a daemon; false where it does not become ready.
  bool StartDaemon();
  integration::DaemonProcess& daemon() { return *daemon_; }
  // SIGTERM, then at most `seconds` and its exit code; nullopt where it is still there.
  std::optional<int> EndDaemon(std::chrono::seconds seconds);

  bench::GfsProcess& gfs() { return *gfs_; }
  // Null where the tiers have none.
  const SsdDisk* ssd() const { return ssd_.get(); }
  const SampleFiles& samples() const { return samples_; }
  std::string socket_path() const { return folder_ + "/run/s"; }
  std::string log() const { return integration::ReadText(folder_ + "/log"); }

 private:
  void WriteConfig(const FaultCase& fault_case);

  std::string folder_;
  SampleFiles samples_;
  bool has_ssd_ = false;
  std::unique_ptr<bench::GfsProcess> gfs_;  // null: it cannot be mounted here
  std::unique_ptr<SsdDisk> ssd_;            // null: the tiers have none
  std::unique_ptr<integration::DaemonProcess> daemon_;
};

}  // namespace forebay::fault
