// Training from samples to a predictor that pays. Pictures in which no filter is right.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/train/chunk_planes.h"
#include "compress/train/net_trainer.h"
#include "compress/train/train_report.h"
#include "compress/train/training_rows.h"

namespace forebay::compress::learned_training_test {

constexpr std::uint32_t kSeed = 20261121;
constexpr std::size_t kBytesMax = std::size_t{1} << 30;

std::vector<PlaneStack> Stacks(std::size_t count) {
  const PlaneShape shape{.frames = 2, .rows = 64, .columns = 96, .bits = 8};
  std::vector<PlaneStack> stacks;
  for (std::size_t i = 0; i < count; ++i) {
    PlaneStack stack{.shape = shape, .samples = {}};
    for (std::uint32_t frame = 0; frame < shape.frames; ++frame) {
      const auto picture = MakeLargerOfTwo(shape.rows, shape.columns,
                                           static_cast<std::uint32_t>(2 * i) + frame + kSeed);
      stack.samples.insert(stack.samples.end(), picture.begin(), picture.end());
    }
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

NetOptions Small() { return {.hidden = {8, 4}, .epochs = 6, .batch_rows = 512}; }

Result<std::shared_ptr<const Predictor>> TrainOn(std::span<const PlaneStack> stacks) {
  const auto rows = GatherRows(stacks, 100'000, 1);
  std::array<std::vector<PredictorLayer>, 2> nets;
  for (std::size_t kind = 0; kind < 2; ++kind) {
    FOREBAY_ASSIGN(TrainedNet net, TrainNet(rows[kind], Small(), [](std::uint32_t, double) {}));
    nets[kind] = std::move(net.layers);
  }
  return Predictor::Build(nets);
}

TEST(LearnedTraining, GainsOnPicturesThatItHasNotSeen) {
  const std::vector<PlaneStack> stacks = Stacks(12);
  const std::span<const PlaneStack> all(stacks);
  const auto predictor = TrainOn(all.first(8));
  ASSERT_TRUE(predictor.has_value()) << predictor.error().message();
  const auto gain = MeasureGain(all.subspan(8), *predictor, true);
  ASSERT_TRUE(gain.has_value()) << gain.error().message();
  EXPECT_EQ(gain->planes, 4U);
  EXPECT_EQ(gain->model_bytes, (*predictor)->bytes().size());
  EXPECT_GT(gain->without_model(), 0.05);
  EXPECT_LT(gain->with_model(), gain->without_model());
}

TEST(LearnedTraining, GivesTheSameBytesAgain) {
  const std::vector<PlaneStack> stacks = Stacks(3);
  const auto first = TrainOn(stacks);
  const auto second = TrainOn(stacks);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ((*first)->id(), (*second)->id());
}

TEST(LearnedTraining, RefusesTooFewRowsAndWidthsOutOfRange) {
  const auto rows = GatherRows(Stacks(1), 100'000, 1);
  const auto code = [](const TrainingRows& of, const NetOptions& options) {
    const auto net = TrainNet(of, options, [](std::uint32_t, double) {});
    return net.has_value() ? ErrorCode::kInternal : net.error().code();
  };
  EXPECT_EQ(code({.inputs = 21, .values = {}, .errors = {}}, Small()),
            ErrorCode::kInvalidArgument);
  for (const std::vector<std::uint32_t>& hidden :
       {std::vector<std::uint32_t>{0}, std::vector<std::uint32_t>{65},
        std::vector<std::uint32_t>{4, 4, 4, 4}}) {
    NetOptions options = Small();
    options.hidden = hidden;
    EXPECT_EQ(code(rows[0], options), ErrorCode::kInvalidArgument);
  }
}

TEST(TrainingRows, AreAllPixelsOrAShareOfThem) {
  const std::vector<PlaneStack> stacks = Stacks(2);
  const auto all = GatherRows(stacks, 100'000, 1);
  EXPECT_EQ(all[0].rows(), 2U * 64 * 96);
  EXPECT_EQ(all[1].rows(), 2U * 64 * 96);
  EXPECT_EQ(all[1].values.size(), all[1].rows() * kInterInputs);
  const auto some = GatherRows(stacks, 2000, 1);
  EXPECT_NEAR(static_cast<double>(some[0].rows()), 2000, 300);
  EXPECT_EQ(GatherRows(stacks, 2000, 1)[1].values, some[1].values);
  EXPECT_NE(GatherRows(stacks, 2000, 2)[1].values, some[1].values);
}

TEST(ChunkPlanes, ComeFromRawFramesAndFromPacks) {
  const TestFolder folder;
  const std::vector<PlaneStack> stacks = Stacks(1);
  WriteFile(folder.Path("frames"), stacks[0].samples);
  const RawFrames raw{
      .path = folder.Path("frames"), .frames = 2, .rows = 64, .columns = 96, .chunk_frames = 2};
  const auto from_raw = PlanesOfRaw(raw, kBytesMax);
  ASSERT_TRUE(from_raw.has_value()) << from_raw.error().message();
  ASSERT_EQ(from_raw->size(), 1U);
  EXPECT_EQ((*from_raw)[0].samples, stacks[0].samples);

  PackModel model;
  model.schema.fields = {{.name = "image",
                          .kind = FieldKind::kImage,
                          .dtype = Dtype::kU8,
                          .rank = 2,
                          .extent = {64, 96, 1, 1},
                          .bound = {},
                          .samples_per_chunk = 2,
                          .tile = {64, 96, 1, 1}}};
  const std::size_t half = stacks[0].samples.size() / 2;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto begin = stacks[0].samples.begin() + static_cast<std::ptrdiff_t>(i * half);
    model.samples.push_back({{begin, begin + static_cast<std::ptrdiff_t>(half)}});
  }
  WriteFile(folder.Path("a.fbp"), WritePack(model, folder, {.profile = Profile::kDense}));
  const auto from_pack = PlanesOfPack(folder.Path("a.fbp"), "image", kBytesMax);
  ASSERT_TRUE(from_pack.has_value()) << from_pack.error().message();
  ASSERT_EQ(from_pack->size(), 1U);
  EXPECT_EQ((*from_pack)[0].samples, stacks[0].samples);
}

TEST(ChunkPlanes, NameWhatIsMissingOrTooMuch) {
  const TestFolder folder;
  const std::vector<PlaneStack> stacks = Stacks(1);
  WriteFile(folder.Path("frames"), stacks[0].samples);
  RawFrames raw{
      .path = folder.Path("frames"), .frames = 2, .rows = 64, .columns = 96, .chunk_frames = 1};
  EXPECT_EQ(PlanesOfRaw(raw, 64 * 96).error().code(), ErrorCode::kResourceExhausted);
  raw.frames = 3;
  EXPECT_EQ(PlanesOfRaw(raw, kBytesMax).error().code(), ErrorCode::kDataLoss);
  raw.path = folder.Path("none");
  EXPECT_EQ(PlanesOfRaw(raw, kBytesMax).error().code(), ErrorCode::kNotFound);
  const PackModel model = MakeModel(4, kSeed);
  WriteFile(folder.Path("b.fbp"), WritePack(model, folder));
  EXPECT_TRUE(PlanesOfPack(folder.Path("b.fbp"), "", kBytesMax).has_value());
  EXPECT_EQ(PlanesOfPack(folder.Path("b.fbp"), "picture", kBytesMax).error().code(),
            ErrorCode::kNotFound);
}

}  // namespace forebay::compress::learned_training_test
