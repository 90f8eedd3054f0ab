// Planes for training come from packs that were written with a predictor, too.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/pack/predictor_file.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/train/chunk_planes.h"

namespace forebay::compress::chunk_planes_test {

constexpr std::size_t kBytesMax = std::size_t{1} << 30;

// Two pictures that the predictor corrects.
PackModel MakeLearnable() {
  PackModel model;
  model.schema.fields = {{.name = "image",
                          .kind = FieldKind::kImage,
                          .dtype = Dtype::kU8,
                          .rank = 2,
                          .extent = {64, 96, 1, 1},
                          .bound = {},
                          .samples_per_chunk = 2,
                          .tile = {64, 96, 1, 1}}};
  for (std::uint32_t i = 0; i < 2; ++i) model.samples.push_back({MakeLargerOfTwo(64, 96, i)});
  return model;
}

TEST(ChunkPlanesTest, ComeFromPacksWhosePredictorLiesBeside) {
  const TestFolder folder;
  const PackModel model = MakeLearnable();
  const auto predictor = LargerOfTwoPredictor();
  const std::string path = folder.Path("named.fbp");
  WriteFile(path, WritePack(model, folder, {.profile = Profile::kLearned,
                                            .predictor = predictor,
                                            .embed_predictor = false}));
  const auto missing = PlanesOfPack(path, "image", kBytesMax);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(missing.error().message().find(Sha256Hex(predictor->id())), std::string::npos)
      << missing.error().message();
  WriteFile(PredictorFileName(folder.Path(""), predictor->id()), predictor->bytes());
  const auto planes = PlanesOfPack(path, "image", kBytesMax);
  ASSERT_TRUE(planes.has_value()) << planes.error().message();
  ASSERT_EQ(planes->size(), 1U);
  std::vector<std::byte> expected = model.samples[0][0];
  expected.insert(expected.end(), model.samples[1][0].begin(), model.samples[1][0].end());
  EXPECT_EQ((*planes)[0].samples, expected);
}

}  // namespace forebay::compress::chunk_planes_test
