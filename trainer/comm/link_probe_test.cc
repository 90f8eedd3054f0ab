// The probe over links of made-up speed; each rank has a clock that stands still but for what it
// sends and receives, so that threads need no luck.
#include "trainer/comm/link_probe.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "trainer/comm/transport/local_transport.h"

namespace forebay::train {
namespace {

// What sending so many bytes takes, or receiving them.
using LinkTime = std::function<std::uint64_t(std::size_t bytes)>;

class TimedLink final : public Transport {
 public:
  TimedLink(std::unique_ptr<Transport> under, LinkTime time, std::uint64_t& clock)
      : under_(std::move(under)), time_(std::move(time)), clock_(clock) {}
  std::uint32_t rank() const override { return under_->rank(); }
  std::uint32_t size() const override { return under_->size(); }
  std::uint32_t local_size() const override { return under_->local_size(); }
  std::uint32_t local_rank() const override { return under_->local_rank(); }
  Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                           std::span<const std::byte> bytes) override {
    if (lane != Lane::kControl) clock_ += time_(bytes.size());
    return under_->BeginSend(peer, lane, tag, bytes);
  }
  Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                              std::span<std::byte> bytes) override {
    if (lane != Lane::kControl) clock_ += time_(bytes.size());
    return under_->BeginReceive(peer, lane, tag, bytes);
  }
  Result<bool> Test(Ticket ticket) override { return under_->Test(ticket); }
  Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) override {
    return under_->AwaitAny(tickets, timeout_ns);
  }
  void Abort(int exit_code) override { under_->Abort(exit_code); }

 private:
  std::unique_ptr<Transport> under_;
  LinkTime time_;
  std::uint64_t& clock_;
};

// Every rank's answer.
std::vector<LinkProbe> ProbeWith(std::uint32_t ranks, const ProbeRequest& request,
                                 const LinkTime& time) {
  std::vector<LinkProbe> answers(ranks);
  auto ends = MakeLocalTransports(ranks);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::uint64_t clock = 0;
      ProbeRequest timed = request;
      timed.now_ns = [&clock] { return clock; };
      Communicator communicator(
          std::make_unique<TimedLink>(std::move(ends[rank]), time, clock));
      Result<LinkProbe> probe = ProbeLinks(communicator, timed);
      ASSERT_TRUE(probe.has_value()) << probe.error().ToString();
      answers[rank] = *std::move(probe);
    });
  }
  threads.clear();
  return answers;
}

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

TEST(LinkProbeTest, FindsWhatAMessageTakes) {
  const auto answers = ProbeWith(2, {}, [](std::size_t bytes) { return 5000 + bytes / 2; });
  for (const LinkProbe& probe : answers) {
    EXPECT_NEAR(static_cast<double>(probe.message_ns), 5032, 1);
    EXPECT_NEAR(probe.ns_per_byte, 0.5, 1e-3);
    EXPECT_TRUE(probe.tried.empty());
    EXPECT_EQ(probe.bucket_bytes, 0U);
  }
}

TEST(LinkProbeTest, WhereMessagesAreDearTheGradientGoesAsAWhole) {
  const auto answers = ProbeWith(2, {.gradient_bytes = 2 * kMebibyte},
                                 [](std::size_t) { return 1'000'000; });
  for (const LinkProbe& probe : answers) {
    ASSERT_EQ(probe.tried.size(), 4U);  // 256 KiB, 512 KiB, 1 MiB, all
    EXPECT_EQ(probe.sample_bytes, 2 * kMebibyte);
    EXPECT_EQ(probe.bucket_bytes, 2 * kMebibyte) << Describe(probe);
  }
}

TEST(LinkProbeTest, WhereLongMessagesAreDearBucketsAreSmaller) {
  const auto slow_when_long = [](std::size_t bytes) {
    return 100'000 + bytes * (bytes > kMebibyte / 4 ? 4 : 1);
  };
  for (const std::uint32_t ranks : {2U, 4U}) {
    const auto answers =
        ProbeWith(ranks, {.gradient_bytes = 4 * kMebibyte, .stages = ranks / 2}, slow_when_long);
    for (const LinkProbe& probe : answers) {
      // Two members exchange halves of a bucket.
      EXPECT_EQ(probe.bucket_bytes, kMebibyte / 2) << Describe(probe);
      EXPECT_EQ(probe.bucket_bytes, answers[0].bucket_bytes);
    }
  }
}

TEST(LinkProbeTest, SlowLinksGetASmallerSample) {
  const auto answers =
      ProbeWith(2, {.gradient_bytes = 64 * kMebibyte}, [](std::size_t bytes) { return bytes * 8; });
  EXPECT_LT(answers[0].sample_bytes, 8 * kMebibyte);
  EXPECT_GE(answers[0].sample_bytes, kMebibyte / 4);
  EXPECT_EQ(answers[0].sample_bytes, answers[1].sample_bytes);
}

TEST(LinkProbeTest, NothingToReduceIsNotTried) {
  EXPECT_TRUE(
      ProbeWith(1, {.gradient_bytes = kMebibyte}, [](std::size_t) { return 1; })[0].tried.empty());
  const auto pipeline = ProbeWith(3, {.gradient_bytes = kMebibyte, .stages = 3},
                                  [](std::size_t) { return 1000; });
  EXPECT_TRUE(pipeline[2].tried.empty());
  EXPECT_EQ(pipeline[2].message_ns, 1000U);
}

TEST(LinkProbeTest, SaysWhy) {
  LinkProbe probe{.message_ns = 4000,
                  .ns_per_byte = 0.25,
                  .sample_bytes = 2 * kMebibyte,
                  .tried = {{kMebibyte / 2, 3'000'000}, {2 * kMebibyte, 2'000'000}},
                  .bucket_bytes = 2 * kMebibyte};
  EXPECT_EQ(Describe(probe),
            "4.0 us + 0.25 ns/byte a message; 2 MiB are reduced in 3.0 ms by 512 KiB, 2.0 ms by 2 "
            "MiB: buckets of 2 MiB");
}

}  // namespace
}  // namespace forebay::train
