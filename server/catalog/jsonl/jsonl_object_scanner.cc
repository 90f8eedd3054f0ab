// The driver of format jsonl and its ObjectScanner: every line of a file is a sample. LineScanner
// finds the lines; they wait until the next one does not fit, then they become an extent. An extent
// begins with the first byte of its first sample and ends with the last byte of its last one, so
// line ends and lines that are no samples may lie between extents.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/jsonl/line_scanner.h"
#include "server/catalog/sample_records.h"

namespace forebay::catalog {
namespace {

// A lower estimate of a line's length, for FormatDriver::scanned_sample_bytes. It plans
// memory only: a data set with shorter lines is staged too.
constexpr std::uint64_t kLineBytesExpected = 64;

constexpr auto kJsonLinesKeys = std::to_array<FormatKey>({
    {.name = "files",
     .default_text = "(found)",
     .help = "list of paths of files beneath the root; with it, the key format must be set",
     .check = CheckBy<&ParsePaths>,
     .identify = IdentifyPaths},
});

// See ObjectScanner for the calls and their order.
class JsonLinesObjectScanner final : public ObjectScanner {
 public:
  // A line that does not fit in an extent is refused by the line scanner while it is fed, so memory
  // does not grow with its length.
  JsonLinesObjectScanner(const ScanPlan& plan, CatalogPart& part)
      : extent_bytes_(plan.extent_bytes),
        part_(part),
        scanner_({.path = part.object().path,
                  .bytes = part.object().bytes,
                  .line_bytes_max = plan.extent_bytes},
                 [this](const TextLine& line) { return OnLine(line); }) {}

  Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) override;
  std::uint64_t NeededFrom() const override;
  Status End(std::vector<CutExtent>& cut) override;

 private:
  Status OnLine(const TextLine& line);
  Status CutExtentOfWaiting();

  const std::uint64_t extent_bytes_;
  CatalogPart& part_;
  LineScanner scanner_;
  std::vector<CutExtent>* cut_ = nullptr;  // the argument of the call in progress
  std::vector<TextLine> waiting_;          // lines of the next extent; together they fit in it
};

Status JsonLinesObjectScanner::Feed(std::span<const std::byte> bytes,
                                    std::vector<CutExtent>& cut) {
  cut_ = &cut;
  FOREBAY_TRY(scanner_.Feed(bytes));
  // No later line fits into the extent. Cutting it now lets the caller drop its bytes, even while a
  // long run of blank lines passes by.
  if (waiting_.empty() ||
      scanner_.next_line_offset() - waiting_.front().offset < extent_bytes_) {
    return {};
  }
  return CutExtentOfWaiting();
}

std::uint64_t JsonLinesObjectScanner::NeededFrom() const {
  // The first waiting line begins the next extent. If none waits, only the line that is being fed
  // is needed.
  return waiting_.empty() ? scanner_.next_line_offset() : waiting_.front().offset;
}

Status JsonLinesObjectScanner::End(std::vector<CutExtent>& cut) {
  cut_ = &cut;
  // An extent is a range of one object, so the waiting lines are cut even if more would fit.
  FOREBAY_TRY(scanner_.End());
  return waiting_.empty() ? Status() : CutExtentOfWaiting();
}

// Called by the scanner for every line that is a sample.
Status JsonLinesObjectScanner::OnLine(const TextLine& line) {
  // The first line always joins: it is no longer than an extent.
  if (!waiting_.empty() &&
      (line.offset + line.bytes - waiting_.front().offset > extent_bytes_ ||
       waiting_.size() == limits::kSamplesPerExtentMax)) {
    FOREBAY_TRY(CutExtentOfWaiting());
  }
  waiting_.push_back(line);
  return {};
}

// Makes an extent of the lines that wait.
Status JsonLinesObjectScanner::CutExtentOfWaiting() {
  // Offsets within an extent have 32 bits; OnLine has kept the extent below that.
  const std::uint64_t begin = waiting_.front().offset;
  std::vector<Range> pieces;
  pieces.reserve(waiting_.size());
  FOREBAY_ASSIGN(const std::uint8_t text, part_.FieldNumber("text", begin));
  // One record for all lines, so that its memory is reused.
  SampleRecord record{.key = "", .fields = {{}}};
  for (const TextLine& line : waiting_) {
    record.key = part_.object().path + ":" + std::to_string(line.number);
    record.fields.front() = {.field = text, .offset = line.offset, .length = line.bytes};
    FOREBAY_TRY(part_.AddSample(record, begin));
    pieces.push_back({.extent = {},
                      .offset = static_cast<std::uint32_t>(line.offset - begin),
                      .length = line.bytes});
  }
  PartExtent row;
  row.object_offset = begin;
  row.sample_count = static_cast<std::uint32_t>(waiting_.size());
  row.starting_count = row.sample_count;
  row.bytes = static_cast<std::uint32_t>(waiting_.back().offset + waiting_.back().bytes - begin);
  waiting_.clear();
  return part_.AddExtent(row, std::move(pieces), *cut_);
}

bool IsJsonLinesName(std::string_view name) { return name.ends_with(".jsonl"); }

// Lists the files that the configuration names, or else those at the top of the root.
Result<std::vector<std::string>> ListFiles(const ScanContext& context) {
  FOREBAY_ASSIGN(std::vector<std::string> paths,
                 SettingOf<&ParsePaths>(context.source, "files", std::vector<std::string>()));
  if (paths.empty()) {
    FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, context.root.List(""));
    FOREBAY_ASSIGN(paths, FilesNamedLike(top, IsJsonLinesName));
  }
  std::set<std::string_view> seen;
  for (const std::string& path : paths) {
    // A key (`path:line`) tells where a sample comes from, so no two samples may have the same key.
    if (seen.insert(path).second) continue;
    return KeyError("files", "data set " + Quoted(context.source.name) + " names " +
                                 Quoted(path) + " twice");
  }
  if (!paths.empty()) return paths;
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(context.source.name) +
                   " has no *.jsonl files at the top of its root; name them in its key 'files'");
}

Result<ScanPlan> ScanJsonLines(const ScanContext& context) {
  FOREBAY_ASSIGN(const std::vector<std::string> paths, ListFiles(context));
  FOREBAY_ASSIGN(std::vector<PlannedObject> objects, PlanObjects(context.root, paths));
  // The objects keep the order of `paths`: the order of the key `files` decides the numbers of
  // samples.
  return ScanPlan{.name = context.source.name,
                  .format = Format::kJsonLines,
                  .extent_bytes = context.source.extent_bytes,
                  .objects = std::move(objects),
                  .scratch = context.scratch,
                  .make_scanner = [](const ScanPlan& plan, CatalogPart& part)
                      -> std::unique_ptr<ObjectScanner> {
                    return std::make_unique<JsonLinesObjectScanner>(plan, part);
                  }};
}

// Many image folders and sets of archives have a *.jsonl file with metadata beside them. So the
// format is detected only if nothing but *.jsonl files (and hidden names) lies at the top.
Result<bool> HoldsOnlyJsonLines(std::span<const io::DirectoryEntry> top) {
  FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(top, IsJsonLinesName));
  const auto visible = std::ranges::count_if(
      top, [](const io::DirectoryEntry& entry) { return !entry.name.starts_with('.'); });
  return !names.empty() && static_cast<std::size_t>(visible) == names.size();
}

}  // namespace

constinit const FormatDriver kJsonLinesDriver = {
    .format = Format::kJsonLines,
    .name = "jsonl",
    .detected_by = "*.jsonl alone",
    .keys = kJsonLinesKeys,
    .detect = HoldsOnlyJsonLines,
    .scan = ScanJsonLines,
    .scanned_sample_bytes = kLineBytesExpected,
};

}  // namespace forebay::catalog
