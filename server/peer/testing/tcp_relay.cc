// One thread polls the listener, or both sockets of the connection that it carries. It looks every
// few milliseconds what a test has asked for.
#include "server/peer/testing/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::peer {
namespace {

constexpr int kPollMs = 5;
constexpr std::size_t kPieceBytes = 64 << 10;

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int fd, const std::byte* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(fd, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

TcpRelay::TcpRelay(const std::string& target) {
  if (!target.empty()) {
    target_port_ = static_cast<std::uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)));
  }
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  FOREBAY_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                       sizeof(address)) == 0);
  FOREBAY_CHECK(::listen(listener_.get(), 16) == 0);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

TcpRelay::~TcpRelay() = default;

std::string TcpRelay::address() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  FOREBAY_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) ==
                0);
  return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
}

bool TcpRelay::AwaitAsked(std::uint64_t bytes) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (asked_ < bytes) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, kPollMs);
  }
  return true;
}

void TcpRelay::Run(const std::stop_token& stop) {
  std::vector<UniqueFd> silent;  // connections that are never answered
  while (!stop.stop_requested()) {
    pollfd waits{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waits, 1, kPollMs) <= 0) continue;
    UniqueFd asks(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!asks.valid()) continue;
    if (target_port_ == 0) {
      silent.push_back(std::move(asks));
      continue;
    }
    const UniqueFd answers(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = Loopback(target_port_);
    if (::connect(answers.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      continue;
    }
    Carry(asks.get(), answers.get(), stop);
  }
}

void TcpRelay::Carry(int asks, int answers, const std::stop_token& stop) {
  bool is_open = true;
  while (is_open && !stop.stop_requested()) {
    pollfd waits[2] = {{.fd = asks, .events = POLLIN, .revents = 0},
                       {.fd = holds_ ? -1 : answers, .events = POLLIN, .revents = 0}};
    ::poll(waits, 2, kPollMs);
    if (waits[0].revents != 0) is_open = PassQuestion(asks, answers);
    if (is_open && waits[1].revents != 0) is_open = PassAnswer(asks, answers);
  }
}

bool TcpRelay::PassQuestion(int asks, int answers) {
  std::vector<std::byte> piece(kPieceBytes);
  const ssize_t got = ::recv(asks, piece.data(), piece.size(), 0);
  if (got <= 0 || cuts_next_.exchange(false)) return false;
  if (!SendAll(answers, piece.data(), static_cast<std::size_t>(got))) return false;
  asked_ += static_cast<std::uint64_t>(got);
  return true;
}

bool TcpRelay::PassAnswer(int asks, int answers) {
  std::vector<std::byte> piece(kPieceBytes);
  const ssize_t got = ::recv(answers, piece.data(), piece.size(), 0);
  if (got <= 0) return false;
  auto count = static_cast<std::uint64_t>(got);
  if (flipped_ >= answered_ && flipped_ - answered_ < count) {
    piece[flipped_ - answered_] ^= std::byte{1};
  }
  const std::uint64_t left = cut_after_ - std::min<std::uint64_t>(cut_after_, answered_);
  const bool is_cut = left < count;
  if (is_cut) count = left;
  if (!SendAll(asks, piece.data(), count)) return false;
  answered_ += count;
  return !is_cut;
}

}  // namespace forebay::peer
