// The driver of format tar and its ScanBuilder: groups members into samples by WebDataset's rule
// and cuts extents at sample boundaries while the bytes pass by.
#include <algorithm>
#include <map>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/scan_tables.h"
#include "server/catalog/tar/seen_keys.h"
#include "server/catalog/tar/tar_scanner.h"

namespace forebay::catalog {
namespace {

// An archive's first header and its first data block fit in one extent.
constexpr std::uint64_t kTarExtentBytesMin = 2 * kTarBlockBytes;

// How far apart two members of one sample may lie: what lies between them is kept until it is
// known whether the sample goes on.
constexpr std::uint64_t kSampleGapBytesMax = limits::kExtentBytesMax;

// A sample whose members are still coming, or that waits for its extent to be cut. Offsets
// are within the archive.
struct OpenSample {
  SampleRecord record;
  std::uint64_t start_offset = 0;   // of its first member, extension headers included
  std::uint64_t header_offset = 0;  // of its first member's ustar header
  std::uint64_t begin = 0;          // of its first data byte
  std::uint64_t end = 0;            // after its last data byte
};

class TarScanBuilder final : public ScanBuilder {
 public:
  TarScanBuilder(std::string name, std::uint64_t extent_bytes,
                 std::vector<PlannedObject> objects, const BuildScratch& scratch)
      : name_(std::move(name)),
        extent_bytes_(extent_bytes),
        objects_(std::move(objects)),
        seen_keys_(scratch),
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
  Error Refuse(std::uint64_t offset, const std::string& reason,
               ErrorCode code = ErrorCode::kInvalidArgument) const {
    return InputError(code, object().path, offset, reason);
  }
  Status Fail(Error error);
  Status OnMember(const TarMember& member);
  Status AddMember(const TarMember& member, const std::string& field);
  Result<std::uint8_t> FieldNumber(const TarMember& member, const std::string& field);
  Status FitSample();
  Status Settle(std::uint64_t next_header_offset);
  Status CompleteSample();
  Status RecordSample(const OpenSample& sample);
  Status CutWaiting(std::uint64_t end);
  Status CutChunk(std::uint64_t end);
  Status FlushChunks();
  Status CheckKeys();

  const std::string name_;
  const std::uint64_t extent_bytes_;  // a multiple of a block
  const std::vector<PlannedObject> objects_;
  std::size_t object_ = 0;
  std::optional<TarScanner> scanner_;
  std::optional<Error> failure_;
  std::vector<CutExtent>* cut_ = nullptr;  // of the call in progress

  // Of the current archive.
  std::uint64_t extent_start_ = 0;
  std::uint64_t samples_end_ = 0;    // of the samples that wait for their extent
  std::uint64_t chunk_start_ = 0;    // of the next extent of a spanning sample
  bool is_spanning_ = false;
  std::optional<OpenSample> sample_;
  std::vector<OpenSample> waiting_;
  SeenKeys seen_keys_;

  std::map<std::string, std::uint8_t> fields_;  // by name; numbers in order of discovery
  ScanTables tables_;
};

void TarScanBuilder::BeginObject() {
  extent_start_ = 0;
  samples_end_ = 0;
  if (object_ >= objects_.size()) {
    scanner_.reset();
    return;
  }
  scanner_.emplace(TarScanner::Archive{.path = object().path, .bytes = object().bytes},
                   [this](const TarMember& member) { return OnMember(member); });
}

// Remembers the first error: a builder that failed keeps failing the same way.
Status TarScanBuilder::Fail(Error error) {
  failure_ = error;
  return error;
}

Status TarScanBuilder::Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) {
  if (failure_.has_value()) return *failure_;
  if (!scanner_.has_value()) {
    return Fail(Error(ErrorCode::kFailedPrecondition, "every planned object has been fed"));
  }
  if (bytes.size() > object().bytes - scanner_->offset()) {
    return Fail(Refuse(object().bytes, "the archive grew beyond its size of " +
                                           std::to_string(object().bytes),
                       ErrorCode::kFailedPrecondition));
  }
  cut_ = &cut;
  Status fed = scanner_->Feed(bytes);
  if (fed.has_value()) fed = FlushChunks();
  if (fed.has_value()) fed = Settle(scanner_->next_header_offset());
  cut_ = nullptr;
  return fed.has_value() ? fed : Fail(fed.error());
}

std::uint64_t TarScanBuilder::NeededFrom() const {
  if (!scanner_.has_value()) return 0;
  if (is_spanning_) return chunk_start_;
  if (sample_.has_value() || !waiting_.empty()) return extent_start_;
  // What lies between the last sample and the next one goes with the next one where it fits
  // (FitSample).
  const std::uint64_t data_offset = scanner_->next_header_offset() + kTarBlockBytes;
  if (data_offset - extent_start_ <= extent_bytes_) return extent_start_;
  const std::uint64_t member_offset = scanner_->next_member_offset();
  return data_offset - member_offset <= extent_bytes_ ? member_offset
                                                      : scanner_->next_header_offset();
}

Status TarScanBuilder::EndObject(std::vector<CutExtent>& cut) {
  if (failure_.has_value()) return *failure_;
  if (!scanner_.has_value()) {
    return Fail(Error(ErrorCode::kFailedPrecondition, "every planned object has ended"));
  }
  cut_ = &cut;
  Status ended = scanner_->End();
  if (ended.has_value()) ended = CompleteSample();
  if (ended.has_value() && !waiting_.empty()) {
    // The end marker and what is passed over after the last sample go with the last extent,
    // where they fit.
    const bool fits = object().bytes - extent_start_ <= extent_bytes_;
    ended = CutWaiting(fits ? object().bytes : samples_end_);
  }
  cut_ = nullptr;
  if (ended.has_value()) ended = CheckKeys();
  if (!ended.has_value()) return Fail(ended.error());
  ++object_;
  BeginObject();
  return {};
}

Status TarScanBuilder::OnMember(const TarMember& member) {
  FOREBAY_TRY(FlushChunks());
  FOREBAY_TRY(Settle(member.header_offset));
  if (!member.is_regular) return {};
  const std::optional<SampleName> name = SplitMemberPath(member.path);
  if (!name.has_value()) return {};
  if (sample_.has_value() && sample_->record.key != name->key) FOREBAY_TRY(CompleteSample());
  if (!sample_.has_value()) {
    sample_.emplace();
    sample_->record.key = name->key;
    sample_->start_offset = member.start_offset;
    sample_->header_offset = member.header_offset;
    sample_->begin = member.data_offset;
  }
  FOREBAY_TRY(AddMember(member, name->field));
  return FitSample();
}

Result<std::uint8_t> TarScanBuilder::FieldNumber(const TarMember& member,
                                                 const std::string& field) {
  const auto known = fields_.find(field);
  if (known != fields_.end()) return known->second;
  if (field.size() > limits::kNameBytesMax) {
    return Refuse(member.header_offset, "extension " + Quoted(field) + " exceeds " +
                                            std::to_string(limits::kNameBytesMax) +
                                            " bytes (kNameBytesMax)");
  }
  if (fields_.size() >= limits::kFieldCountMax) {
    return Refuse(member.header_offset,
                  "extension " + Quoted(field) + " is one more than the " +
                      std::to_string(limits::kFieldCountMax) +
                      " fields a data set may have (kFieldCountMax)",
                  ErrorCode::kResourceExhausted);
  }
  const auto number = static_cast<std::uint8_t>(fields_.size());
  fields_.emplace(field, number);
  return number;
}

Status TarScanBuilder::AddMember(const TarMember& member, const std::string& field) {
  FOREBAY_ASSIGN(const std::uint8_t number, FieldNumber(member, field));
  for (const SampleField& other : sample_->record.fields) {
    if (other.field != number) continue;
    return Refuse(member.header_offset, "duplicate member " + Quoted(member.path) +
                                            ": the sample has field " + Quoted(field) +
                                            " already");
  }
  sample_->record.fields.push_back(
      {.field = number, .offset = member.data_offset, .length = member.bytes});
  sample_->end = member.data_offset + member.bytes;
  return {};
}

// Decides, as soon as a member's size is known, whether the open sample still fits into the
// open extent; if not, cuts before it, and lets it span extents of its own if it must.
Status TarScanBuilder::FitSample() {
  const OpenSample& sample = *sample_;
  if (!is_spanning_ && sample.end - extent_start_ > extent_bytes_) {
    if (!waiting_.empty()) FOREBAY_TRY(CutWaiting(samples_end_));
    // Members that are passed over lie between extents only where they would push a sample out
    // of its extent, or leave its first extent without a byte of it.
    const bool is_gap_too_large = sample.begin - extent_start_ >= extent_bytes_;
    if (sample.end - extent_start_ > extent_bytes_ &&
        (is_gap_too_large || sample.end - sample.start_offset <= extent_bytes_)) {
      extent_start_ = sample.start_offset;
    }
    if (sample.begin - extent_start_ >= extent_bytes_) extent_start_ = sample.header_offset;
    if (sample.end - extent_start_ > extent_bytes_) {
      is_spanning_ = true;
      chunk_start_ = extent_start_;
    }
  }
  if (sample.end - extent_start_ > limits::kSampleBytesMax) {
    return Refuse(sample.header_offset,
                  "sample " + Quoted(sample.record.key) + " exceeds " +
                      std::to_string(limits::kSampleBytesMax) + " bytes (kSampleBytesMax)",
                  ErrorCode::kResourceExhausted);
  }
  return {};
}

// Closes what no later member can join: an open sample that lies too far behind (its key coming
// back is then an error), and samples that wait in an extent which the next one can no longer be
// part of. So nothing is kept while long members that belong to no sample pass by.
Status TarScanBuilder::Settle(std::uint64_t next_header_offset) {
  if (sample_.has_value() &&
      next_header_offset > RoundToTarBlock(sample_->end) + kSampleGapBytesMax) {
    FOREBAY_TRY(CompleteSample());
  }
  const bool is_waiting = !sample_.has_value() && !waiting_.empty();
  if (!is_waiting || next_header_offset + kTarBlockBytes - extent_start_ <= extent_bytes_) {
    return {};
  }
  return CutWaiting(samples_end_);
}

Status TarScanBuilder::CompleteSample() {
  if (!sample_.has_value()) return {};
  const std::uint64_t end = RoundToTarBlock(sample_->end);
  if (is_spanning_) {
    FOREBAY_TRY(FlushChunks());
    FOREBAY_TRY(CutChunk(end));
    is_spanning_ = false;
    extent_start_ = end;
    sample_.reset();
    return {};
  }
  waiting_.push_back(*std::move(sample_));
  sample_.reset();
  samples_end_ = end;
  if (waiting_.size() < limits::kSamplesPerExtentMax) return {};
  return CutWaiting(end);
}

// The samples that wait become the extent [extent_start_, end).
Status TarScanBuilder::CutWaiting(std::uint64_t end) {
  ExtentRow row;
  row.first_object = static_cast<std::uint32_t>(object_);
  row.object_offset = extent_start_;
  row.sample_count = static_cast<std::uint32_t>(waiting_.size());
  row.starting_count = row.sample_count;
  row.bytes = static_cast<std::uint32_t>(end - extent_start_);
  std::vector<Range> pieces;
  for (const OpenSample& sample : waiting_) {
    pieces.push_back({.extent = {},
                      .offset = static_cast<std::uint32_t>(sample.begin - extent_start_),
                      .length = sample.end - sample.begin});
    FOREBAY_TRY(RecordSample(sample));
  }
  waiting_.clear();
  extent_start_ = end;
  return tables_.AddExtent(row, object().path, std::move(pieces), *cut_);
}

Status TarScanBuilder::RecordSample(const OpenSample& sample) {
  FOREBAY_ASSIGN(const std::uint64_t at, tables_.AddSample(sample.record, extent_start_));
  return seen_keys_.Add({KeyHash(sample.record.key), at, sample.header_offset});
}

// The part [chunk_start_, end) of the spanning sample becomes an extent. The sample is recorded
// when its last extent is cut, for only then all its fields are known.
Status TarScanBuilder::CutChunk(std::uint64_t end) {
  const OpenSample& sample = *sample_;
  ExtentRow row;
  row.first_object = static_cast<std::uint32_t>(object_);
  row.object_offset = chunk_start_;
  row.sample_count = 1;
  row.starting_count = chunk_start_ == extent_start_ ? 1 : 0;
  row.bytes = static_cast<std::uint32_t>(end - chunk_start_);
  const std::uint64_t begin = std::max(sample.begin, chunk_start_);
  Range piece;
  piece.offset = static_cast<std::uint32_t>(begin - chunk_start_);
  piece.length = std::min(sample.end, end) - begin;
  const bool is_last = end >= sample.end;
  if (is_last) FOREBAY_TRY(RecordSample(sample));
  chunk_start_ = end;
  return tables_.AddExtent(row, object().path, {piece}, *cut_);
}

// Cuts the extents of a spanning sample whose bytes have all been fed, except its last.
Status TarScanBuilder::FlushChunks() {
  while (is_spanning_ && sample_->end - chunk_start_ > extent_bytes_ &&
         scanner_->offset() - chunk_start_ >= extent_bytes_) {
    FOREBAY_TRY(CutChunk(chunk_start_ + extent_bytes_));
  }
  return {};
}

// A key that comes back after another one would make two samples of what WebDataset's readers
// take for one, or for a mistake.
Status TarScanBuilder::CheckKeys() {
  return seen_keys_.TakeTwins([&](const SeenKey& before, const SeenKey& twin) -> Status {
    FOREBAY_ASSIGN(const std::string key, tables_.KeyAt(twin.record_at));
    FOREBAY_ASSIGN(const std::string key_before, tables_.KeyAt(before.record_at));
    if (key_before != key) return {};
    return Refuse(twin.offset, "duplicate key " + Quoted(key) + ": a sample at offset " +
                                   std::to_string(before.offset) +
                                   " has it, and its members must be consecutive");
  });
}

Result<std::shared_ptr<const Catalog>> TarScanBuilder::Finish() {
  if (failure_.has_value()) return *failure_;
  if (object_ != objects_.size()) {
    return Error(ErrorCode::kFailedPrecondition,
                 Quoted(object().path) + " has not been fed to its end");
  }
  std::vector<std::string> fields(fields_.size());
  for (const auto& [field, number] : fields_) fields[number] = field;
  return tables_.Write(
      {.name = name_, .format = Format::kTar, .objects = objects_, .fields = fields});
}

bool IsTarName(std::string_view name) { return name.ends_with(".tar"); }

Result<std::unique_ptr<ScanBuilder>> ScanTar(const ScanContext& context) {
  const DatasetSource& source = context.source;
  if (source.extent_bytes < kTarExtentBytesMin) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) + ": extents of tar shards have at least " +
                     std::to_string(kTarExtentBytesMin) + " bytes");
  }
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, context.root.List(""));
  FOREBAY_ASSIGN(const std::vector<std::string> paths, FilesNamedLike(top, IsTarName));
  if (paths.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) + " has no *.tar files");
  }
  FOREBAY_ASSIGN(std::vector<ScanBuilder::PlannedObject> objects,
                 PlanObjects(context.root, paths));
  const std::uint64_t extent_bytes = source.extent_bytes / kTarBlockBytes * kTarBlockBytes;
  return std::make_unique<TarScanBuilder>(source.name, extent_bytes, std::move(objects),
                                          context.scratch);
}

}  // namespace

constinit const FormatDriver kTarDriver = {
    .format = Format::kTar,
    .name = "tar",
    .signs = "*.tar",
    .detect = [](std::span<const io::DirectoryEntry> top) -> Result<bool> {
      FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(top, IsTarName));
      return !names.empty();
    },
    .scan = ScanTar,
    .scanned_sample_bytes = 2 * kTarBlockBytes,  // a header and a block of data
};

}  // namespace forebay::catalog
