// StorageSwap: moves the memory of tensors to the host and back. A tensor keeps its place and
// identity; only what it points to goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <torch/types.h>

#include "proto/contract/result.h"
#include "trainer/exec/device/device_link.h"
#include "trainer/exec/swap/copy_link.h"
#include "trainer/exec/swap/host_pool.h"
#include "trainer/exec/swap/saved_tensors.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct SwapOptions {
  std::uint64_t pool_bytes = 1ULL << 30;  // of the host
  std::uint64_t least_bytes = 64U << 10;  // smaller storages stay
  double link_bytes_per_ns = 0;  // of a slower link that is emulated, on a processor; 0: none
};

struct SwapFigures {
  std::uint64_t out_bytes = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t kept_bytes = 0;  // asked for, but somebody else holds them
  std::uint64_t peak_host_bytes = 0;
  std::uint64_t wait_ns = 0;  // these two on a processor: a GPU waits and copies by itself
  std::uint64_t copy_ns = 0;
};

// Names a buffer of the plan: kind, micro-batch, module.
using SwapKey = std::tuple<BufferKind, std::uint32_t, std::uint32_t>;

// Bytes of the storages behind `tensors` that StorageSwap would move: all their holders are among
// the tensors, and they have at least `least_bytes`.
std::uint64_t MovableBytes(const std::vector<const torch::Tensor*>& tensors,
                           std::uint64_t least_bytes);

// Not thread-safe. A storage is known by a reference to itself, never by its address, which another
// storage may get after it is freed. A storage that is also held by a tensor that is not named
// stays where it is, as parameters do.
class StorageSwap {
 public:
  // `device`: where the storages are. Of a GPU they go to pinned memory, on a stream of their own.
  explicit StorageSwap(const SwapOptions& options, const torch::Device& device = torch::kCPU);
  ~StorageSwap();

  // Begins to move what `tensors` point to, all of which holders are among them. Pointers that
  // are null are skipped. kResourceExhausted where the host has no room.
  Status Out(const SwapKey& key, const std::vector<const torch::Tensor*>& tensors);
  // Waits until the copies are done and frees the device's memory. (With a GPU, the GPU waits.)
  void EndOut(const SwapKey& key);
  // Begins to bring the storages back.
  void In(const SwapKey& key);
  // Waits until they are back. Does nothing if they were not away.
  void AwaitBack(const SwapKey& key);
  // Gives everything up after a step that failed.
  void Forget();

  SwapFigures figures() const;

 private:
  struct Moved {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    std::span<std::byte> host;
    std::uint64_t copy = 0;  // of the link, the last one
  };
  struct Set {
    std::vector<Moved> storages;
    bool leaving = true;
    bool returns = false;
  };

  std::uint64_t Copy(Moved& moved, bool back);
  void Wait(std::uint64_t copy);

  SwapOptions options_;
  HostPool pool_;
  std::optional<CopyLink> link_;  // of a processor
  std::optional<DeviceLink> device_link_;
  std::map<SwapKey, Set> away_;
  SwapFigures figures_;
};

}  // namespace forebay::train
