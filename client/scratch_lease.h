// ScratchLease: host memory of this process that the daemon's RAM tier goes without, so that tier
// and leases together stay within what the job gave the daemon. The lease is the right to bytes,
// not the bytes: the process allocates them itself, as it likes (pinned, huge pages).
#pragma once

#include <cstdint>
#include <memory>

namespace forebay {

// Move-only; made by Client::LeaseScratch. Given back on destruction, and by the daemon when the
// process or its connection ends, however it ends. May outlive the client. Free the memory first.
// The daemon hears of it a moment later: until then another lease may still be refused.
class ScratchLease {
 public:
  class Call;
  explicit ScratchLease(std::unique_ptr<Call> call);
  ScratchLease(ScratchLease&& other) noexcept;
  ScratchLease& operator=(ScratchLease&& other) noexcept;
  ~ScratchLease();

  std::uint64_t bytes() const;  // as asked for; 0 once moved from
  // False once the daemon or the connection to it has gone, and with it the lease: a daemon that
  // comes back knows nothing of it, and the memory has to be leased anew or freed. Never true
  // again. Thread-safe.
  bool held() const;

 private:
  std::unique_ptr<Call> call_;
};

}  // namespace forebay
