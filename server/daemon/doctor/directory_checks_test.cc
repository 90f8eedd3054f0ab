// The directories of the socket and of saved catalogs: each reason why the daemon could not take
// them, and that a trial leaves nothing behind.
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/testing/recorded_report.h"
#include "server/daemon/lease.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"

namespace forebay::daemon {
namespace {

using io::testing::Take;
using io::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorDirectoryTest : public ::testing::Test {
 protected:
  DoctorDirectoryTest() : backend_(Take(io::ThreadBackend::Create({}))) {
    paths_.socket_directory = folder_ / "run";
    paths_.socket = paths_.socket_directory + "/s";
    paths_.state_directory = folder_ / "state/of/this";
  }
  Finding Socket() const {
    RecordedReport report;
    CheckSocket(paths_, report);
    return report.only();
  }
  Finding State(io::IoBackend& backend) const {
    RecordedReport report;
    CheckStateDirectory(paths_, backend, report);
    return report.only();
  }
  Finding State() const { return State(*backend_); }
  void ExpectEmpty(const std::string& folder) const {
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << folder;
  }

  TempFolder folder_;
  DaemonPaths paths_;
  std::unique_ptr<io::IoBackend> backend_;
};

TEST_F(DoctorDirectoryTest, ADirectoryThatTheDaemonCanCreateIsFineAndIsNotCreated) {
  const Finding socket = Socket();
  EXPECT_EQ(socket.verdict, Verdict::kOk) << socket.text;
  EXPECT_THAT(socket.text, HasSubstr(paths_.socket_directory + ", which the daemon creates"));
  const Finding state = State();
  EXPECT_EQ(state.verdict, Verdict::kOk) << state.text;
  EXPECT_THAT(state.text, HasSubstr("which the daemon creates"));
  ExpectEmpty(folder_.path());
}

TEST_F(DoctorDirectoryTest, ADirectoryOfTheUserIsFine) {
  std::filesystem::create_directories(paths_.socket_directory);
  std::filesystem::create_directories(paths_.state_directory);
  for (const Finding& finding : {Socket(), State()}) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
    EXPECT_EQ(finding.remedy, "");
  }
  ExpectEmpty(paths_.socket_directory);
  ExpectEmpty(paths_.state_directory);
}

TEST_F(DoctorDirectoryTest, StateIsOptional) {
  paths_.state_directory = "";
  EXPECT_EQ(State().verdict, Verdict::kOk);
  EXPECT_THAT(State().text, HasSubstr("daemon.state_dir is not set"));
}

TEST_F(DoctorDirectoryTest, APathThatIsTooLongForASocketIsAFailure) {
  paths_.socket = folder_ / std::string(107, 'x');
  const Finding finding = Socket();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("at most 107"));
  EXPECT_THAT(finding.remedy, HasSubstr("shorter path"));
}

TEST_F(DoctorDirectoryTest, ASocketMayHaveALongPathThatIsStillAllowed) {
  paths_.socket = paths_.socket_directory + "/";
  ASSERT_LT(paths_.socket.size(), 107U);
  paths_.socket += std::string(107 - paths_.socket.size(), 'x');
  EXPECT_EQ(Socket().verdict, Verdict::kOk) << Socket().text;
}

TEST_F(DoctorDirectoryTest, ADirectoryThatOthersMayWriteToIsAFailure) {
  for (const std::string& path : {paths_.socket_directory, paths_.state_directory}) {
    std::filesystem::create_directories(path);
    ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  }
  for (const Finding& finding : {Socket(), State()}) {
    EXPECT_EQ(finding.verdict, Verdict::kFailure);
    EXPECT_THAT(finding.text, HasSubstr("no other user can write to"));
    EXPECT_THAT(finding.remedy, HasSubstr("chmod 700"));
  }
}

TEST_F(DoctorDirectoryTest, AFileInPlaceOfTheDirectoryIsAFailure) {
  std::ofstream(paths_.socket_directory) << "x";
  EXPECT_EQ(Socket().verdict, Verdict::kFailure);
  paths_.state_directory = paths_.socket_directory + "/beneath";
  EXPECT_EQ(State().verdict, Verdict::kFailure);
  EXPECT_THAT(State().text, HasSubstr("Not a directory"));
}

TEST_F(DoctorDirectoryTest, AFileInPlaceOfTheSocketIsAFailure) {
  std::filesystem::create_directories(paths_.socket_directory);
  std::ofstream(paths_.socket) << "x";
  const Finding finding = Socket();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, HasSubstr("is not a socket"));
  EXPECT_THAT(finding.remedy, HasSubstr("remove it"));
}

TEST_F(DoctorDirectoryTest, ADirectoryOfARunningDaemonIsAFailure) {
  std::filesystem::create_directory(folder_ / "state");
  {
    const Lease socket = Take(Lease::Take(paths_.socket_directory));
    const Lease state = Take(Lease::Take(paths_.state_directory));
    for (const Finding& finding : {Socket(), State()}) {
      EXPECT_EQ(finding.verdict, Verdict::kFailure);
      EXPECT_THAT(finding.text, HasSubstr("another forebayd (pid " + std::to_string(getpid())));
      EXPECT_THAT(finding.remedy, HasSubstr("forebay drain"));
    }
  }
  EXPECT_EQ(Socket().verdict, Verdict::kOk);
  // The file that a killed daemon leaves holds no lock.
  std::filesystem::create_directories(paths_.socket_directory);
  std::ofstream(paths_.socket_directory + "/forebayd.lock") << "4711\n";
  EXPECT_EQ(Socket().verdict, Verdict::kOk) << Socket().text;
}

TEST_F(DoctorDirectoryTest, ADirectoryWithoutTheRightToWriteIsAFailure) {
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  const OrdinaryUser user;
  for (const Finding& finding : {Socket(), State()}) {
    EXPECT_EQ(finding.verdict, Verdict::kFailure) << finding.text;
    EXPECT_THAT(finding.text, HasSubstr("cannot be created"));
    EXPECT_THAT(finding.text, HasSubstr("Permission denied"));
    EXPECT_THAT(finding.remedy, HasSubstr("give uid "));
  }
}

TEST_F(DoctorDirectoryTest, EveryErrorOfWritingIsAFailureAndLeavesNothing) {
  io::FaultInjector faults;
  io::FaultyBackend faulty(*backend_, faults);
  // To create the file, to write to it, and the syncs.
  ExpectEveryErrorIsAFailure(faults, 2, [&] { return State(faulty); });
}

}  // namespace
}  // namespace forebay::daemon
