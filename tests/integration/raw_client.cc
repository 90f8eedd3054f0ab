// Speaks the protocol of docs/design.md by hand, without the client library: the handshake over the
// Unix socket, the regions of shared memory, and gRPC over the same socket. So tests can send what
// the library never would, and see what it hides.
#include "tests/integration/raw_client.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <grpcpp/create_channel_posix.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "tests/integration/daemon_process.h"

namespace forebay::integration {
namespace {

constexpr int kLookaheadBytes = 4 << 20;  // far more than a socket's buffer

// Reads so many bytes, and keeps the file descriptors that come with them. Descriptors may come
// with any part of a message, so each read has room for as many as the daemon ever sends at once.
bool Receive(RawSocket& socket, void* data, std::size_t bytes) {
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
    const ssize_t got = recvmsg(socket.fd.get(), &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) return false;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
      const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int passed = -1;
        std::memcpy(&passed, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        socket.regions.emplace_back(passed);
      }
    }
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // A daemon that never answers fails the test instead of stopping it.
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fd.Reset();
  }
  return fd;
}

// A handshake that does not succeed gets a status that no daemon sends, for tests of refusals.
RawSocket Handshake(const std::string& path, const ClientHello& hello) {
  RawSocket socket;
  socket.fd = ConnectTo(path);
  (void)!send(socket.fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL);
  if (!Receive(socket, &socket.hello, sizeof(socket.hello))) {
    socket.hello.status = 0xFFFF'FFFF;
    return socket;
  }
  socket.entries.resize(std::min(socket.hello.region_count, limits::kRegionCountMax));
  for (RegionEntry& entry : socket.entries) {
    if (!Receive(socket, &entry, sizeof(entry))) socket.hello.status = 0xFFFF'FFFF;
  }
  return socket;
}

// Bytes that the daemon had sent before it closed the connection are skipped.
bool AtEnd(const UniqueFd& socket) {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0) return false;
  }
}

std::unique_ptr<grpc::ClientContext> NewContext() { return NewContext(kPatience); }

std::unique_ptr<grpc::ClientContext> NewContext(std::chrono::seconds deadline) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + deadline);
  return context;
}

RawClient::RawClient(const std::string& path, bool shared_memory) {
  ClientHello hello;
  if (shared_memory) hello.flags = ClientHello::kWantsSharedMemory;
  socket_ = Handshake(path, hello);
  FOREBAY_CHECK(socket_.hello.status == 0);
  for (std::size_t i = 0; i < socket_.entries.size(); ++i) {
    const RegionEntry& entry = socket_.entries[i];
    void* memory =
        mmap(nullptr, entry.bytes, PROT_READ, MAP_SHARED, socket_.regions[i].get(), 0);
    FOREBAY_CHECK(memory != MAP_FAILED);
    // Ids of regions may have gaps, and messages name a region by its id.
    maps_.resize(std::max<std::size_t>(maps_.size(), entry.id + 1));
    maps_[entry.id] = {static_cast<const std::byte*>(memory), entry.bytes};
  }
  // A payload inside messages comes faster than a test reads it.
  grpc::ChannelArguments arguments;
  if (!shared_memory) arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  channel_ = grpc::CreateCustomInsecureChannelFromFd("forebay", socket_.fd.Release(), arguments);
  data_ = v1::Data::NewStub(channel_);
  admin_ = v1::Admin::NewStub(channel_);
}

RawClient::~RawClient() {
  for (const std::span<const std::byte> map : maps_) {
    if (!map.empty()) munmap(const_cast<std::byte*>(map.data()), map.size());
  }
}

v1::HelloRequest RawClient::GoodHello() const {
  v1::HelloRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_layout_version(kLayoutVersion);
  request.set_order_version(kOrderSpecVersion);
  request.set_catalog_version(kCatalogVersion);
  request.set_session(socket_.hello.session);
  request.set_client_name("integration test");
  return request;
}

grpc::Status RawClient::Hello(const v1::HelloRequest& request, v1::HelloReply& reply) {
  return data_->Hello(NewContext().get(), request, &reply);
}

v1::StatusReply RawClient::Status() {
  v1::StatusReply reply;
  (void)admin_->Status(NewContext().get(), {}, &reply).ok();
  return reply;
}

v1::DescribeReply RawClient::Describe(const std::string& dataset) {
  v1::DescribeRequest request;
  request.set_dataset(dataset);
  request.set_wait_for_catalog(true);
  v1::DescribeReply reply;
  (void)data_->Describe(NewContext().get(), request, &reply).ok();
  return reply;
}

// The daemon names the place, so it is checked like any other number: a test must see a wrong one
// as missing bytes and not as a crash.
std::span<const std::byte> RawClient::Bytes(const WireSpan& span) const {
  if (span.region >= maps_.size()) return {};
  const std::span<const std::byte> map = maps_[span.region];
  if (span.offset > map.size() || span.length > map.size() - span.offset) return {};
  return map.subspan(span.offset, span.length);
}

RawStream::RawStream(RawClient& client) : RawStream(client, kPatience) {}

RawStream::RawStream(RawClient& client, std::chrono::seconds deadline)
    : context_(NewContext(deadline)), call_(client.data().Stream(context_.get())) {}

// gRPC wants every call finished. A test that has failed may leave it in the middle.
RawStream::~RawStream() {
  if (ended_) return;
  Cancel();
  (void)End().ok();
}

std::optional<v1::StreamReply> RawStream::Read() {
  v1::StreamReply reply;
  if (!call_->Read(&reply)) return std::nullopt;
  return reply;
}

grpc::Status RawStream::End() {
  while (Read()) {
  }
  ended_ = true;
  return call_->Finish();
}

// The seed is the same in all tests, so that two streams of a test have one order.
v1::StreamRequest GoodOpen(const v1::DescribeReply& dataset, std::uint32_t batch,
                           const OrderShape& shape) {
  const auto spec = OrderSpec{.seed = 7,
                              .sample_count = dataset.selected_count(),
                              .selection_fingerprint = dataset.selection_fingerprint(),
                              .tail = TailPolicy::kShort,
                              .shape = shape}
                        .Encode();
  v1::StreamRequest request;
  v1::OpenStream& open = *request.mutable_open();
  open.set_dataset(dataset.dataset());
  open.set_stream_name("train");
  open.set_selection("all");
  open.set_order_spec(spec.data(), spec.size());
  open.set_global_batch(batch);
  open.set_ranks(1);
  open.set_delivery(static_cast<std::uint32_t>(Delivery::kContiguous));
  open.set_credits(4);
  open.set_catalog_fingerprint(dataset.catalog_fingerprint());
  open.set_wait_for_catalog(true);
  return request;
}

v1::StreamRequest PullOf(std::uint64_t step, std::uint32_t count) {
  v1::StreamRequest request;
  v1::Pull& pull = *request.add_pulls();
  pull.set_first_step(step);
  pull.set_step_count(count);
  return request;
}

}  // namespace forebay::integration
