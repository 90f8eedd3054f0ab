// Fuzz target: what a daemon says on the socket before gRPC, with one descriptor of sealed
// memory for each region entry.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "client/connection/handshake.h"
#include "client/testing/sealed_memory.h"
#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

// One page; entries that claim more must be refused, because a read beyond it would raise SIGBUS.
constexpr std::uint64_t kRegionBytes = 4096;

// One message that passes `memory` `fd_count` times. What the socket does not take is lost, as
// if the daemon had died.
void Send(const UniqueFd& socket, std::span<const std::byte> bytes, const UniqueFd& memory,
          std::size_t fd_count) {
  // One memory serves for all descriptors, because the receiver gets a descriptor of its own for
  // each.
  const std::vector<int> fds(fd_count, memory.get());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(limits::kFdsPerMessageMax * sizeof(int))> control{};
  iovec part = {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd_count > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fd_count * sizeof(int));
  }
  (void)::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
}

// In messages as wire_layout.h wants them, as far as the bytes go.
void SendAsDaemon(const UniqueFd& socket, std::span<const std::byte> bytes) {
  const UniqueFd memory = testing::MakeSealedMemory(kRegionBytes);
  ServerHello hello;
  const std::size_t hello_bytes = std::min(bytes.size(), sizeof(hello));
  if (hello_bytes > 0) std::memcpy(static_cast<void*>(&hello), bytes.data(), hello_bytes);
  Send(socket, bytes.first(hello_bytes), memory, 0);
  bytes = bytes.subspan(hello_bytes);
  for (std::uint32_t left = hello.region_count; left > 0 && !bytes.empty();) {
    const std::uint32_t count = std::min(left, limits::kFdsPerMessageMax);
    const std::size_t message_bytes = std::min(bytes.size(), count * sizeof(RegionEntry));
    Send(socket, bytes.first(message_bytes), memory, count);
    bytes = bytes.subspan(message_bytes);
    left -= count;
  }
  // The client then sees the end of the stream instead of waiting for its deadline.
  (void)::shutdown(socket.get(), SHUT_WR);
}

void Exchange(UniqueFd socket) {
  // The other end has already hung up, so nothing waits for as long as that.
  const HandshakeOptions options = {
      .path = "", .deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1)};
  const auto handshake = ExchangeHellos(std::move(socket), options);
  if (!handshake.has_value()) return;
  const RegionMap& regions = *handshake->regions;
  // More would mean that a region was mapped beyond its memory.
  if (regions.total_bytes() > regions.count() * kRegionBytes) __builtin_trap();
  for (std::uint32_t id = 0; id < limits::kRegionCountMax; ++id) {
    // The first byte behind every region: no reference may reach it, whatever the entries said.
    if (regions.Find({.region = id, .offset = kRegionBytes, .length = 1}) != nullptr) {
      __builtin_trap();
    }
  }
}

}  // namespace
}  // namespace forebay::internal

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    __builtin_trap();
  }
  const forebay::UniqueFd daemon(ends[0]);
  forebay::UniqueFd client(ends[1]);
  forebay::internal::SendAsDaemon(daemon, std::as_bytes(std::span(data, size)));
  forebay::internal::Exchange(std::move(client));
  return 0;
}
