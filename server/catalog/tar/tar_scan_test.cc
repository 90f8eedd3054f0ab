// Catalogs of tar shards: grouping, extents, and agreement with libarchive.
#include <archive.h>
#include <archive_entry.h>

#include <gmock/gmock.h>

#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Members = std::vector<std::pair<std::string, std::string>>;  // path, data

// Samples as WebDataset's readers see them, by key.
using Samples = std::vector<std::pair<std::string, std::map<std::string, std::string>>>;

Samples GroupMembers(const Members& members) {
  Samples samples;
  for (const auto& [path, data] : members) {
    const std::size_t dot = path.find('.', path.rfind('/') + 1);
    if (dot == std::string::npos) continue;
    const std::string key = path.substr(0, dot);
    if (samples.empty() || samples.back().first != key) samples.push_back({key, {}});
    samples.back().second[path.substr(dot + 1)] = data;
  }
  return samples;
}

// The archive that libarchive writes of `members`, in one of its formats.
std::string LibarchiveText(const Members& members, int format) {
  std::vector<char> buffer(64 << 20);
  std::size_t used = 0;
  archive* writer = archive_write_new();
  archive_write_set_format(writer, format);
  archive_write_open_memory(writer, buffer.data(), buffer.size(), &used);
  for (const auto& [path, data] : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, path.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(data.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    EXPECT_EQ(archive_write_header(writer, entry), ARCHIVE_OK) << archive_error_string(writer);
    archive_write_data(writer, data.data(), data.size());
    archive_entry_free(entry);
  }
  EXPECT_EQ(archive_write_close(writer), ARCHIVE_OK);
  archive_write_free(writer);
  return {buffer.data(), used};
}

// The regular members that libarchive reads from an archive.
Members LibarchiveMembers(const std::string& text) {
  Members members;
  archive* reader = archive_read_new();
  archive_read_support_format_tar(reader);
  archive_read_open_memory(reader, text.data(), text.size());
  archive_entry* entry = nullptr;
  while (archive_read_next_header(reader, &entry) == ARCHIVE_OK) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    std::string data(static_cast<std::size_t>(archive_entry_size(entry)), '\0');
    EXPECT_EQ(archive_read_data(reader, data.data(), data.size()),
              static_cast<la_ssize_t>(data.size()));
    members.emplace_back(archive_entry_pathname(entry), std::move(data));
  }
  archive_read_free(reader);
  return members;
}

class TarScanTest : public ScanFixture {
 protected:
  void ExpectSamples(const Catalog& catalog, const Samples& samples) {
    ASSERT_EQ(catalog.sample_count(), samples.size());
    for (std::uint64_t s = 0; s < samples.size(); ++s) {
      EXPECT_EQ(catalog.SampleKey(SampleId(s)).value(), samples[s].first);
      for (std::uint32_t f = 0; f < catalog.fields().size(); ++f) {
        const auto field = samples[s].second.find(catalog.fields()[f].name);
        EXPECT_EQ(FieldText(catalog, SampleId(s), FieldId(f)),
                  field == samples[s].second.end() ? "(absent)" : field->second);
      }
    }
  }

  // Scans `text` at several extent and feeding sizes, each of which must give `samples`.
  void ExpectScans(const std::string& text, const Samples& samples) {
    AddFile("a.tar", text);
    for (const std::uint64_t extent_bytes : {1024U, 1536U, 4096U, 20000U, 1U << 20}) {
      source_.extent_bytes = extent_bytes;
      for (const std::size_t feed_bytes : {13U, 512U, 4096U, 1U << 22}) {
        const auto catalog = Scan(feed_bytes);
        ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
        ExpectSamples(**catalog, samples);
        ExpectConsistent(**catalog);
        ExpectCutsMatch(**catalog);
      }
    }
  }
};

Members PairMembers(std::size_t count, std::size_t size_max) {
  Members members;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string key = "dir/" + std::to_string(100000 + i);
    members.emplace_back(key + ".jpg", PatternText((i * 7919) % (size_max + 1), i));
    if (i % 3 != 0) members.emplace_back(key + ".cls", std::to_string(i % 10));
  }
  return members;
}

TEST_F(TarScanTest, GroupsMembersIntoSamples) {
  AddFile("shard-0.tar", TarFileText("a/1.jpg", "one") + TarFileText("a/1.cls", "7") +
                             TarFileText("a/2.jpg", "two") + TarEndText());
  AddFile("shard-1.tar", TarFileText("b/1.seg.png", "seg") + TarFileText("b/1.JPG", "b-one") +
                             TarEndText());
  const auto catalog = Scan();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->format(), Format::kTar);
  EXPECT_EQ((*catalog)->object_count(), 2U);
  std::vector<std::string> names;
  for (const FieldSpec& field : (*catalog)->fields()) names.push_back(field.name);
  EXPECT_THAT(names, ElementsAre("cls", "jpg", "seg.png"));
  ExpectSamples(**catalog, {{"a/1", {{"jpg", "one"}, {"cls", "7"}}},
                            {"a/2", {{"jpg", "two"}}},
                            {"b/1", {{"seg.png", "seg"}, {"jpg", "b-one"}}}});
  ExpectConsistent(**catalog);
  ExpectCutsMatch(**catalog);
}

TEST_F(TarScanTest, AgreesWithLibarchiveOnEveryFormatItWrites) {
  Members members = PairMembers(60, 3000);
  for (const int format : {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FORMAT_TAR_GNUTAR,
                           ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED}) {
    SCOPED_TRACE(format);
    const std::string text = LibarchiveText(members, format);
    EXPECT_EQ(LibarchiveMembers(text), members);
    ExpectScans(text, GroupMembers(members));
  }
}

TEST_F(TarScanTest, AgreesWithLibarchiveOnLongNames) {
  Members members;
  for (std::size_t length = 90; length < 290; length += 9) {
    members.emplace_back("d/" + std::string(length, 'n') + std::to_string(length) + ".jpg",
                         PatternText(length, length));
  }
  for (const int format : {ARCHIVE_FORMAT_TAR_GNUTAR, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE}) {
    const std::string text = LibarchiveText(members, format);
    ExpectScans(text, GroupMembers(LibarchiveMembers(text)));
  }
}

TEST_F(TarScanTest, SpansExtentsWithLargeSamples) {
  Members members = PairMembers(3, 500);
  for (const std::size_t size : {511U, 512U, 513U, 1024U, 1535U, 1536U, 1537U, 4096U, 30000U}) {
    const std::string key = "big/" + std::to_string(size);
    members.emplace_back(key + ".a", PatternText(40, size));
    members.emplace_back(key + ".jpg", PatternText(size, size));
    members.emplace_back(key + ".z", "");
    members.emplace_back(key + "small.jpg", "small");
  }
  const std::string text = LibarchiveText(members, ARCHIVE_FORMAT_TAR_USTAR);
  ExpectScans(text, GroupMembers(members));
}

TEST_F(TarScanTest, CutsSpanningSamplesWhileTheyPassBy) {
  AddFile("a.tar", TarFileText("1.jpg", PatternText(100000, 1)) + TarEndText());
  source_.extent_bytes = 4096;
  const auto builder = CreateScanBuilder(*root_, source_);
  ASSERT_TRUE(builder.has_value());
  const std::vector<std::byte> bytes = TextBytes(FileText("a.tar"));
  std::vector<CutExtent> cut;
  ASSERT_TRUE((*builder)->Feed(std::span(bytes).first(50000), cut).has_value());
  EXPECT_EQ(cut.size(), 12U) << "every whole extent that was fed";
}

TEST_F(TarScanTest, PartitionsEveryArchiveIntoExtents) {
  AddFile("a.tar", LibarchiveText(PairMembers(100, 900), ARCHIVE_FORMAT_TAR_USTAR));
  AddFile("b.tar", LibarchiveText(PairMembers(50, 5000), ARCHIVE_FORMAT_TAR_USTAR));
  source_.extent_bytes = 64 * 1024;
  const auto catalog = Scan();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->total_bytes(), FileText("a.tar").size() + FileText("b.tar").size());
  std::map<std::uint32_t, std::uint64_t> next_offset;
  for (std::uint32_t i = 0; i < (*catalog)->extent_count(); ++i) {
    const ExtentInfo info = (*catalog)->extent(ExtentId(i));
    EXPECT_EQ(info.object_offset, next_offset[info.first_object.value()]);
    next_offset[info.first_object.value()] += info.bytes;
  }
}

TEST_F(TarScanTest, SkipsWhatIsNoSample) {
  const std::string text =
      TarMemberText({.path = "d/", .data = "", .type = '5'}) + TarFileText("README", "x") +
      TarFileText("d/.hidden", "x") + TarFileText("d/dot.", "x") +
      TarMemberText({.path = "d/link", .data = "", .type = '2'}) +
      TarFileText("./d/1.jpg", "one") +
      TarMemberText({.path = "d/hard", .data = "", .type = '1'}) +
      TarFileText("d//./1.cls", "1") + TarMemberText({.path = "vol", .data = "", .type = 'V'}) +
      TarMemberText({.path = "old.dir/", .data = "", .has_magic = false}) + TarEndText();
  ExpectScans(text, {{"d/1", {{"jpg", "one"}, {"cls", "1"}}}});
}

TEST_F(TarScanTest, DropsGapsThatDoNotFitAnExtent) {
  const std::string text =
      TarFileText("0.jpg", "zero") + TarFileText("skipped", PatternText(50000, 1)) +
      TarFileText("1.jpg", "one") + TarFileText("skipped2", PatternText(50000, 2)) +
      TarFileText("1.cls", "1") + TarFileText("2.jpg", PatternText(3000, 3)) +
      TarFileText("skipped3", PatternText(50000, 4)) + TarEndText();
  ExpectScans(text, {{"0", {{"jpg", "zero"}}},
                     {"1", {{"jpg", "one"}, {"cls", "1"}}},
                     {"2", {{"jpg", PatternText(3000, 3)}}}});
}

TEST_F(TarScanTest, ReadsOldAndExtendedHeaders) {
  const std::string long_path = std::string(150, 'p') + "/" + std::string(90, 'n') + ".jpg";
  std::string base256(12, '\0');
  base256[0] = '\x80';
  base256[11] = 5;
  const std::string text =
      TarMemberText({.path = "v7.jpg", .data = "v7", .type = '\0', .has_magic = false}) +
      TarMemberText({.path = std::string(90, 'n') + ".jpg",
                     .data = "prefixed",
                     .prefix = std::string(150, 'p')}) +
      TarMemberText({.path = "big.jpg", .data = "5byte", .size_field = base256}) +
      TarMemberText({.path = "sp.jpg", .data = "7", .size_field = "         1 \0"}) +
      GnuLongNameText(std::string(300, 'g') + "/1.jpg") + TarFileText("short.jpg", "gnu") +
      PaxHeaderText(PaxRecordText("mtime", "1.5") + PaxRecordText("path", "pax/1.jpg")) +
      TarFileText("short.jpg", "pax") + PaxHeaderText(PaxRecordText("size", "3")) +
      TarMemberText({.path = "sized.jpg", .data = "sized", .size_field = "00000000000\0"}) +
      PaxHeaderText(PaxRecordText("comment", "git"), 'g') +
      TarMemberText({.path = "7.jpg", .data = "seven", .type = '7'}) + TarEndText();
  ExpectScans(text, {{"v7", {{"jpg", "v7"}}},
                     {long_path.substr(0, long_path.size() - 4), {{"jpg", "prefixed"}}},
                     {"big", {{"jpg", "5byte"}}},
                     {"sp", {{"jpg", "7"}}},
                     {std::string(300, 'g') + "/1", {{"jpg", "gnu"}}},
                     {"pax/1", {{"jpg", "pax"}}},
                     {"sized", {{"jpg", "siz"}}},
                     {"7", {{"jpg", "seven"}}}});
}

TEST_F(TarScanTest, AllowsTheSameKeyInAnotherArchive) {
  AddFile("a.tar", TarFileText("1.jpg", "a") + TarEndText());
  AddFile("b.tar", TarFileText("1.jpg", "b") + TarEndText());
  AddFile("c.tar", TarEndText());
  const auto catalog = Scan();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->sample_count(), 2U);
  EXPECT_EQ((*catalog)->object_count(), 3U);
}

TEST_F(TarScanTest, NeedsEightBytesPerFieldBesidesNames) {
  Members members;
  std::uint64_t key_bytes = 0;
  for (std::size_t i = 0; i < 20000; ++i) {
    const std::string key = std::to_string(i);
    key_bytes += key.size();
    members.emplace_back(key + ".jpg", "x");
    members.emplace_back(key + ".cls", "1");
  }
  AddFile("a.tar", LibarchiveText(members, ARCHIVE_FORMAT_TAR_USTAR));
  const auto catalog = Scan();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  const double per_sample =
      static_cast<double>((*catalog)->image().size() - key_bytes) / 20000.0;
  std::printf("tar, 2 fields: %.2f bytes per sample besides names\n", per_sample);
  EXPECT_LE(per_sample, 24.0);
}

}  // namespace
}  // namespace forebay::catalog
