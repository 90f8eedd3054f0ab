#include "tests/integration/relay.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {
namespace {

// False at the end of `from`.
bool Forward(int from, int to, std::vector<char>& bytes) {
  const ssize_t got = recv(from, bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t count =
        send(to, bytes.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (count < 0) return false;
    sent += count;
  }
  return true;
}

}  // namespace

Relay::Relay(std::string path, std::string daemon_path)
    : path_(std::move(path)),
      daemon_path_(std::move(daemon_path)),
      listen_fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  FOREBAY_CHECK(bind(listen_fd_.get(), reinterpret_cast<const sockaddr*>(&address),
                     sizeof(address)) == 0);
  FOREBAY_CHECK(listen(listen_fd_.get(), 1) == 0);
  thread_ = std::jthread([this] { Run(); });
}

Relay::~Relay() {
  ending_ = true;
  StopReading();
  thread_.join();
  unlink(path_.c_str());
}

void Relay::StopReading() {
  reading_ = false;
  const std::uint64_t one = 1;
  FOREBAY_CHECK(write(wake_fd_.get(), &one, sizeof(one)) == sizeof(one));
}

void Relay::HalfClose() { FOREBAY_CHECK(shutdown(daemon_fd_number_, SHUT_WR) == 0); }

std::size_t Relay::UnreadBytes() const {
  int count = 0;
  FOREBAY_CHECK(ioctl(daemon_fd_number_, FIONREAD, &count) == 0);
  return static_cast<std::size_t>(count);
}

void Relay::Run() {
  pollfd first[] = {{wake_fd_.get(), POLLIN, 0}, {listen_fd_.get(), POLLIN, 0}};
  FOREBAY_CHECK(poll(first, std::size(first), -1) > 0);
  if (ending_) return;
  const UniqueFd client(accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const UniqueFd daemon = ConnectTo(daemon_path_);
  FOREBAY_CHECK(client.valid() && daemon.valid());
  daemon_fd_number_ = daemon.get();
  std::vector<char> bytes(64 << 10);
  bool requests_end = false;
  while (!ending_) {
    pollfd polled[] = {{wake_fd_.get(), POLLIN, 0},
                       {requests_end ? -1 : client.get(), POLLIN, 0},
                       {reading_ ? daemon.get() : -1, POLLIN, 0}};
    FOREBAY_CHECK(poll(polled, std::size(polled), -1) > 0);
    std::uint64_t wakes = 0;
    if (polled[0].revents != 0) (void)!read(wake_fd_.get(), &wakes, sizeof(wakes));
    if (polled[1].revents != 0) requests_end = !Forward(client.get(), daemon.get(), bytes);
    if (polled[2].revents != 0 && reading_ && !Forward(daemon.get(), client.get(), bytes)) return;
  }
}

}  // namespace forebay::integration
