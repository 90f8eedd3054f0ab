// A catalog of very many samples: written in one pass to a file, mapped, and used; and built from
// a pass over tar headers. Prints its size on disk and in memory. FOREBAY_SCALE_SAMPLES
// sets the number of samples (default 10^7, of which 10^6 are built; the slow test sets 10^8).
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "server/catalog/catalog.h"
#include "server/catalog/storage/catalog_writer.h"
#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr std::uint32_t kSamplesPerExtent = 256;
constexpr std::uint32_t kSampleBytes = 110 * 1024;  // headers included: 27.5 MiB extents
constexpr std::uint32_t kExtentsPerObject = 40;     // tar shards of 1.1 GiB

// Streams the image to a file, so that it never lies in memory.
class FileSink final : public ImageSink {
 public:
  explicit FileSink(const std::string& path) : file_(std::fopen(path.c_str(), "w+b")) {}
  ~FileSink() override { Close(); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Status Append(std::span<const std::byte> bytes) override {
    return Checked(std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size());
  }
  Status ReplaceStart(std::span<const std::byte> bytes) override {
    if (std::fseek(file_, 0, SEEK_SET) != 0) return Checked(false);
    return Append(bytes);
  }
  void Close() {
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
  }

 private:
  static Status Checked(bool is_good) {
    if (is_good) return {};
    return Error::FromErrno(errno, "write catalog");
  }
  std::FILE* file_;
};

// Resident bytes of this process: the anonymous ones, and all.
struct Memory {
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_bytes = 0;  // resident, since the process began
};

Memory ReadMemory() {
  std::ifstream status("/proc/self/status");
  Memory memory;
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) memory.anonymous_bytes = kib * 1024;
    if (word == "VmHWM:" && status >> kib) memory.peak_bytes = kib * 1024;
    if (word == "VmRSS:" && status >> kib) memory.resident_bytes = kib * 1024;
  }
  return memory;
}

// Resets the peak, so that each test measures its own.
void ResetPeak() {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

void AppendWords(std::vector<std::byte>& bytes, std::initializer_list<std::uint32_t> words) {
  const auto raw = std::as_bytes(std::span(words.begin(), words.size()));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// The key of sample s, 12 bytes.
std::string Key(std::uint64_t sample) {
  std::string digits = std::to_string(sample);
  return "s" + std::string(11 - digits.size(), '0') + digits;
}

Status WriteCatalog(ImageSink& sink, std::uint64_t sample_count) {
  CatalogWriter writer(sink, "scale", Format::kTar);
  FOREBAY_TRY(writer.BeginPart(PartKind::kMembers, 2 * kMemberFieldBytes));
  const std::uint64_t extents = (sample_count - 1) / kSamplesPerExtent + 1;
  const std::uint64_t full_bytes = std::uint64_t{kSamplesPerExtent} * kSampleBytes;
  std::vector<std::byte> entries;
  std::vector<std::string> keys;
  for (std::uint64_t e = 0; e < extents; ++e) {
    if (e % kExtentsPerObject == 0) {
      FOREBAY_TRY(writer.AddObject("shard-" + std::to_string(e / kExtentsPerObject) + ".tar",
                                   kExtentsPerObject * full_bytes, 1));
    }
    ExtentRow row;
    row.first_object = static_cast<std::uint32_t>(e / kExtentsPerObject);
    row.object_offset = e % kExtentsPerObject * full_bytes;
    row.first_sample = e * kSamplesPerExtent;
    row.sample_count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(kSamplesPerExtent, sample_count - row.first_sample));
    row.starting_count = row.sample_count;
    row.bytes = row.sample_count * kSampleBytes;
    entries.clear();
    keys.clear();
    for (std::uint32_t i = 0; i < row.sample_count; ++i) {
      const std::uint32_t start = i * kSampleBytes;
      AppendWords(entries, {start + 512, 1, start + 1536, kSampleBytes - 2048});
      keys.push_back(Key(row.first_sample + i));
    }
    FOREBAY_TRY(writer.AddExtent(row, entries, EncodeKeyPage(keys)));
  }
  std::vector<FieldPlan> fields(2);
  fields[0].spec.name = "cls";
  fields[1].spec.name = "jpg";
  return writer.Finish(sample_count, fields);
}

class CatalogScaleTest : public ::testing::Test {
 protected:
  ~CatalogScaleTest() override { std::filesystem::remove(path_); }

  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("forebay_scale_" + std::to_string(::getpid()))).string();
};

TEST_F(CatalogScaleTest, StaysWithinAGigabyteAtAHundredMillionSamples) {
  const char* const asked = std::getenv("FOREBAY_SCALE_SAMPLES");
  const std::uint64_t sample_count = asked != nullptr ? std::strtoull(asked, nullptr, 10)
                                                      : 10'000'000;
  ASSERT_GE(sample_count, 1'000'000U);
  ResetPeak();
  const Memory before = ReadMemory();
  {
    FileSink sink(path_);
    const Status written = WriteCatalog(sink, sample_count);
    ASSERT_TRUE(written.has_value()) << written.error().ToString();
  }
  const Memory after_write = ReadMemory();
  ::malloc_trim(0);  // so that memory which the writer freed does not count
  const Memory baseline = ReadMemory();
  const auto catalog = Catalog::Load(path_);
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  const Memory opened = ReadMemory();
  std::mt19937_64 random(1);
  std::vector<FieldLocation> locations(2);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t sample = random() % sample_count;
    ASSERT_TRUE((*catalog)->samples()->Locate(SampleId(sample), locations).has_value());
    ASSERT_EQ(locations[1].range.extent.value(), sample / kSamplesPerExtent);
    ASSERT_EQ(locations[1].range.offset, sample % kSamplesPerExtent * kSampleBytes + 1536);
    if (i % 100 != 0) continue;
    ASSERT_EQ((*catalog)->SampleKey(SampleId(sample)).value(), Key(sample));
  }
  const Memory used = ReadMemory();
  const auto image_bytes = static_cast<double>((*catalog)->image().size());
  const double samples = static_cast<double>(sample_count);
  const auto mb = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  std::printf("samples %llu: image %.1f MB, %.2f bytes per sample, %.2f besides keys\n",
              static_cast<unsigned long long>(sample_count), image_bytes / 1e6,
              image_bytes / samples, image_bytes / samples - 12.0);
  std::printf("writer's peak: %.1f MB; open: %.1f MB resident beyond the baseline, of which "
              "%.1f MB anonymous; after 20,000 random samples: %.1f MB, %.1f MB anonymous\n",
              mb(after_write.peak_bytes - before.resident_bytes),
              mb(opened.resident_bytes) - mb(baseline.resident_bytes),
              mb(opened.anonymous_bytes) - mb(baseline.anonymous_bytes),
              mb(used.resident_bytes) - mb(baseline.resident_bytes),
              mb(used.anonymous_bytes) - mb(baseline.anonymous_bytes));
  // Memory and extents grow in step with samples: the bound for 10^8 scales down.
  const double share = samples / 1e8;
  EXPECT_LE(static_cast<double>(opened.resident_bytes - std::min(opened.resident_bytes,
                                                                 baseline.resident_bytes)),
            static_cast<double>(kGigabyte) * share);
  EXPECT_LE(used.resident_bytes, kGigabyte);
  EXPECT_LE(image_bytes / samples - 12.0, 24.0);
}

// Pages of 8 MiB, 320 MiB of them, as samples of many small fields have: a look-up that reads a
// whole page counts all of it. The samples are empty, so that the entries are zeros.
TEST_F(CatalogScaleTest, LargePagesStayWithinTheBoundOfResidentMemory) {
  constexpr std::uint32_t kExtents = 40;
  constexpr std::uint32_t kSamples = 16'384;  // of an extent
  constexpr std::uint32_t kFields = limits::kFieldCountMax;
  {
    FileSink sink(path_);
    CatalogWriter writer(sink, "large pages", Format::kTar);
    const auto written = [&]() -> Status {
      FOREBAY_TRY(writer.BeginPart(PartKind::kMembers, kFields * kMemberFieldBytes));
      FOREBAY_TRY(writer.AddObject("shard.tar", kExtents * 512, 1));
      const std::vector<std::byte> entries(std::size_t{kSamples} * kFields * kMemberFieldBytes);
      const std::vector<std::byte> keys = EncodeKeyPage(std::vector<std::string>(kSamples, "k"));
      for (std::uint32_t e = 0; e < kExtents; ++e) {
        ExtentRow row;
        row.object_offset = e * 512;
        row.first_sample = std::uint64_t{e} * kSamples;
        row.sample_count = kSamples;
        row.starting_count = kSamples;
        row.bytes = 512;
        FOREBAY_TRY(writer.AddExtent(row, entries, keys));
      }
      std::vector<FieldPlan> fields(kFields);
      for (std::uint32_t i = 0; i < kFields; ++i) fields[i].spec.name = "f" + std::to_string(i);
      return writer.Finish(std::uint64_t{kExtents} * kSamples, fields);
    }();
    ASSERT_TRUE(written.has_value()) << written.error().ToString();
  }
  const auto catalog = Catalog::Load(path_);
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  const auto file_bytes = [] {
    const Memory now = ReadMemory();
    return now.resident_bytes - now.anonymous_bytes;
  };
  const std::uint64_t before = file_bytes();
  std::uint64_t most = 0;
  std::vector<Range> pieces;
  for (std::uint32_t e = 0; e < kExtents; ++e) {
    pieces.clear();
    ASSERT_TRUE((*catalog)->Pieces(ExtentId(e), pieces).has_value());
    ASSERT_EQ(pieces.size(), kSamples);
    most = std::max(most, file_bytes() - before);
  }
  EXPECT_LE(most, ImageBytes::kResidentBytesMax);
}

// Feeds archives of samples with two members, "cls" and "jpg". Their data are not read.
class SyntheticShards {
 public:
  static constexpr std::uint64_t kMemberBlocks = 1 + 1 + 1 + (kSampleBytes - 2048) / 512;
  static constexpr std::uint64_t kSamplesPerShard = 2'000'000;

  explicit SyntheticShards(std::uint64_t sample_count) : sample_count_(sample_count) {
    const std::string size = OctalField(kSampleBytes - 2048);
    cls_ = TarMemberText({.path = Key(0) + ".cls", .data = "7"});
    jpg_ = TarMemberText({.path = Key(0) + ".jpg", .data = "", .size_field = size});
  }

  std::vector<std::uint64_t> ShardBytes() const {
    std::vector<std::uint64_t> bytes;
    for (std::uint64_t done = 0; done < sample_count_; done += kSamplesPerShard) {
      const std::uint64_t samples = std::min(kSamplesPerShard, sample_count_ - done);
      bytes.push_back(samples * kMemberBlocks * 512 + TarEndText().size());
    }
    return bytes;
  }

  Status Feed(ScanBuilder& builder) {
    std::vector<CutExtent> cut;
    const std::vector<std::byte> end = TextBytes(TarEndText());
    for (std::uint64_t sample = 0; sample < sample_count_;) {
      SetKey(cls_, sample);
      SetKey(jpg_, sample);
      FOREBAY_TRY(builder.Feed(std::as_bytes(std::span(cls_)), cut));
      FOREBAY_TRY(builder.Feed(std::as_bytes(std::span(jpg_)), cut));
      FOREBAY_TRY(builder.Feed(data_, cut));
      if (++sample % kSamplesPerShard == 0 || sample == sample_count_) {
        FOREBAY_TRY(builder.Feed(end, cut));
        FOREBAY_TRY(builder.EndObject(cut));
      }
      cut.clear();
    }
    return {};
  }

 private:
  static std::string OctalField(std::uint64_t value) {
    std::string field(11, '0');
    for (std::size_t i = field.size(); i > 0; --i, value /= 8) {
      field[i - 1] = static_cast<char>('0' + value % 8);
    }
    return field + " ";
  }
  static void SetKey(std::string& member, std::uint64_t sample) {
    const std::string key = Key(sample);
    std::copy(key.begin(), key.end(), member.begin());
    FixTarChecksum(member, 0);
  }

  std::uint64_t sample_count_;
  std::string cls_;
  std::string jpg_;
  const std::vector<std::byte> data_ = std::vector<std::byte>(kSampleBytes - 2048);
};

TEST(CatalogBuildScaleTest, BuildingStaysWithinAGigabyteAtAHundredMillionSamples) {
  const char* const asked = std::getenv("FOREBAY_SCALE_SAMPLES");
  const std::uint64_t sample_count = asked != nullptr ? std::strtoull(asked, nullptr, 10)
                                                      : 1'000'000;
  SyntheticShards shards(sample_count);
  ArchivesBySize root(shards.ShardBytes());
  DatasetSource source;
  source.name = "scale";
  ResetPeak();
  const Memory before = ReadMemory();
  const auto builder = CreateScanBuilder(
      root, source, {.directory = std::filesystem::temp_directory_path().string()});
  ASSERT_TRUE(builder.has_value()) << builder.error().ToString();
  const Status fed = shards.Feed(**builder);
  ASSERT_TRUE(fed.has_value()) << fed.error().ToString();
  const Memory scanned = ReadMemory();
  const auto catalog = (*builder)->Finish();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  const Memory built = ReadMemory();
  EXPECT_EQ((*catalog)->sample_count(), sample_count);
  EXPECT_EQ((*catalog)->SampleKey(SampleId(sample_count - 1)).value(), Key(sample_count - 1));
  const auto mb = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes - before.resident_bytes) / 1e6;
  };
  std::printf("samples %llu: building peaks at %.1f MB resident (%.1f MB after the last byte), "
              "%u extents, image %.1f MB\n",
              static_cast<unsigned long long>(sample_count), mb(built.peak_bytes),
              mb(scanned.resident_bytes), (*catalog)->extent_count(),
              static_cast<double>((*catalog)->image().size()) / 1e6);
  EXPECT_LE(built.peak_bytes, kGigabyte);
}

}  // namespace
}  // namespace forebay::catalog
