// These tests give the check each reason why a daemon could not take part in a job of several
// nodes. Each check runs in a process of its own, as the doctor runs it, because listening starts
// threads.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"
#include "server/daemon/doctor/check_runner.h"
#include "server/daemon/doctor/checks.h"
#include "server/io/backend_selection.h"
#include "server/io/clock.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/rendezvous/interface_address.h"

namespace forebay::daemon {
namespace {

using io::testing::Take;
using io::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kNotSet = "the limit of locked memory could not be set";

class DoctorNodesTest : public ::testing::Test {
 protected:
  DoctorNodesTest() {
    config_.nodes_rendezvous = "directory:" + folder_.path();
    config_.peer_interface = "127.0.0.1";
    config_.node_rank = "0";
    config_.node_count = "2";
  }
  // `limit` is that of `resource` in the process of the check; none: that of this process.
  std::vector<Finding> Findings(std::optional<rlim_t> limit = std::nullopt,
                                int resource = RLIMIT_MEMLOCK) const {
    std::vector<Finding> findings;
    const auto run = [this, limit, resource](CheckReport& report) {
      const rlimit both = {limit.value_or(0), limit.value_or(0)};
      if (limit && setrlimit(resource, &both) != 0) return report.Ok(kNotSet);
      const auto selected = Take(io::SelectBackend(io::BackendChoice::kThreads));
      const io::SteadyClock clock;
      CheckNodes(config_, *selected.backend, clock, report);
    };
    RunCheck({.name = "nodes", .subject = "", .hung_remedy = "", .run = run}, 60'000,
             [&](const Finding& finding) { findings.push_back(finding); });
    return findings;
  }
  std::vector<Finding> FindingsOfLockedMemory(rlim_t limit) const {
    std::vector<Finding> found = Findings(limit);
    std::erase_if(found, [](const Finding& finding) {
      return finding.text.find("locked") == std::string::npos;
    });
    return found;
  }
  std::vector<Finding> FindingsOfFiles(rlim_t limit) const {
    std::vector<Finding> found = Findings(limit, RLIMIT_NOFILE);
    EXPECT_GT(found.size(), 1U) << "the limit could not be set";
    std::erase_if(found, [](const Finding& finding) {
      return finding.text.find("files may be open") == std::string::npos;
    });
    return found;
  }
  // The only finding that is not ok.
  Finding Bad() const {
    std::vector<Finding> bad = Findings();
    std::erase_if(bad, [](const Finding& finding) { return finding.verdict == Verdict::kOk; });
    EXPECT_THAT(bad, SizeIs(1));
    return bad.empty() ? Finding() : bad.front();
  }
  void UseSecret() {
    const std::string path = folder_ / "secret";
    std::ofstream(path) << std::string(64, 'a');
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    config_.peer_secret = "file:" + path;
  }
  void UseList(const std::string& text) {
    std::ofstream(folder_ / "hosts") << text;
    config_.nodes_rendezvous = "hosts:" + (folder_ / "hosts");
  }

  TempFolder folder_;
  Config config_ = DefaultConfig();
};

// A port of 127.0.0.1 that is in use.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const general = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_.get(), general, size), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    EXPECT_EQ(getsockname(fd_.get(), general, &size), 0);
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }

 private:
  const UniqueFd fd_;
  int number_ = 0;
};

TEST_F(DoctorNodesTest, ADaemonAloneNeedsNothing) {
  config_.nodes_rendezvous = "none";
  const auto findings = Findings();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].verdict, Verdict::kOk);
  EXPECT_THAT(findings[0].text, HasSubstr("serves this node alone"));
}

TEST_F(DoctorNodesTest, PlaceAddressAndDirectoryAreTriedAndNothingIsLeft) {
  const auto findings = Findings();
  ASSERT_THAT(findings, SizeIs(3));
  for (const Finding& finding : findings) EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
  EXPECT_EQ(findings[0].text, "this node has rank 0 of 2");
  EXPECT_THAT(findings[1].text, HasSubstr("listen for other nodes on 127.0.0.1:"));
  EXPECT_THAT(findings[2].text, HasSubstr("entries can be written"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(DoctorNodesTest, ALimitOfLockedMemoryIsAWarningWhereMpiIsUsed) {
  EXPECT_THAT(FindingsOfLockedMemory(1 << 16), IsEmpty()) << "gRPC locks no memory";
  config_.peer_transport = "mpi";
  const auto limited = FindingsOfLockedMemory(1 << 16);
  ASSERT_THAT(limited, SizeIs(1));
  EXPECT_EQ(limited[0].verdict, Verdict::kWarning);
  EXPECT_THAT(limited[0].text, HasSubstr("65536 bytes of memory may be locked"));
  EXPECT_THAT(limited[0].remedy, HasSubstr("ulimit -l unlimited"));
}

TEST_F(DoctorNodesTest, LockedMemoryWithoutALimitIsGood) {
  config_.peer_transport = "mpi";
  const auto unlimited = FindingsOfLockedMemory(RLIM_INFINITY);
  // Only root may raise it.
  if (!unlimited.empty() && unlimited[0].text == kNotSet) GTEST_SKIP() << kNotSet;
  ASSERT_THAT(unlimited, SizeIs(1));
  EXPECT_EQ(unlimited[0].verdict, Verdict::kOk) << unlimited[0].text;
}

TEST_F(DoctorNodesTest, ADirectoryThatIsNotThereIsAFailure) {
  config_.nodes_rendezvous += "/absent";
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.remedy, HasSubstr("nodes.rendezvous"));
}

TEST_F(DoctorNodesTest, APlaceThatNoLauncherSaysIsAWarning) {
  config_.node_rank = "";
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kWarning) << finding.text;
  EXPECT_THAT(finding.remedy, HasSubstr("--node-rank"));
}

TEST_F(DoctorNodesTest, APlaceThatContradictsItselfIsAFailure) {
  config_.node_rank = "2";
  const Finding finding = Bad();
  EXPECT_THAT(finding.text, HasSubstr("2"));
  EXPECT_NE(finding.remedy, "");
}

TEST_F(DoctorNodesTest, AnInterfaceThatThisNodeLacksIsAFailure) {
  config_.peer_interface = "fb-absent0";
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("peer.interface"), HasSubstr("fb-absent0")));
  EXPECT_THAT(finding.remedy, HasSubstr("set peer.interface"));
}

TEST_F(DoctorNodesTest, APortInUseIsAFailureUnlessTheRangeHasAnotherOne) {
  const TakenPort taken;
  config_.peer_ports = std::to_string(taken.number());
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("peer.ports"), HasSubstr(config_.peer_ports)));
  if (taken.number() > 65'000) GTEST_SKIP() << "there is no range above this port";
  config_.peer_ports += "-" + std::to_string(taken.number() + 100);
  for (const Finding& next : Findings()) EXPECT_EQ(next.verdict, Verdict::kOk) << next.text;
}

TEST_F(DoctorNodesTest, WithASecretASecondPortIsWanted) {
  UseSecret();
  const int port = TakenPort().number();  // free again
  config_.peer_ports = std::to_string(port);
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kWarning);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("peer.payload_connections"), HasSubstr("gRPC")));
  EXPECT_THAT(finding.remedy, HasSubstr("two free ports"));
  config_.peer_payload_connections = false;
  for (const Finding& next : Findings()) EXPECT_EQ(next.verdict, Verdict::kOk) << next.text;
  config_.peer_payload_connections = true;
  if (port > 65'000) GTEST_SKIP() << "there is no range above this port";
  config_.peer_ports += "-" + std::to_string(port + 100);
  for (const Finding& next : Findings()) EXPECT_EQ(next.verdict, Verdict::kOk) << next.text;
}

TEST_F(DoctorNodesTest, AnAddressForOtherMachinesNeedsEncryptionOrPermission) {
  std::string address;
  for (const auto& local : Take(rendezvous::LocalAddresses())) {
    if (!local.is_loopback && local.address.find(':') == std::string::npos) address = local.address;
  }
  if (address.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  config_.peer_interface = address;
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.remedy, HasSubstr("peer.allow_plaintext"));
  config_.peer_allow_plaintext = true;
  for (const Finding& next : Findings()) EXPECT_EQ(next.verdict, Verdict::kOk) << next.text;
}

TEST_F(DoctorNodesTest, HostsThatCannotBeLookedUpAreNamed) {
  const TakenPort unused;  // only for a number that is probably free next to it
  const std::string port = std::to_string(unused.number() == 65'535 ? 65'534 : unused.number() + 1);
  UseList("127.0.0.1:" + port + "\nlocalhost:7001\n");
  for (const Finding& finding : Findings()) {
    EXPECT_EQ(finding.verdict, Verdict::kOk) << finding.text;
  }
  UseList("127.0.0.1:" + port + "\nno-such-host.invalid:7001\n");
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.text, AllOf(HasSubstr("1 of 2 hosts"), HasSubstr("no-such-host.invalid")));
  EXPECT_THAT(finding.remedy, HasSubstr("DNS"));
}

TEST_F(DoctorNodesTest, AListThatCannotBeReadIsAFailure) {
  config_.nodes_rendezvous = "hosts:" + (folder_ / "absent");
  EXPECT_EQ(Bad().verdict, Verdict::kFailure);
  UseList("node 17 of 3\n");
  const Finding finding = Bad();
  EXPECT_EQ(finding.verdict, Verdict::kFailure);
  EXPECT_THAT(finding.remedy, HasSubstr("correct the list"));
}

TEST_F(DoctorNodesTest, ALargeJobNeedsFilesForConnectionsToAllNodes) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  constexpr rlim_t kEnough = 4'000;
  if (files.rlim_max < kEnough) GTEST_SKIP() << "only " << files.rlim_max << " files may be open";
  config_.node_count = "1000";
  EXPECT_THAT(FindingsOfFiles(kEnough), IsEmpty());
  const std::vector<Finding> few = FindingsOfFiles(2'000);
  ASSERT_THAT(few, SizeIs(1));
  EXPECT_EQ(few.front().verdict, Verdict::kWarning);
  EXPECT_THAT(few.front().text, HasSubstr("a job of 1000 nodes needs up to "));
  config_.peer_channels = 16;
  EXPECT_THAT(FindingsOfFiles(2'000), IsEmpty()) << "connections to all nodes are not made then";
}

}  // namespace
}  // namespace forebay::daemon
