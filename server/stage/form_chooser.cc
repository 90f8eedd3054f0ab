#include "server/stage/form_chooser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::uint64_t kSmallPartShare = 8;  // parts below 1/8 of the data set are not tried
// What is planned beyond what the trial took, in permille: extents differ.
constexpr std::uint64_t kMarginPermille = 30;
// A block order is expected to be the client's default.
constexpr std::uint64_t kExpectedBlockSamples = 1024, kExpectedWindowRuns = 16;
// Decodings of each chunk of a trial: the first finds code and memory cold.
constexpr std::uint32_t kTrialDecodeRounds = 3;
// Of a read from the GFS that says something about its bandwidth.
constexpr std::uint64_t kMeasuredBytesMin = 1'000'000;

// An extent of each part that matters for the size of the whole: its first, or the first of
// `found`, where there are any.
std::vector<ExtentId> ExtentsToTry(const catalog::Catalog& catalog,
                                   std::span<const ExtentId> found) {
  std::vector<std::uint64_t> part_bytes(catalog.part_count(), 0);
  std::vector<std::uint32_t> firsts(catalog.part_count(), ~std::uint32_t{0});
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    part_bytes[info.part] += info.bytes;
    if (found.empty()) firsts[info.part] = std::min(firsts[info.part], i);
  }
  for (const ExtentId extent : found) {
    std::uint32_t& first = firsts[catalog.extent(extent).part];
    first = std::min(first, extent.value());
  }
  std::vector<ExtentId> chosen;
  for (std::size_t part = 0; part < firsts.size(); ++part) {
    const bool matters = part_bytes[part] > 0 && firsts[part] != ~std::uint32_t{0} &&
                         part_bytes[part] >= catalog.total_bytes() / kSmallPartShare;
    if (matters) chosen.push_back(ExtentId(firsts[part]));
  }
  if (chosen.empty() && !found.empty()) return {found.front()};
  if (chosen.empty()) {  // of very many parts the largest stands for all
    const auto largest = std::ranges::max_element(part_bytes) - part_bytes.begin();
    chosen.push_back(ExtentId(firsts[static_cast<std::size_t>(largest)]));
  }
  return chosen;
}

}  // namespace

FormChooser::FoundForm FormChooser::FindForm(const catalog::Catalog& catalog,
                                             const PackedForm* form) const {
  FoundForm found;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentKey raw = tier::KeyOf(catalog, ExtentId(i));
    const ExtentRef ref = parts_.tiers.Find(form != nullptr ? form->Key(raw) : raw);
    if (!ref) continue;
    found.extents.push_back(ExtentId(i));
    found.raw_bytes += catalog.extent(ExtentId(i)).bytes;
    if (ref->tier == tier::TierKind::kSsd) found.ssd_bytes += ref->image_bytes;
  }
  return found;
}

// What an earlier daemon packed stays so, for nothing is read a second time. What it left raw is
// weighed again, which the GFS is not asked for: half of the data set or more stays as it is, and
// less does where the plan advises the same today.
void FormChooser::Choose(Dataset& dataset,
                         const std::shared_ptr<const catalog::Catalog>& catalog,
                         io::IoQueue& queue) {
  const Compression wanted = dataset.options().compression;
  if (wanted == Compression::kOff || dataset.catalog() != nullptr) return;
  auto form = PackedForm::Create(catalog, wanted);
  if (!form.has_value()) {
    spdlog::warn("data set '{}' is not compressed at staging: {}", dataset.name(),
                 form.error().message());
    return dataset.SetForm(nullptr, form.error().message());
  }
  const FoundForm packed = FindForm(*catalog, form->get());
  FoundForm raw;
  if (wanted == Compression::kAuto) raw = FindForm(*catalog, nullptr);
  if (!packed.extents.empty() && packed.raw_bytes >= raw.raw_bytes) {
    if (wanted == Compression::kAuto) {
      dataset.SetPackingAdvice("packed: an earlier daemon decided so; it was not weighed again");
    }
    return dataset.SetForm(std::move(*form), "");
  }
  std::vector<Trial> trials = TryForm(dataset, **form, raw.extents, queue);
  const plan::PackingAdvice advice = Advise(dataset, **form, trials, raw.ssd_bytes);
  dataset.SetPackingAdvice(
      fmt::format("{}: {}", advice.is_packed ? "packed" : "raw", advice.reason));
  const bool raw_stays = !raw.extents.empty() &&
                         (!advice.is_packed || raw.raw_bytes >= catalog->total_bytes() / 2);
  const bool is_packed = wanted != Compression::kAuto || (advice.is_packed && !raw_stays);
  spdlog::info("data set '{}': the plan advises {}: {}{}", dataset.name(),
               advice.is_packed ? "packed" : "raw", advice.reason,
               is_packed == advice.is_packed ? ""
               : is_packed                   ? "; it is packed, as configured"
                                             : "; it stays raw, as an earlier daemon stored it");
  if (raw_stays) {
    return dataset.SetForm(nullptr, advice.is_packed
                                        ? "an earlier daemon stored it raw, before the advice "
                                          "was to pack it; empty the SSD tier to have it packed"
                                        : "an earlier daemon stored it raw");
  }
  dataset.SetForm(is_packed ? *form : nullptr, is_packed ? "" : advice.reason);
  for (Trial& trial : trials) {
    const PackedForm* const chosen = is_packed ? form->get() : nullptr;
    const Status kept = Keep(dataset, *catalog, chosen, std::move(trial), queue);
    if (!kept.has_value()) {
      spdlog::debug("data set '{}': {}", dataset.name(), kept.error().ToString());
    }
  }
}

std::vector<FormChooser::Trial> FormChooser::TryForm(Dataset& dataset, const PackedForm& form,
                                                     std::span<const ExtentId> found,
                                                     io::IoQueue& queue) {
  std::vector<Trial> trials;
  for (const ExtentId extent : ExtentsToTry(form.catalog(), found)) {
    Result<Trial> tried = TryExtent(dataset, form, extent, queue);
    if (tried.has_value()) {
      trials.push_back(std::move(*tried));
    } else {
      // Its load will fail too, or succeed: whoever needs it is told then.
      spdlog::warn("data set '{}': {}", dataset.name(), tried.error().ToString());
    }
  }
  return trials;
}

// An extent's raw image: what an earlier daemon left of it, or from the GFS.
Status FormChooser::ReadTrial(Dataset& dataset, const catalog::Catalog& catalog,
                              io::IoQueue& queue, Trial& trial) {
  const ExtentRef found = parts_.tiers.Find(tier::KeyOf(catalog, trial.extent));
  if (found && found->image_bytes == catalog.extent(trial.extent).bytes) {
    FOREBAY_ASSIGN(trial.raw, parts_.tiers.Read(*found, queue));
    return {};
  }
  FOREBAY_ASSIGN(trial.raw,
                 parts_.tiers.Allocate(catalog.extent(trial.extent).bytes, kNotAskedFor));
  const Rank rank(parts_.gate.DrawRank());
  const std::int64_t begun_ns = parts_.clock.NowNs();
  FOREBAY_TRY(ReadCompared(dataset.first_reads(),
                           {.key = tier::KeyOf(catalog, trial.extent),
                            .pieces = {},
                            .objects = NameObjects(catalog, trial.extent)},
                           trial.raw.bytes(), [&](bool past_caches) {
                             return parts_.gfs.ReadImage(queue, dataset, catalog, trial.extent,
                                                         rank, trial.raw.bytes(), past_caches);
                           }));
  trial.gfs_ns = static_cast<std::uint64_t>(parts_.clock.NowNs() - begun_ns);
  return {};
}

// Loads an extent before there are homes, so that its size says what the others will take.
Result<FormChooser::Trial> FormChooser::TryExtent(Dataset& dataset, const PackedForm& form,
                                                  ExtentId extent, io::IoQueue& queue) {
  const catalog::Catalog& catalog = form.catalog();
  Trial trial{.extent = extent, .raw = {}, .packed = {}};
  FOREBAY_TRY(ReadTrial(dataset, catalog, queue, trial));
  // The few that are tried at once are held until the form is decided.
  FOREBAY_ASSIGN(trial.packed,
                 parts_.packer.Encode(form, form.Key(tier::KeyOf(catalog, extent)),
                                      trial.raw.bytes(), kTrialDecodeRounds));
  return trial;
}

plan::PackingAdvice FormChooser::Advise(const Dataset& dataset, const PackedForm& form,
                                        std::span<const Trial> trials,
                                        std::uint64_t found_ssd_bytes) const {
  if (trials.empty()) return {.is_packed = false, .reason = "no extent could be tried"};
  double raw = 0, stored = 0, encode_ns = 0, decode_ns = 0, gfs_ns = 0;
  std::vector<double> part_bytes(form.catalog().part_count(), 0);
  for (std::uint32_t i = 0; i < form.catalog().extent_count(); ++i) {
    const catalog::ExtentInfo info = form.catalog().extent(ExtentId(i));
    part_bytes[info.part] += static_cast<double>(info.bytes);
  }
  // What was tried of a part stands for all of it.
  for (const Trial& trial : trials) {
    const double part = part_bytes[form.catalog().extent(trial.extent).part];
    const double weight = part / static_cast<double>(trial.raw.bytes().size());
    raw += part;
    stored += weight * static_cast<double>(trial.packed.bytes);
    encode_ns += weight * static_cast<double>(trial.packed.encode_ns);
    decode_ns += weight * static_cast<double>(trial.packed.decode_ns);
    gfs_ns += weight * static_cast<double>(trial.gfs_ns);
  }
  // The part with the largest samples decides how much is decoded for one.
  const auto& fields = form.schema().fields;
  const auto largest =
      std::ranges::max_element(fields, {}, &compress::PackField::sample_bytes);
  plan::ExpectedOrder order{.kind = dataset.options().expected_order};
  if (order.kind == plan::OrderKind::kBlock) {
    order.block_samples = kExpectedBlockSamples;
    order.window_runs = kExpectedWindowRuns;
  }
  plan::PackingFacts facts;
  facts.raw_bytes = form.catalog().total_bytes();
  facts.ratio = raw / stored;
  facts.decode_bytes_per_second = raw / std::max(decode_ns, 1.0) * 1e9;
  facts.encode_bytes_per_second = raw / std::max(encode_ns, 1.0) * 1e9;
  facts.decode_cores = options_.decode_cores;
  facts.encode_cores = options_.encode_cores;
  facts.amplification = plan::ExpectedAmplification(
      order, {.samples_per_chunk = largest->samples_per_chunk,
              .sample_bytes = largest->sample_bytes(),
              .dataset_bytes = facts.raw_bytes,
              .decoded_cache_bytes = options_.decoded_cache_bytes});
  facts.needs_all_resident = order.kind == plan::OrderKind::kGlobal;
  if (gfs_ns > 0 && trials.front().raw.bytes().size() >= kMeasuredBytesMin) {
    facts.gfs_bytes_per_second = raw / std::max(gfs_ns, 1.0) * 1e9;
  }
  const plan::Room left = parts_.housing.left();
  facts.ram_bytes = left.ram_bytes;
  facts.ssd_bytes = left.ssd_bytes + found_ssd_bytes;
  return plan::AdvisePacking(facts);
}

Status FormChooser::Keep(const Dataset& dataset, const catalog::Catalog& catalog,
                         const PackedForm* form, Trial trial, io::IoQueue& queue) {
  const ExtentKey raw_key = tier::KeyOf(catalog, trial.extent);
  const ExtentKey key = form != nullptr ? form->Key(raw_key) : raw_key;
  ExtentImage image;
  if (form != nullptr) {
    trial.raw = ArenaBlock();  // makes room for the packed one
    FOREBAY_ASSIGN(image, parts_.packer.Place(key, trial.packed));
  } else {
    std::vector<catalog::Range> pieces;
    FOREBAY_TRY(catalog.Pieces(trial.extent, pieces));
    image.checksums = tier::ComputeChecksums(key, trial.raw.bytes(), pieces);
    image.block = std::move(trial.raw);
  }
  const plan::Home home = parts_.housing.HomeOf(key, std::nullopt, image.block.bytes().size());
  return parts_.tiers.Publish(dataset, key, home, std::move(image), queue);
}

std::vector<std::uint64_t> PlanImageBytes(const catalog::Catalog& catalog, const PackedForm* form,
                                          std::span<const FoundExtent> found) {
  std::vector<std::uint64_t> raw(catalog.part_count(), 0), stored(catalog.part_count(), 0);
  for (std::uint32_t i = 0; i < found.size(); ++i) {
    if (found[i].image_bytes == 0) continue;
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    raw[info.part] += info.bytes;
    stored[info.part] += found[i].image_bytes;
  }
  std::vector<std::uint64_t> planned(found.size());
  for (std::uint32_t i = 0; i < found.size(); ++i) {
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    planned[i] = found[i].image_bytes > 0 ? found[i].image_bytes : info.bytes;
    if (form == nullptr || found[i].image_bytes > 0) continue;
    planned[i] = form->ImageBytesMax(ExtentId(i));
    if (raw[info.part] == 0) continue;
    const double share = static_cast<double>(stored[info.part]) /
                         static_cast<double>(raw[info.part]);
    const double bytes = static_cast<double>(info.bytes) * share *
                         (1.0 + static_cast<double>(kMarginPermille) / 1000.0);
    planned[i] = std::min(planned[i], static_cast<std::uint64_t>(bytes));
  }
  return planned;
}

}  // namespace forebay::stage
