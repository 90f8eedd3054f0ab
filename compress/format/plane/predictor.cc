// Parses and builds the record of a learned predictor (docs/pack_planes.md, "Learned"). The limits
// of the reader are checked before networks are read. Weights, biases and shifts are bounded so
// that 32-bit sums cannot overflow.
#include "compress/format/plane/predictor.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kPredictorPart = "learned predictor";  // in errors
constexpr std::size_t kHeaderBytes = 16;  // magic, bytes, multiplications

// Reads a layer's numbers; its widths are known and in bounds.
Status ReadLayer(ByteReader& reader, PredictorLayer& layer) {
  // Rows are padded with zeros to the stride, so that kernels may read inputs in fours.
  layer.weights.assign(layer.outputs * layer.stride(), 0);
  for (std::uint32_t o = 0; o < layer.outputs; ++o) {
    layer.shift.push_back(reader.ReadLe<std::uint8_t>());
    layer.bias.push_back(static_cast<std::int32_t>(reader.ReadLe<std::uint32_t>()));
    const std::span<const std::byte> weights = reader.Take(layer.inputs);
    if (!reader.ok()) return Damaged(kPredictorPart, "it ends within a layer");
    if (layer.shift.back() > kPredictorShiftMax) {
      return Damaged(kPredictorPart, "a shift is out of range");
    }
    if (layer.bias.back() > kPredictorBiasMax || layer.bias.back() < -kPredictorBiasMax) {
      return Damaged(kPredictorPart, "a bias is out of range");
    }
    std::ranges::transform(weights, layer.weights.begin() +
                                        static_cast<std::ptrdiff_t>(o * layer.stride()),
                           [](std::byte b) { return static_cast<std::int8_t>(b); });
  }
  return {};
}

// A network without layers is valid: a predictor may serve only one of the two kinds of frames.
Result<PredictorNet> ReadNet(ByteReader& reader, std::uint32_t inputs_max) {
  PredictorNet net;
  const auto layers = reader.ReadLe<std::uint8_t>();
  if (layers > kPredictorLayersMax) return Damaged(kPredictorPart, "there are too many layers");
  if (layers == 0) return net;
  // The number of inputs decides which neighbours the decoder gathers, so it must not exceed those
  // that the kind of frame has.
  std::uint32_t inputs = reader.ReadLe<std::uint8_t>();
  if (inputs < 1 || inputs > inputs_max) {
    return Damaged(kPredictorPart, "the number of inputs is out of range");
  }
  for (std::size_t i = 0; i < layers; ++i) {
    PredictorLayer layer;
    layer.inputs = inputs;
    layer.outputs = inputs = reader.ReadLe<std::uint8_t>();
    const bool last = i + 1 == layers;
    // Without a sign, 0 - 1 is the largest number, so this refuses a width of 0 as well.
    if (last ? inputs != kPredictorOutputs : inputs - 1 >= kPredictorWidthMax) {
      return Damaged(kPredictorPart, "the width of a layer is out of range");
    }
    net.layers.push_back(std::move(layer));
  }
  // The widths of all layers stand before the numbers of any, so the sizes have been checked when
  // weights are read.
  for (PredictorLayer& layer : net.layers) FOREBAY_TRY(ReadLayer(reader, layer));
  // Kernels feed the first layer unsigned inputs, 128 too large: the bias takes that back.
  const PredictorLayer& first = net.layers.front();
  for (std::uint32_t o = 0; o < first.outputs; ++o) {
    std::int32_t total = 0;
    // Padding weights are zero, so the padded row has the same total.
    for (std::size_t i = 0; i < first.stride(); ++i) {
      total += first.weights[o * first.stride() + i];
    }
    // Within 2^24 + 128 * 64 * 128: far from the limit of 32 bits, with all further products added.
    net.shifted_bias.push_back(first.bias[o] - 128 * total);
  }
  return net;
}

// A trainer's layers are dense: their rows are not padded to the stride that parsed layers have.
void WriteNet(const std::vector<PredictorLayer>& layers, ByteWriter& writer) {
  writer.Le(static_cast<std::uint8_t>(layers.size()));
  if (layers.empty()) return;
  writer.Le(static_cast<std::uint8_t>(layers.front().inputs));
  for (const PredictorLayer& layer : layers) writer.Le(static_cast<std::uint8_t>(layer.outputs));
  for (const PredictorLayer& layer : layers) {
    for (std::uint32_t o = 0; o < layer.outputs; ++o) {
      writer.Le(layer.shift[o]);
      writer.Le(static_cast<std::uint32_t>(layer.bias[o]));
      writer.Bytes(std::as_bytes(std::span(layer.weights)).subspan(
          std::size_t{o} * layer.inputs, layer.inputs));
    }
  }
}

std::uint32_t MacsOf(const std::vector<PredictorLayer>& layers) {
  // At most 4 layers of 64 x 64, so that the sum is small.
  std::uint32_t macs = 0;
  for (const PredictorLayer& layer : layers) macs += layer.inputs * layer.outputs;
  return macs;
}

// Whether a trainer's layers have the sizes that they say.
bool Consistent(const std::vector<PredictorLayer>& layers) {
  std::uint32_t inputs = layers.empty() ? 0 : layers.front().inputs;
  for (const PredictorLayer& layer : layers) {
    if (layer.inputs != inputs || layer.inputs > kPredictorWidthMax ||
        layer.outputs > kPredictorWidthMax ||
        layer.weights.size() != std::size_t{layer.inputs} * layer.outputs ||
        layer.bias.size() != layer.outputs || layer.shift.size() != layer.outputs) {
      return false;
    }
    inputs = layer.outputs;
  }
  return layers.size() <= kPredictorLayersMax;
}

std::string Number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

std::uint32_t PredictorNet::macs() const { return MacsOf(layers); }

std::uint32_t Predictor::macs() const { return std::max(nets_[0].macs(), nets_[1].macs()); }

// The first 8 bytes of the SHA-256, as planes name their predictor.
std::uint64_t Predictor::short_id() const {
  return ByteReader(id_).ReadLe<std::uint64_t>();
}

Result<std::shared_ptr<const Predictor>> Predictor::Parse(std::span<const std::byte> bytes,
                                                          const PredictorBudget& budget) {
  ByteReader reader(bytes);
  const auto magic = reader.ReadLe<std::uint64_t>();
  const auto size = reader.ReadLe<std::uint32_t>();
  const auto macs = reader.ReadLe<std::uint32_t>();
  // The magic's last byte is the version.
  constexpr std::uint64_t kFamily = kPredictorMagic & 0x00FF'FFFF'FFFF'FFFF;
  if (!reader.ok() || (magic & 0x00FF'FFFF'FFFF'FFFF) != kFamily) {
    return Error(ErrorCode::kInvalidArgument, "learned predictor: not one (no FEBYNET)");
  }
  if (magic != kPredictorMagic) {
    return Error(ErrorCode::kUnimplemented,
                 "learned predictor: of a newer version; update Forebay to read it");
  }
  // The budget comes before the other checks: it is the reader's own limit, and a sound file may
  // exceed it.
  if (size > budget.bytes_max || macs > budget.macs_max) {
    return Error(ErrorCode::kResourceExhausted,
                 "learned predictor: it has " + Number(size) + " bytes and takes " + Number(macs) +
                     " multiplications per pixel; allowed are " + Number(budget.bytes_max) +
                     " and " + Number(budget.macs_max));
  }
  if (size != bytes.size()) {
    return Damaged(kPredictorPart, "it has " + Number(bytes.size()) +
                                       " bytes, and its header says " + Number(size));
  }
  auto predictor = std::make_shared<Predictor>();
  FOREBAY_ASSIGN(predictor->nets_[0], ReadNet(reader, kIntraInputs));
  FOREBAY_ASSIGN(predictor->nets_[1], ReadNet(reader, kInterInputs));
  if (!reader.ok() || reader.remaining() != 0) {
    return Damaged(kPredictorPart, "it has the wrong length");
  }
  // The budget was checked against the header, before the networks were read. A header that
  // understates is refused.
  if (predictor->macs() != macs) {
    return Damaged(kPredictorPart, "it takes " + Number(predictor->macs()) +
                                       " multiplications per pixel, and its header says " +
                                       Number(macs));
  }
  if (macs == 0) return Damaged(kPredictorPart, "it has no network");
  predictor->bytes_.assign(bytes.begin(), bytes.end());
  predictor->id_ = Sha256(bytes);
  return std::shared_ptr<const Predictor>(std::move(predictor));
}

// Writes the record and parses it, so that a predictor has passed the checks of every reader.
Result<std::shared_ptr<const Predictor>> Predictor::Build(
    const std::array<std::vector<PredictorLayer>, 2>& nets) {
  ByteWriter body;
  for (const auto& layers : nets) {
    if (!Consistent(layers)) {
      return Error(ErrorCode::kInvalidArgument, "learned predictor: layers that do not fit");
    }
    WriteNet(layers, body);
  }
  ByteWriter writer;
  writer.Le(kPredictorMagic);
  writer.Le(static_cast<std::uint32_t>(kHeaderBytes + body.size()));
  writer.Le(std::max(MacsOf(nets[0]), MacsOf(nets[1])));
  writer.Bytes(body.bytes());
  auto parsed = Parse(writer.bytes());
  if (!parsed.has_value()) {
    return Error(ErrorCode::kInvalidArgument, parsed.error().message());
  }
  return parsed;
}

const Predictor* FindPredictor(PredictorList predictors, std::uint64_t short_id) {
  for (const auto& predictor : predictors) {
    if (predictor != nullptr && predictor->short_id() == short_id) return predictor.get();
  }
  return nullptr;
}

}  // namespace forebay::compress
