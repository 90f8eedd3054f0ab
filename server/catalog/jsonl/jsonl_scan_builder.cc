// The driver of format jsonl and its ScanBuilder: every line of a file is a sample. LineScanner
// finds the lines; they wait until the next one does not fit, then they become an extent. An extent
// begins with the first byte of its first sample and ends with the last byte of its last one, so
// line ends and lines that are no samples may lie between extents.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/jsonl/line_scanner.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/scan_tables.h"

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

// See ScanBuilder for the calls and their order.
class JsonLinesScanBuilder final : public ScanBuilder {
 public:
  JsonLinesScanBuilder(std::string name, std::uint64_t extent_bytes,
                       std::vector<PlannedObject> objects, const BuildScratch& scratch)
      : name_(std::move(name)),
        extent_bytes_(extent_bytes),
        objects_(std::move(objects)),
        tables_(scratch) {
    BeginObject();
  }

  const std::vector<PlannedObject>& objects() const override { return objects_; }
  Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) override;
  std::uint64_t NeededFrom() const override;
  Status EndObject(std::vector<CutExtent>& cut) override;
  Result<std::shared_ptr<const Catalog>> Finish() override;

 private:
  void BeginObject();
  const PlannedObject& object() const { return objects_[object_]; }
  Status Remember(Status status);
  Status OnLine(const TextLine& line);
  Status CutExtentOfWaiting();

  const std::string name_;
  const std::uint64_t extent_bytes_;
  const std::vector<PlannedObject> objects_;
  std::size_t object_ = 0;
  std::optional<LineScanner> scanner_;     // of the current object; unset after the last one
  std::optional<Error> failure_;           // the first error
  std::vector<CutExtent>* cut_ = nullptr;  // the argument of the call in progress
  std::vector<TextLine> waiting_;          // lines of the next extent; together they fit in it
  ScanTables tables_;
};

// Lines do not cross files, so every file gets a scanner of its own.
void JsonLinesScanBuilder::BeginObject() {
  scanner_.reset();
  if (object_ == objects_.size()) return;
  // A line that does not fit in an extent is refused by the scanner while it is fed, so memory does
  // not grow with its length.
  scanner_.emplace(LineScanner::File{.path = object().path,
                                     .bytes = object().bytes,
                                     .line_bytes_max = extent_bytes_},
                   [this](const TextLine& line) { return OnLine(line); });
}

// Ends a call: keeps its error, because a builder that has failed keeps failing with its first
// error.
Status JsonLinesScanBuilder::Remember(Status status) {
  cut_ = nullptr;
  if (!status.has_value()) failure_ = status.error();
  return status;
}

Status JsonLinesScanBuilder::Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) {
  // After an error the scanner's state fits no offset any more, so it sees no further bytes.
  if (failure_.has_value()) return *failure_;
  if (!scanner_.has_value()) {
    return Error(ErrorCode::kFailedPrecondition, "every planned object has been fed");
  }
  cut_ = &cut;
  Status fed = scanner_->Feed(bytes);
  // No later line fits into the extent. Cutting it now lets the caller drop its bytes, even while a
  // long run of blank lines passes by.
  if (fed.has_value() && !waiting_.empty() &&
      scanner_->next_line_offset() - waiting_.front().offset >= extent_bytes_) {
    fed = CutExtentOfWaiting();
  }
  return Remember(std::move(fed));
}

std::uint64_t JsonLinesScanBuilder::NeededFrom() const {
  // The first waiting line begins the next extent. If none waits, only the line that is being fed
  // is needed.
  if (!scanner_.has_value()) return 0;
  return waiting_.empty() ? scanner_->next_line_offset() : waiting_.front().offset;
}

Status JsonLinesScanBuilder::EndObject(std::vector<CutExtent>& cut) {
  if (failure_.has_value()) return *failure_;
  if (!scanner_.has_value()) {
    return Error(ErrorCode::kFailedPrecondition, "every planned object has ended");
  }
  cut_ = &cut;
  // An extent is a range of one object, so the waiting lines are cut even if more would fit.
  Status ended = scanner_->End();
  if (ended.has_value() && !waiting_.empty()) ended = CutExtentOfWaiting();
  if (ended.has_value()) {
    ++object_;
    BeginObject();
  }
  return Remember(std::move(ended));
}

// Called by the scanner for every line that is a sample.
Status JsonLinesScanBuilder::OnLine(const TextLine& line) {
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
Status JsonLinesScanBuilder::CutExtentOfWaiting() {
  // Offsets within an extent have 32 bits; OnLine has kept the extent below that.
  const std::uint64_t begin = waiting_.front().offset;
  std::vector<Range> pieces;
  pieces.reserve(waiting_.size());
  // One record for all lines, so that its memory is reused.
  SampleRecord record{.key = "", .fields = {{}}};
  for (const TextLine& line : waiting_) {
    record.key = object().path + ":" + std::to_string(line.number);
    record.fields.front() = {.field = 0, .offset = line.offset, .length = line.bytes};
    FOREBAY_TRY(tables_.AddSample(record, begin));
    pieces.push_back({.extent = {},
                      .offset = static_cast<std::uint32_t>(line.offset - begin),
                      .length = line.bytes});
  }
  ExtentRow row;
  row.first_object = static_cast<std::uint32_t>(object_);
  row.object_offset = begin;
  row.sample_count = static_cast<std::uint32_t>(waiting_.size());
  row.starting_count = row.sample_count;
  row.bytes = static_cast<std::uint32_t>(waiting_.back().offset + waiting_.back().bytes - begin);
  waiting_.clear();
  return tables_.AddExtent(row, object().path, std::move(pieces), *cut_);
}

Result<std::shared_ptr<const Catalog>> JsonLinesScanBuilder::Finish() {
  if (failure_.has_value()) return *failure_;
  if (scanner_.has_value()) {
    return Error(ErrorCode::kFailedPrecondition,
                 Quoted(object().path) + " has not been fed to its end");
  }
  // A data set without a single line that is a sample is refused by Write, like one without files.
  const std::array<std::string, 1> fields = {"text"};
  return tables_.Write(
      {.name = name_, .format = Format::kJsonLines, .objects = objects_, .fields = fields});
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

Result<std::unique_ptr<ScanBuilder>> ScanJsonLines(const ScanContext& context) {
  FOREBAY_ASSIGN(const std::vector<std::string> paths, ListFiles(context));
  FOREBAY_ASSIGN(std::vector<ScanBuilder::PlannedObject> objects,
                 PlanObjects(context.root, paths));
  // The objects keep the order of `paths`: the order of the key `files` decides the numbers of
  // samples.
  return std::make_unique<JsonLinesScanBuilder>(context.source.name, context.source.extent_bytes,
                                                std::move(objects), context.scratch);
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
