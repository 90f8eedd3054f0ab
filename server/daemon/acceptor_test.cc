// The acceptor against clients that behave, stall, lie or disappear. A client is a raw socket that
// sends the handshake byte by byte; time is moved by hand.
#include "server/daemon/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/testing/manual_clock.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::daemon::acceptor_test {

using ::testing::HasSubstr;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kGeneration = 0xfeed;
constexpr auto kPatience = seconds(60);  // until a test gives up

// Polls until `met` returns true, which other threads cause, or until kPatience is over.
template <typename Condition>
bool Eventually(const Condition& met) {
  const auto end = steady_clock::now() + kPatience;
  while (!met()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::size_t OpenFdCount() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(fds), end(fds)));
}

// The client's end of a handshake, byte by byte.
class RawPeer {
 public:
  explicit RawPeer(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected_ = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address),
                         sizeof(address)) == 0;
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }

  bool connected() const { return connected_; }
  void Send(const void* data, std::size_t bytes) {
    (void)!send(fd_.get(), data, bytes, MSG_NOSIGNAL);
  }
  void SendHello(const ClientHello& hello) { Send(&hello, sizeof(hello)); }

  // False if the daemon closed the connection first.
  bool Receive(void* data, std::size_t bytes) {
    auto* to = static_cast<std::byte*>(data);
    while (bytes > 0) {
      alignas(cmsghdr) std::array<char, CMSG_SPACE(limits::kFdsPerMessageMax * sizeof(int))>
          control{};
      iovec part{to, bytes};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t got = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
      if (got <= 0) return false;
      for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
           head = CMSG_NXTHDR(&message, head)) {
        const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
          int passed = -1;
          std::memcpy(&passed, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
          regions_.emplace_back(passed);
        }
      }
      to += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }

  // True once the daemon has closed its end.
  bool AtEnd() {
    char byte = 0;
    return recv(fd_.get(), &byte, 1, 0) <= 0 && errno != EAGAIN;
  }

  const std::vector<UniqueFd>& regions() const { return regions_; }
  void Close() { fd_.Reset(); }
  void HalfClose() { shutdown(fd_.get(), SHUT_WR); }

 private:
  UniqueFd fd_;
  bool connected_ = false;
  std::vector<UniqueFd> regions_;
};

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fbaXXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    socket_path_ = folder_ + "/s";
  }
  ~AcceptorTest() override {
    acceptor_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(std::uint32_t connections_max = 4, std::size_t region_count = 0) {
    std::vector<SharedEntry> entries;
    for (std::size_t i = 0; i < region_count; ++i) {
      auto region = tier::SharedRegion::Create("acceptor_test", 8192);
      ASSERT_TRUE(region.has_value()) << region.error().ToString();
      SharedEntry entry;
      entry.entry.id = static_cast<std::uint32_t>(i);
      entry.entry.bytes = region->bytes().size();
      entry.entry.generation = kGeneration;
      entry.fd = region->fd();
      regions_.push_back(std::move(*region));
      entries.push_back(entry);
    }
    const auto hand_over = [this](UniqueFd fd, const PeerCredentials& peer) {
      MutexLock lock(mutex_);
      EXPECT_EQ(peer.pid, getpid());
      EXPECT_EQ(peer.uid, getuid());
      handed_over_.push_back(std::move(fd));
    };
    auto created = Acceptor::Create({.socket_path = socket_path_,
                                     .generation = kGeneration,
                                     .connections_max = connections_max,
                                     .others_serve = others_serve_},
                                    std::move(entries), clock_, hand_over,
                                    [this](const Error& error) {
                                      MutexLock lock(mutex_);
                                      broken_ = error;
                                    });
    ASSERT_TRUE(created.has_value()) << created.error().ToString();
    acceptor_ = std::move(*created);
    acceptor_->Start();
  }

  std::size_t HandedOver() {
    MutexLock lock(mutex_);
    return handed_over_.size();
  }

  // The descriptor stays open until the test ends.
  int FirstHandedOver() {
    MutexLock lock(mutex_);
    return handed_over_.at(0).get();
  }

  // A peer whose handshake has succeeded.
  std::unique_ptr<RawPeer> Joined() {
    auto peer = std::make_unique<RawPeer>(socket_path_);
    peer->SendHello({});
    ServerHello hello;
    EXPECT_TRUE(peer->Receive(&hello, sizeof(hello)));
    EXPECT_EQ(hello.status, 0U);
    // The client gets its answer before the hand-over, so the test waits for the latter.
    EXPECT_TRUE(Eventually([&] { return HandedOver() > joined_; }));
    ++joined_;
    return peer;
  }

  // The status with which the daemon answers `hello`; it must close the connection after that.
  std::uint32_t StatusOfRefusal(const ClientHello& hello) {
    RawPeer peer(socket_path_);
    peer.SendHello(hello);
    ServerHello answer;
    if (!peer.Receive(&answer, sizeof(answer))) return 0;
    EXPECT_EQ(answer.magic, kServerHelloMagic);
    EXPECT_EQ(answer.layout_version, kLayoutVersion);
    EXPECT_EQ(answer.session, 0U);
    EXPECT_TRUE(peer.AtEnd());
    EXPECT_TRUE(peer.regions().empty());
    return answer.status;
  }

  std::string folder_;
  std::string socket_path_;
  io::ManualClock clock_;
  std::vector<tier::SharedRegion> regions_;
  Mutex mutex_;
  std::vector<UniqueFd> handed_over_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<Error> broken_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t joined_ = 0;
  bool others_serve_ = false;
  std::unique_ptr<Acceptor> acceptor_;
};

constexpr std::uint32_t Number(ErrorCode code) { return static_cast<std::uint32_t>(code); }

// A client gives a daemon up sooner if it has another one to go to.
TEST_F(AcceptorTest, TheAnswerSaysWhetherOtherNodesServeTheClient) {
  for (const bool others_serve : {false, true}) {
    acceptor_.reset();
    others_serve_ = others_serve;
    Start();
    RawPeer peer(socket_path_);
    peer.SendHello({});
    ServerHello hello;
    ASSERT_TRUE(peer.Receive(&hello, sizeof(hello)));
    EXPECT_EQ(hello.flags, others_serve ? ServerHello::kOthersServe : 0U);
  }
}

TEST_F(AcceptorTest, AHandshakePassesEveryRegionAndHandsTheSocketOver) {
  constexpr std::size_t kRegions = limits::kFdsPerMessageMax + 6;  // two messages
  Start(4, kRegions);
  RawPeer peer(socket_path_);
  ASSERT_TRUE(peer.connected());
  ClientHello hello;
  hello.flags = ClientHello::kWantsSharedMemory;
  peer.SendHello(hello);
  ServerHello answer;
  ASSERT_TRUE(peer.Receive(&answer, sizeof(answer)));
  EXPECT_EQ(answer.status, 0U);
  EXPECT_EQ(answer.generation, kGeneration);
  ASSERT_EQ(answer.region_count, kRegions);
  for (std::uint32_t i = 0; i < kRegions; ++i) {
    RegionEntry entry;
    ASSERT_TRUE(peer.Receive(&entry, sizeof(entry)));
    EXPECT_EQ(entry.id, i);
    EXPECT_EQ(entry.generation, kGeneration);
  }
  ASSERT_EQ(peer.regions().size(), kRegions);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  for (const UniqueFd& region : peer.regions()) {
    EXPECT_EQ(fcntl(region.get(), F_GET_SEALS) & kSeals, kSeals);
    EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, region.get(), 0),
              MAP_FAILED);
  }
  EXPECT_TRUE(Eventually([&] { return HandedOver() == 1; }));
  EXPECT_TRUE(acceptor_->KnowsSession(answer.session));
  EXPECT_FALSE(acceptor_->KnowsSession(answer.session + 1));
  EXPECT_FALSE(acceptor_->KnowsSession(0));
  EXPECT_EQ(acceptor_->connection_count(), 1U);
}

// Another user is refused, also where a careless chmod lets it reach the socket. Only root can take
// the part of another user here.
TEST_F(AcceptorTest, AnotherUserGetsNoHandshake) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to connect as another user";
  Start(4, 1);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(socket_path_.c_str(), 0666), 0);
  std::thread other([&] {
    // The system call itself changes this thread only; setresuid would change the whole process.
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(syscall(SYS_setresuid, -1, kNobody, -1), 0);
    RawPeer peer(socket_path_);
    ASSERT_TRUE(peer.connected());
    ClientHello hello;
    hello.flags = ClientHello::kWantsSharedMemory;
    peer.SendHello(hello);
    EXPECT_TRUE(peer.AtEnd());
    EXPECT_TRUE(peer.regions().empty());
  });
  other.join();
  EXPECT_EQ(acceptor_->refused_count(), 1U);
  EXPECT_EQ(HandedOver(), 0U);
  EXPECT_EQ(Joined()->regions().size(), 0U);  // its own user is served as before
}

TEST_F(AcceptorTest, WithoutSharedMemoryNoRegionIsPassed) {
  Start(4, 2);
  RawPeer peer(socket_path_);
  peer.SendHello({});
  ServerHello answer;
  ASSERT_TRUE(peer.Receive(&answer, sizeof(answer)));
  EXPECT_EQ(answer.region_count, 0U);
  ASSERT_TRUE(Eventually([&] { return HandedOver() == 1; }));
  EXPECT_TRUE(peer.regions().empty());
}

TEST_F(AcceptorTest, WhatFollowsTheHelloIsLeftToTheTransport) {
  Start();
  RawPeer peer(socket_path_);
  std::array<char, sizeof(ClientHello) + 3> bytes{};
  const ClientHello hello;
  std::memcpy(bytes.data(), &hello, sizeof(hello));
  std::memcpy(bytes.data() + sizeof(hello), "PRI", 3);
  peer.Send(bytes.data(), bytes.size());
  ASSERT_TRUE(Eventually([&] { return HandedOver() == 1; }));
  char rest[8] = {};
  EXPECT_EQ(recv(FirstHandedOver(), rest, sizeof(rest), 0), 3);
  EXPECT_STREQ(rest, "PRI");
}

TEST_F(AcceptorTest, AHelloMayComeInPieces) {
  Start();
  RawPeer peer(socket_path_);
  const ClientHello hello;
  const auto* bytes = reinterpret_cast<const std::byte*>(&hello);
  for (std::size_t i = 0; i < sizeof(hello); ++i) peer.Send(bytes + i, 1);
  ServerHello answer;
  ASSERT_TRUE(peer.Receive(&answer, sizeof(answer)));
  EXPECT_EQ(answer.status, 0U);
}

TEST_F(AcceptorTest, TheSocketIsThisUsersAlone) {
  Start();
  struct stat info {};
  ASSERT_EQ(stat(socket_path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(AcceptorTest, AGoneClientIsNoticedWhileTheTransportHoldsItsSocket) {
  Start();
  std::unique_ptr<RawPeer> peer = Joined();
  ASSERT_TRUE(Eventually([&] { return acceptor_->connection_count() == 1; }));
  peer->Close();
  EXPECT_TRUE(Eventually([&] { return acceptor_->connection_count() == 0; }));
}

TEST_F(AcceptorTest, AClientThatEndsItsSideAloneIsEndedOnBoth) {
  Start();
  const std::unique_ptr<RawPeer> peer = Joined();
  const int transport = FirstHandedOver();
  peer->Send("abc", 3);
  peer->HalfClose();
  ASSERT_TRUE(Eventually([&] { return acceptor_->connection_count() == 0; }));
  EXPECT_EQ(send(transport, "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE) << "a write of the transport's does not wait for a reader";
  char rest[8] = {};
  EXPECT_EQ(recv(transport, rest, sizeof(rest), 0), 3) << "what it said before is not lost";
  EXPECT_EQ(recv(transport, rest, sizeof(rest), 0), 0);
}

TEST_F(AcceptorTest, AConnectionThatTheTransportEndsIsNoticed) {
  Start();
  const std::unique_ptr<RawPeer> peer = Joined();
  ASSERT_TRUE(Eventually([&] { return HandedOver() == 1; }));
  shutdown(FirstHandedOver(), SHUT_RDWR);
  EXPECT_TRUE(Eventually([&] { return acceptor_->connection_count() == 0; }));
}

TEST_F(AcceptorTest, ASessionEndsWithItsConnection) {
  Start();
  RawPeer peer(socket_path_);
  peer.SendHello({});
  ServerHello answer;
  ASSERT_TRUE(peer.Receive(&answer, sizeof(answer)));
  ASSERT_TRUE(Eventually([&] { return acceptor_->KnowsSession(answer.session); }));
  peer.Close();
  EXPECT_TRUE(Eventually([&] { return !acceptor_->KnowsSession(answer.session); }));
}

TEST_F(AcceptorTest, AFullHouseRefusesAndNamesTheReason) {
  Start(2);
  std::unique_ptr<RawPeer> first = Joined();
  const std::unique_ptr<RawPeer> second = Joined();
  EXPECT_EQ(StatusOfRefusal({}), Number(ErrorCode::kResourceExhausted));
  EXPECT_EQ(acceptor_->refused_count(), 1U);
  first->Close();
  ASSERT_TRUE(Eventually([&] { return acceptor_->connection_count() == 1; }));
  const std::unique_ptr<RawPeer> third = Joined();
  EXPECT_EQ(acceptor_->connection_count(), 2U);
}

TEST_F(AcceptorTest, StalledHandshakesBeyondEveryBoundAreHungUpOn) {
  Start(1);
  std::vector<std::unique_ptr<RawPeer>> stalled;
  constexpr int kStalled = 100;
  for (int i = 0; i < kStalled; ++i) {
    stalled.push_back(std::make_unique<RawPeer>(socket_path_));
    ASSERT_TRUE(stalled.back()->connected());
  }
  EXPECT_TRUE(Eventually([&] { return acceptor_->refused_count() >= kStalled - 1 - 32; }));
  EXPECT_TRUE(stalled.back()->AtEnd());
}

TEST_F(AcceptorTest, AStalledHandshakeIsDroppedAtItsDeadlineAndBlocksNobody) {
  Start();
  RawPeer stalled(socket_path_);
  const ClientHello hello;
  stalled.Send(&hello, sizeof(hello) - 1);
  const std::unique_ptr<RawPeer> healthy = Joined();
  EXPECT_EQ(acceptor_->refused_count(), 0U);
  clock_.AdvanceNs((limits::kHandshakeDeadlineMs + 1) * 1'000'000);
  // Moving the manual clock wakes no thread, so a new connection does.
  const std::unique_ptr<RawPeer> next = Joined();
  EXPECT_TRUE(stalled.AtEnd());
  EXPECT_TRUE(Eventually([&] { return acceptor_->refused_count() == 1; }));
  EXPECT_EQ(acceptor_->connection_count(), 2U) << "those that shook hands have no deadline";
}

TEST_F(AcceptorTest, WrongMagicIsRefused) {
  Start();
  ClientHello hello;
  hello.magic = 0x505454482F312E31ULL;
  EXPECT_EQ(StatusOfRefusal(hello), Number(ErrorCode::kInvalidArgument));
  EXPECT_EQ(acceptor_->refused_count(), 1U);
  EXPECT_EQ(HandedOver(), 0U);
}

TEST_F(AcceptorTest, AnotherLayoutVersionIsRefusedAndToldOurs) {
  Start();
  ClientHello hello;
  hello.layout_version = kLayoutVersion + 1;
  EXPECT_EQ(StatusOfRefusal(hello), Number(ErrorCode::kFailedPrecondition));
  EXPECT_EQ(acceptor_->refused_count(), 1U);
}

TEST_F(AcceptorTest, APeerThatClosesEarlyLeavesNothing) {
  Start(64);
  const std::size_t before = OpenFdCount();
  for (int i = 0; i < 20; ++i) {
    RawPeer silent(socket_path_);
    RawPeer cut(socket_path_);
    const ClientHello hello;
    cut.Send(&hello, 5);
  }
  const std::unique_ptr<RawPeer> after = Joined();
  EXPECT_TRUE(Eventually([&] { return OpenFdCount() == before + 3; }))
      << OpenFdCount() << " against " << before << ", one socket, its end here and its watch";
}

TEST_F(AcceptorTest, RefusalsLeakNoDescriptor) {
  Start(1, 3);
  const std::unique_ptr<RawPeer> guest = Joined();
  ASSERT_TRUE(Eventually([&] { return HandedOver() == 1; }));
  const std::size_t before = OpenFdCount();
  ClientHello alien;
  alien.magic = 1;
  ClientHello old;
  old.layout_version = 0;
  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(StatusOfRefusal(alien), 0U);
    EXPECT_NE(StatusOfRefusal(old), 0U);
    EXPECT_NE(StatusOfRefusal({}), 0U);
  }
  EXPECT_EQ(acceptor_->refused_count(), 150U);
  EXPECT_TRUE(Eventually([&] { return OpenFdCount() == before; })) << OpenFdCount();
}

TEST_F(AcceptorTest, AClosedAcceptorLeavesNoSocket) {
  Start();
  acceptor_->StopAccepting();
  EXPECT_TRUE(std::filesystem::exists(socket_path_));
  acceptor_->Close();
  acceptor_->Close();
  EXPECT_FALSE(std::filesystem::exists(socket_path_));
  EXPECT_FALSE(RawPeer(socket_path_).connected());
}

TEST_F(AcceptorTest, AStaleSocketIsReplaced) {
  Start();
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  acceptor_.reset();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(stale, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(stale);
  ASSERT_TRUE(std::filesystem::exists(socket_path_));
  joined_ = HandedOver();
  Start();
  Joined();
}

TEST_F(AcceptorTest, AFileInTheSocketsPlaceIsNotRemoved) {
  std::ofstream(socket_path_) << "a thesis";
  const auto refused = Acceptor::Create({.socket_path = socket_path_, .connections_max = 1}, {},
                                        clock_, [](UniqueFd, const PeerCredentials&) {},
                                        [](const Error&) {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_THAT(refused.error().message(), HasSubstr(socket_path_));
  EXPECT_EQ(std::filesystem::file_size(socket_path_), 8U);
}

TEST_F(AcceptorTest, WhereItCannotWatchItsSocketsTheOwnerIsTold) {
  Start();
  const auto peer = Joined();
  // poll refuses more descriptors than a process may have open.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit one{.rlim_cur = 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  acceptor_->StopAccepting();  // wakes its thread
  const bool told = Eventually([this] {
    MutexLock lock(mutex_);
    return broken_.has_value();
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(told);
  {
    MutexLock lock(mutex_);
    EXPECT_THAT(broken_->message(), HasSubstr(socket_path_));
  }
  EXPECT_EQ(acceptor_->connection_count(), 1U) << "connections that are there stay";
}

TEST_F(AcceptorTest, APathThatIsTooLongIsRefused) {
  const std::string fits = folder_ + "/" + std::string(107 - folder_.size() - 1, 's');
  for (const std::string& path : {fits, fits + "s"}) {
    const auto created = Acceptor::Create({.socket_path = path, .connections_max = 1}, {}, clock_,
                                          [](UniqueFd, const PeerCredentials&) {},
                                          [](const Error&) {});
    EXPECT_EQ(created.has_value(), path == fits);
    if (created.has_value()) continue;
    EXPECT_EQ(created.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(created.error().message(), HasSubstr("107"));
  }
}

TEST_F(AcceptorTest, AMissingDirectoryIsNamed) {
  const auto refused =
      Acceptor::Create({.socket_path = folder_ + "/none/s", .connections_max = 1}, {}, clock_,
                       [](UniqueFd, const PeerCredentials&) {}, [](const Error&) {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("/none/s"));
}

}  // namespace forebay::daemon::acceptor_test
