// Turns the extents and samples of a scan into a catalog image with one part, whose samples are
// listed in pages (PartKind::kMembers). The width of a page's entries depends on the number of
// fields, so the pages are written when the whole data set has been seen.
#include "server/catalog/scan_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "proto/contract/limits.h"
#include "server/catalog/input_error.h"
#include "server/catalog/storage/catalog_image.h"
#include "server/catalog/storage/catalog_writer.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

Status ScanTables::AddExtent(ExtentRow row, std::string_view path, std::vector<Range> pieces,
                             std::vector<ScanBuilder::CutExtent>& cut) {
  if (extents_.size() >= limits::kExtentCountMax) {
    return InputError(ErrorCode::kResourceExhausted, path, row.object_offset,
                      "more than " + std::to_string(limits::kExtentCountMax) +
                          " extents (kExtentCountMax): raise the data set's key 'extent'");
  }
  // An extent in which no sample begins continues the last sample of the extent before it.
  row.first_sample = row.continues() ? sample_count_ - 1 : sample_count_;
  sample_count_ += row.starting_count;
  ScanBuilder::CutExtent added;
  added.extent = ExtentId(static_cast<std::uint32_t>(extents_.size()));
  added.info.first_object = ObjectId(row.first_object);
  added.info.object_offset = row.object_offset;
  added.info.bytes = row.bytes;
  added.info.first_sample = SampleId(row.first_sample);
  added.info.sample_count = row.sample_count;
  added.pieces = std::move(pieces);
  for (Range& piece : added.pieces) piece.extent = added.extent;
  extents_.push_back(row);
  cut.push_back(std::move(added));
  return {};
}

Result<std::shared_ptr<const Catalog>> ScanTables::Write(const Subject& subject) const {
  TableSpool sink(scratch_);
  CatalogWriter writer(sink, subject.name, subject.format, scratch_);
  for (const ScanBuilder::PlannedObject& object : subject.objects) {
    FOREBAY_TRY(writer.AddObject(object.path, object.bytes, object.mtime_ns));
  }
  // Fields are sorted by name, so that their numbers do not depend on the order in which the
  // samples of the first archive happen to list them.
  std::vector<std::size_t> sorted(subject.fields.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::ranges::sort(sorted, {}, [&](std::size_t field) { return subject.fields[field]; });
  std::vector<FieldPlan> plans;
  std::vector<std::size_t> final_numbers(subject.fields.size());
  for (const std::size_t field : sorted) {
    final_numbers[field] = plans.size();
    plans.emplace_back().spec.name = subject.fields[field];
  }
  const auto entry_bytes = static_cast<std::uint32_t>(plans.size() * kMemberFieldBytes);
  FOREBAY_TRY(writer.BeginPart(PartKind::kMembers, entry_bytes));
  // The image is laid out in one forward pass: the pages of each extent, then all tables.
  SampleRecords::Reader reader(records_);
  for (const ExtentRow& row : extents_) {
    FOREBAY_ASSIGN(const SamplePages pages, reader.ReadPages(row.starting_count, final_numbers));
    FOREBAY_TRY(writer.AddExtent(row, pages.entries, pages.keys));
  }
  FOREBAY_TRY(writer.Finish(sample_count_, plans));
  FOREBAY_ASSIGN(ImageBytes image, sink.Release());
  // Opening runs the checks of a stored image, so a builder's mistake fails here and is never
  // saved.
  return OpenImage(std::move(image));
}

}  // namespace forebay::catalog
