// Moves the bytes of storages, not tensors. First the tensors are grouped by storage. A storage is
// moved if the number of references to it equals the number of tensors that the caller named: then
// nobody else can read it. Out begins the copies, EndOut frees the memory when they are done, In
// takes new memory and begins the copies back, AwaitBack waits for them.
#include "trainer/exec/swap/storage_swap.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/exec/device/device.h"

namespace forebay::train {
namespace {

// On a GPU the address is the device's, and only the link reads it.
std::span<std::byte> MemoryOf(const c10::StorageImpl& storage) {
  return {static_cast<std::byte*>(storage.data_ptr().get()), storage.nbytes()};
}

// A storage and how many of the tensors named hold it.
struct Held {
  c10::intrusive_ptr<c10::StorageImpl> storage;
  std::size_t holders = 0;
};

// In the order in which they are named, so that the order of copies does not depend on addresses.
std::vector<Held> StoragesOf(const std::vector<const torch::Tensor*>& tensors) {
  std::vector<Held> held;
  std::vector<const c10::TensorImpl*> seen;
  for (const torch::Tensor* tensor : tensors) {
    if (tensor == nullptr || !tensor->defined() || !tensor->has_storage()) continue;
    // Two handles of one tensor hold its storage once.
    if (std::ranges::find(seen, tensor->unsafeGetTensorImpl()) != seen.end()) continue;
    seen.push_back(tensor->unsafeGetTensorImpl());
    const c10::StorageImpl* storage = tensor->storage().unsafeGetStorageImpl();
    auto found = std::ranges::find_if(
        held, [storage](const Held& entry) { return entry.storage.get() == storage; });
    if (found == held.end()) {
      // A reference of our own, taken without a public constructor for it.
      c10::Storage copy = tensor->storage();
      held.push_back({.storage = c10::intrusive_ptr<c10::StorageImpl>::reclaim(
                          copy.unsafeReleaseStorageImpl())});
      found = held.end() - 1;
    }
    ++found->holders;
  }
  return held;
}

// One reference is that of `held`. Any other that is not named may be read at any time.
bool IsHeldElsewhere(const Held& held) { return held.storage.use_count() != held.holders + 1; }

// A storage without an allocator is borrowed memory, which In could not allocate again.
bool IsWorthMoving(const Held& held, std::uint64_t least_bytes) {
  return held.storage->nbytes() >= least_bytes && held.storage->allocator() != nullptr;
}

}  // namespace

std::uint64_t MovableBytes(const std::vector<const torch::Tensor*>& tensors,
                           std::uint64_t least_bytes) {
  std::uint64_t bytes = 0;
  for (const Held& held : StoragesOf(tensors)) {
    if (IsWorthMoving(held, least_bytes) && !IsHeldElsewhere(held)) bytes += held.storage->nbytes();
  }
  return bytes;
}

StorageSwap::StorageSwap(const SwapOptions& options, const torch::Device& device)
    : options_(options),
      pool_(options.pool_bytes, device.is_cpu() ? HostPool::Allocate() : PinnedBytes) {
  if (device.is_cpu()) {
    link_.emplace(options.link_bytes_per_ns);
  } else {
    device_link_.emplace(device);
  }
}

StorageSwap::~StorageSwap() {
  try {
    Forget();
  } catch (const std::exception&) {
    // A device that has failed: whoever computes there says so.
  }
}

// One of the two links exists: a thread on a processor, a stream on a GPU.
std::uint64_t StorageSwap::Copy(Moved& moved, bool back) {
  const std::span<std::byte> memory = MemoryOf(*moved.storage);
  if (device_link_) {
    return back ? device_link_->ToDevice(memory.data(), moved.host)
                : device_link_->ToHost(moved.host, memory.data());
  }
  return back ? link_->Begin(memory, moved.host) : link_->Begin(moved.host, memory);
}

void StorageSwap::Wait(std::uint64_t copy) {
  if (device_link_) return device_link_->Await(copy);
  if (link_->Done(copy)) return;
  const auto began = std::chrono::steady_clock::now();
  link_->Wait(copy);
  figures_.wait_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                           began)
          .count());
}

// Decides for each storage whether it may and should go, and begins its copy.
Status StorageSwap::Out(const SwapKey& key, const std::vector<const torch::Tensor*>& tensors) {
  FOREBAY_CHECK(!away_.contains(key));
  // The set is known at once, so that Forget finds what has begun even if the rest fails.
  Set& set = away_[key];
  for (Held& held : StoragesOf(tensors)) {
    const std::size_t bytes = held.storage->nbytes();
    if (!IsWorthMoving(held, options_.least_bytes)) continue;
    if ((held.storage->device_type() == at::DeviceType::CPU) == device_link_.has_value()) {
      continue;  // of the host already, where the device is another
    }
    // Somebody may read it at any time, so it stays. The plan expects it to go, so this is counted.
    if (IsHeldElsewhere(held)) {
      figures_.kept_bytes += bytes;
      continue;
    }
    FOREBAY_ASSIGN(const std::span<std::byte> host, pool_.Take(bytes));
    figures_.out_bytes += bytes;
    Moved& moved = set.storages.emplace_back();
    moved.storage = std::move(held.storage);
    moved.host = host;
    moved.copy = Copy(moved, /*back=*/false);
  }
  figures_.peak_host_bytes = pool_.peak_bytes();
  return {};
}

// Only now the device's memory is free.
void StorageSwap::EndOut(const SwapKey& key) {
  const auto found = away_.find(key);
  if (found == away_.end() || !found->second.leaving) return;
  found->second.leaving = false;
  for (const Moved& moved : found->second.storages) {
    Wait(moved.copy);
    // Frees the memory. The storage keeps its size, which In needs.
    moved.storage->set_data_ptr_noswap(at::DataPtr(nullptr, moved.storage->device()));
  }
}

// A set that has not left completely stays: its copy on the host is given back in AwaitBack.
void StorageSwap::In(const SwapKey& key) {
  const auto found = away_.find(key);
  FOREBAY_CHECK(found != away_.end() && !found->second.returns);
  found->second.returns = true;
  if (found->second.leaving) {
    // It has not gone, so that it need not come back.
    for (const Moved& moved : found->second.storages) Wait(moved.copy);
    return;
  }
  for (Moved& moved : found->second.storages) {
    const std::size_t bytes = moved.storage->nbytes();
    moved.storage->set_data_ptr_noswap(moved.storage->allocator()->allocate(bytes));
    moved.copy = Copy(moved, /*back=*/true);
    figures_.in_bytes += bytes;
  }
}

// A key that is not away has nothing to wait for: its storages were all kept.
void StorageSwap::AwaitBack(const SwapKey& key) {
  const auto found = away_.find(key);
  if (found == away_.end()) return;
  FOREBAY_CHECK(found->second.returns);
  for (const Moved& moved : found->second.storages) {
    Wait(moved.copy);
    pool_.Give(moved.host);
  }
  away_.erase(found);
}

// After a step that was given up: copies must have ended before the tensors go.
void StorageSwap::Forget() {
  for (auto& [key, set] : away_) {
    for (const Moved& moved : set.storages) {
      Wait(moved.copy);
      pool_.Give(moved.host);
    }
  }
  away_.clear();
}

SwapFigures StorageSwap::figures() const {
  SwapFigures figures = figures_;
  if (link_) figures.copy_ns = link_->figures().busy_ns;
  return figures;
}

}  // namespace forebay::train
