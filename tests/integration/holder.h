// Holder: a client in a process of its own, which a test can stop or kill in the middle of a
// stream.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "proto/contract/unique_fd.h"
#include "tests/integration/raw_client.h"

namespace forebay::integration {

enum class HolderKind {
  kContiguous,   // has read its batches and holds them
  kViews,        // likewise, as views
  kInlineUnread  // is owed batches through its socket, and reads none
};

// Opens a stream, pulls `batches` (all its credits), and holds what it gets.
void HoldBatches(RawClient& client, RawStream& stream, const std::string& name,
                 std::uint32_t batches, Delivery delivery = Delivery::kContiguous);
// Opens a stream whose batches come through the socket, with this many credits.
inline constexpr std::uint32_t kInlineBatches = 32;
void OpenInline(RawClient& client, RawStream& stream);

// Killed on destruction. To be made before this process speaks gRPC, whose threads do not survive
// the fork.
class Holder {
 public:
  Holder(const std::string& socket_path, HolderKind kind);
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder();

  // Lets the process begin; true once it holds its batches, or is owed them.
  bool Hold();
  // From now on it does nothing, not even in gRPC's threads.
  void Stop() const;
  void Kill();

 private:
  pid_t pid_ = -1;
  UniqueFd held_fd_;
  UniqueFd start_fd_;
};

}  // namespace forebay::integration
