#include "tests/fault/fault_rig.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "proto/contract/check.h"

namespace forebay::fault {
namespace {

SsdDisk::Kind DiskOf(const FaultCase& fault_case) {
  if (fault_case.Has(FaultKind::kSsdFails)) return SsdDisk::Kind::kLoop;
  if (fault_case.Has(FaultKind::kSsdFull)) return SsdDisk::Kind::kTmpfs;
  return SsdDisk::Kind::kFolder;
}

}  // namespace

FaultRig::FaultRig(const FaultCase& fault_case) {
  std::string pattern = "/tmp/fbfXXXXXX";  // short: a socket's path has 107 bytes
  FOREBAY_CHECK(mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  std::filesystem::create_directories(folder_ + "/backing/" + kDataset);
  std::filesystem::create_directory(folder_ + "/gfs");
  samples_ = WriteSamples(folder_ + "/backing/" + kDataset, fault_case.format, kDatasetBytes,
                          fault_case.seed);
  has_ssd_ = fault_case.tiers == Tiers::kRamAndSsd || fault_case.tiers == Tiers::kLostSsd;
  if (has_ssd_) ssd_ = std::make_unique<SsdDisk>(folder_, DiskOf(fault_case));
  if (bench::GfsProcess::IsPossible()) {
    gfs_ = std::make_unique<bench::GfsProcess>(std::vector<std::string>{
        folder_ + "/backing", folder_ + "/gfs", "--preset", "unlimited"});
    if (!gfs_->AwaitReady()) gfs_.reset();
  }
  WriteConfig(fault_case);
}

FaultRig::~FaultRig() {
  if (gfs_) gfs_->Control("clear");  // nobody waits for an answer any more
  daemon_.reset();
  gfs_.reset();
  ssd_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string FaultRig::WhyImpossible() const {
  if (!gfs_) return "gfs_emu cannot be mounted here (needs /dev/fuse)";
  return ssd_ ? ssd_->problem() : "";
}

void FaultRig::WriteConfig(const FaultCase& fault_case) {
  const std::uint64_t ram_bytes =
      fault_case.tiers == Tiers::kRam ? 64 << 20 : kSmallRamBytes;
  const int retry_for_s =
      fault_case.Has(FaultKind::kLongOutage) ? kShortPatienceS : kPatienceS;
  std::ofstream config(folder_ + "/f.toml");
  config << "[daemon]\nsocket = \"" << socket_path() << "\"\nstate_dir = \"" << folder_
         << "/state\"\njob_id = \"job-1\"\n[tier.ram]\ncapacity = \"" << ram_bytes << "\"\n";
  if (has_ssd_) {
    config << "[tier.ssd]\ndirectory = \"" << ssd_->path() << "\"\ncapacity = \"48MiB\"\n";
  }
  config << "[slots]\ncapacity = \"32MiB\"\n[stage]\nretry_for = " << retry_for_s
         << "\nretry_max_interval = 1\nhung_after = 1\nrequest = \"" << kRequestBytes / 1024
         << "KiB\"\n"
         << "[[dataset]]\nname = \"" << kDataset << "\"\npath = \"" << folder_ << "/gfs/"
         << kDataset << "\"\nextent = \"1MiB\"\nstage_at_start = false\n"
         << samples_.config;
  FOREBAY_CHECK(config.good());
}

bool FaultRig::StartDaemon() {
  daemon_ = std::make_unique<integration::DaemonProcess>(
      std::vector<std::string>{"--config", folder_ + "/f.toml"}, folder_ + "/log");
  return !daemon_->ready_line().empty();
}

std::optional<int> FaultRig::EndDaemon(std::chrono::seconds seconds) {
  daemon_->Signal(SIGTERM);
  if (!Await(seconds, [this] { return !daemon_->running(); })) return std::nullopt;
  return daemon_->Wait();
}

}  // namespace forebay::fault
