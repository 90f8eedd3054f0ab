// Streams that have lost their daemon at once: one of them connects, and the others wait for it no
// longer than they may.
#include "client/connection/connection_source.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/unique_fd.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A daemon that is stopped: connections wait in its socket, and nobody answers them.
class SilentDaemon {
 public:
  SilentDaemon() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "forebay-silent-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, (folder_ + "/s").c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
  }
  ~SilentDaemon() { std::filesystem::remove_all(folder_); }

  std::string address() const { return "unix:" + folder_ + "/s"; }
  void AwaitConnection() const {
    pollfd polled{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&polled, 1, -1), 1);
  }

 private:
  std::string folder_;
  UniqueFd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST(ConnectionSourceTest, AStreamWaitsForTheConnectionOfAnotherUntilItsOwnDeadline) {
  const SilentDaemon daemon;
  ConnectionSource source({}, "", daemon.address(), nullptr);
  std::jthread patient([&source] {
    const auto replaced = source.Replace(nullptr, steady_clock::now() + milliseconds(3000));
    ASSERT_FALSE(replaced.has_value());
    EXPECT_EQ(replaced.error().message().find("another stream"), std::string::npos)
        << replaced.error().message();
  });
  daemon.AwaitConnection();
  const auto replaced = source.Replace(nullptr, steady_clock::now() + milliseconds(50));
  ASSERT_FALSE(replaced.has_value());
  EXPECT_EQ(replaced.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(replaced.error().message(), ::testing::HasSubstr("another stream still tries"));
  patient.join();
  // The one that could not connect has left the turn to others.
  const auto next = source.Replace(nullptr, steady_clock::now() + milliseconds(50));
  ASSERT_FALSE(next.has_value());
  EXPECT_EQ(next.error().message().find("another stream"), std::string::npos);
}

}  // namespace
}  // namespace forebay::internal
