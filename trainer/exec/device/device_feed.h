// DeviceFeed: copies a batch to a GPU while the GPU computes. The batch is copied as it lies in the
// memory that is shared with the daemon, and converted on the GPU.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/types.h>

#include "proto/contract/thread_annotations.h"
#include "trainer/core/feed/feed.h"

namespace forebay::train {

// Thread-safe. May throw.
class DeviceFeed {
 public:
  using Print = std::function<void(const std::string&)>;
  // `print` gets one line if CUDA refuses to register shared memory; it may be empty.
  DeviceFeed(const torch::Device& device, Print print);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // Runs `make`, whose copies and arithmetic go to a stream of their own, and waits until they are
  // done: then the batch's memory is no longer needed. The mappings that the batch lies in are
  // registered with CUDA first, each once. Other memory is copied through a buffer of the driver.
  void Run(const FeedBatch& batch, const std::function<void()>& make) FOREBAY_EXCLUDES(mutex_);

  // Call it for a tensor that `make` made, before computation uses it: its memory is not reused
  // before that computation is done.
  void Adopt(const torch::Tensor& tensor) const;

  const torch::Device& device() const { return device_; }

 private:
  struct Known {
    FeedMapping mapping;
    bool registered = false;
  };

  void Know(const FeedMapping& mapping) FOREBAY_REQUIRES(mutex_);
  static void Forget(const Known& known);

  const torch::Device device_;
  const Print print_;
  const c10::Stream stream_;
  Mutex mutex_;
  std::vector<Known> known_ FOREBAY_GUARDED_BY(mutex_);
  bool was_refused_ FOREBAY_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay::train
