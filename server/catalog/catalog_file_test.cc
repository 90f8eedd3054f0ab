// Saved catalogs: save, load, verify against the objects.
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/testing/refused_call_fixture.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CatalogFileTest : public CatalogFixture {
 protected:
  CatalogFileTest() {
    AddFile("a/1", "one");
    AddFile("a/2", "two");
    path_ = std::filesystem::temp_directory_path() /
            ("forebay_catalog_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  ~CatalogFileTest() override { std::filesystem::remove_all(path_); }

  std::filesystem::path path_;
};

TEST_F(CatalogFileTest, SavedCatalogLoadsBack) {
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  const auto backend = io::ThreadBackend::Create();
  ASSERT_TRUE(backend.has_value());
  auto directory = (*backend)->OpenDirectory(path_.string());
  ASSERT_TRUE(directory.has_value());
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    const Status saved = SaveCatalog(**catalog, **backend, **directory, "test.catalog");
    ASSERT_TRUE(saved.has_value()) << saved.error().ToString();
  }
  const auto loaded = Catalog::Load((path_ / "test.catalog").string());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  EXPECT_EQ((*loaded)->fingerprint(), (*catalog)->fingerprint());
  EXPECT_EQ(FieldText(**loaded, SampleId(1), FieldId(0)), "two");
  ExpectConsistent(**loaded);
  EXPECT_TRUE(VerifyObjects(**loaded, *root_).has_value());
  EXPECT_FALSE(std::filesystem::exists(path_ / "test.catalog.tmp"));
}

TEST_F(CatalogFileTest, ADamagedPageIsFoundWhenTheCatalogIsLoaded) {
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  const std::string path = (path_ / "x").string();
  for (std::size_t i = 0; i < 2 * sizeof(std::uint64_t); ++i) {  // the entries of both samples
    std::string image = BytesText((*catalog)->image());
    image[512 + i] = static_cast<char>(image[512 + i] ^ 1);
    std::ofstream(path, std::ios::binary) << image;
    EXPECT_THAT(Catalog::Load(path).error().ToString(),
                AllOf(HasSubstr("DATA_LOSS: '" + path + "'"), HasSubstr("page of extent 0"),
                      HasSubstr("forebay stage --rebuild test")));
  }
}

TEST_F(CatalogFileTest, ALoadedCatalogNeedsItsFileNoMore) {
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  const std::string path = (path_ / "x").string();
  std::ofstream(path, std::ios::binary) << BytesText((*catalog)->image());
  const auto loaded = Catalog::Load(path);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(FieldText(**loaded, SampleId(1), FieldId(0)), "two");
  ExpectConsistent(**loaded);
}

TEST_F(CatalogFileTest, SavesWhereTheFileSystemCannotReserveSpace) {
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  const bool did_run = io::testing::RunWithRefusedCall(SYS_fallocate, EOPNOTSUPP, [&] {
    const auto backend = io::ThreadBackend::Create();
    ASSERT_TRUE(backend.has_value());
    auto directory = (*backend)->OpenDirectory(path_.string());
    ASSERT_TRUE(directory.has_value());
    const Status saved = SaveCatalog(**catalog, **backend, **directory, "test.catalog");
    EXPECT_TRUE(saved.has_value()) << saved.error().ToString();
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  const auto loaded = Catalog::Load((path_ / "test.catalog").string());
  ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
  EXPECT_EQ((*loaded)->fingerprint(), (*catalog)->fingerprint());
}

TEST_F(CatalogFileTest, SaveReplacesWhatAnInterruptedSaveLeft) {
  AddFile("out/x.catalog.tmp", "torn");
  auto directory = backend_.OpenDirectory("/data/out");
  const auto catalog = Build();
  ASSERT_TRUE(SaveCatalog(**catalog, backend_, **directory, "x.catalog").has_value());
  EXPECT_EQ(FileText("out/x.catalog"), BytesText((*catalog)->image()));
}

TEST_F(CatalogFileTest, SavedCatalogSurvivesPowerLoss) {
  ASSERT_TRUE(backend_.AddDirectory("/data/out").has_value());
  const auto catalog = Build();
  auto directory = backend_.OpenDirectory("/data/out");
  ASSERT_TRUE(SaveCatalog(**catalog, backend_, **directory, "x.catalog").has_value());
  backend_.Crash();
  EXPECT_EQ(FileText("out/x.catalog"), BytesText((*catalog)->image()));
}

TEST_F(CatalogFileTest, FailedSaveLeavesNothing) {
  ASSERT_TRUE(backend_.AddDirectory("/data/out").has_value());
  const auto catalog = Build();
  auto directory = backend_.OpenDirectory("/data/out");
  backend_.SetCapacity(100);
  const Status saved = SaveCatalog(**catalog, backend_, **directory, "x.catalog");
  ASSERT_FALSE(saved.has_value());
  EXPECT_THAT(saved.error().message(), HasSubstr("save catalog 'x.catalog'"));
  EXPECT_TRUE((*directory)->List("")->empty());
}

TEST_F(CatalogFileTest, VerifyNamesTheChangedObject) {
  const auto catalog = Build();
  ASSERT_TRUE(VerifyObjects(**catalog, *root_).has_value());
  AddFile("a/2", "two!");
  EXPECT_THAT(VerifyObjects(**catalog, *root_).error().ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION: 'a/2' changed"),
                    HasSubstr("had 3 bytes, has 4")));
  AddFile("a/2", "TWO");
  EXPECT_THAT(VerifyObjects(**catalog, *root_).error().message(), HasSubstr("was modified at"));
  ASSERT_TRUE(root_->Unlink("a/2").has_value());
  EXPECT_THAT(VerifyObjects(**catalog, *root_).error().ToString(),
              HasSubstr("FAILED_PRECONDITION: 'a/2' changed since the catalog of 'test' was "
                        "built: it is gone"));
  ASSERT_TRUE(root_->MakeDirectory("a/2").has_value());
  EXPECT_THAT(VerifyObjects(**catalog, *root_).error().message(),
              HasSubstr("no longer a regular file"));
}

TEST_F(CatalogFileTest, LoadRefusesWhatIsNoCatalog) {
  const std::string path = (path_ / "x").string();
  EXPECT_THAT(Catalog::Load(path).error().ToString(),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr(path)));
  std::ofstream(path).close();
  EXPECT_THAT(Catalog::Load(path).error().ToString(),
              AllOf(HasSubstr("DATA_LOSS"), HasSubstr(path), HasSubstr("offset 0: truncated")));
  std::ofstream(path) << std::string(4096, 'x');
  EXPECT_THAT(Catalog::Load(path).error().message(), HasSubstr("wrong magic"));
  EXPECT_THAT(Catalog::Load(path_.string()).error().message(), HasSubstr("not a regular file"));
  std::filesystem::resize_file(path, limits::kCatalogFileBytesMax + 1);
  EXPECT_THAT(Catalog::Load(path).error().message(), HasSubstr("kCatalogFileBytesMax"));
}

}  // namespace
}  // namespace forebay::catalog
