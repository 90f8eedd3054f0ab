// An SSD that is really full.
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

// A size-limited tmpfs, unmounted at the end.
class SmallTmpfs {
 public:
  SmallTmpfs(std::string path, const char* options) : path_(std::move(path)) {
    mkdir(path_.c_str(), 0700);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, options) == 0;
    if (!mounted_) reason_ = std::strerror(errno);
  }
  ~SmallTmpfs() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& reason() const { return reason_; }
  std::uint64_t FreeBytes() const {
    struct statvfs space {};
    statvfs(path_.c_str(), &space);
    return space.f_bavail * space.f_frsize;
  }

 private:
  std::string path_;
  std::string reason_;
  bool mounted_ = false;
};

TEST(FullDiskTest, ServingGoesOn) {
  const DaemonRig rig;
  const SmallTmpfs disk(rig.ssd_path(), "size=6m,mode=0700");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here: " << disk.reason();
  const auto daemon = rig.Start();  // believes that it may take 256 MiB
  RawClient client(rig.socket_path());
  const v1::DatasetStatus staged = AwaitStaged(client);
  EXPECT_EQ(staged.state(), "staged") << staged.error();
  EXPECT_LT(disk.FreeBytes(), 3U << 20) << "the disk was never full";
  ASSERT_LT(rig.SegmentCount(), 16U) << "everything fitted";
  const EpochCounts counts = ReadEpoch(client);
  EXPECT_EQ(counts.error, "");
  EXPECT_EQ(counts.distinct, 4096U);
  EXPECT_EQ(counts.wrong, 0U);
  EXPECT_EQ(client.Status().gfs().bytes(), rig.dataset_bytes()) << "each byte once all the same";
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
}

TEST(FullDiskTest, ADiskWithoutAnyRoomIsNoReasonToStop) {
  const DaemonRig rig;
  const SmallTmpfs disk(rig.ssd_path(), "size=4k,nr_inodes=2,mode=0700");
  if (!disk.mounted()) GTEST_SKIP() << "a tmpfs cannot be mounted here: " << disk.reason();
  const auto daemon = rig.Start({}, false);
  if (daemon->ready_line().empty()) {
    EXPECT_EQ(daemon->Wait(), 1) << "or it says what is wrong and does not start";
    EXPECT_NE(rig.log().find(rig.ssd_path()), std::string::npos) << rig.log();
    return;
  }
  RawClient client(rig.socket_path());
  EXPECT_EQ(ReadEpoch(client).distinct, 4096U);
}

}  // namespace
}  // namespace forebay::integration
