// Packs of profile learned: the predictor in the file or beside it, missing, wrong, too dear.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/pack/pack_set.h"
#include "compress/decode/pack/predictor_file.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/testing/pack_test_model.h"

namespace forebay::compress::learned_pack_test {

constexpr std::uint32_t kSeed = 20261121;
constexpr std::uint32_t kRows = 64, kColumns = 96;

// Frames in which the predictor pays, each a chunk, and one of bytes in which there is no plane.
PackModel MakeLearnable(std::size_t samples) {
  PackModel model;
  model.schema.fields = {{.name = "image",
                          .kind = FieldKind::kImage,
                          .dtype = Dtype::kU8,
                          .rank = 2,
                          .extent = {kRows, kColumns, 1, 1},
                          .bound = {},
                          .samples_per_chunk = 1,
                          .tile = {kRows, kColumns, 1, 1}}};
  for (std::size_t i = 0; i < samples; ++i) {
    model.samples.push_back(
        {MakeLargerOfTwo(kRows, kColumns, kSeed + static_cast<std::uint32_t>(i))});
  }
  return model;
}

PackWriterOptions Learned(bool embed, unsigned threads = 1) {
  return {.profile = Profile::kLearned,
          .threads = threads,
          .predictor = LargerOfTwoPredictor(),
          .embed_predictor = embed};
}

void ExpectReads(const PackFile& pack, const PackModel& model) {
  std::vector<std::byte> scratch(pack.ScratchBytes());
  for (std::size_t i = 0; i < model.samples.size(); ++i) {
    const auto value = ReadField(pack, 0, i, scratch);
    ASSERT_TRUE(value.has_value()) << value.error().message();
    ASSERT_EQ(*value, model.samples[i][0]);
  }
}

TEST(LearnedPack, HoldsItsPredictorAndIsSmaller) {
  const TestFolder folder;
  const PackModel model = MakeLearnable(6);
  const auto bytes = WritePack(model, folder, Learned(true));
  const auto dense = WritePack(model, folder, {.profile = Profile::kDense});
  EXPECT_LT(bytes.size(), dense.size() * 97 / 100);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  ASSERT_EQ(pack->schema().predictors.size(), 1U);
  EXPECT_EQ(pack->schema().predictors[0]->id(), LargerOfTwoPredictor()->id());
  EXPECT_TRUE(pack->schema().named_predictors.empty());
  ExpectReads(*pack, model);
  const auto recovered = PackFile::Recover(*source);
  ASSERT_TRUE(recovered.has_value());
  ExpectReads(*recovered, model);
}

TEST(LearnedPack, IsTheSameAtAnyNumberOfThreads) {
  const TestFolder folder;
  const PackModel model = MakeLearnable(6);
  EXPECT_EQ(WritePack(model, folder, Learned(true, 1)), WritePack(model, folder, Learned(true, 3)));
}

TEST(LearnedPack, RefusesAPredictorBeyondTheReadersBudget) {
  const TestFolder folder;
  const auto bytes = WritePack(MakeLearnable(1), folder, Learned(true));
  const auto source = MemorySource(bytes);
  const std::uint32_t macs = LargerOfTwoPredictor()->macs();
  EXPECT_TRUE(PackFile::Open(*source, {.budget = {.macs_max = macs}, .find_predictor = {}})
                  .has_value());
  const auto refused =
      PackFile::Open(*source, {.budget = {.macs_max = macs - 1}, .find_predictor = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
}

TEST(LearnedPack, NamesAPredictorThatLiesElsewhere) {
  const TestFolder folder;
  const PackModel model = MakeLearnable(3);
  const auto bytes = WritePack(model, folder, Learned(false));
  EXPECT_LT(bytes.size(), WritePack(model, folder, Learned(true)).size());
  const auto source = MemorySource(bytes);
  const auto predictor = LargerOfTwoPredictor();
  const std::string hex = Sha256Hex(predictor->id());
  const auto open = [&](PredictorFinder finder) {
    return PackFile::Open(*source, {.budget = {}, .find_predictor = std::move(finder)});
  };
  const auto expect_refused = [&](const PredictorFinder& finder, ErrorCode code) {
    const auto pack = open(finder);
    ASSERT_FALSE(pack.has_value());
    EXPECT_EQ(pack.error().code(), code) << pack.error().message();
    EXPECT_NE(pack.error().message().find(hex), std::string::npos) << pack.error().message();
  };
  const std::string models = folder.Path("models");
  std::filesystem::create_directory(models);
  expect_refused({}, ErrorCode::kFailedPrecondition);
  expect_refused(PredictorsIn(models), ErrorCode::kFailedPrecondition);
  // Another predictor under the right one's name; then bytes that are none.
  WriteFile(models + "/" + hex + ".net", RandomPredictor(kSeed, {21, 2}, {})->bytes());
  expect_refused(PredictorsIn(models), ErrorCode::kFailedPrecondition);
  WriteFile(models + "/" + hex + ".net", predictor->bytes().first(20));
  expect_refused(PredictorsIn(models), ErrorCode::kDataLoss);
  expect_refused([](const Sha256Digest&) { return std::shared_ptr<const Predictor>(); },
                 ErrorCode::kFailedPrecondition);
  WriteFile(models + "/" + hex + ".net", predictor->bytes());
  const auto pack = open(PredictorsIn(models));
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  ExpectReads(*pack, model);
}

TEST(LearnedPack, IsOpenedThroughALinkToItsFile) {
  const TestFolder stored, linked;
  const PackModel model = MakeLearnable(2);
  WriteFile(stored.Path("p.fbp"), WritePack(model, stored, Learned(false)));
  const std::string link = linked.Path("p.fbp");
  std::filesystem::create_symlink(stored.Path("p.fbp"), link);
  const auto predictor = LargerOfTwoPredictor();
  const std::string beside = PredictorFileName(FolderOf(stored.Path("p.fbp")), predictor->id());
  const std::string at_link = PredictorFileName(FolderOf(link), predictor->id());
  const auto source = OpenByteSource(link);
  const auto open = [&] {
    return PackFile::Open(**source, {.budget = {}, .find_predictor = PredictorsBeside(link)});
  };
  // Nowhere: the error names both places.
  const auto missing = open();
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), ErrorCode::kFailedPrecondition);
  for (const std::string& words : {beside, at_link}) {
    EXPECT_NE(missing.error().message().find(words), std::string::npos)
        << missing.error().message();
  }
  WriteFile(beside, predictor->bytes());
  ASSERT_TRUE(open().has_value());
  ExpectReads(*open(), model);
  // The one beside the link comes first, and is not passed over where it is damaged.
  WriteFile(at_link, std::span(predictor->bytes()).first(10));
  EXPECT_EQ(open().error().code(), ErrorCode::kInvalidArgument);
}

TEST(LearnedPack, LoadsPredictorsFromFilesOfBoundedSize) {
  const TestFolder folder;
  const auto predictor = LargerOfTwoPredictor();
  WriteFile(folder.Path("a.net"), predictor->bytes());
  ASSERT_TRUE(LoadPredictor(folder.Path("a.net")).has_value());
  EXPECT_EQ(LoadPredictor(folder.Path("a.net"), {.bytes_max = 8}).error().code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(LoadPredictor(folder.Path("b.net")).error().code(), ErrorCode::kNotFound);
}

TEST(LearnedPack, IsNotGoneOnWithUnderAnotherPredictor) {
  const TestFolder folder;
  const PackModel model = MakeLearnable(4);
  const std::string path = folder.Path("resumed");
  {
    PackWriterOptions options = Learned(true);
    options.id = kTestPackId;
    auto writer = PackWriter::Create(path, model.schema, options);
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(AddAll(model, **writer, 2).has_value());
  }
  PackWriterOptions other = Learned(true);
  other.predictor = RandomPredictor(kSeed, {21, 2}, {});
  const auto refused = PackWriter::Resume(path, model.schema, other);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  auto writer = PackWriter::Resume(path, model.schema, Learned(true));
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(AddAll(model, **writer, 4).has_value());
  ASSERT_TRUE((*writer)->Finish().has_value());
  EXPECT_EQ(ReadFile(path), WritePack(model, folder, Learned(true)));
}

TEST(LearnedPack, RefusesASchemaWithAPredictorTwice) {
  PackSchema schema = MakeLearnable(1).schema;
  schema.predictors.assign(2, LargerOfTwoPredictor());
  EXPECT_EQ(CheckSchema(schema).error().code(), ErrorCode::kInvalidArgument);
  schema.predictors.assign(1, nullptr);
  EXPECT_EQ(CheckSchema(schema).error().code(), ErrorCode::kInvalidArgument);
  schema.predictors.clear();
  schema.named_predictors.resize(limits::kPackModelsMax + 1);
  for (std::size_t i = 0; i < schema.named_predictors.size(); ++i) {
    schema.named_predictors[i][0] = static_cast<std::byte>(i);
  }
  EXPECT_EQ(CheckSchema(schema).error().code(), ErrorCode::kInvalidArgument);
  schema.named_predictors.pop_back();
  EXPECT_TRUE(CheckSchema(schema).has_value());
}

}  // namespace forebay::compress::learned_pack_test
