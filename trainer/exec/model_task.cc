// From the bytes of a feed to the tensors of a model. Bytes are viewed as a tensor of their own
// type, converted to floats, put into the model's order of axes, and standardised. Floats that need
// none of it are not copied: the tensor lies in the daemon's shared memory and keeps the batch
// alive. That memory is mapped read-only, so a model that writes to its input crashes; StepSource
// finds that out on copies first.
#include "trainer/exec/model_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

namespace forebay::train {
namespace {

using Shape = std::vector<std::int64_t>;

// Types of stored elements that LibTorch has as well.
Result<torch::ScalarType> ToScalarType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8: return torch::kUInt8;
    case Dtype::kI8: return torch::kInt8;
    case Dtype::kI16: return torch::kInt16;
    case Dtype::kI32: return torch::kInt32;
    case Dtype::kI64: return torch::kInt64;
    case Dtype::kF32: return torch::kFloat32;
    default:
      return Error(ErrorCode::kUnimplemented,
                   fmt::format("elements of type {} are not trained on", DtypeName(dtype)));
  }
}

// Elements of a view of a type that is trained on, whose shape and bytes agree.
Result<std::int64_t> ElementsOf(const FeedTensor& view) {
  // Before DtypeBytes is used for a type that we do not train on.
  FOREBAY_TRY(ToScalarType(view.dtype));
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : view.shape) elements *= extent;
  if (elements * DtypeBytes(view.dtype) == view.bytes) return static_cast<std::int64_t>(elements);
  return Error(ErrorCode::kDataLoss, fmt::format("a tensor of {} bytes came with {}",
                                                 elements * DtypeBytes(view.dtype), view.bytes));
}

// A tensor over the feed's own memory; never written to.
Result<torch::Tensor> Over(const FeedTensor& view) {
  FOREBAY_ASSIGN(const torch::ScalarType type, ToScalarType(view.dtype));
  const Shape shape(view.shape.begin(), view.shape.end());
  void* const data = const_cast<std::byte*>(view.data);
  torch::Tensor dense = torch::from_blob(data, shape, type);
  if (view.sample_stride == 0) return dense;
  // The samples lie apart, as a transform wrote inputs and targets in turn.
  std::vector<std::int64_t> strides(dense.strides().begin(), dense.strides().end());
  strides.front() = static_cast<std::int64_t>(view.sample_stride / DtypeBytes(view.dtype));
  return torch::from_blob(data, shape, strides, type);
}

// Dense floats where they are, which the tensor holds. Every step waits for this, with caches
// that have seen the one before, where an operator costs tens of microseconds: none is called.
torch::Tensor Borrowed(const FeedTensor& view, const Shape& shape,
                       const std::shared_ptr<const void>& hold) {
  using Hold = std::shared_ptr<const void>;
  const auto lets_go = [](void* held) { std::unique_ptr<Hold>(static_cast<Hold*>(held)).reset(); };
  c10::DataPtr data(const_cast<std::byte*>(view.data), std::make_unique<Hold>(hold).release(),
                    lets_go, torch::kCPU);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), view.bytes, std::move(data)),
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

// Of single precision, one sample behind the other, where a processor can read them.
bool IsDenseFloats(const FeedTensor& view) {
  return view.dtype == Dtype::kF32 && view.sample_stride == 0 &&
         reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0;
}

// {samples, ...}, as models take and losses expect.
Shape ShapeOf(const Shape& sample, std::uint32_t samples) {
  Shape shape = {samples};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

// Only the number of elements must agree: {28, 28} may stand for {1, 28, 28}.
Status CheckCount(const ModelTask& task, const char* what, const FeedTensor& view,
                  const Shape& wanted) {
  FOREBAY_ASSIGN(const std::int64_t came, ElementsOf(view));
  const std::int64_t elements =
      std::accumulate(wanted.begin(), wanted.end(), std::int64_t{1}, std::multiplies<>());
  if (came == elements) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("{} samples came with {} elements of {}; {} takes {}: {{{}}}",
                           wanted.front(), came, what, task.model.name, elements,
                           fmt::join(wanted, ", ")));
}

// Whether mean or deviation changes any value.
bool IsStandardised(const ModelTask& task) {
  const auto is = [](double number) { return [number](double x) { return x == number; }; };
  return !std::ranges::all_of(task.input_mean, is(0)) ||
         !std::ranges::all_of(task.input_stddev, is(1));
}

// (x / scale - mean) / stddev, in place.
// Over all channels at once if they share one mean and deviation.
torch::Tensor Standardised(const ModelTask& task, torch::Tensor x, double scale) {
  const std::vector<double>& mean = task.input_mean;
  const std::vector<double>& stddev = task.input_stddev;
  // One pass for all channels. The constants are combined, so that it is one product and one sum.
  if (mean.size() == 1 && stddev.size() == 1) {
    return x.mul_(1.0 / (scale * stddev[0])).sub_(mean[0] / stddev[0]);
  }
  for (std::int64_t channel = 0; channel < x.size(1); ++channel) {
    const auto at = static_cast<std::size_t>(channel);
    const double own_mean = mean[mean.size() == 1 ? 0 : at];
    const double own_stddev = stddev[stddev.size() == 1 ? 0 : at];
    x.select(1, channel).mul_(1.0 / (scale * own_stddev)).sub_(own_mean / own_stddev);
  }
  return x;
}

}  // namespace

bool InputStays(const ModelTask& task, const FeedTensor& view) {
  return !task.channels_last && !IsStandardised(task) && IsDenseFloats(view);
}

bool TargetStays(const ModelTask& task, const FeedTensor& view) {
  return !task.target_shape.empty() && IsDenseFloats(view);
}

// Borrowed if possible, else converted: to the device, into the model's order of axes, to floats,
// standardised.
Result<torch::Tensor> ToInput(const ModelTask& task, const FeedTensor& view,
                              std::uint32_t samples, const std::shared_ptr<const void>& hold,
                              const torch::Device& device) {
  Shape shape = ShapeOf(task.input_shape, samples);
  FOREBAY_TRY(CheckCount(task, "input", view, shape));
  if (hold && InputStays(task, view)) return Borrowed(view, shape, hold);
  FOREBAY_ASSIGN(torch::Tensor raw, Over(view));
  if (!device.is_cpu()) raw = raw.to(device, /*non_blocking=*/true);
  if (task.channels_last) {
    // The stored order: {samples, ..., C}.
    std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
    raw = raw.view(shape).movedim(-1, 1);
  } else {
    raw = raw.view(shape);
  }
  return Standardised(
      task, raw.to(raw.options().dtype(torch::kFloat32), /*non_blocking=*/false,
                   /*copy=*/device.is_cpu(), torch::MemoryFormat::Contiguous)
                .contiguous(),
      view.dtype == Dtype::kU8 ? 255.0 : 1.0);
}

// Class indices become 64-bit integers, numbers become floats.
Result<torch::Tensor> ToTarget(const ModelTask& task, const FeedTensor& view,
                               std::uint32_t samples, const std::shared_ptr<const void>& hold,
                               const torch::Device& device) {
  const Shape shape = ShapeOf(task.target_shape, samples);
  FOREBAY_TRY(CheckCount(task, "target", view, shape));
  if (hold && TargetStays(task, view)) return Borrowed(view, shape, hold);
  FOREBAY_ASSIGN(torch::Tensor raw, Over(view));
  if (!device.is_cpu()) raw = raw.to(device, /*non_blocking=*/true);
  const auto type = task.target_shape.empty() ? torch::kInt64 : torch::kFloat32;
  return raw.to(type, /*non_blocking=*/false, /*copy=*/device.is_cpu()).view(shape);
}

// Zeros in place of samples: to measure the model, and for micro-batches without samples.
torch::Tensor ZeroInput(const ModelTask& task, std::uint32_t samples) {
  return torch::zeros(ShapeOf(task.input_shape, samples));
}

torch::Tensor ZeroTarget(const ModelTask& task, std::uint32_t samples) {
  return torch::zeros(ShapeOf(task.target_shape, samples),
                      task.target_shape.empty() ? torch::kInt64 : torch::kFloat32);
}

}  // namespace forebay::train
