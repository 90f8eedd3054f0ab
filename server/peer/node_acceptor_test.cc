// Connections of other nodes: those that come while no file can be opened are accepted afterwards,
// and a server that was in that state answers as before.
#include "server/peer/node_acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/peer/testing/peer_rig.h"

namespace forebay::peer::node_acceptor_test {

using io::testing::Take;

// While it lives, this process can open no further file.
class NoFiles {
 public:
  NoFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none = {.rlim_cur = 3, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoFiles() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  rlimit before_{};
};

// Waits for the line of the log that says that a connection could not be accepted.
class LogOfFailure final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void Await() { EXPECT_EQ(seen_.get_future().wait_for(std::chrono::minutes(1)),
                           std::future_status::ready); }

 private:
  void sink_it_(const spdlog::details::log_msg& line) override {
    const std::string text(line.payload.data(), line.payload.size());
    if (text.find("cannot accept connections of other nodes") == std::string::npos) return;
    if (!std::exchange(has_seen_, true)) seen_.set_value();
  }
  void flush_() override {}

  std::promise<void> seen_;
  bool has_seen_ = false;
};

class NodeAcceptorTest : public ::testing::Test {
 protected:
  NodeAcceptorTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", failure_));
  }
  ~NodeAcceptorTest() override { spdlog::set_default_logger(before_); }

  static UniqueFd Socket() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  // The kernel completes it, whether or not anybody accepts the connection.
  static bool Connect(const UniqueFd& fd, std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }

  const std::shared_ptr<LogOfFailure> failure_ = std::make_shared<LogOfFailure>();
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(NodeAcceptorTest, AConnectionThatCameBeforeStartIsHandedOver) {
  const auto acceptor = Take(NodeAcceptor::Listen("127.0.0.1", 0));
  const UniqueFd client = Socket();
  ASSERT_TRUE(Connect(client, acceptor->port()));
  std::promise<UniqueFd> accepted;
  acceptor->Start([&](UniqueFd fd) { accepted.set_value(std::move(fd)); });
  const UniqueFd server = accepted.get_future().get();
  ASSERT_EQ(write(server.get(), "a", 1), 1);
  std::array<char, 2> read_bytes{};
  EXPECT_EQ(read(client.get(), read_bytes.data(), read_bytes.size()), 1);
  EXPECT_EQ(read(server.get(), read_bytes.data(), 1), -1) << "it does not block";
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(NodeAcceptorTest, AfterStopNobodyListens) {
  const auto acceptor = Take(NodeAcceptor::Listen("127.0.0.1", 0));
  acceptor->Start([](const UniqueFd&) { ADD_FAILURE() << "nobody has connected"; });
  acceptor->Stop();
  acceptor->Stop();
  EXPECT_FALSE(Connect(Socket(), acceptor->port()));
}

TEST_F(NodeAcceptorTest, AnAddressThatIsInUseOrNotOfThisMachineIsAnError) {
  const auto acceptor = Take(NodeAcceptor::Listen("127.0.0.1", 0));
  const auto second = NodeAcceptor::Listen("127.0.0.1", acceptor->port());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message(), ::testing::HasSubstr("in use"));
  for (const char* const host : {"192.0.2.1", "no address"}) {
    const auto other = NodeAcceptor::Listen(host, 0);
    ASSERT_FALSE(other.has_value());
    EXPECT_EQ(other.error().code(), ErrorCode::kUnavailable);
    EXPECT_THAT(other.error().message(), ::testing::HasSubstr(host));
  }
}

TEST_F(NodeAcceptorTest, AConnectionThatComesWhileNoFileCanBeOpenedWaits) {
  const auto acceptor = Take(NodeAcceptor::Listen("127.0.0.1", 0));
  std::promise<UniqueFd> accepted;
  acceptor->Start([&](UniqueFd fd) { accepted.set_value(std::move(fd)); });
  const UniqueFd client = Socket();
  {
    const NoFiles no_files;
    ASSERT_TRUE(Connect(client, acceptor->port()));
    failure_->Await();
  }
  EXPECT_TRUE(accepted.get_future().get().valid());
}

TEST_F(NodeAcceptorTest, AServerThatCouldOpenNoFileAnswersOtherNodesAgain) {
  const auto rig = Take(PeerRig::Create({}));
  const std::string address = rig->address();
  const UniqueFd client = Socket();
  {
    const NoFiles no_files;
    const auto port = std::stoul(address.substr(address.rfind(':') + 1));
    ASSERT_TRUE(Connect(client, static_cast<std::uint16_t>(port)));
    failure_->Await();
  }
  FOREBAY_EXPECT_OK(rig->Connect(address));
  PeerRig::Rows rows = rig->Ask({1, 2});
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig->AreRight(rows));
}

}  // namespace forebay::peer::node_acceptor_test
