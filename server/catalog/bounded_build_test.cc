// Builds with bounded memory: tables go to scratch files, and the image is the same to the byte.
#include <filesystem>

#include <gmock/gmock.h>

#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BoundedBuildTest : public ScanFixture {
 protected:
  static constexpr std::uint64_t kFeedBytes = 16 * limits::kMiB;

  // A member of `bytes` bytes that belongs to no sample: its header, and zeros as its data.
  Status FeedLongMember(ScanBuilder& builder, std::uint64_t bytes) {
    const std::string octal(TarSizeField(bytes));
    FOREBAY_TRY(FeedText(builder,
                         TarMemberText({.path = "README", .data = "", .size_field = octal})));
    for (std::uint64_t left = bytes; left > 0;) {
      const std::uint64_t count = std::min(left, kFeedBytes);
      FOREBAY_TRY(Feed(builder, std::span(zeros_).first(count)));
      left -= count;
    }
    return {};
  }
  Status FeedText(ScanBuilder& builder, const std::string& text) {
    return Feed(builder, TextBytes(text));
  }
  Status Feed(ScanBuilder& builder, std::span<const std::byte> bytes) {
    FOREBAY_TRY(builder.Feed(bytes, cuts_));
    fed_bytes_ += bytes.size();
    const std::uint64_t needed_from = std::min(builder.NeededFrom(), fed_bytes_);
    held_bytes_max_ = std::max(held_bytes_max_, fed_bytes_ - needed_from);
    return {};
  }
  static std::string TarSizeField(std::uint64_t bytes) {
    std::string field(11, '0');
    for (std::size_t i = 11; i > 0; --i, bytes /= 8) {
      field[i - 1] = static_cast<char>('0' + bytes % 8);
    }
    return field + " ";
  }

  void AddShards() {
    source_.extent_bytes = 8192;
    for (std::size_t shard = 0; shard < 3; ++shard) {
      std::string text;
      for (std::size_t i = 0; i < 200; ++i) {
        const std::string key = "dir/" + std::to_string(1000 * shard + i);
        text += TarFileText(key + ".jpg", PatternText(i % 50 == 5 ? 30'000 : i * 3, i));
        if (i % 3 != 0) text += TarFileText(key + ".cls", std::to_string(i % 10));
      }
      AddFile("shard-" + std::to_string(shard) + ".tar", text + TarEndText());
    }
  }

  const std::vector<std::byte> zeros_ = std::vector<std::byte>(kFeedBytes);
  std::uint64_t fed_bytes_ = 0;
};

TEST_F(BoundedBuildTest, LongMembersOfNoSampleAreNotKept) {
  source_.extent_bytes = 32 * limits::kMiB;
  ArchivesBySize root({8ULL << 30});
  const auto builder = CreateScanBuilder(root, source_).value();
  for (int i = 0; i < 3; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(FeedText(*builder, TarFileText(key + ".jpg", "x") +
                                       TarFileText(key + ".cls", "1")).has_value());
    ASSERT_TRUE(FeedLongMember(*builder, 1ULL << 30).has_value());
    // The sample was closed while the long member was fed, and not when the next sample came.
    EXPECT_EQ(cuts_.size(), static_cast<std::size_t>(i + 1));
  }
  EXPECT_GT(fed_bytes_, 3ULL << 30);
  EXPECT_LE(held_bytes_max_, 4096U);
  // Many short members are kept as long as the sample before them may continue.
  ASSERT_TRUE(FeedText(*builder, TarFileText("3.jpg", "x")).has_value());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(FeedLongMember(*builder, limits::kMiB).has_value());
  }
  EXPECT_EQ(cuts_.size(), 4U);
  EXPECT_GT(held_bytes_max_, limits::kExtentBytesMax - 2 * limits::kMiB);
  EXPECT_LE(held_bytes_max_, limits::kExtentBytesMax + 2 * limits::kMiB);
}

TEST_F(BoundedBuildTest, ASampleDoesNotGoOnBeyondALongMember) {
  ArchivesBySize root({8ULL << 30});
  const auto builder = CreateScanBuilder(root, source_).value();
  ASSERT_TRUE(FeedText(*builder, TarFileText("0.jpg", "x")).has_value());
  ASSERT_TRUE(FeedLongMember(*builder, limits::kExtentBytesMax - 1024).has_value());
  ASSERT_TRUE(FeedText(*builder, TarFileText("0.cls", "x")).has_value()) << "near enough";
  ASSERT_TRUE(FeedLongMember(*builder, limits::kExtentBytesMax).has_value());
  ASSERT_TRUE(FeedText(*builder, TarFileText("0.txt", "x")).has_value());
  while (fed_bytes_ < 8ULL << 30) {
    const std::uint64_t count = std::min<std::uint64_t>(kFeedBytes, (8ULL << 30) - fed_bytes_);
    ASSERT_TRUE(Feed(*builder, std::span(zeros_).first(count)).has_value());
  }
  const Status ended = builder->EndObject(cuts_);
  ASSERT_FALSE(ended.has_value());
  EXPECT_THAT(ended.error().message(), AllOf(HasSubstr("duplicate key '0'"),
                                             HasSubstr("must be consecutive")));
}

TEST_F(BoundedBuildTest, SpilledTarCatalogsAreTheSameToTheByte) {
  AddShards();
  const auto in_memory = Scan();
  ASSERT_TRUE(in_memory.has_value()) << in_memory.error().ToString();
  for (const std::uint64_t table_bytes : {0U, 500U, 9000U}) {
    // Proves that this build needs a scratch file: without a directory for it, it fails.
    scratch_ = {.directory = "/nonexistent/scratch", .table_bytes = table_bytes};
    EXPECT_THAT(ScanError(), HasSubstr("scratch file in '/nonexistent/scratch'"));
    scratch_.directory = std::filesystem::temp_directory_path().string();
    const auto spilled = Scan();
    ASSERT_TRUE(spilled.has_value()) << spilled.error().ToString();
    EXPECT_EQ((*spilled)->fingerprint(), (*in_memory)->fingerprint());
    EXPECT_TRUE(std::ranges::equal((*spilled)->image(), (*in_memory)->image()));
    ExpectConsistent(**spilled);
    ExpectCutsMatch(**spilled);
  }
}

TEST_F(BoundedBuildTest, SpilledImageFoldersAreTheSameToTheByte) {
  for (std::size_t i = 0; i < 300; ++i) {
    AddFile("c" + std::to_string(i % 3) + "/" + std::to_string(i) + ".png", PatternText(1 + i, i));
  }
  source_.extent_bytes = 4096;
  const auto in_memory = Build();
  ASSERT_TRUE(in_memory.has_value()) << in_memory.error().ToString();
  for (const std::uint64_t table_bytes : {0U, 500U, 3000U}) {
    BuildScratch scratch = {.directory = "/nonexistent/scratch", .table_bytes = table_bytes};
    EXPECT_EQ(BuildFromMetadata(backend_, *root_, source_, nullptr, nullptr, scratch)
                  .error().code(),
              ErrorCode::kNotFound);
    scratch.directory = std::filesystem::temp_directory_path().string();
    const auto spilled = BuildFromMetadata(backend_, *root_, source_, nullptr, nullptr, scratch);
    ASSERT_TRUE(spilled.has_value()) << spilled.error().ToString();
    EXPECT_TRUE(std::ranges::equal((*spilled)->image(), (*in_memory)->image()));
    ExpectConsistent(**spilled);
  }
}

TEST_F(BoundedBuildTest, DuplicateKeysAreFoundAcrossSpilledRuns) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += TarFileText(std::to_string(i) + ".jpg", "x");
  AddFile("a.tar", text + TarFileText("17.cls", "1") + TarEndText());
  const std::string in_memory = ScanError();
  EXPECT_THAT(in_memory, HasSubstr("duplicate key '17': a sample at offset 17408"));
  for (const std::uint64_t table_bytes : {0U, 24U, 240U, 6000U}) {
    scratch_ = {.directory = std::filesystem::temp_directory_path().string(),
                .table_bytes = table_bytes};
    EXPECT_EQ(ScanError(), in_memory) << table_bytes;
  }
}

}  // namespace
}  // namespace forebay::catalog
