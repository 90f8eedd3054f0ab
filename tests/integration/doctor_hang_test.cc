// A GFS that does not answer is a finding of `forebayd --doctor`, which ends all the same and still
// tries the other data sets.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "tests/integration/daemon_process.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DoctorHangTest : public ::testing::Test {
 protected:
  DoctorHangTest() {
    std::string pattern = "/tmp/fbdXXXXXX";
    folder_ = mkdtemp(pattern.data());
    for (const char* name : {"gfs", "mount", "local"}) fs::create_directory(folder_ + "/" + name);
    for (const char* name : {"gfs", "local"}) {
      std::ofstream(folder_ + "/" + name + "/a.tar", std::ios::binary) << std::string(1 << 20, 'x');
    }
    std::ofstream config(folder_ + "/f.toml");
    config << "[daemon]\nsocket = \"" << folder_ << "/run/s\"\n[tier.ram]\ncapacity = \"16MiB\"\n";
    for (const char* name : {"mount", "local"}) {
      config << "[[dataset]]\nname = \"" << name << "\"\npath = \"" << folder_ << "/" << name
             << "\"\n";
    }
  }
  ~DoctorHangTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string folder_;
};

TEST_F(DoctorHangTest, AReadThatIsNotAnsweredIsNamedAndOtherDataSetsAreTried) {
  if (!bench::GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
  bench::GfsProcess gfs({folder_ + "/gfs", folder_ + "/mount"});
  ASSERT_TRUE(gfs.AwaitReady());
  ASSERT_TRUE(gfs.Control("fault hang *a.tar count=0 ops=read"));
  const CommandEnd end = RunForebayd({"--config", folder_ + "/f.toml", "--doctor"}, folder_);
  EXPECT_GT(gfs.InjectedCount(), 0U);
  EXPECT_EQ(end.exit_code, 1) << end.output << end.errors;
  EXPECT_THAT(end.output, HasSubstr("failure  gfs         data set 'mount': no answer within 10 s "
                                    "while reading a.tar\n"));
  EXPECT_THAT(end.output, HasSubstr("remedy: look at the mount of " + folder_ + "/mount"));
  EXPECT_THAT(end.output, HasSubstr("ok       gfs         data set 'local': "));
  ASSERT_TRUE(gfs.Control("clear"));
}

}  // namespace
}  // namespace forebay::integration
