// ResolveStream turns the words of a reader into a consistent StreamSpec, or an error that names
// both sides. All values are untrusted, so the checks go in this order: counts before they are
// divided by, the catalog before the selection over it, the order before the step plan made of it.
// Runs on the thread that opens the stream, or on the one that has finished the catalog.
#include "server/stream/stream_spec.h"

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/wire_layout.h"

namespace forebay::stream {
namespace {

Status CheckCounts(const StreamRequestSpec& request) {
  if (request.credits == 0 || request.credits > limits::kCreditsMax) {
    return Error(ErrorCode::kOutOfRange, fmt::format("credits must be between 1 and {}, not {}",
                                                     limits::kCreditsMax, request.credits));
  }
  // Before the division by `ranks` below.
  if (request.ranks == 0 || request.rank >= request.ranks) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("rank {} of {} does not exist", request.rank, request.ranks));
  }
  // A newer client may know more ways of delivery than this daemon.
  if (request.delivery != static_cast<std::uint32_t>(Delivery::kContiguous) &&
      request.delivery != static_cast<std::uint32_t>(Delivery::kViews)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("unknown delivery {}", request.delivery));
  }
  if (request.stream_name.empty() || request.stream_name.size() > limits::kNameBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a stream's name has 1 to {} bytes", limits::kNameBytesMax));
  }
  // Bounds what one batch allocates. StepPlan::Create checks the global batch itself.
  if (request.global_batch / request.ranks > limits::kLocalBatchMax) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("a rank's batch of {} samples exceeds kLocalBatchMax ({})",
                             request.global_batch / request.ranks, limits::kLocalBatchMax));
  }
  return {};
}

Status CheckOrderFits(const StreamSpec& spec) {
  if (spec.order.sample_count != spec.selection->size()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the order is over {} samples, but selection '{}' has {}",
                             spec.order.sample_count, spec.selection->spec(),
                             spec.selection->size()));
  }
  // The same number of samples may come from another selection, such as a split file that was
  // changed. The order would then permute samples that the trainer does not mean.
  if (spec.order.selection_fingerprint != spec.selection->fingerprint()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("the order is of selection {:016x}, but '{}' is {:016x}",
                             spec.order.selection_fingerprint, spec.selection->spec(),
                             spec.selection->fingerprint()));
  }
  return {};
}

// Beyond the tiers, an order that needs the whole set would read the GFS at random, which is what
// Forebay exists to prevent.
Status CheckTiersHold(const StreamSpec& spec) {
  const OrderMode mode = spec.order.shape.mode;
  if (!NeedsWholeSet(mode)) return {};
  const std::uint64_t bytes = spec.dataset->bytes_without_home();
  if (bytes == 0) return {};
  // Every node of a job checks its own share, so this one speaks of its own tiers only.
  const std::uint64_t of_others = spec.dataset->bytes_of_others();
  return Error(
      ErrorCode::kResourceExhausted,
      fmt::format("order mode '{}' needs all of '{}' on the tiers, but {} of {} bytes{} fit on "
                  "no tier: {}, or use mode 'block'",
                  OrderModeName(mode), spec.dataset->name(), bytes,
                  spec.catalog->total_bytes() - of_others,
                  of_others > 0 ? " of the share of this node" : "",
                  spec.dataset->CapacityAdvice()));
}

// The largest batch in bytes, or 0 where some field has no fixed size.
Result<std::uint64_t> BatchBytesMax(const catalog::Catalog& catalog, std::uint64_t samples) {
  std::uint64_t total = 0;
  for (const FieldSpec& field : catalog.fields()) {
    if (field.source == FieldSource::kConstant) continue;
    // One such field makes the size of the batch unknown.
    if (!field.is_fixed()) return std::uint64_t{0};
    FOREBAY_ASSIGN(const std::uint64_t bytes, field.BytesPerSample());
    // A division, because the product may not fit in 64 bits.
    if (bytes != 0 && samples > (limits::kSlotBytesMax - total) / bytes) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("a batch of {} samples of field '{}' exceeds kSlotBytesMax ({})",
                               samples, field.name, limits::kSlotBytesMax));
    }
    total += samples * bytes;
  }
  return total;
}

// A batch is announced by one message, which holds the samples' ids, and the place of each sample's
// bytes where the batch is views or the samples differ in size. A sample that lies in several
// extents needs a little more than this.
Status CheckMessageFits(const StreamSpec& spec, std::uint64_t samples) {
  constexpr std::uint64_t kReservedBytes = 64 * limits::kKiB;  // for all that is not per sample
  std::uint64_t sample_bytes = sizeof(std::uint64_t);
  for (const FieldSpec& field : spec.catalog->fields()) {
    const bool is_constant = field.source == FieldSource::kConstant;
    const bool has_span =
        !is_constant && (spec.delivery == Delivery::kViews || !field.is_fixed());
    if (is_constant) sample_bytes += sizeof(std::int64_t);
    if (has_span) sample_bytes += sizeof(WireSpan);
  }
  const std::uint64_t samples_max = (limits::kRpcMessageBytesMax - kReservedBytes) / sample_bytes;
  if (samples <= samples_max) return {};
  return Error(ErrorCode::kOutOfRange,
               fmt::format("a batch of {} samples of '{}' cannot be announced in one message: at "
                           "most {} samples fit with this delivery; take smaller batches",
                           samples, spec.dataset->name(), samples_max));
}

}  // namespace

bool TakesLong(const std::string& selection) {
  return selection.starts_with("list:") || selection.starts_with("hash:");
}

Result<std::shared_ptr<const catalog::Selection>> ResolveSelection(
    stage::Dataset& dataset, const catalog::Catalog& catalog, const std::string& text) {
  std::string list;
  constexpr std::string_view kListPrefix = "list:";
  if (text.rfind(kListPrefix, 0) == 0) {
    const std::string split = text.substr(kListPrefix.size());
    // A client names a split of the configuration, never a path.
    const auto found = dataset.options().splits.find(split);
    if (found == dataset.options().splits.end()) {
      return Error(ErrorCode::kNotFound,
                   fmt::format("data set '{}' has no split '{}' (configure dataset.splits)",
                               dataset.name(), split));
    }
    // Read at every opening, because the file may have changed since the last one. Ranks that read
    // different lists are refused, because the fingerprints of their orders differ.
    FOREBAY_ASSIGN(list, dataset.ReadSmall(found->second, limits::kIdListBytesMax));
  }
  return catalog::MakeSelection(text.empty() ? "all" : text, catalog.sample_count(), list);
}

Result<StreamSpec> ResolveStream(stage::Dataset& dataset, const StreamRequestSpec& request) {
  FOREBAY_TRY(CheckCounts(request));
  std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  if (!catalog) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("data set '{}' has no catalog yet", dataset.name()));
  }
  // 0: the reader takes any catalog. A reader that continues a run names the one it began with.
  if (request.catalog_fingerprint != 0 &&
      request.catalog_fingerprint != catalog->fingerprint()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("data set '{}' has catalog {:016x}, the reader expects {:016x}: its "
                             "objects have changed",
                             dataset.name(), catalog->fingerprint(),
                             request.catalog_fingerprint));
  }
  FOREBAY_ASSIGN(auto selection, ResolveSelection(dataset, *catalog, request.selection));
  FOREBAY_ASSIGN(const OrderSpec order, OrderSpec::Parse(request.order_spec));
  FOREBAY_TRY(order.CheckGlobalBatch(request.global_batch));
  FOREBAY_ASSIGN(const StepPlan plan, StepPlan::Create({.sample_count = order.sample_count,
                                                        .global_batch = request.global_batch,
                                                        .ranks = request.ranks,
                                                        .tail = order.tail}));
  StreamSpec spec{.dataset = &dataset,
                  .catalog = std::move(catalog),
                  .form = dataset.form(),
                  .selection = std::move(selection),
                  .order = order,
                  .plan = plan,
                  .stream_name = request.stream_name,
                  .client = request.client,
                  .rank = request.rank,
                  .delivery = static_cast<Delivery>(request.delivery),
                  .credits = request.credits,
                  .inline_payload = request.inline_payload,
                  .reader = request.reader,
                  .call = request.call,
                  .end_epoch = request.end_epoch};
  FOREBAY_TRY(CheckOrderFits(spec));
  // After the order is known to fit, so that an advice about capacity is not given for a wrong
  // order.
  FOREBAY_TRY(CheckTiersHold(spec));
  // Of a full step, which is the largest: a short last step has fewer.
  const std::uint64_t samples = request.global_batch / request.ranks;
  FOREBAY_TRY(CheckMessageFits(spec, samples));
  FOREBAY_ASSIGN(spec.batch_bytes_max, BatchBytesMax(*spec.catalog, samples));
  return spec;
}

Result<StepSlice> SliceOf(const StreamSpec& spec, const BatchName& name) {
  if (name.micro_size == 0) return spec.plan.RankSlice(name.step, spec.rank);
  // The other numbers are checked by StepPlan. This one may be as large as the global batch.
  if (name.micro_size > limits::kLocalBatchMax) {
    return Error(ErrorCode::kOutOfRange, "a micro-batch exceeds kLocalBatchMax");
  }
  FOREBAY_TRY(CheckMessageFits(spec, name.micro_size));
  return spec.plan.MicroBatchSlice(
      {.step = name.step, .index = name.micro_index, .samples = name.micro_size});
}

}  // namespace forebay::stream
