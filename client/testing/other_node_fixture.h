// OtherNodeTest: the fixture of tests in which a stream's daemon is gone, and another node's serves
// it: over TCP and TLS, with inline batches. The daemons write over each slot as soon as it is
// given back. For *_test.cc only.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/testing/client_test_fixture.h"
#include "client/testing/fake_certificates.h"
#include "client/testing/fake_dataset.h"
#include "proto/contract/check.h"
#include "proto/contract/unique_fd.h"

namespace forebay::testing {

inline constexpr std::uint64_t kSteps = 62;

// A node that takes connections and says nothing.
class SilentNode {
 public:
  SilentNode() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    FOREBAY_CHECK(::bind(listener_.get(), generic, length) == 0);
    FOREBAY_CHECK(::listen(listener_.get(), 8) == 0);
    FOREBAY_CHECK(::getsockname(listener_.get(), generic, &length) == 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const std::string& address() const { return address_; }
  // Whether somebody has connected.
  bool HasConnection() const {
    pollfd polled{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, 0) == 1;
  }

 private:
  UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address_;
};

// A stream so long that a client has looked for its daemon, once a second, before it ends.
inline StreamOptions LongStream() {
  StreamOptions options = FakeStream(4);
  options.epochs = 1'000'000;
  return options;
}

class OtherNodeTest : public ::testing::Test {
 protected:
  std::unique_ptr<Client> Connect(std::int64_t other_node_after_ms = 0,
                                  std::int64_t connect_timeout_ms = 60'000) {
    auto client = Client::Connect(
        {.address = home_.address(),
         .job_id = "job-1",
         .connect_timeout_ms = connect_timeout_ms,
         .other_node_after_ms = other_node_after_ms,
         .notice = [this](const std::string& line) { notices_.push_back(line); }});
    EXPECT_TRUE(client.has_value()) << client.error().ToString();
    return client ? std::move(*client) : nullptr;
  }
  // The home daemon takes no connection and ends those that there are, as if it stood still.
  void StandStill() {
    home_.faults.drop_handshake = true;
    home_.CutConnections();
  }
  std::optional<Batch> Take(BatchStream& stream) {
    auto batch = stream.Next();
    EXPECT_TRUE(batch.has_value()) << batch.error().ToString();
    FOREBAY_CHECK(batch && *batch);
    EXPECT_EQ((*batch)->step(), StepId(next_step_ % kSteps));
    ++next_step_;
    EXPECT_TRUE(HasItsBytes(**batch));
    return std::move(*batch);
  }
  void ReadOn(BatchStream& stream, std::uint64_t end_step) {
    while (next_step_ < end_step && !HasFailure()) Take(stream);
  }
  template <typename Condition>
  void ReadUntil(BatchStream& stream, Condition&& condition) {
    EXPECT_TRUE(Soon([&] {
      Take(stream);
      return HasFailure() || condition();
    }));
  }
  // Reads with deadlines of a tenth of a second until the condition holds.
  template <typename Condition>
  void ReadByPolling(BatchStream& stream, Condition&& condition) {
    EXPECT_TRUE(Soon([&] {
      const auto batch =
          stream.Next(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
      EXPECT_TRUE(batch.has_value() || batch.error().code() == ErrorCode::kDeadlineExceeded)
          << batch.error().ToString();
      return HasFailure() || condition();
    }));
  }
  static void Finish(BatchStream& stream) {
    const Status finished = stream.Finish();
    EXPECT_TRUE(finished.has_value()) << finished.error().ToString();
  }
  void ReadToEnd(BatchStream& stream) {
    ReadOn(stream, kSteps);
    auto end = stream.Next();
    ASSERT_TRUE(end.has_value()) << end.error().ToString();
    EXPECT_FALSE(end->has_value());
    Finish(stream);
  }

  FakeDaemon home_{{.slots = 5}};
  FakeDaemon other_{{.is_other_node = true}};
  std::vector<std::string> notices_;
  std::uint64_t next_step_ = 0;
};

}  // namespace forebay::testing
