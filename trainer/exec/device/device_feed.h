// DeviceFeed: a batch's way to a GPU, beside the computation: its elements go there as they lie in
// the memory shared with the daemon, and are converted there.
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
  // `print` gets a line where CUDA refuses to know shared memory, once; may be empty.
  DeviceFeed(const torch::Device& device, Print print);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // Runs `make`, whose copies and arithmetic go to a stream of their own, and waits for that: then
  // nothing of the batch is needed any more. The mappings that it lies in are registered with CUDA
  // first, each once; other memory goes through the driver's own.
  void Run(const FeedBatch& batch, const std::function<void()>& make) FOREBAY_EXCLUDES(mutex_);

  // For a tensor that `make` left: its memory is not used anew before what is computed now is done.
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
