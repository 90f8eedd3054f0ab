// Both sides use gRPC's callback API, as the daemons do for rows of other nodes.
#include "bench/nodes/grpc_bytes.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/peer/channel_settings.h"

namespace forebay::bench {
namespace {

// The asking side of one request: sends the number of bytes, receives them in its place.
class Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(grpc::GenericStub& stub, std::span<std::byte> memory) : memory_(memory) {
    const std::uint64_t bytes = memory.size();
    const grpc::Slice slice(&bytes, sizeof(bytes));
    request_ = grpc::ByteBuffer(&slice, 1);
    stub.PrepareBidiStreamingCall(&context_, "/bench/Stream", {}, this);
    // Half-closes at once: the answering side needs nothing more, and the call takes fewer frames.
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    slices_.clear();
    FOREBAY_CHECK(message_.Dump(&slices_).ok());
    // The one copy that no receiver can avoid: gRPC decides where it receives.
    for (const grpc::Slice& slice : slices_) {
      FOREBAY_CHECK(slice.size() <= memory_.size() - received_);
      std::memcpy(memory_.data() + received_, slice.begin(), slice.size());
      received_ += slice.size();
    }
    message_.Clear();
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    // This object may be destroyed before set_value returns.
    const std::shared_ptr<std::promise<grpc::Status>> done = done_;
    done->set_value(status);
  }
  void Await() {
    // A contender that moved fewer bytes would win, so what arrived is counted.
    const grpc::Status status = done_->get_future().get();
    FOREBAY_CHECK(status.ok() && received_ == memory_.size());
  }

 private:
  const std::span<std::byte> memory_;
  std::size_t received_ = 0;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;
  std::vector<grpc::Slice> slices_;
  const std::shared_ptr<std::promise<grpc::Status>> done_ =
      std::make_shared<std::promise<grpc::Status>>();
};

// The answering side: writes one message after the other, each when gRPC has taken the last one,
// which is its flow control.
class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answer(std::span<const std::byte> source) : source_(source) { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    grpc::Slice slice;  // a message may come in several slices, however short it is
    FOREBAY_CHECK(ok && message_.DumpToSingleSlice(&slice).ok());
    FOREBAY_CHECK(slice.size() == sizeof(left_));
    std::memcpy(&left_, slice.begin(), sizeof(left_));
    Write();
  }
  void OnWriteDone(bool ok) override {
    // A client that has ended takes no more, which is its affair.
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (left_ > 0) return Write();
    Finish(grpc::Status::OK);
  }
  void OnDone() override { const std::unique_ptr<Answer> self(this); }

 private:
  void Write() {
    const std::size_t bytes = std::min<std::size_t>(left_, limits::kPeerChunkBytes);
    // Walks through the memory of the data set, so that it does not send from the cache.
    if (offset_ + bytes > source_.size()) offset_ = 0;
    const grpc::Slice slice(source_.data() + offset_, bytes, grpc::Slice::STATIC_SLICE);
    message_ = grpc::ByteBuffer(&slice, 1);
    offset_ += bytes;
    left_ -= bytes;
    StartWrite(&message_);
  }

  const std::span<const std::byte> source_;
  std::size_t offset_ = 0;
  std::uint64_t left_ = 0;
  grpc::ByteBuffer message_;
};

}  // namespace

ByteServer::ByteServer(std::span<const std::byte> source, const std::string& host, int port,
                       bool has_our_settings)
    : source_(source) {
  FOREBAY_CHECK(source.size() >= limits::kPeerChunkBytes);
  grpc::ServerBuilder builder;
  // Without them, the figures show what our settings of gRPC are worth.
  if (has_our_settings) peer::ApplySettings(builder);
  builder.AddListeningPort(host + ":" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  FOREBAY_CHECK(server_ != nullptr && port_ != 0);
}

ByteServer::~ByteServer() { server_->Shutdown(); }

grpc::ServerGenericBidiReactor* ByteServer::CreateReactor(grpc::GenericCallbackServerContext*) {
  // gRPC tells the reactor when it is done with it (OnDone), and it then destroys itself.
  return std::make_unique<Answer>(source_).release();
}

ByteClient::ByteClient(const std::string& address, bool has_our_settings) {
  grpc::ChannelArguments settings;
  if (has_our_settings) settings = peer::ChannelSettings();
  // Otherwise channels of equal settings would share one connection.
  settings.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = std::make_unique<grpc::GenericStub>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), settings));
}

void ByteClient::Move(std::size_t requests, std::size_t bytes, std::size_t in_flight,
                      std::span<std::byte> destination) {
  FOREBAY_CHECK(destination.size() == in_flight * bytes);
  std::vector<std::unique_ptr<Call>> under_way(in_flight);
  // A ring of requests: before a place is used again, its last request must be complete. The rounds
  // after the last request only wait for those under way.
  for (std::size_t r = 0; r < requests + in_flight; ++r) {
    std::unique_ptr<Call>& place = under_way[r % in_flight];
    if (place) place->Await();
    place.reset();
    if (r >= requests) continue;
    place = std::make_unique<Call>(*stub_, destination.subspan(r % in_flight * bytes, bytes));
  }
}

}  // namespace forebay::bench
