// Learned predictors: records that are read and refused, kernels that agree bit for bit, bodies
// that come back on every kernel and are refused without their predictor.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/isa.h"
#include "compress/decode/learned/predictor_run.h"
#include "compress/decode/plane_decoder.h"
#include "compress/encode/plane_encoder.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/format/plane/plane_shape.h"

namespace forebay::compress::learned_codec_test {

constexpr std::uint32_t kSeed = 20261121;

std::vector<std::byte> Changed(const Predictor& predictor, std::size_t at, std::uint8_t value) {
  std::vector<std::byte> bytes(predictor.bytes().begin(), predictor.bytes().end());
  bytes[at] = static_cast<std::byte>(value);
  return bytes;
}

// Nothing where there is no error.
std::optional<ErrorCode> CodeOf(std::span<const std::byte> bytes,
                                const PredictorBudget& budget = {}) {
  const auto parsed = Predictor::Parse(bytes, budget);
  if (parsed.has_value()) return std::nullopt;
  return parsed.error().code();
}

// Intra 21 x 8 x 2, inter 35 x 12 x 8 x 2.
std::shared_ptr<const Predictor> TwoNets(std::uint32_t seed = kSeed) {
  return RandomPredictor(seed, {21, 8, 2}, {35, 12, 8, 2});
}

TEST(PredictorRecord, ComesBackAsItWasBuilt) {
  const auto built = TwoNets();
  const auto read = Predictor::Parse(built->bytes());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ((*read)->id(), Sha256(built->bytes()));
  EXPECT_EQ((*read)->macs(), 35U * 12 + 12 * 8 + 8 * 2);
  EXPECT_EQ((*read)->net(false).macs(), 21U * 8 + 8 * 2);
  EXPECT_TRUE(std::ranges::equal((*read)->bytes(), built->bytes()));
  EXPECT_EQ((*read)->net(true).layers[1].weights, built->net(true).layers[1].weights);
}

TEST(PredictorRecord, MayHaveANetForOneKindOfFrame) {
  const auto inter = RandomPredictor(kSeed, {}, {35, 4, 2});
  EXPECT_FALSE(inter->net(false).present());
  EXPECT_TRUE(inter->net(true).present());
  EXPECT_TRUE(RandomPredictor(kSeed, {9, 2}, {})->net(false).present());
}

TEST(PredictorRecord, IsRefusedBeyondTheBudget) {
  const auto predictor = TwoNets();
  const std::size_t bytes = predictor->bytes().size();
  EXPECT_EQ(CodeOf(predictor->bytes(), {bytes, predictor->macs()}), std::nullopt);
  EXPECT_EQ(CodeOf(predictor->bytes(), {bytes - 1, predictor->macs()}),
            ErrorCode::kResourceExhausted);
  const auto refused = Predictor::Parse(predictor->bytes(), {bytes, predictor->macs() - 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message().find(std::to_string(predictor->macs())), std::string::npos);
}

// Byte offsets in TwoNets(): 16 layers of intra, 17 its inputs, 18 and 19 widths, 20 the first
// shift, 21 to 24 the first bias.
TEST(PredictorRecord, RefusesWhatNoTrainerWrote) {
  const auto predictor = TwoNets();
  EXPECT_EQ(CodeOf({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(predictor->bytes().first(15)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Changed(*predictor, 0, 'X')), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Changed(*predictor, 7, '2')), ErrorCode::kUnimplemented);
  EXPECT_EQ(CodeOf(Changed(*predictor, 8, 1)), ErrorCode::kDataLoss) << "size";
  EXPECT_EQ(CodeOf(Changed(*predictor, 12, 1)), ErrorCode::kDataLoss) << "multiplications";
  EXPECT_EQ(CodeOf(Changed(*predictor, 16, 5)), ErrorCode::kDataLoss) << "layers";
  EXPECT_EQ(CodeOf(Changed(*predictor, 17, 0)), ErrorCode::kDataLoss) << "no inputs";
  EXPECT_EQ(CodeOf(Changed(*predictor, 17, 22)), ErrorCode::kDataLoss) << "inputs of inter";
  EXPECT_EQ(CodeOf(Changed(*predictor, 18, 0)), ErrorCode::kDataLoss) << "no width";
  EXPECT_EQ(CodeOf(Changed(*predictor, 18, 65)), ErrorCode::kDataLoss) << "too wide";
  EXPECT_EQ(CodeOf(Changed(*predictor, 19, 3)), ErrorCode::kDataLoss) << "three outputs";
  EXPECT_EQ(CodeOf(Changed(*predictor, 20, 25)), ErrorCode::kDataLoss) << "shift";
  EXPECT_EQ(CodeOf(Changed(*predictor, 24, 0x7F)), ErrorCode::kDataLoss) << "bias";
  EXPECT_EQ(CodeOf(Changed(*predictor, 24, 0x80)), ErrorCode::kDataLoss) << "negative bias";
  for (std::size_t size = 16; size < predictor->bytes().size(); ++size) {
    std::vector<std::byte> cut(predictor->bytes().begin(),
                               predictor->bytes().begin() + static_cast<std::ptrdiff_t>(size));
    cut[8] = static_cast<std::byte>(size & 0xFF);
    cut[9] = static_cast<std::byte>(size >> 8);
    ASSERT_EQ(CodeOf(cut), ErrorCode::kDataLoss) << size;
  }
}

TEST(PredictorRecord, RefusesToBuildWhatParseWouldRefuse) {
  PredictorLayer layer;
  layer.inputs = 21;
  layer.outputs = 2;
  layer.weights.assign(42, 1);
  layer.bias.assign(2, 0);
  layer.shift.assign(2, 0);
  EXPECT_TRUE(Predictor::Build({std::vector{layer}, {}}).has_value());
  EXPECT_FALSE(Predictor::Build({}).has_value()) << "no network";
  PredictorLayer other = layer;
  other.weights.pop_back();
  EXPECT_FALSE(Predictor::Build({std::vector{other}, {}}).has_value());
  other = layer;
  other.bias[1] = kPredictorBiasMax + 1;
  EXPECT_FALSE(Predictor::Build({std::vector{other}, {}}).has_value());
  EXPECT_FALSE(Predictor::Build({std::vector{layer, layer}, {}}).has_value()) << "2 into 21";
}

// Every kernel on inputs of extremes and of noise, under networks of extremes and of noise.
TEST(PredictorKernels, AgreeBitForBit) {
  std::mt19937 random(kSeed);
  const auto any = std::make_unique<PredictorBatch>();
  std::size_t mirrored = 0;
  for (std::uint32_t round = 0; round < 200; ++round) {
    const std::uint32_t width = 1 + static_cast<std::uint32_t>(random()) % kPredictorWidthMax;
    const std::uint32_t inputs = 1 + static_cast<std::uint32_t>(random()) % kInterInputs;
    const auto predictor = round % 4 == 0
                               ? ExtremePredictor(round, {inputs, width, 2})
                               : RandomPredictor(round, {21, 2}, {inputs, width, 1 + width / 2, 2});
    for (const bool inter : {false, true}) {
      const PredictorNet& net = predictor->net(inter);
      if (!net.present()) continue;
      for (PredictorRow& row : any->inputs) {
        for (std::uint8_t& input : row) {
          const auto value = static_cast<std::uint32_t>(random());
          input = static_cast<std::uint8_t>(round % 3 == 0 ? (value & 1) * 255 : value & 0xFF);
        }
      }
      PredictorBatch expected = *any;
      RunPredictorScalar(net, expected, kWavefrontLanes);
      for (const Isa isa : AvailableIsas()) {
        PredictorBatch batch = *any;
        PredictorRunOf(isa)(net, batch);
        ASSERT_EQ(batch.corrections, expected.corrections) << round;
        ASSERT_EQ(batch.mirrored, expected.mirrored) << round;
        ASSERT_EQ(batch.energies, expected.energies) << round;
      }
      mirrored += static_cast<std::size_t>(std::ranges::count(expected.mirrored, 255));
    }
  }
  EXPECT_GT(mirrored, 1000U) << "seed " << kSeed;
}

// A picture that moves, with noise: what filters leave is never nothing.
std::vector<std::byte> MakeSamples(const PlaneShape& shape) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> samples;
  for (std::uint32_t t = 0; t < shape.frames; ++t) {
    for (std::uint32_t y = 0; y < shape.rows; ++y) {
      for (std::uint32_t x = 0; x < shape.columns; ++x) {
        const std::uint32_t texture = ((x + 2 * t) / 5 + (y + t) / 3) % 11 * 9;
        const auto noise = static_cast<std::uint32_t>(random()) % 23;
        samples.push_back(static_cast<std::byte>((texture + noise) & ((1U << shape.bits) - 1)));
      }
    }
  }
  return samples;
}

void ExpectAllKernelsDecode(const PlaneShape& shape, std::span<const std::byte> samples,
                            std::span<const std::byte> body, PredictorList predictors) {
  for (const Isa isa : AvailableIsas()) {
    for (const std::uint32_t frames : {shape.frames, (shape.frames + 1) / 2}) {
      std::vector<std::byte> decoded(frames * shape.frame_samples(), std::byte{0xEE});
      std::vector<std::byte> scratch(PlaneScratchBytes(shape), std::byte{0xA5});
      const Status status =
          DecodePlanes(shape, body, frames, decoded, scratch, isa, predictors);
      const std::string where = std::to_string(shape.frames) + " x " +
                                std::to_string(shape.rows) + " x " +
                                std::to_string(shape.columns) + ", isa " +
                                std::to_string(static_cast<int>(isa)) + ", frames " +
                                std::to_string(frames);
      ASSERT_TRUE(status.has_value()) << where << ": " << status.error().message();
      ASSERT_TRUE(std::ranges::equal(decoded, samples.first(decoded.size()))) << where;
    }
  }
}

// Shapes around the borders of lanes, bands, periods and blocks; predictors that are worse than
// none, so that what is tested does not depend on their quality.
TEST(LearnedPlanes, ComeBackOnEveryKernel) {
  const std::vector<std::array<std::uint32_t, 3>> shapes = {
      {1, 1, 1},   {2, 8, 24},   {3, 63, 40},  {3, 64, 129},  {4, 65, 130},
      {3, 66, 131}, {2, 128, 64}, {5, 130, 150}, {2, 200, 300}, {3, 17, 2}};
  for (const auto& [frames, rows, columns] : shapes) {
    for (const std::uint8_t bits : {std::uint8_t{8}, std::uint8_t{5}}) {
      const PlaneShape shape{.frames = frames, .rows = rows, .columns = columns, .bits = bits};
      const auto samples = MakeSamples(shape);
      for (const auto& predictor : {TwoNets(), RandomPredictor(kSeed, {}, {35, 6, 2}),
                                    RandomPredictor(kSeed + 1, {21, 6, 2}, {})}) {
        const std::vector<std::byte> body =
            EncodeEveryBlockLearned(shape, samples, *predictor);
        ASSERT_EQ(body[0], kPlaneKindLearned);
        const std::array list = {predictor};
        ExpectAllKernelsDecode(shape, samples, body, list);
      }
    }
  }
}

TEST(LearnedPlanes, ChooseBetweenFilterAndPredictorPerBlock) {
  const PlaneShape shape{.frames = 3, .rows = 96, .columns = 144, .bits = 8};
  const auto samples = MakeSamples(shape);
  const auto predictor = TwoNets();
  const auto learned = EncodePlanes(shape, samples, Profile::kLearned, predictor.get());
  const auto dense = EncodePlanes(shape, samples, Profile::kDense);
  ASSERT_TRUE(learned.has_value() && dense.has_value());
  EXPECT_LE(learned->size(), dense->size()) << "off unless it pays";
  const std::array list = {predictor};
  ExpectAllKernelsDecode(shape, samples, *learned, list);
  const auto without = EncodePlanes(shape, samples, Profile::kLearned);
  ASSERT_TRUE(without.has_value());
  EXPECT_EQ(*without, *dense);
}

TEST(LearnedPlanes, NameThePredictorThatIsMissing) {
  const PlaneShape shape{.frames = 2, .rows = 32, .columns = 48, .bits = 8};
  const auto samples = MakeSamples(shape);
  const auto predictor = TwoNets();
  const std::vector<std::byte> body = EncodeEveryBlockLearned(shape, samples, *predictor);
  std::vector<std::byte> decoded(shape.bytes());
  std::vector<std::byte> scratch(PlaneScratchBytes(shape));
  for (const auto& list : {std::vector<std::shared_ptr<const Predictor>>{},
                           std::vector<std::shared_ptr<const Predictor>>{TwoNets(kSeed + 9)}}) {
    const Status status =
        DecodePlanes(shape, body, shape.frames, decoded, scratch, BestIsa(), list);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(status.error().message().find(Sha256Hex(predictor->id()).substr(0, 16)),
              std::string::npos)
        << status.error().message();
  }
}

TEST(LearnedPlanes, RefuseBodiesOfNoSense) {
  const PlaneShape narrow{.frames = 2, .rows = 32, .columns = 48, .bits = 8};
  const PlaneShape wide{.frames = 2, .rows = 32, .columns = 48, .bits = 12};
  const auto samples = MakeSamples(narrow);
  const auto predictor = TwoNets();
  const std::array list = {predictor};
  std::vector<std::byte> body = EncodeEveryBlockLearned(narrow, samples, *predictor);
  const auto code = [&](const PlaneShape& shape,
                        std::span<const std::byte> bytes) -> std::optional<ErrorCode> {
    std::vector<std::byte> decoded(shape.bytes());
    std::vector<std::byte> scratch(PlaneScratchBytes(shape));
    const Status status = DecodePlanes(shape, bytes, shape.frames, decoded, scratch,
                                       BestIsa(), list);
    if (status.has_value()) return std::nullopt;
    return status.error().code();
  };
  EXPECT_EQ(code(narrow, body), std::nullopt);
  EXPECT_EQ(code(wide, body), ErrorCode::kDataLoss);
  EXPECT_EQ(code(narrow, std::span(body).first(8)), ErrorCode::kDataLoss);
  EXPECT_EQ(code(narrow, std::span(body).first(body.size() - 2)), ErrorCode::kDataLoss);
  // Damaged bodies decode to something or are refused, alike on every kernel.
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> damaged = body;
    damaged[9 + random() % (body.size() - 9)] ^= static_cast<std::byte>(1U << random() % 8);
    std::vector<std::byte> first;
    bool first_ok = false;
    for (const Isa isa : AvailableIsas()) {
      std::vector<std::byte> decoded(narrow.bytes());
      std::vector<std::byte> scratch(PlaneScratchBytes(narrow), std::byte{0xA5});
      const bool ok = DecodePlanes(narrow, damaged, narrow.frames, decoded, scratch, isa, list)
                          .has_value();
      if (isa == Isa::kScalar) {
        first = decoded;
        first_ok = ok;
      }
      ASSERT_EQ(ok, first_ok) << round;
      if (ok) {
        ASSERT_EQ(decoded, first) << round;
      }
    }
  }
}

}  // namespace forebay::compress::learned_codec_test
