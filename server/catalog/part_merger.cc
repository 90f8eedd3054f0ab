// Turns the extents and samples of all objects into a catalog image with one part, whose samples
// are listed in pages (PartKind::kMembers). The width of a page's entries depends on the number of
// fields, so the pages are written when the whole data set has been seen. All parts share one table
// of samples, so that memory does not grow with the number of objects.
#include "server/catalog/part_merger.h"

#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/catalog/storage/catalog_format.h"
#include "server/catalog/storage/catalog_image.h"
#include "server/catalog/storage/catalog_writer.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

PartMerger::PartMerger(const ScanPlan& plan)
    : plan_(plan),
      entries_(plan.objects.size()),
      records_(plan.scratch),
      missing_(plan.objects.size()) {}

Status PartMerger::Add(ObjectId object, const CatalogPart& part) {
  Entry& entry = entries_[object.value()];
  FOREBAY_CHECK(!entry.is_there);
  entry.fields.assign(part.fields().begin(), part.fields().end());
  entry.extents.assign(part.extents().begin(), part.extents().end());
  FOREBAY_ASSIGN(entry.records, records_.AppendAll(part.samples()));
  entry.is_there = true;
  --missing_;
  return CheckLimits();
}

// Counts in the order of objects, and as soon as possible: the error does not depend on the order
// in which parts come, and a long scan ends early.
Status PartMerger::CheckLimits() {
  for (; checked_ < entries_.size() && entries_[checked_].is_there; ++checked_) {
    const std::string& path = plan_.objects[checked_].path;
    for (const PartField& field : entries_[checked_].fields) {
      fields_.insert(field.name);
      if (fields_.size() > limits::kFieldCountMax) return TooManyFields(path, field);
    }
    const std::vector<PartExtent>& extents = entries_[checked_].extents;
    const std::uint64_t left = limits::kExtentCountMax - extent_count_;
    if (extents.size() > left) return TooManyExtents(path, extents[left].object_offset);
    extent_count_ += extents.size();
  }
  return {};
}

Status PartMerger::Encode(ObjectId object, ImageSink& sink) const {
  const Entry& entry = entries_[object.value()];
  FOREBAY_CHECK(entry.is_there);
  return EncodePart({.format = plan_.format,
                     .object = plan_.objects[object.value()],
                     .fields = entry.fields,
                     .extents = entry.extents,
                     .samples = records_,
                     .records = entry.records},
                    sink);
}

Result<std::shared_ptr<const Catalog>> PartMerger::Write() const {
  FOREBAY_CHECK(missing_ == 0);
  TableSpool sink(plan_.scratch);
  CatalogWriter writer(sink, plan_.name, plan_.format, plan_.scratch);
  for (const PlannedObject& object : plan_.objects) {
    FOREBAY_TRY(writer.AddObject(object.path, object.bytes, object.mtime_ns));
  }
  // Fields are sorted by name, so that their numbers do not depend on the order in which the
  // samples of the first archive happen to list them.
  std::vector<FieldPlan> plans;
  for (const std::string& field : fields_) plans.emplace_back().spec.name = field;
  const auto entry_bytes = static_cast<std::uint32_t>(plans.size() * kMemberFieldBytes);
  FOREBAY_TRY(writer.BeginPart(PartKind::kMembers, entry_bytes));
  // The image is laid out in one forward pass: the pages of each extent, then all tables.
  std::uint64_t sample_count = 0;
  for (std::uint32_t object = 0; object < entries_.size(); ++object) {
    const Entry& entry = entries_[object];
    std::vector<std::size_t> final_numbers;
    for (const PartField& field : entry.fields) {
      final_numbers.push_back(static_cast<std::size_t>(
          std::distance(fields_.begin(), fields_.find(field.name))));
    }
    SampleRecords::Reader reader(records_, entry.records);
    for (const PartExtent& extent : entry.extents) {
      ExtentRow row;
      row.first_object = object;
      row.object_offset = extent.object_offset;
      row.bytes = extent.bytes;
      row.sample_count = extent.sample_count;
      row.starting_count = extent.starting_count;
      // An extent in which no sample begins continues the last sample of the extent before it.
      row.first_sample = extent.continues() ? sample_count - 1 : sample_count;
      sample_count += extent.starting_count;
      FOREBAY_ASSIGN(const SamplePages pages,
                     reader.ReadPages(extent.starting_count, final_numbers, plans.size()));
      FOREBAY_TRY(writer.AddExtent(row, pages.entries, pages.keys));
    }
  }
  FOREBAY_TRY(writer.Finish(sample_count, plans));
  FOREBAY_ASSIGN(ImageBytes image, sink.Release());
  // Opening runs the checks of a stored image, so a mistake of a scanner fails here and is never
  // saved.
  return OpenImage(std::move(image));
}

}  // namespace forebay::catalog
