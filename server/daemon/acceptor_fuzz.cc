// Fuzz target: the first bytes on the daemon's socket, sent over a real socket. A client that does
// not send a complete ClientHello of this version gets no session and no region.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>

#include "proto/contract/check.h"
#include "server/daemon/acceptor.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::daemon {
namespace {

constexpr std::uint32_t kRegions = 2;

// An acceptor whose hand-over closes the connection, so that no state is left between two inputs.
class Door {
 public:
  Door() {
    spdlog::set_level(spdlog::level::off);  // every refusal is a line
    std::string pattern = (std::filesystem::temp_directory_path() / "fbfXXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::vector<SharedEntry> entries(kRegions);
    for (SharedEntry& entry : entries) {
      auto region = tier::SharedRegion::Create("acceptor_fuzz", 8192);
      FOREBAY_CHECK(region.has_value());
      entry.fd = region->fd();
      regions_.push_back(std::move(*region));
    }
    auto made = Acceptor::Create({.socket_path = path(), .generation = 1,
                                  .connections_max = 1'000'000},
                                 std::move(entries), clock_,
                                 [](UniqueFd, const PeerCredentials&) {}, [](const Error&) {});
    FOREBAY_CHECK(made.has_value());
    acceptor_ = std::move(*made);
    acceptor_->Start();
  }
  ~Door() {
    acceptor_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/s"; }

 private:
  std::string folder_;
  io::SteadyClock clock_;
  std::vector<tier::SharedRegion> regions_;
  std::unique_ptr<Acceptor> acceptor_;
};

UniqueFd ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // Over a real socket, because the acceptor reads with recvmsg and checks the peer's credentials.
  for (;;) {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
    FOREBAY_CHECK(errno == EINTR);
  }
}

// All bytes that the daemon sends until it closes the connection.
std::vector<char> Answer(const UniqueFd& fd) {
  std::vector<char> answer;
  char part[512];
  for (;;) {
    const ssize_t got = recv(fd.get(), part, sizeof(part), 0);
    if (got < 0 && errno == EINTR) continue;  // libFuzzer's alarm
    if (got <= 0) return answer;
    answer.insert(answer.end(), part, part + got);
  }
}

}  // namespace
}  // namespace forebay::daemon

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  // All inputs share one acceptor, whose limit of connections they do not reach.
  static const daemon::Door door;
  const UniqueFd fd = daemon::ConnectTo(door.path());
  // The daemon may close the connection before everything is sent.
  static_cast<void>(send(fd.get(), data, size, MSG_NOSIGNAL));
  // The daemon then sees the end at once, and an incomplete hello does not wait for its deadline.
  shutdown(fd.get(), SHUT_WR);
  const std::vector<char> answer = daemon::Answer(fd);
  ClientHello hello;
  if (size < sizeof(hello)) {
    FOREBAY_CHECK(answer.empty());
    return 0;
  }
  std::memcpy(&hello, data, sizeof(hello));
  // A client that sends more bytes may lose the answer, but must not get another one.
  if (size > sizeof(hello) && answer.size() < sizeof(ServerHello)) return 0;
  ServerHello reply;
  FOREBAY_CHECK(answer.size() >= sizeof(reply));
  std::memcpy(&reply, answer.data(), sizeof(reply));
  const bool is_good = hello.magic == kClientHelloMagic && hello.layout_version == kLayoutVersion;
  const bool wants_regions = (hello.flags & ClientHello::kWantsSharedMemory) != 0;
  const std::uint32_t regions = is_good && wants_regions ? daemon::kRegions : 0;
  FOREBAY_CHECK((reply.status == 0) == is_good && (reply.session != 0) == is_good);
  FOREBAY_CHECK(reply.region_count == regions);
  FOREBAY_CHECK(answer.size() <= sizeof(reply) + regions * sizeof(RegionEntry));
  return 0;
}
