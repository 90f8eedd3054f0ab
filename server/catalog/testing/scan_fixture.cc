// Feeds files to a ScanBuilder in pieces and keeps what it cuts, as the stager does.
#include "server/catalog/testing/scan_fixture.h"

#include <algorithm>

namespace forebay::catalog {

Result<io::FileInfo> ArchivesBySize::Stat(std::string_view path) {
  const std::size_t index = std::stoul(std::string(path));
  return io::FileInfo{.bytes = bytes_.at(index), .mtime_ns = 0, .is_regular = true};
}

Result<std::vector<io::DirectoryEntry>> ArchivesBySize::List(std::string_view) {
  std::vector<io::DirectoryEntry> entries;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    const std::string number = std::to_string(i);
    entries.push_back({.name = std::string(5 - number.size(), '0') + number + ".tar",
                       .is_regular = true});
  }
  return entries;
}

Result<std::shared_ptr<const Catalog>> ScanFixture::Scan(std::size_t feed_bytes) {
  cuts_.clear();
  held_bytes_max_ = 0;
  DatasetSource source = source_;
  source.format = source_.format.value_or(Format::kTar);
  FOREBAY_ASSIGN(const std::unique_ptr<ScanBuilder> builder,
                 CreateScanBuilder(*root_, source, scratch_));
  std::uint32_t number = 0;
  for (const PlannedObject& object : builder->objects()) {
    const std::vector<std::byte> bytes = TextBytes(FileText(object.path));
    std::uint64_t needed_from = 0;
    for (std::size_t at = 0; at < bytes.size(); at += feed_bytes) {
      const std::size_t count = std::min(feed_bytes, bytes.size() - at);
      const std::size_t cut_before = cuts_.size();
      FOREBAY_TRY(builder->Feed(std::span(bytes).subspan(at, count), cuts_));
      ExpectFed(cut_before, number, at + count);
      ExpectNeeded(cut_before, needed_from);
      needed_from = builder->NeededFrom();
      held_bytes_max_ =
          std::max(held_bytes_max_, at + count - std::min(at + count, needed_from));
    }
    const std::size_t cut_before = cuts_.size();
    FOREBAY_TRY(builder->EndObject(cuts_));
    ExpectNeeded(cut_before, needed_from);
    ++number;
  }
  return builder->Finish();
}

std::string ScanFixture::ScanError(std::size_t feed_bytes) {
  const auto scanned = Scan(feed_bytes);
  EXPECT_FALSE(scanned.has_value());
  return scanned.has_value() ? "" : scanned.error().ToString();
}

std::string ScanFixture::ScanErrorOf(const std::string& text, const std::string& file) {
  AddFile(file, text);
  // Two feeding sizes must agree: an error may not depend on how the bytes arrive.
  const std::string whole = ScanError();
  EXPECT_EQ(ScanError(7), whole);
  return whole;
}

void ScanFixture::ExpectFed(std::size_t first, std::uint32_t object,
                               std::uint64_t fed_bytes) const {
  for (std::size_t i = first; i < cuts_.size(); ++i) {
    EXPECT_EQ(cuts_[i].info.first_object.value(), object);
    EXPECT_LE(cuts_[i].info.object_offset + cuts_[i].info.bytes, fed_bytes);
  }
}

void ScanFixture::ExpectNeeded(std::size_t first, std::uint64_t needed_from) const {
  for (std::size_t i = first; i < cuts_.size(); ++i) {
    EXPECT_GE(cuts_[i].info.object_offset, needed_from) << "extent " << i << " was let go";
  }
}

void ScanFixture::ExpectCutsMatch(const Catalog& catalog) const {
  ASSERT_EQ(cuts_.size(), catalog.extent_count());
  for (std::uint32_t i = 0; i < cuts_.size(); ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    const ExtentInfo& cut = cuts_[i].info;
    EXPECT_EQ(cuts_[i].number, ExtentId(i));
    EXPECT_EQ(cut.part, info.part);
    EXPECT_EQ(cut.first_object, info.first_object);
    EXPECT_EQ(cut.object_count, info.object_count);
    EXPECT_EQ(cut.object_offset, info.object_offset);
    EXPECT_EQ(cut.bytes, info.bytes);
    EXPECT_EQ(cut.first_sample, info.first_sample);
    EXPECT_EQ(cut.sample_count, info.sample_count);
    std::vector<Range> pieces;
    ASSERT_TRUE(catalog.Pieces(ExtentId(i), pieces).has_value());
    ASSERT_EQ(cuts_[i].pieces.size(), pieces.size());
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      EXPECT_EQ(cuts_[i].pieces[k].extent, pieces[k].extent);
      EXPECT_EQ(cuts_[i].pieces[k].offset, pieces[k].offset);
      EXPECT_EQ(cuts_[i].pieces[k].length, pieces[k].length) << "extent " << i;
    }
  }
}

}  // namespace forebay::catalog
