// The fixture of tests of PeerLink: nodes that agree to Hello or do not, and calls that write down
// what becomes of them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "server/io/clock.h"
#include "server/peer/channel_settings.h"
#include "server/peer/peer_link.h"

namespace forebay::peer::peer_link_test {

// So many bytes may be under way as long as no call was answered.
inline constexpr std::uint64_t kRoom = limits::kPeerBytesInFlightAtFirst;

// A node that agrees to Hello, or does not.
class HelloNode final : public v1::Peer::Service {
 public:
  explicit HelloNode(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    ApplySettings(builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Refuse(bool refuses) { refuses_ = refuses; }
  int hellos() const { return hellos_; }  // that were heard

  grpc::Status Hello(grpc::ServerContext*, const v1::PeerHelloRequest*,
                     v1::PeerHelloReply*) override {
    ++hellos_;
    if (refuses_) return {grpc::StatusCode::FAILED_PRECONDITION, "another job"};
    return grpc::Status::OK;
  }

 private:
  int port_ = 0;
  std::atomic<bool> refuses_ = false;
  std::atomic<int> hellos_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Records for each call, by its name, whether it has begun, ended or failed.
class Journal {
 public:
  void Write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    changed_.notify_all();
  }
  std::vector<std::string> AwaitLines(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return lines_.size() >= count; }));
    return lines_;
  }
  void AwaitLast(const std::string& line) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] {
      return !lines_.empty() && lines_.back() == line;
    })) << line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

class NotedCall final : public PeerCall {
 public:
  NotedCall(std::string name, std::uint64_t bytes, std::int64_t deadline_ns, PeerLink& link,
            Journal& journal, Watched watched)
      : PeerCall(bytes, deadline_ns, watched),
        name_(std::move(name)),
        link_(link),
        journal_(journal) {}
  using PeerCall::NoteProgress;
  using PeerCall::NoteWaits;
  void Begin(const std::shared_ptr<grpc::Channel>&) override {
    has_begun_ = true;
    journal_.Write(name_ + " begins");
  }
  void Fail(const Error& error) override {
    error_ = error;
    journal_.Write(name_ + " fails");
  }
  void Cancel() override {
    journal_.Write(name_ + " is cancelled");
    if (ends_if_cancelled) link_.Ended(*this);
  }
  const Error& error() const { return *error_; }
  bool has_begun() const { return has_begun_; }
  // False: the answer is on its way already, and the test ends the call.
  bool ends_if_cancelled = true;

 private:
  std::atomic<bool> has_begun_ = false;
  const std::string name_;
  PeerLink& link_;
  Journal& journal_;
  std::optional<Error> error_;
};

class PeerLinkTest : public ::testing::Test {
 protected:
  std::shared_ptr<NotedCall> Start(PeerLink& link, const std::string& name, std::uint64_t bytes,
                                   std::int64_t wait_ms = 60'000) {
    auto call = Make(link, name, bytes, wait_ms);
    link.Start(call);
    return call;
  }
  std::shared_ptr<NotedCall> StartLater(PeerLink& link, const std::string& name,
                                        std::uint64_t bytes, std::int64_t rest_ms,
                                        std::int64_t wait_ms = 120'000) {
    auto call = Make(link, name, bytes, wait_ms);
    link.StartLater(call, clock_.NowNs() + rest_ms * 1'000'000);
    return call;
  }
  std::shared_ptr<NotedCall> Make(PeerLink& link, const std::string& name, std::uint64_t bytes,
                                  std::int64_t wait_ms,
                                  PeerCall::Watched watched = PeerCall::Watched::kYes) {
    return std::make_shared<NotedCall>(name, bytes, clock_.NowNs() + wait_ms * 1'000'000, link,
                                       journal_, watched);
  }
  // The longest time for which nothing has come, after `elapsed_ns` more.
  std::int64_t Silence(std::int64_t elapsed_ns) {
    return link_.AddSilence(elapsed_ns, [this] { return is_suspected_; }).silent_ns;
  }

  bool is_suspected_ = false;
  io::SteadyClock clock_;
  Journal journal_;
  HelloNode node_;
  PeerLink link_{{.address = "127.0.0.1:1", .job_id = "job"}, node_.address(), clock_};
};

}  // namespace forebay::peer::peer_link_test
