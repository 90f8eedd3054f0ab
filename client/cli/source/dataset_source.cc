// A daemon's data set as samples of a pack. It is read as a stream in sequential order, so samples
// come in the order of the catalog, and with the tail policy "short", so none is left out. The
// daemon is the job's, or a private one that is started for this command and ends with it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "client/cli/pack/pack_plan.h"
#include "client/cli/source/pack_source.h"
#include "client/connection/embedded_daemon.h"
#include "forebay/client.h"

namespace forebay::cli {
namespace {

// The writer takes sample after sample, so the size decides only how many messages there are and
// how much of the daemon's memory a batch holds.
constexpr std::uint32_t kBatchSamples = 64;
constexpr std::int64_t kDaemonStartMs = 60'000;  // at least so long for a private daemon to start

void SwapElements(std::size_t element, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at + element <= bytes.size(); at += element) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + element));
  }
}

class DatasetSource : public PackSource {
 public:
  DatasetSource(std::shared_ptr<internal::EmbeddedDaemon> daemon, DatasetInfo info,
                std::unique_ptr<Client> client, std::unique_ptr<BatchStream> stream)
      : daemon_(std::move(daemon)), info_(std::move(info)), client_(std::move(client)),
        stream_(std::move(stream)) {}

  Status Start(const std::string& selection) {
    if (stream_->selected_count() == 0) {
      return Error(ErrorCode::kNotFound,
                   fmt::format("{}: selection {} has no samples", info_.name, selection));
    }
    // A selection's samples keep the ids that they have in the whole data set, as keys. Without a
    // selection a sample's number says the same.
    schema_.keyed = selection != "all";
    schema_.provenance = {{"source", "data set " + info_.name},
                          {"format", info_.format},
                          {"selection", selection},
                          {"catalog_fingerprint",
                           fmt::format("{:016x}", stream_->catalog_fingerprint())}};
    for (const FieldSpec& spec : stream_->fields()) {
      FOREBAY_ASSIGN(compress::PackField field, PackFieldOf(spec, notes_));
      schema_.fields.push_back(std::move(field));
    }
    for (const FieldInfo& field : info_.fields) NameClasses(field);
    copies_.resize(schema_.fields.size());
    return {};
  }

  const compress::PackSchema& schema() const override { return schema_; }
  std::uint64_t samples() const override { return stream_->selected_count(); }
  bool can_be_read_again() const override { return false; }
  const std::vector<std::string>& notes() const override { return notes_; }

  // What is skipped is read: a stream has one order, from its front.
  Status Skip(std::uint64_t sample) override {
    // Without a batch at the start `first_` is 0, so the condition on `sample` keeps "skip nothing"
    // from reading a batch.
    while (first_ + (batch_ ? batch_->sample_count() : 0) <= sample && sample > 0) {
      FOREBAY_TRY(NextBatch());
    }
    index_ = static_cast<std::uint32_t>(sample - first_);
    return {};
  }

  Status Next(PackSample& sample) override {
    if (!batch_ || index_ == batch_->sample_count()) FOREBAY_TRY(NextBatch());
    sample.fields.clear();
    for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
      FOREBAY_ASSIGN(const std::span<const std::byte> bytes, FieldBytes(field));
      sample.fields.push_back(bytes);
    }
    sample.key.clear();
    if (schema_.keyed) {
      sample.key = std::to_string(batch_->sample_ids()[index_].value());
    }
    sample.begins_sequence = false;
    ++index_;
    return {};
  }

 private:
  Status NextBatch() {
    if (batch_) first_ += batch_->sample_count();
    batch_.reset();  // gives its memory back before more is asked for
    index_ = 0;
    FOREBAY_ASSIGN(batch_, stream_->Next());
    // The daemon said how many samples there are when the stream was opened. A pack with fewer
    // would look complete.
    if (!batch_) {
      return Error(ErrorCode::kDataLoss,
                   fmt::format("{}: the stream ended after {} of {} samples", info_.name, first_,
                               samples()));
    }
    return {};
  }

  void NameClasses(const FieldInfo& field) {
    const auto& names = field.constant_names;
    if (names.size() + schema_.provenance.size() > kNamedClassesMax) {
      notes_.push_back(fmt::format("field {}: the names of its {} classes are not stored: a pack "
                                   "has room for about {}", field.spec.name, names.size(),
                                   kNamedClassesMax));
      return;
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      schema_.provenance.emplace_back(compress::ClassKey(field.spec.name, i), names[i]);
    }
  }

  // The field of the current sample: in place where it is one piece as a pack has it.
  Result<std::span<const std::byte>> FieldBytes(std::uint32_t number) {
    const FieldSpec& spec = batch_->fields()[number];
    std::vector<std::byte>& copy = copies_[number];
    if (spec.source == FieldSource::kConstant) {
      FOREBAY_ASSIGN(const auto values, batch_->Constants(FieldId(number)));
      // A pack has little-endian elements of the field's own size; constants arrive as 64 bits.
      const auto value = static_cast<std::uint64_t>(values[index_]);
      copy.resize(DtypeBytes(spec.dtype));
      for (std::size_t i = 0; i < copy.size(); ++i) {
        copy[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
      }
      return std::span<const std::byte>(copy);
    }
    const auto spans = batch_->Spans(FieldId(number), index_);
    const bool swap = spec.big_endian && DtypeBytes(spec.dtype) > 1;
    // A value of no bytes; `front` below needs one span at least.
    if (spans.empty()) return std::span<const std::byte>();
    // The usual case copies nothing: the writer reads from the daemon's memory. The span is valid
    // until the next batch is asked for, which is after the writer has taken the sample.
    if (spans.size() == 1 && !swap) return spans.front();
    copy.clear();
    // Several spans: the sample lies across extents, which are not neighbours in memory.
    for (const auto span : spans) copy.insert(copy.end(), span.begin(), span.end());
    if (swap) SwapElements(DtypeBytes(spec.dtype), copy);
    return std::span<const std::byte>(copy);
  }

  const std::shared_ptr<internal::EmbeddedDaemon> daemon_;  // null: one with its own address
  const DatasetInfo info_;
  const std::unique_ptr<Client> client_;
  const std::unique_ptr<BatchStream> stream_;
  compress::PackSchema schema_;
  std::vector<std::string> notes_;
  std::vector<std::vector<std::byte>> copies_;  // one per field
  std::optional<Batch> batch_;
  std::uint64_t first_ = 0;  // the batch's first sample
  std::uint32_t index_ = 0;  // in the batch
};

}  // namespace

Result<std::unique_ptr<PackSource>> OpenDatasetSource(const DatasetSourceOptions& options) {
  // A daemon of a job of its own: neither one of this job, which has other data sets, nor the
  // address in the environment is meant.
  std::shared_ptr<internal::EmbeddedDaemon> daemon;
  std::string address = options.address;
  std::string job;
  if (!options.embedded_config.empty()) {
    // The process id makes the job's name unique on this node, so two `pack` that run at once do
    // not join one daemon.
    job = fmt::format("pack-{}", getpid());
    const auto timeout = std::chrono::milliseconds(
        std::max(options.connect_timeout_ms, kDaemonStartMs));
    FOREBAY_ASSIGN(daemon, internal::EmbeddedDaemon::StartOrJoin(
                               {.job_id = job,
                                .config = options.embedded_config,
                                .binary = {},
                                .directory = {},
                                .deadline = std::chrono::steady_clock::now() + timeout}));
    address = daemon->address();
  }
  FOREBAY_ASSIGN(auto client, Client::Connect({.address = address,
                                               .job_id = job,
                                               .client_name = "forebay-pack",
                                               .connect_timeout_ms = options.connect_timeout_ms}));
  StreamOptions stream_options;
  stream_options.dataset = options.dataset;
  stream_options.stream_name = "pack";
  stream_options.selection = options.selection;
  stream_options.global_batch = kBatchSamples;
  stream_options.mode = OrderMode::kSequential;
  stream_options.tail = TailPolicy::kShort;
  // Each sample is read once and copied into a chunk, so gathering it into a slot before would be a
  // second copy.
  stream_options.delivery = Delivery::kViews;
  // Before Describe: opening waits until a catalog that is being built is there.
  FOREBAY_ASSIGN(auto stream, client->Open(stream_options));
  FOREBAY_ASSIGN(DatasetInfo info, client->Describe(options.dataset, options.selection));
  auto source =
      std::make_unique<DatasetSource>(std::move(daemon), std::move(info), std::move(client),
                                      std::move(stream));
  FOREBAY_TRY(source->Start(options.selection));
  return std::unique_ptr<PackSource>(std::move(source));
}

}  // namespace forebay::cli
