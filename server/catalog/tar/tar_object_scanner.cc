// The driver of format tar and its ObjectScanner: groups members into samples by WebDataset's rule
// and cuts extents at sample boundaries while the bytes are fed. A sample is open while members
// join it; then it waits for its extent, which starts at extent_start_, until the next sample does
// not fit. A sample that is larger than an extent is spanning: it gets a chain of extents, cut
// while it is fed.
#include <algorithm>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/tar/seen_keys.h"
#include "server/catalog/tar/tar_scanner.h"

namespace forebay::catalog {
namespace {

// So that an archive's first header and its first data block fit in one extent.
constexpr std::uint64_t kTarExtentBytesMin = 2 * kTarBlockBytes;

// The largest distance between two members of one sample. The bytes between them must be kept until
// it is known whether the sample continues, so the distance is bounded.
constexpr std::uint64_t kSampleGapBytesMax = limits::kExtentBytesMax;

// A sample that is open, or that waits for its extent to be cut. Offsets are within the archive.
struct OpenSample {
  SampleRecord record;
  std::uint64_t start_offset = 0;   // of its first member, extension headers included
  std::uint64_t header_offset = 0;  // of its first member's ustar header
  std::uint64_t begin = 0;          // of its first data byte
  std::uint64_t end = 0;            // after its last data byte
};

// See ObjectScanner for the calls and their order.
class TarObjectScanner final : public ObjectScanner {
 public:
  TarObjectScanner(const ScanPlan& plan, CatalogPart& part)
      : extent_bytes_(plan.extent_bytes),
        part_(part),
        scanner_({.path = object().path, .bytes = object().bytes},
                 [this](const TarMember& member) { return OnMember(member); }),
        seen_keys_(plan.scratch) {}

  Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) override;
  std::uint64_t NeededFrom() const override;
  Status End(std::vector<CutExtent>& cut) override;

 private:
  const PlannedObject& object() const { return part_.object(); }
  Error Refuse(std::uint64_t offset, const std::string& reason,
               ErrorCode code = ErrorCode::kInvalidArgument) const {
    return InputError(code, object().path, offset, reason);
  }
  Status OnMember(const TarMember& member);
  Status AddMember(const TarMember& member, const std::string& field);
  Status FitSample();
  Status CloseOutOfReach(std::uint64_t next_header_offset);
  Status CompleteSample();
  Status RecordSample(const OpenSample& sample);
  Status CutWaiting(std::uint64_t end);
  Status CutChainExtent(std::uint64_t end);
  Status CutFedChainExtents();
  Status CheckKeys();

  const std::uint64_t extent_bytes_;  // a multiple of a block
  CatalogPart& part_;
  TarScanner scanner_;
  std::vector<CutExtent>* cut_ = nullptr;  // the argument of the call in progress

  std::uint64_t extent_start_ = 0;    // of the next extent; of the chain's first, if spanning
  std::uint64_t samples_end_ = 0;     // end of the last sample that waits
  std::uint64_t chain_start_ = 0;     // of the next extent of the chain, if spanning
  bool is_spanning_ = false;          // the open sample is larger than an extent
  std::optional<OpenSample> sample_;  // the open sample
  std::vector<OpenSample> waiting_;   // samples of the next extent
  SeenKeys seen_keys_;
};

Status TarObjectScanner::Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) {
  // Checked before the scanner sees the bytes, because its comparisons rely on the planned size.
  if (bytes.size() > object().bytes - scanner_.offset()) {
    return Refuse(object().bytes,
                  "the archive grew beyond its size of " + std::to_string(object().bytes),
                  ErrorCode::kFailedPrecondition);
  }
  cut_ = &cut;
  FOREBAY_TRY(scanner_.Feed(bytes));
  FOREBAY_TRY(CutFedChainExtents());
  return CloseOutOfReach(scanner_.next_header_offset());
}

std::uint64_t TarObjectScanner::NeededFrom() const {
  if (is_spanning_) return chain_start_;
  if (sample_.has_value() || !waiting_.empty()) return extent_start_;
  // No sample is open or waits. FitSample lets the next extent begin at extent_start_ if it fits,
  // else at the next member's extension headers, else at its ustar header.
  const std::uint64_t data_offset = scanner_.next_header_offset() + kTarBlockBytes;
  if (data_offset - extent_start_ <= extent_bytes_) return extent_start_;
  const std::uint64_t member_offset = scanner_.next_member_offset();
  return data_offset - member_offset <= extent_bytes_ ? member_offset
                                                      : scanner_.next_header_offset();
}

Status TarObjectScanner::End(std::vector<CutExtent>& cut) {
  cut_ = &cut;
  FOREBAY_TRY(scanner_.End());
  FOREBAY_TRY(CompleteSample());
  if (!waiting_.empty()) {
    // The end marker and skipped members after the last sample belong to the last extent if they
    // fit.
    const bool fits = object().bytes - extent_start_ <= extent_bytes_;
    FOREBAY_TRY(CutWaiting(fits ? object().bytes : samples_end_));
  }
  return CheckKeys();
}

// Called by the scanner for each member, before its data is fed. A member with another key closes
// the open sample; WebDataset's members of one sample are consecutive.
Status TarObjectScanner::OnMember(const TarMember& member) {
  // First all cuts that became possible before this member; they need the state without it.
  FOREBAY_TRY(CutFedChainExtents());
  FOREBAY_TRY(CloseOutOfReach(member.header_offset));
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

// Adds a member to the open sample as one of its fields.
Status TarObjectScanner::AddMember(const TarMember& member, const std::string& field) {
  if (field.size() > limits::kNameBytesMax) {
    return Refuse(member.header_offset, "extension " + Quoted(field) + " exceeds " +
                                            std::to_string(limits::kNameBytesMax) +
                                            " bytes (kNameBytesMax)");
  }
  FOREBAY_ASSIGN(const std::uint8_t number, part_.FieldNumber(field, member.header_offset));
  // A linear search over at most kFieldCountMax fields.
  for (const SampleField& other : sample_->record.fields) {
    if (other.field != number) continue;
    return Refuse(member.header_offset, "duplicate member " + Quoted(member.path) +
                                            ": the sample has field " + Quoted(field) +
                                            " already");
  }
  sample_->record.fields.push_back(
      {.field = number, .offset = member.data_offset, .length = member.bytes});
  // Members come in the order of offsets, so the last one ends the sample. Its padding is added
  // when the sample is closed.
  sample_->end = member.data_offset + member.bytes;
  return {};
}

// Decides, as soon as a member's size is known, whether the open sample still fits into the extent
// that starts at extent_start_. If it does not, the samples that wait become an extent and a new
// one starts; if the sample is too large for any extent, it becomes spanning.
Status TarObjectScanner::FitSample() {
  const OpenSample& sample = *sample_;
  if (!is_spanning_ && sample.end - extent_start_ > extent_bytes_) {
    if (!waiting_.empty()) FOREBAY_TRY(CutWaiting(samples_end_));
    // Skipped members before the sample normally belong to its extent. They lie between extents
    // only if they would push the sample out of its extent, or if they would fill the first extent
    // of a chain, which must hold a byte of its sample.
    const bool is_gap_too_large = sample.begin - extent_start_ >= extent_bytes_;
    if (sample.end - extent_start_ > extent_bytes_ &&
        (is_gap_too_large || sample.end - sample.start_offset <= extent_bytes_)) {
      extent_start_ = sample.start_offset;
    }
    if (sample.begin - extent_start_ >= extent_bytes_) extent_start_ = sample.header_offset;
    if (sample.end - extent_start_ > extent_bytes_) {
      is_spanning_ = true;
      chain_start_ = extent_start_;
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

// Closes what no later member can join: an open sample that ends too far back, and waiting samples
// whose extent cannot reach the next member any more. So the caller can drop their bytes while long
// members that belong to no sample are fed. If the key of a closed sample occurs again, CheckKeys
// refuses the archive.
Status TarObjectScanner::CloseOutOfReach(std::uint64_t next_header_offset) {
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

// Closes the open sample: its chain is completed, or it waits for its extent.
Status TarObjectScanner::CompleteSample() {
  if (!sample_.has_value()) return {};
  const std::uint64_t end = RoundToTarBlock(sample_->end);
  if (is_spanning_) {
    FOREBAY_TRY(CutFedChainExtents());
    FOREBAY_TRY(CutChainExtent(end));
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

// Makes the extent [extent_start_, end) of the samples that wait.
Status TarObjectScanner::CutWaiting(std::uint64_t end) {
  // An extent begins where the one before it ended, so headers and skipped members before the first
  // sample belong to it, unless FitSample has moved its start. They are stored with it and never
  // delivered.
  PartExtent row;
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
  return part_.AddExtent(row, std::move(pieces), *cut_);
}

// Keeps a sample for the catalog, and its key for CheckKeys.
Status TarObjectScanner::RecordSample(const OpenSample& sample) {
  FOREBAY_ASSIGN(const std::uint64_t at, part_.AddSample(sample.record, extent_start_));
  return seen_keys_.Add({KeyHash(sample.record.key), at, sample.header_offset});
}

// Makes an extent of the range [chain_start_, end) of the spanning sample. The sample is recorded
// when the last extent of its chain is cut, because only then all its fields are known.
Status TarObjectScanner::CutChainExtent(std::uint64_t end) {
  const OpenSample& sample = *sample_;
  PartExtent row;
  row.object_offset = chain_start_;
  row.sample_count = 1;
  row.starting_count = chain_start_ == extent_start_ ? 1 : 0;
  row.bytes = static_cast<std::uint32_t>(end - chain_start_);
  const std::uint64_t begin = std::max(sample.begin, chain_start_);
  Range piece;
  piece.offset = static_cast<std::uint32_t>(begin - chain_start_);
  piece.length = std::min(sample.end, end) - begin;
  const bool is_last = end >= sample.end;
  // Its offsets count from `extent_start_`, the start of the chain, which is still unchanged here.
  if (is_last) FOREBAY_TRY(RecordSample(sample));
  chain_start_ = end;
  return part_.AddExtent(row, {piece}, *cut_);
}

// Cuts those extents of the chain whose bytes have all been fed. The last one stays for
// CompleteSample, because another member may still make the sample longer.
Status TarObjectScanner::CutFedChainExtents() {
  // One call of Feed can complete several extents of a chain, so this is a loop. All extents of a
  // chain but the last get `extent_bytes_`, by which look-ups divide.
  while (is_spanning_ && sample_->end - chain_start_ > extent_bytes_ &&
         scanner_.offset() - chain_start_ >= extent_bytes_) {
    FOREBAY_TRY(CutChainExtent(chain_start_ + extent_bytes_));
  }
  return {};
}

// Refuses an archive in which a key occurs again after other keys. Readers of WebDataset take such
// members for one sample or for an error, so to deliver two samples would be wrong.
Status TarObjectScanner::CheckKeys() {
  const auto refuse_equal = [&](const SeenKey& before, const SeenKey& after) -> Status {
    FOREBAY_ASSIGN(const std::string key, part_.KeyAt(after.record_at));
    FOREBAY_ASSIGN(const std::string key_before, part_.KeyAt(before.record_at));
    if (key_before != key) return {};  // two keys with one hash
    return Refuse(after.offset, "duplicate key " + Quoted(key) + ": a sample at offset " +
                                    std::to_string(before.offset) +
                                    " has it, and the members of a sample must be consecutive");
  };
  const Status checked = seen_keys_.TakeEqualHashes(refuse_equal);
  // Unlike the error of equal keys, that of a limit does not name the archive.
  if (!checked.has_value() && checked.error().code() == ErrorCode::kResourceExhausted) {
    return checked.error().WithContext(Quoted(object().path));
  }
  return checked;
}

bool IsTarName(std::string_view name) { return name.ends_with(".tar"); }

Result<ScanPlan> ScanTar(const ScanContext& context) {
  const DatasetSource& source = context.source;
  if (source.extent_bytes < kTarExtentBytesMin) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) + ": extents of tar shards have at least " +
                     std::to_string(kTarExtentBytesMin) + " bytes; raise its key 'extent'");
  }
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, context.root.List(""));
  FOREBAY_ASSIGN(const std::vector<std::string> paths, FilesNamedLike(top, IsTarName));
  if (paths.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set " + Quoted(source.name) + " has no *.tar files at the top of its root");
  }
  FOREBAY_ASSIGN(std::vector<PlannedObject> objects, PlanObjects(context.root, paths));
  return ScanPlan{
      .name = source.name,
      .format = Format::kTar,
      // Whole blocks, so that cuts within a chain fall on block boundaries like all others.
      .extent_bytes = source.extent_bytes / kTarBlockBytes * kTarBlockBytes,
      .objects = std::move(objects),
      .scratch = context.scratch,
      .make_scanner = [](const ScanPlan& plan, CatalogPart& part)
          -> std::unique_ptr<ObjectScanner> {
        return std::make_unique<TarObjectScanner>(plan, part);
      }};
}

}  // namespace

constinit const FormatDriver kTarDriver = {
    .format = Format::kTar,
    .name = "tar",
    .detected_by = "*.tar",
    .detect = [](std::span<const io::DirectoryEntry> top) -> Result<bool> {
      FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(top, IsTarName));
      return !names.empty();
    },
    .scan = ScanTar,
    .scanned_sample_bytes = 2 * kTarBlockBytes,  // a header and a block of data
};

}  // namespace forebay::catalog
