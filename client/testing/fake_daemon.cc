#include "client/testing/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include "client/testing/fake_certificates.h"
#include "client/testing/fake_data_service.h"
#include "client/testing/fake_dataset.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::testing {
namespace {

std::string MakeFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "forebay-fake-XXXXXX").string();
  FOREBAY_CHECK(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

}  // namespace

FakeDaemon::FakeDaemon(FakeDaemonOptions options)
    : options_(std::move(options)),
      folder_(options_.socket_path.empty() ? MakeFolder() : std::string()),
      path_(options_.socket_path.empty() ? folder_ + "/daemon.sock" : options_.socket_path) {
  // No two daemons have the same one.
  if (options_.is_other_node) generation_ += 1000;
  Start();
}

FakeDaemon::~FakeDaemon() {
  Stop();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void FakeDaemon::Start() {
  ++generation_;
  const std::uint64_t fingerprint = dataset_ ? dataset_->fingerprint() : 0;
  dataset_ = std::make_unique<FakeDataset>(options_.samples, options_.image_bytes);
  if (fingerprint != 0) dataset_->set_fingerprint(fingerprint);
  slots_ = std::make_unique<FakeSlots>(options_.slot_bytes, options_.slots, true);
  service_ = std::make_unique<FakeDataService>(FakeServiceState{.dataset = *dataset_,
                                                                .slots = *slots_,
                                                                .faults = faults,
                                                                .counters = counters,
                                                                .job_id = options_.job_id,
                                                                .generation = generation_});
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  if (options_.admin != nullptr) builder.RegisterService(options_.admin);
  builder.SetMaxReceiveMessageSize(limits::kRpcMessageBytesMax);
  // Hostile messages may be larger than a client accepts.
  builder.SetMaxSendMessageSize(-1);
  if (options_.is_other_node) {
    grpc::SslServerCredentialsOptions credentials(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    credentials.pem_root_certs = kTestAuthority;
    credentials.pem_key_cert_pairs = {{.private_key = kTestNodeKey, .cert_chain = kTestNode}};
    builder.AddListeningPort(node_address(), grpc::SslServerCredentials(credentials), &port_);
  }
  server_ = builder.BuildAndStart();
  FOREBAY_CHECK(server_ != nullptr);

  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  FOREBAY_CHECK(path_.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path_.data(), path_.size());
  ::unlink(path_.c_str());
  FOREBAY_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof(address)) == 0);
  FOREBAY_CHECK(::listen(listener_.get(), 16) == 0);
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  acceptor_ = std::jthread([this] { Listen(); });
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  const std::uint64_t one = 1;
  FOREBAY_CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
  acceptor_.join();
  listener_.Reset();
  ::unlink(path_.c_str());
  slots_->Freeze();
  CutConnections();
  stalled_.clear();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeDaemon::CutConnections() {
  const MutexLock lock(serving_mutex_);
  for (const UniqueFd& socket : serving_) ::shutdown(socket.get(), SHUT_RDWR);
  serving_.clear();
}

void FakeDaemon::NameOtherNodes(const std::vector<std::string>& addresses,
                                const char* certificate) {
  faults.hello_reply = [addresses, certificate](v1::HelloReply& reply) {
    v1::RemoteDaemons& others = *reply.mutable_remote_daemons();
    for (const std::string& address : addresses) others.add_addresses(address);
    others.set_certified_name(kTestCertifiedName);
    others.set_authority(kTestAuthority);
    others.set_certificate(certificate);
    others.set_key(kTestClientKey);
  };
}

std::size_t FakeDaemon::reader_count() const { return service_->reader_count(); }

void FakeDaemon::Listen() {
  for (;;) {
    std::array<pollfd, 2> waited = {{{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                     {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    if (::poll(waited.data(), waited.size(), -1) < 0) continue;
    if (waited[1].revents != 0) return;
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) Serve(std::move(socket));
  }
}

void FakeDaemon::Serve(UniqueFd socket) {
  counters.connections += 1;
  if (faults.stall_handshake) {
    stalled_.push_back(std::move(socket));
    return;
  }
  if (!ShakeHands(socket)) return;
  FOREBAY_CHECK(::fcntl(socket.get(), F_SETFL, O_NONBLOCK) == 0);
  {
    const MutexLock lock(serving_mutex_);
    serving_.emplace_back(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  }
  grpc::AddInsecureChannelFromFd(server_.get(), socket.Release());
}

bool FakeDaemon::ShakeHands(const UniqueFd& socket) {
  ClientHello hello;
  if (::recv(socket.get(), &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) return false;
  FOREBAY_CHECK(hello.magic == kClientHelloMagic);
  if (faults.drop_handshake) return false;
  const bool shared = (hello.flags & ClientHello::kWantsSharedMemory) != 0;
  ServerHello answer = {.session = counters.connections,
                        .generation = generation_,
                        .region_count = shared ? 2U : 0U};
  if (faults.server_hello) faults.server_hello(answer);
  if (::send(socket.get(), &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) return false;
  return answer.status == 0 && (!shared || SendRegions(socket));
}

bool FakeDaemon::SendRegions(const UniqueFd& socket) {
  const FakeRegion loose(FakeSlots::kSlotRegion, options_.slot_bytes, false);
  const std::array<FakeRegion*, 2> regions = {&dataset_->arena(), &slots_->region()};
  std::array<RegionEntry, 2> entries;
  std::array<int, 2> fds = {};
  for (std::size_t i = 0; i < regions.size(); ++i) {
    entries[i] = {.id = regions[i]->id(),
                  .kind = static_cast<std::uint32_t>(i == 0 ? RegionKind::kArena
                                                            : RegionKind::kSlots),
                  .bytes = regions[i]->bytes().size(),
                  .page_bytes = 4096,
                  .generation = generation_};
    fds[i] = regions[i]->fd();
  }
  if (faults.unsealed_regions) {
    fds[1] = loose.fd();
    entries[1].bytes = options_.slot_bytes;
  }
  if (faults.region_entry) faults.region_entry(entries[0]);
  const std::size_t fd_bytes = (faults.too_few_descriptors ? 1 : 2) * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control = {};
  iovec part = {.iov_base = entries.data(), .iov_len = sizeof(entries)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fd_bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fd_bytes);
  std::memcpy(CMSG_DATA(header), fds.data(), fd_bytes);
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(entries));
}

}  // namespace forebay::testing
