// CountingTransport: a Transport that counts the bytes that leave this rank, by lane.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/comm/transport/transport.h"

namespace forebay::train {

using LaneBytes = std::array<std::uint64_t, kLaneCount>;

// Passes every call on to `transport`, which outlives this object. Messages that are sent with
// `transport` directly are not counted. Tickets are those of `transport`.
class CountingTransport final : public Transport {
 public:
  explicit CountingTransport(Transport& transport) : transport_(transport) {}

  // Bytes of the messages that were begun here, without headers.
  const LaneBytes& sent_bytes() const { return sent_bytes_; }

  std::uint32_t rank() const override { return transport_.rank(); }
  std::uint32_t size() const override { return transport_.size(); }
  std::uint32_t local_size() const override { return transport_.local_size(); }
  std::uint32_t local_rank() const override { return transport_.local_rank(); }
  Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                           std::span<const std::byte> bytes) override {
    sent_bytes_[static_cast<std::size_t>(lane)] += bytes.size();
    return transport_.BeginSend(peer, lane, tag, bytes);
  }
  Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                              std::span<std::byte> bytes) override {
    return transport_.BeginReceive(peer, lane, tag, bytes);
  }
  Result<bool> Test(Ticket ticket) override { return transport_.Test(ticket); }
  Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) override {
    return transport_.AwaitAny(tickets, timeout_ns);
  }
  void Abort(int exit_code) override { transport_.Abort(exit_code); }

 private:
  Transport& transport_;
  LaneBytes sent_bytes_ = {};
};

}  // namespace forebay::train
