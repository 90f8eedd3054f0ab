// Labels come as the data set stores them: as elements of any integer type in either byte order, or
// as constants of the catalog (the folders of an image set). Both become 64-bit numbers here; only
// whether two are equal matters.
#include "client/cli/tune/label_survey.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "forebay/stream_options.h"
#include "proto/contract/tensor.h"

namespace forebay::cli {
namespace {

// Batches of some megabytes make the reading as fast as it gets, and fit into any slots.
constexpr std::uint64_t kLabelBatchBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kBatchSamplesMax = 4096;

// A class is one whole number: neither a fraction, nor a text, nor several numbers.
bool IsWholeNumber(const FieldSpec& field) {
  if (field.source == FieldSource::kConstant) return true;
  switch (field.dtype) {
    case Dtype::kU8:
    case Dtype::kI8:
    case Dtype::kU16:
    case Dtype::kI16:
    case Dtype::kI32:
    case Dtype::kI64: break;
    default: return false;
  }
  // An IDX file of labels has no shape; other formats store an array of one element.
  return std::ranges::all_of(field.shape, [](std::uint64_t length) { return length == 1; });
}

// The bits of one element. Signs do not matter, because labels are only compared with each other.
std::int64_t LabelOf(std::span<const std::byte> element, bool big_endian) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < element.size(); ++i) {
    const std::size_t at = big_endian ? i : element.size() - 1 - i;
    bits = bits << 8 | std::to_integer<std::uint64_t>(element[at]);
  }
  return static_cast<std::int64_t>(bits);
}

Status AddLabels(const Batch& batch, const std::string& name, std::vector<std::int64_t>& labels) {
  FOREBAY_ASSIGN(const FieldId id, batch.Field(name));
  const FieldSpec& field = batch.fields()[id.value()];
  if (field.source == FieldSource::kConstant) {
    FOREBAY_ASSIGN(const std::span<const std::int64_t> constants, batch.Constants(id));
    labels.insert(labels.end(), constants.begin(), constants.end());
    return {};
  }
  for (std::uint32_t sample = 0; sample < batch.sample_count(); ++sample) {
    const auto spans = batch.Spans(id, sample);
    // A number of at most eight bytes is never cut into pieces unless the catalog is wrong.
    if (spans.size() != 1 || spans[0].size() != DtypeBytes(field.dtype)) {
      return Error(ErrorCode::kDataLoss,
                   "sample " + std::to_string(batch.sample_ids()[sample].value()) +
                       " has no field '" + name + "' of one number");
    }
    labels.push_back(LabelOf(spans[0], field.big_endian));
  }
  return {};
}

}  // namespace

Result<std::optional<std::string>> FindLabelField(const DatasetInfo& info,
                                                  const std::string& wanted) {
  for (const FieldInfo& field : info.fields) {
    const std::string& name = field.spec.name;
    if (wanted.empty() ? name != "label" && name != "labels" : name != wanted) continue;
    if (IsWholeNumber(field.spec)) return name;
    // A field that is only called a label is no error, because nobody has asked for it.
    if (wanted.empty()) continue;
    return Error(ErrorCode::kInvalidArgument,
                 "field '" + wanted + "' of data set '" + info.name +
                     "' is not one whole number per sample, so it is no class");
  }
  if (wanted.empty()) return std::nullopt;
  return Error(ErrorCode::kNotFound,
               "data set '" + info.name + "' has no field '" + wanted + "'");
}

Result<std::vector<std::int64_t>> ReadLabels(Client& client, const DatasetInfo& info,
                                             const std::string& selection,
                                             const std::string& field) {
  const std::uint64_t sample_bytes =
      std::max<std::uint64_t>(1, info.total_bytes / std::max<std::uint64_t>(1, info.sample_count));
  StreamOptions options;
  options.dataset = info.name;
  // A name of its own, so that a trainer's stream of the same data set is left alone.
  options.stream_name = "tune-labels";
  options.selection = selection;
  // Position and index are then the same, so labels arrive in the order of the selection.
  options.mode = OrderMode::kSequential;
  options.tail = TailPolicy::kShort;
  options.global_batch = static_cast<std::uint32_t>(
      std::min(info.selected_count,
               std::clamp<std::uint64_t>(kLabelBatchBytes / sample_bytes, 1, kBatchSamplesMax)));
  FOREBAY_ASSIGN(const auto stream, client.Open(options));
  std::vector<std::int64_t> labels;
  labels.reserve(info.selected_count);
  for (;;) {
    FOREBAY_ASSIGN(const std::optional<Batch> batch, stream->Next());
    if (!batch) break;
    FOREBAY_TRY(AddLabels(*batch, field, labels));
  }
  // It fails if a batch was lost or came twice, and then labels would be those of other samples.
  FOREBAY_TRY(stream->Finish());
  return labels;
}

}  // namespace forebay::cli
