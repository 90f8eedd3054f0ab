// A daemon that is asked to end is gone in time, in good order, whatever its clients do.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"
#include "tests/integration/holder.h"
#include "tests/integration/relay.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kEnded = "their connections are closed";
// With an SSD, a daemon may still have to write when it is asked to end, and how long that takes
// depends on the disk.
const RigOptions kNoSsd = {.ssd = false};
// A daemon that waits for a client waits for ever. Ten seconds are the promise
// (limits::kDrainDeadlineMs); a machine that stalls may need more.
constexpr std::chrono::seconds kEndsWithin(30);

// Asks the daemon to end, by `ask`, and looks at how it does.
template <typename Ask>
void ExpectGoodEnd(const DaemonRig& rig, DaemonProcess& daemon, Ask ask) {
  const auto asked = steady_clock::now();
  ask();
  EXPECT_EQ(daemon.Wait(), 0) << rig.log();
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - asked);
  EXPECT_LT(took, kEndsWithin) << rig.log();
  EXPECT_THAT(rig.log(), HasSubstr("forebayd stopped"));
  EXPECT_THAT(rig.Leftovers(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(rig.folder() + "/run"));
  ::testing::Test::RecordProperty("end_ms", static_cast<int>(took.count()));
}

void ExpectGoodEnd(const DaemonRig& rig, DaemonProcess& daemon) {
  ExpectGoodEnd(rig, daemon, [&] { daemon.Signal(SIGTERM); });
}

// Stops a client of this kind once it has its batches, or they are on their way.
void StopHolder(const DaemonRig& rig, Holder& holder, std::uint32_t batches) {
  ASSERT_TRUE(holder.Hold());
  RawClient watcher(rig.socket_path());
  ASSERT_TRUE(Eventually([&] {
    const v1::StatusReply status = watcher.Status();
    return status.streams_size() == 1 && status.streams(0).batches() == batches;
  }));
  holder.Stop();
}

TEST(DrainTest, AStoppedClientThatIsOwedInlineBatchesDoesNotKeepTheDaemon) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kInlineUnread);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, kInlineBatches);
  ExpectGoodEnd(rig, *daemon);
  EXPECT_THAT(rig.log(), HasSubstr(kEnded));
}

// A scheduler that cancels a job sends a signal to the daemon, and so does `forebay launch`.
TEST(DrainTest, MoreSignalsFromSchedulerAndLauncherChangeNothing) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kInlineUnread);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, kInlineBatches);
  ExpectGoodEnd(rig, *daemon, [&] {
    daemon->Signal(SIGTERM);
    EXPECT_TRUE(Eventually([&] {
      daemon->Signal(SIGTERM);
      daemon->Signal(SIGHUP);
      return !daemon->running();
    }));
  });
}

TEST(DrainTest, AnInterruptEndsADaemonThatDrainsAtOnce) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kInlineUnread);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, kInlineBatches);
  daemon->Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return rig.log().find("draining") != std::string::npos; }));
  daemon->Signal(SIGINT);
  EXPECT_EQ(daemon->Wait(), -SIGINT) << "before the stopped client is given up";
  EXPECT_THAT(rig.log(), Not(HasSubstr("forebayd stopped")));
}

// As when a job is started again at once.
TEST(DrainTest, TheNextDaemonWaitsForOneThatDrains) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kInlineUnread);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, kInlineBatches);
  daemon->Signal(SIGTERM);
  const auto is_marked = [&] {
    return ReadText(rig.folder() + "/run/forebayd.lock").find("ending") != std::string::npos;
  };
  ASSERT_TRUE(Eventually(is_marked)) << rig.log();
  const auto next = rig.Start();
  ASSERT_NE(next, nullptr) << rig.log();
  EXPECT_EQ(daemon->Wait(), 0) << rig.log();
  EXPECT_THAT(rig.log(), HasSubstr("is ending: waiting for it"));
  ExpectGoodEnd(rig, *next);
}

TEST(DrainTest, AStoppedClientThatHoldsContiguousBatchesDoesNotKeepTheDaemon) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kContiguous);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, 4);
  ExpectGoodEnd(rig, *daemon);
  EXPECT_THAT(rig.log(), Not(HasSubstr(kEnded))) << "nothing is owed to it";
}

TEST(DrainTest, AStoppedClientThatHoldsViewsDoesNotKeepTheDaemon) {
  const DaemonRig rig(kNoSsd);
  Holder holder(rig.socket_path(), HolderKind::kViews);
  const auto daemon = rig.Start();
  StopHolder(rig, holder, 4);
  ExpectGoodEnd(rig, *daemon);
  EXPECT_THAT(rig.log(), Not(HasSubstr(kEnded))) << "nothing is owed to it";
}

// A client whose socket is full with the daemon's bytes.
class UnreadSocket {
 public:
  explicit UnreadSocket(const DaemonRig& rig)
      : relay_(rig.folder() + "/r", rig.socket_path()),
        client_(relay_.path(), /*shared_memory=*/false),
        stream_(client_) {
    OpenInline(client_, stream_);
    relay_.StopReading();
    stream_.Write(PullOf(0, kInlineBatches));
    // A socket takes some 200 KiB, gRPC's window is far larger: a write is under way.
    constexpr std::size_t kFullBytes = 100 << 10;
    is_full_ = Eventually([&] { return relay_.UnreadBytes() > kFullBytes; });
  }

  bool is_full() const { return is_full_; }
  Relay& relay() { return relay_; }

 private:
  Relay relay_;
  RawClient client_;
  RawStream stream_;
  bool is_full_ = false;
};

TEST(DrainTest, ASocketThatNobodyReadsDoesNotKeepTheDaemon) {
  const DaemonRig rig(kNoSsd);
  const auto daemon = rig.Start();
  UnreadSocket socket(rig);
  ASSERT_TRUE(socket.is_full());
  ExpectGoodEnd(rig, *daemon);
  EXPECT_THAT(rig.log(), HasSubstr(kEnded));
}

TEST(DrainTest, ASocketThatNobodyReadsDoesNotKeepADaemonThatIsDrained) {
  const DaemonRig rig(kNoSsd);
  const auto daemon = rig.Start();
  UnreadSocket socket(rig);
  ASSERT_TRUE(socket.is_full());
  RawClient operator_client(rig.socket_path());
  ExpectGoodEnd(rig, *daemon, [&] {
    v1::DrainReply reply;
    EXPECT_TRUE(operator_client.admin().Drain(NewContext().get(), {}, &reply).ok());
  });
  EXPECT_THAT(rig.log(), HasSubstr(kEnded));
}

TEST(DrainTest, ASocketThatIsHalfClosedAndUnreadIsEndedAtOnce) {
  const DaemonRig rig(kNoSsd);
  const auto daemon = rig.Start();
  UnreadSocket socket(rig);
  ASSERT_TRUE(socket.is_full());
  RawClient watcher(rig.socket_path());
  ASSERT_EQ(watcher.Status().streams_size(), 1);
  socket.relay().HalfClose();
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply status = watcher.Status();
    return status.streams_size() == 0 && status.slot_bytes_used() == 0 && status.clients() == 1;
  })) << watcher.Status().ShortDebugString();
  ExpectGoodEnd(rig, *daemon);
  EXPECT_THAT(rig.log(), Not(HasSubstr(kEnded)));
}

}  // namespace
}  // namespace forebay::integration
