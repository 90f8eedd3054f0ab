// TcpRelay: stands between two nodes and carries their bytes, until a test has it hold the answers
// back, cut the connection or alter a bit. Part of forebay::peer_testing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "proto/contract/unique_fd.h"

namespace forebay::peer {

// Carries one connection at a time, the next one after the last has ended. Thread-safe.
class TcpRelay {
 public:
  // Listens on a loopback port; connects to `target`, "127.0.0.1:PORT", for each connection. An
  // empty target: connections are accepted, and never answered.
  explicit TcpRelay(const std::string& target);
  ~TcpRelay();

  std::string address() const;
  // While true, nothing that the target says gets through. The connection stays open.
  void HoldAnswers(bool holds) { holds_ = holds; }
  // The connection is closed once so many bytes of the target have been passed on, over all
  // connections.
  void CutAfter(std::uint64_t answer_bytes) { cut_after_ = answer_bytes; }
  // The connection is closed when the next bytes come for the target, as if it had been lost while
  // nobody used it. Later ones are carried.
  void CutAtNextQuestion() { cuts_next_ = true; }
  // Inverts one bit of this byte of what the target says, counted over all connections.
  void FlipBitOf(std::uint64_t answer_byte) { flipped_ = answer_byte; }

  // Bytes that were passed on to the target, and from it.
  std::uint64_t asked_bytes() const { return asked_; }
  std::uint64_t answered_bytes() const { return answered_; }
  // Waits until asked_bytes is at least `bytes`; false after 20 seconds.
  bool AwaitAsked(std::uint64_t bytes) const;

 private:
  void Run(const std::stop_token& stop);
  void Carry(int asks, int answers, const std::stop_token& stop);
  // False: the connection has ended.
  bool PassQuestion(int asks, int answers);
  bool PassAnswer(int asks, int answers);

  std::uint16_t target_port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> holds_ = false;
  std::atomic<bool> cuts_next_ = false;
  std::atomic<std::uint64_t> cut_after_ = ~std::uint64_t{0};
  std::atomic<std::uint64_t> flipped_ = ~std::uint64_t{0};
  std::atomic<std::uint64_t> asked_ = 0;
  std::atomic<std::uint64_t> answered_ = 0;
  std::jthread thread_;
};

}  // namespace forebay::peer
