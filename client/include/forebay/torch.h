// Forebay for LibTorch (1.13 and 2.x): batches as tensors without a copy, and a stateful data
// set for torch::data. Header-only: the client library itself never links LibTorch.
//
//   #include <functional>
//
//   // Calls `train` with the first two fields of every minibatch of an epoch.
//   void TrainEpoch(forebay::libtorch::StreamDataset& data,
//                   const std::function<void(torch::Tensor, torch::Tensor)>& train) {
//     for (auto batch = data.get_batch(0); batch; batch = data.get_batch(0)) {
//       train(batch->fields[0], batch->fields[1]);
//     }   // the epoch has ended; the next call goes on with the next one
//   }
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/data/datasets/stateful.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "forebay/batch.h"
#include "forebay/batch_stream.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::libtorch {

// The scalar type of an element. kUnimplemented for u16, which LibTorch 1.13 lacks, and for
// bytes of no fixed size.
inline Result<::torch::ScalarType> ScalarTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8: return ::torch::kUInt8;
    case Dtype::kI8: return ::torch::kInt8;
    case Dtype::kI16: return ::torch::kInt16;
    case Dtype::kI32: return ::torch::kInt32;
    case Dtype::kI64: return ::torch::kInt64;
    case Dtype::kF16: return ::torch::kFloat16;
    case Dtype::kBf16: return ::torch::kBFloat16;
    case Dtype::kF32: return ::torch::kFloat32;
    case Dtype::kF64: return ::torch::kFloat64;
    case Dtype::kBytes:
    case Dtype::kU16: break;
  }
  return Error(ErrorCode::kUnimplemented,
               "LibTorch has no tensors of " + std::string(DtypeName(dtype)));
}

// Reverses the bytes of each element in place; for fields that lie big-endian in their object.
inline void ReverseElements(std::byte* data, std::size_t bytes, std::size_t element_bytes) {
  for (std::size_t i = 0; i + element_bytes <= bytes; i += element_bytes) {
    for (std::size_t low = 0, high = element_bytes - 1; low < high; ++low, --high) {
      std::swap(data[i + low], data[i + high]);
    }
  }
}

// A tensor of one field. If `copied` is false, it lies in the daemon's memory, which is mapped
// read-only: writing into it (operations whose name ends in an underscore) is a SIGSEGV, so clone
// it first. Until it is destroyed, its batch counts as held (StreamOptions::prefetch_depth).
struct FieldTensor {
  ::torch::Tensor tensor;
  bool copied = false;
};

// Returns one field of a batch, of shape {samples, ...shape}. It is not copied if it arrived as one
// tensor of little-endian elements, or is constant; otherwise it is gathered into new memory.
// kUnimplemented: LibTorch lacks the dtype. Other errors are those of Batch::Gather.
inline Result<FieldTensor> ToTensor(const Batch& batch, FieldId field) {
  if (field.value() >= batch.fields().size()) {
    return Error(ErrorCode::kNotFound, "no field " + std::to_string(field.value()));
  }
  const FieldSpec& spec = batch.fields()[field.value()];
  const auto keep = [hold = batch.hold()](void*) {};
  const auto samples = static_cast<std::int64_t>(batch.sample_count());
  if (spec.source == FieldSource::kConstant) {
    FOREBAY_ASSIGN(const auto constants, batch.Constants(field));
    return FieldTensor{::torch::from_blob(const_cast<std::int64_t*>(constants.data()), {samples},
                                          keep, ::torch::kInt64)};
  }
  FOREBAY_ASSIGN(const ::torch::ScalarType type, ScalarTypeOf(spec.dtype));
  std::vector<std::int64_t> sizes = {samples};
  for (const std::uint64_t dimension : spec.shape) {
    sizes.push_back(static_cast<std::int64_t>(dimension));
  }
  const std::uint32_t element_bytes = DtypeBytes(spec.dtype);
  const bool reversed = spec.big_endian && element_bytes > 1;
  if (!reversed) {
    const Result<TensorView> view = batch.Tensor(field);
    if (view) {
      return FieldTensor{
          ::torch::from_blob(const_cast<std::byte*>(view->data), sizes, keep, type)};
    }
  }
  ::torch::Tensor tensor = ::torch::empty(sizes, type);
  auto* data = static_cast<std::byte*>(tensor.data_ptr());
  FOREBAY_TRY(batch.Gather(field, {data, tensor.nbytes()}));
  if (reversed) ReverseElements(data, tensor.nbytes(), element_bytes);
  return FieldTensor{std::move(tensor), /*copied=*/true};
}

// A batch as torch::data hands it on. `fields` are the fixed-size and constant fields in the
// data set's order; an undefined tensor stands for one of varying size (use batch.Spans).
struct TensorBatch {
  std::vector<::torch::Tensor> fields;
  Batch batch;
};

// One rank's stream as a torch::data data set. get_batch ignores the requested size: the stream
// knows its own. It returns nothing at the end of every epoch, and goes on with the next one
// when asked again. Errors are thrown as std::runtime_error, torch::data's way. Not
// thread-safe: use it with a data loader of no worker threads; prefetching is done below.
class StreamDataset
    : public ::torch::data::datasets::StatefulDataset<StreamDataset, TensorBatch, std::size_t> {
 public:
  using Base = ::torch::data::datasets::StatefulDataset<StreamDataset, TensorBatch, std::size_t>;
  using OptionalBatch = typename Base::BatchType;
  using OptionalSize = decltype(std::declval<const Base&>().size());

  explicit StreamDataset(std::shared_ptr<BatchStream> stream) : stream_(std::move(stream)) {}

  OptionalBatch get_batch(std::size_t) override {
    if (!next_) {
      next_ = Must(stream_->Next());
      if (!next_) return {};
    }
    // The first batch of an epoch waits until the caller has seen the former one's end.
    if (epoch_ && next_->epoch() != *epoch_) {
      epoch_ = next_->epoch();
      return {};
    }
    epoch_ = next_->epoch();
    TensorBatch result{{}, *std::exchange(next_, std::nullopt)};
    for (std::uint32_t i = 0; i < result.batch.fields().size(); ++i) {
      const FieldSpec& spec = result.batch.fields()[i];
      const bool tensor = spec.is_fixed() || spec.source == FieldSource::kConstant;
      result.fields.push_back(tensor ? Must(ToTensor(result.batch, FieldId(i))).tensor
                                     : ::torch::Tensor());
    }
    token_ = result.batch.token();
    return OptionalBatch(std::move(result));
  }

  // Epochs follow one another in the stream; there is nothing to go back to.
  void reset() override {}

  // Samples of an epoch.
  OptionalSize size() const override {
    return static_cast<std::size_t>(stream_->selected_count());
  }

  // The position token after the last batch, for checkpoints.
  void save(::torch::serialize::OutputArchive& archive) const override {
    const auto bytes = token().Encode();
    ::torch::Tensor tensor =
        ::torch::empty({static_cast<std::int64_t>(bytes.size())}, ::torch::kUInt8);
    std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    archive.write("forebay_position", tensor, /*is_buffer=*/true);
  }

  // A stream is resumed by opening it with StreamOptions::resume = ReadToken(archive); this
  // checks that it was.
  void load(::torch::serialize::InputArchive& archive) override {
    if (!(ReadToken(archive) == token())) {
      throw std::runtime_error("open the stream with StreamOptions::resume = ReadToken(archive)");
    }
  }

  static PositionToken ReadToken(::torch::serialize::InputArchive& archive) {
    ::torch::Tensor tensor;
    archive.read("forebay_position", tensor, /*is_buffer=*/true);
    tensor = tensor.contiguous();
    return Must(PositionToken::Parse(
        {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  }

  PositionToken token() const { return token_ ? *token_ : stream_->token(); }

 private:
  template <typename T>
  static T Must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().ToString());
    return std::move(*result);
  }

  std::shared_ptr<BatchStream> stream_;
  std::optional<Batch> next_;
  std::optional<EpochId> epoch_;
  std::optional<PositionToken> token_;
};

}  // namespace forebay::libtorch
