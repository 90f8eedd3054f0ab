// FaultTable: the faults that gfs_emu is asked to inject into reads.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::bench {

enum class FaultKind : std::uint8_t {
  kEio,    // the read fails with EIO
  kStall,  // the read answers late
  kShort,  // the read answers half of what there is, as a truncated object would
  kFlip,   // one bit of the answer is wrong
};
std::string_view FaultKindName(FaultKind kind);  // "eio", "stall", "short", "flip"

struct FaultRule {
  FaultKind kind = FaultKind::kEio;
  std::string pattern;             // glob over the path beneath the mount point
  std::uint64_t after_reads = 0;   // matching reads that pass before the first fault
  std::uint64_t count = 1;         // faults to inject; 0: without end
  std::int64_t stall_ms = 1000;    // of kStall
  std::uint64_t seen_reads = 0;
  std::uint64_t injected = 0;
};

struct Fault {
  FaultKind kind = FaultKind::kEio;
  std::int64_t stall_ms = 0;
};

// Thread-safe.
class FaultTable {
 public:
  static constexpr std::size_t kRulesMax = 64;

  // Parses "KIND GLOB [after=N] [count=N] [ms=N]". The error says which word is wrong.
  static Result<FaultRule> Parse(std::string_view text);

  // kResourceExhausted beyond kRulesMax.
  Status Add(FaultRule rule);
  void Clear();
  // What befalls this read; counts it against every rule that matches.
  std::optional<Fault> OnRead(const std::string& path);
  std::vector<FaultRule> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;
};

}  // namespace forebay::bench
