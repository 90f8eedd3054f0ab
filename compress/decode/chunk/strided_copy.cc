// Copies a box of elements from dense samples to strided memory. Axes that are contiguous on both
// sides are merged first, so that most boxes become one memcpy or a few long rows. CheckRange
// proves, without overflow, that all elements lie in the output. Called by chunk_decoder.cc and
// chunk_record.cc.
#include "compress/decode/chunk/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace forebay::compress {
namespace {

// Adds (count - 1) * stride to `end`; false where that overflows or passes `limit`.
bool Reach(std::size_t count, std::size_t stride, std::size_t limit, std::size_t& end) {
  if (count <= 1) return true;
  // Callers keep end <= limit, so the subtraction cannot wrap, and a division in place of a product
  // cannot overflow.
  if (stride > (limit - end) / (count - 1)) return false;
  end += (count - 1) * stride;
  return true;
}

std::array<std::size_t, kChunkRankMax> DenseStrides(
    const std::array<std::uint32_t, kChunkRankMax>& extent, std::size_t element_bytes) {
  std::array<std::size_t, kChunkRankMax> strides{};
  std::size_t stride = element_bytes;
  for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
    strides[axis] = stride;
    // The last axis is dense. Extents come from a checked shape, so the products fit.
    stride *= extent[axis];
  }
  return strides;
}

// A box as up to five nested loops, the innermost one last.
struct Box {
  struct Axis {
    std::size_t count = 1, from_stride = 0, to_stride = 0;
  };
  static constexpr std::size_t kAxes = kChunkRankMax + 1;
  std::array<Axis, kAxes> axes{};

  // Puts `axis` inside those so far. Axes of one step vanish, and those that go on where the one
  // inside ends become one with it, so that rows are as long as they can be.
  void Add(const Axis& axis) {
    if (axis.count == 1) return;
    Axis& last = axes[kAxes - 1];
    if (last.count > 1 && last.from_stride == axis.count * axis.from_stride &&
        last.to_stride == axis.count * axis.to_stride) {
      last = {last.count * axis.count, axis.from_stride, axis.to_stride};
      return;
    }
    if (last.count > 1) std::copy(axes.begin() + 1, axes.end(), axes.begin());
    last = axis;
  }
};

// The size is a template argument, so that memcpy becomes one load and one store.
template <std::size_t kBytes>
void CopyElements(const Box::Axis& axis, const std::byte* from, std::byte* to) {
  for (std::size_t i = 0; i < axis.count; ++i) {
    std::memcpy(to + i * axis.to_stride, from + i * axis.from_stride, kBytes);
  }
}

void CopyRow(std::size_t element_bytes, const Box::Axis& axis, const std::byte* from,
             std::byte* to) {
  // Most rows are dense on both sides, and one memcpy moves them.
  if (axis.count == 1 ||
      (axis.from_stride == element_bytes && axis.to_stride == element_bytes)) {
    std::memcpy(to, from, axis.count * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1: return CopyElements<1>(axis, from, to);
    case 2: return CopyElements<2>(axis, from, to);
    case 4: return CopyElements<4>(axis, from, to);
    default: return CopyElements<8>(axis, from, to);
  }
}

}  // namespace

StridedOutput StridedOutput::Dense(const ChunkShape& shape, const ChunkRange& range,
                                   std::span<std::byte> memory) {
  StridedOutput out = {.memory = memory};
  out.axis_stride = DenseStrides(range.extent, shape.element_bytes());
  out.sample_stride = out.axis_stride[0] * range.extent[0];
  return out;
}

Status CheckRange(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out) {
  const auto invalid = [](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument, "chunk range: " + what);
  };
  if (range.sample_count == 0 || range.first_sample > shape.samples ||
      range.sample_count > shape.samples - range.first_sample) {
    return invalid("samples " + std::to_string(range.first_sample) + " and on, " +
                   std::to_string(range.sample_count) + " of " + std::to_string(shape.samples));
  }
  // Adds up how far the last element reaches: its own bytes, and for each axis the stride times the
  // last index. All elements lie below it, since strides are not negative.
  std::size_t end = shape.element_bytes();
  bool fits = end <= out.memory.size() &&
              Reach(range.sample_count, out.sample_stride, out.memory.size(), end);
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const std::uint32_t extent = range.extent[axis], origin = range.origin[axis];
    if (extent == 0 || origin > shape.extent[axis] || extent > shape.extent[axis] - origin) {
      return invalid("axis " + std::to_string(axis) + " from " + std::to_string(origin) + ", " +
                     std::to_string(extent) + " of " + std::to_string(shape.extent[axis]));
    }
    fits = fits && Reach(extent, out.axis_stride[axis], out.memory.size(), end);
  }
  if (!fits) {
    return invalid("the output's " + std::to_string(out.memory.size()) +
                   " bytes do not hold it with these strides");
  }
  return {};
}

bool IsDense(const ChunkShape& shape, const ChunkRange& range, const StridedOutput& out) {
  const StridedOutput dense = StridedOutput::Dense(shape, range, out.memory);
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const std::uint32_t extent = range.extent[axis];
    if (extent != shape.extent[axis]) return false;
    // An axis of one step is never stepped over, so its stride does not matter.
    if (extent > 1 && out.axis_stride[axis] != dense.axis_stride[axis]) return false;
  }
  return range.sample_count == 1 || out.sample_stride == dense.sample_stride;
}

void CopyBox(const ChunkShape& shape, const ChunkRange& range, std::span<const std::byte> samples,
             const StridedOutput& out) {
  const std::size_t element_bytes = shape.element_bytes();
  const auto strides = DenseStrides(shape.extent, element_bytes);
  // No bounds are checked from here on: CheckRange has proven them for the whole box.
  const std::byte* from = samples.data();
  Box box;
  // Samples are the outermost axis, and each further one is added inside.
  box.Add({range.sample_count, shape.sample_bytes(), out.sample_stride});
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    from += range.origin[axis] * strides[axis];
    box.Add({range.extent[axis], strides[axis], out.axis_stride[axis]});
  }
  // Axes that vanished have a count of 1, so five fixed loops serve boxes of every rank.
  const Box::Axis* const axes = box.axes.data();
  for (std::size_t h = 0; h < axes[0].count; ++h) {
    for (std::size_t i = 0; i < axes[1].count; ++i) {
      for (std::size_t j = 0; j < axes[2].count; ++j) {
        for (std::size_t k = 0; k < axes[3].count; ++k) {
          const std::byte* const row = from + h * axes[0].from_stride + i * axes[1].from_stride +
                                       j * axes[2].from_stride + k * axes[3].from_stride;
          const std::size_t to = h * axes[0].to_stride + i * axes[1].to_stride +
                                 j * axes[2].to_stride + k * axes[3].to_stride;
          CopyRow(element_bytes, axes[4], row, out.memory.data() + to);
        }
      }
    }
  }
}

}  // namespace forebay::compress
