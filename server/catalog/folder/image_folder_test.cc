// Catalogs of image folders: order, extents, chains, batches of sizes, and refusals.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/object_stats.h"
#include "server/catalog/testing/catalog_test_fixture.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolderTest : public CatalogFixture {
 protected:
  // Files of sizes 1..size_max in `classes` class directories, made in no particular order.
  void AddFolder(std::size_t classes, std::size_t files_per_class, std::size_t size_max) {
    for (std::size_t c = classes; c-- > 0;) {
      for (std::size_t f = 0; f < files_per_class; ++f) {
        const std::string name = "class" + std::to_string(1000 + c) + "/" +
                                 std::to_string((f * 7919) % 10007) + ".jpg";
        expected_[name] = PatternText(1 + (c * 31 + f * 17) % size_max, c * 1000 + f);
        AddFile(name, expected_[name]);
      }
    }
  }

  void ExpectContent(const Catalog& catalog) {
    ASSERT_EQ(catalog.sample_count(), expected_.size());
    std::uint64_t sample = 0;
    for (const auto& [path, text] : expected_) {
      EXPECT_EQ(catalog.SampleKey(SampleId(sample)).value(), path);
      EXPECT_EQ(FieldText(catalog, SampleId(sample), FieldId(0)), text);
      const std::string class_name = path.substr(0, path.find('/'));
      const std::string label = FieldText(catalog, SampleId(sample), FieldId(1));
      EXPECT_EQ(catalog.ConstantNames(FieldId(1))[std::stoul(label.substr(1))], class_name);
      ++sample;
    }
  }

  std::map<std::string, std::string> expected_;  // ordered as bytes, like the catalog
};

TEST_F(ImageFolderTest, OrdersClassesAndFilesByBytes) {
  AddFile("zebra/1.jpg", "z1");
  AddFile("ant/10.jpg", "a10");
  AddFile("ant/2.jpg", "a2");
  AddFile("Bee/x.jpg", "bx");
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->format(), Format::kImageFolder);
  EXPECT_THAT((*catalog)->ConstantNames(FieldId(1)), ElementsAre("Bee", "ant", "zebra"));
  EXPECT_EQ((*catalog)->object(ObjectId(1)).path, "ant/10.jpg");
  EXPECT_EQ(FieldText(**catalog, SampleId(2), FieldId(0)), "a2");
  EXPECT_EQ(FieldText(**catalog, SampleId(3), FieldId(1)), "#2");
  ASSERT_EQ((*catalog)->fields().size(), 2U);
  EXPECT_EQ((*catalog)->fields()[0].name, "image");
  EXPECT_FALSE((*catalog)->fields()[0].is_fixed());
  EXPECT_EQ((*catalog)->fields()[1].dtype, Dtype::kI64);
  EXPECT_EQ((*catalog)->fields()[1].source, FieldSource::kConstant);
}

TEST_F(ImageFolderTest, PacksWholeFilesIntoExtents) {
  AddFolder(5, 40, 300);
  source_.extent_bytes = 1000;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_GT((*catalog)->extent_count(), 10U);
  EXPECT_EQ((*catalog)->part_count(), 1U);
  ExpectContent(**catalog);
  ExpectConsistent(**catalog);
}

TEST_F(ImageFolderTest, ReadsTwoHundredClassDirectories) {
  AddFolder(200, 3, 50);
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->ConstantNames(FieldId(1)).size(), 200U);
  ExpectContent(**catalog);
  ExpectConsistent(**catalog);
}

TEST_F(ImageFolderTest, SpansExtentsWithFilesLargerThanOne) {
  AddFolder(2, 3, 90);
  for (const std::size_t size : {100U, 101U, 199U, 200U, 201U, 1000U}) {
    const std::string name = "class1000/big" + std::to_string(size);
    expected_[name] = PatternText(size, size);
    AddFile(name, expected_[name]);
  }
  source_.extent_bytes = 100;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  ExpectContent(**catalog);
  ExpectConsistent(**catalog);
}

TEST_F(ImageFolderTest, FillsAnExtentToItsLastByte) {
  AddFile("a/1", PatternText(60, 1));
  AddFile("a/2", PatternText(40, 2));
  AddFile("a/3", PatternText(1, 3));
  source_.extent_bytes = 100;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  ASSERT_EQ((*catalog)->extent_count(), 2U);
  EXPECT_EQ((*catalog)->extent(ExtentId(0)).object_count, 2U);
  EXPECT_EQ((*catalog)->extent(ExtentId(0)).bytes, 100U);
  EXPECT_EQ((*catalog)->extent(ExtentId(1)).first_object, ObjectId(2));
}

TEST_F(ImageFolderTest, WalksNestedDirectoriesAndSkipsHiddenNames) {
  AddFile("a/x/deep/1.jpg", "1");
  AddFile("a/.cache/no", "no");
  AddFile("a/.hidden", "no");
  AddFile(".git/config", "no");
  AddFile("README.md", "no");
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  ASSERT_EQ((*catalog)->sample_count(), 1U);
  EXPECT_EQ((*catalog)->SampleKey(SampleId(0)).value(), "a/x/deep/1.jpg");
}

TEST_F(ImageFolderTest, TakesOnlyConfiguredSuffixes) {
  AddFile("a/1.jpg", "1");
  AddFile("a/1.txt", "no");
  AddFile("a/2.png", "2");
  source_.settings.SetTexts("suffixes", {".jpg", ".png"});
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  EXPECT_EQ((*catalog)->sample_count(), 2U);
}

TEST_F(ImageFolderTest, CountsAnEmptyClassAsALabel) {
  AddFile("a/1", "1");
  ASSERT_TRUE(backend_.AddDirectory("/data/b").has_value());
  AddFile("c/1", "1");
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  EXPECT_EQ(FieldText(**catalog, SampleId(1), FieldId(1)), "#2");
}

TEST_F(ImageFolderTest, ReportsProgressPerFile) {
  AddFolder(2, 2, 10);
  std::vector<std::uint64_t> seen;
  const auto catalog = BuildFromMetadata(backend_, *root_, source_,
                                         [&](std::uint64_t count) { seen.push_back(count); });
  ASSERT_TRUE(catalog.has_value());
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
}

TEST_F(ImageFolderTest, AnnouncesEveryRunOfWholeFilesAsTheCatalogWillHaveIt) {
  AddFolder(2, 5, 10);
  AddFile("class2/large", std::string(200, 'x'));  // spans extents of its own: not announced
  AddFile("class2/small", "0123456789");
  source_.extent_bytes = 64;
  std::vector<ExtentId> announced;
  std::vector<ExtentInfo> infos;
  std::vector<std::vector<std::string>> paths;
  const auto catalog = BuildFromMetadata(
      backend_, *root_, source_, nullptr,
      [&](ExtentId extent, const ExtentInfo& info, std::span<const ObjectInfo> objects) {
        announced.push_back(extent);
        infos.push_back(info);
        for (paths.emplace_back(); const ObjectInfo& object : objects) {
          paths.back().push_back(std::string(object.path));
          EXPECT_NE(object.bytes, 0U);
        }
      });
  ASSERT_TRUE(catalog.has_value());
  std::size_t runs = 0;
  for (std::uint32_t i = 0; i < (*catalog)->extent_count(); ++i) {
    const ExtentInfo info = (*catalog)->extent(ExtentId(i));
    const ObjectInfo first = (*catalog)->object(info.first_object);
    if (first.bytes > source_.extent_bytes) continue;
    ASSERT_LT(runs, announced.size());
    EXPECT_EQ(announced[runs], ExtentId(i));
    EXPECT_EQ(infos[runs].first_object, info.first_object);
    EXPECT_EQ(infos[runs].object_count, info.object_count);
    EXPECT_EQ(infos[runs].object_offset, info.object_offset);
    EXPECT_EQ(infos[runs].bytes, info.bytes);
    EXPECT_EQ(infos[runs].first_sample, info.first_sample);
    EXPECT_EQ(infos[runs].sample_count, info.sample_count);
    ASSERT_EQ(paths[runs].size(), info.object_count);
    EXPECT_EQ(paths[runs].front(), first.path);
    ++runs;
  }
  EXPECT_EQ(runs, announced.size());
  EXPECT_GE(runs, 2U);
}

TEST_F(ImageFolderTest, NeedsAtMost24BytesPerSampleBesidesNames) {
  std::uint64_t name_bytes = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string path = "c" + std::to_string(i % 10) + "/" + std::to_string(i);
    name_bytes += path.size();
    AddFile(path, "0123456789");
  }
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  const double per_sample =
      static_cast<double>((*catalog)->image().size() - name_bytes) / 20000.0;
  RecordProperty("bytes_per_sample", std::to_string(per_sample));
  std::printf("image folder: %.2f bytes per sample besides names\n", per_sample);
  // 2 of these bytes are the length of the name.
  EXPECT_LE(per_sample, 24.0 + 2.0);
}

// Asks the root, and records the batches.
class RecordedStats final : public ObjectStats {
 public:
  RecordedStats(io::Directory& root, std::size_t at_once,
                std::size_t paths_in_batch = limits::kStatPathsMax)
      : root_(root), at_once_(at_once), paths_in_batch_(paths_in_batch) {}
  StatOutcome Stat(std::span<const std::string> paths) override {
    {
      const MutexLock lock(mutex_);
      batches_.emplace_back(paths.begin(), paths.end());
    }
    return root_.Stat(paths);
  }
  std::size_t batches_at_once() const override { return at_once_; }
  std::size_t paths_in_batch() const override { return paths_in_batch_; }
  // In the order of names.
  std::vector<std::vector<std::string>> batches() {
    const MutexLock lock(mutex_);
    std::ranges::sort(batches_);
    return batches_;
  }

 private:
  RootStats root_;
  const std::size_t at_once_;
  const std::size_t paths_in_batch_;
  Mutex mutex_;
  std::vector<std::vector<std::string>> batches_ FOREBAY_GUARDED_BY(mutex_);
};

class ImageFolderBatchTest : public ImageFolderTest {
 protected:
  Result<std::shared_ptr<const Catalog>> BuildWith(ObjectStats& stats) {
    return BuildFromMetadata(backend_, *root_, source_, nullptr, nullptr, {}, &stats);
  }
};

TEST_F(ImageFolderBatchTest, TheCatalogDoesNotDependOnHowManyBatchesAreUnderWay) {
  AddFolder(5, 3000, 3);  // four batches, which span directories
  source_.extent_bytes = 1000;
  const auto expected = Build();
  ASSERT_TRUE(expected.has_value());
  std::vector<std::vector<std::string>> first_batches;
  for (const std::size_t at_once : {1U, 2U, 3U, 8U}) {
    RecordedStats stats(*root_, at_once);
    const auto catalog = BuildWith(stats);
    ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
    EXPECT_TRUE(std::ranges::equal((*catalog)->image(), (*expected)->image())) << at_once;
    std::vector<std::vector<std::string>> batches = stats.batches();
    ASSERT_EQ(batches.size(), 4U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(batches[i].size(), limits::kStatPathsMax);
    if (first_batches.empty()) first_batches = batches;
    EXPECT_EQ(batches, first_batches) << "other nodes must cut the same batches";
  }
}

TEST_F(ImageFolderBatchTest, ABatchHasNoMorePathsThanItMay) {
  AddFolder(2, 30, 3);
  RecordedStats stats(*root_, 2, /*paths_in_batch=*/25);
  ASSERT_TRUE(BuildWith(stats).has_value());
  const auto batches = stats.batches();
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].size(), 25U);
  EXPECT_EQ(batches[1].size(), 25U);
  EXPECT_EQ(batches[2].size(), 10U);
}

TEST_F(ImageFolderBatchTest, ABatchOfLongPathsHasFewerOfThem) {
  std::string folder = "a";
  for (int i = 0; i < 12; ++i) folder += "/" + std::string(250, 'x');
  constexpr std::size_t kFiles = 700;
  for (std::size_t i = 0; i < kFiles; ++i) AddFile(folder + "/" + std::to_string(i), "1");
  RecordedStats stats(*root_, 2);
  ASSERT_TRUE(BuildWith(stats).has_value());
  const auto batches = stats.batches();
  EXPECT_EQ(batches.size(), 3U);
  std::size_t files = 0;
  for (const std::vector<std::string>& batch : batches) {
    std::size_t bytes = 0;
    for (const std::string& path : batch) bytes += path.size();
    EXPECT_LE(bytes, limits::kStatPathBytesMax);
    files += batch.size();
  }
  EXPECT_EQ(files, kFiles);
}

// A fake that knows no file: what fails is the first path of the batch.
class NoStats final : public ObjectStats {
 public:
  StatOutcome Stat(std::span<const std::string> paths) override {
    return {.infos = {},
            .error = Error(ErrorCode::kNotFound, "'" + paths.front() + "' is missing")};
  }
  std::size_t batches_at_once() const override { return 8; }
};

TEST_F(ImageFolderBatchTest, OfSeveralErrorsTheFirstInTheOrderOfNamesIsReported) {
  AddFolder(5, 3000, 3);
  std::string path = "class9";
  for (int i = 0; i < 18; ++i) path += "/d";
  AddFile(path + "/1", "1");  // nested too deep; the walk finds that before a batch has failed
  NoStats none;
  const auto failed = BuildWith(none);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("'" + expected_.begin()->first + "' is missing"));
  // An empty file comes before the error of the walk, too.
  AddFile(std::next(expected_.begin(), 5000)->first, "");
  RecordedStats stats(*root_, 8);
  const auto refused = BuildWith(stats);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("the file is empty"));
}

TEST_F(ImageFolderBatchTest, AnErrorOfTheWalkIsReportedIfAllFilesBeforeItAreGood) {
  AddFolder(2, 10, 3);
  std::string path = "class9";
  for (int i = 0; i < 18; ++i) path += "/d";
  AddFile(path + "/1", "1");
  RecordedStats stats(*root_, 8);
  const auto refused = BuildWith(stats);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("kDirectoryDepthMax"));
}

TEST_F(ImageFolderTest, RefusesAnEmptyFileByName) {
  AddFile("a/1", "1");
  AddFile("a/2", "");
  EXPECT_THAT(BuildError(), HasSubstr("'a/2' at offset 0: the file is empty"));
}

TEST_F(ImageFolderTest, RefusesAFolderWithoutSamples) {
  ASSERT_TRUE(backend_.AddDirectory("/data/a").has_value());
  EXPECT_THAT(BuildError(), HasSubstr("data set 'test' has no samples"));
}

TEST_F(ImageFolderTest, RefusesDirectoriesNestedTooDeep) {
  std::string path = "a";
  for (int i = 0; i < 18; ++i) path += "/d";
  AddFile(path + "/1", "1");
  EXPECT_THAT(BuildError(), HasSubstr("kDirectoryDepthMax"));
}

TEST_F(ImageFolderTest, RefusesExtentSizesOutsideTheLimits) {
  AddFile("a/1", "1");
  source_.extent_bytes = 0;
  EXPECT_THAT(BuildError(), HasSubstr("extent_bytes must be 1 to"));
  source_.extent_bytes = limits::kExtentBytesMax + 1;
  EXPECT_THAT(BuildError(), HasSubstr("kExtentBytesMax"));
}

TEST_F(ImageFolderTest, RefusesADataSetWithoutAName) {
  AddFile("a/1", "1");
  source_.name = "";
  EXPECT_THAT(BuildError(), HasSubstr("kNameBytesMax"));
}

TEST_F(ImageFolderTest, RefusesARootThatFitsSeveralFormatsOrNone) {
  EXPECT_THAT(BuildError(),
              AllOf(HasSubstr("no format was detected, because the top of its root has no *.tar, "),
                    HasSubstr(", class directories; set its key 'format'")));
  AddFile("a/1", "1");
  AddFile("b.tar", "1");
  EXPECT_THAT(BuildError(), HasSubstr("fits several formats: tar image-folder"));
  source_.format = Format::kTar;
  EXPECT_THAT(BuildError(), HasSubstr("built while it is staged"));
}

}  // namespace
}  // namespace forebay::catalog
