// Compression at staging: what form a data set gets, and how an extent gets it.
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "proto/contract/limits.h"
#include "server/stage/stager.h"

namespace forebay::stage {

using tier::ArenaBlock;
using tier::ExtentKey;
using tier::ExtentRef;

namespace {

constexpr std::uint64_t kSmallPartShare = 8;  // parts below 1/8 of the data set are not tried
// What is planned beyond what the trial took, in permille: extents differ.
constexpr std::uint64_t kMarginPermille = 30;

// Where a part's extents begin, for parts that matter for the size of the whole.
std::vector<ExtentId> ExtentsToTry(const catalog::Catalog& catalog) {
  std::vector<std::uint64_t> part_bytes(catalog.part_count(), 0);
  std::vector<std::uint32_t> firsts(catalog.part_count(), ~std::uint32_t{0});
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    part_bytes[info.part] += info.bytes;
    firsts[info.part] = std::min(firsts[info.part], i);
  }
  std::vector<ExtentId> chosen;
  for (std::size_t part = 0; part < firsts.size(); ++part) {
    const bool matters = part_bytes[part] > 0 &&
                         part_bytes[part] >= catalog.total_bytes() / kSmallPartShare;
    if (matters) chosen.push_back(ExtentId(firsts[part]));
  }
  return chosen;
}

}  // namespace

bool Stager::AnyFound(const catalog::Catalog& catalog, const PackedForm* form) {
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentKey raw = tier::KeyOf(catalog, ExtentId(i));
    if (parts_.cache.Find(form != nullptr ? form->Key(raw) : raw)) return true;
  }
  return false;
}

void Stager::ChooseForm(Dataset& dataset,
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
  // What an earlier daemon decided stands: nothing is read a second time.
  if (AnyFound(*catalog, form->get())) return dataset.SetForm(std::move(*form), "");
  if (wanted == Compression::kAuto && AnyFound(*catalog, nullptr)) {
    return dataset.SetForm(nullptr, "an earlier daemon stored it raw");
  }
  TryForm(dataset, *form, queue);
}

void Stager::TryForm(Dataset& dataset, const std::shared_ptr<const PackedForm>& form,
                     io::IoQueue& queue) {
  dataset.SetForm(form, "");
  for (const ExtentId extent : ExtentsToTry(form->catalog())) {
    const Status tried = TryExtent(dataset, *form, extent, queue);
    if (tried.has_value()) continue;
    // Its load will fail too, or succeed: whoever needs it is told then.
    spdlog::debug("data set '{}': {}", dataset.name(), tried.error().ToString());
  }
}

// Loads an extent before there are homes, so that its size says what the others will take.
Status Stager::TryExtent(Dataset& dataset, const PackedForm& form, ExtentId extent,
                         io::IoQueue& queue) {
  const catalog::Catalog& catalog = form.catalog();
  const ExtentKey key = form.Key(tier::KeyOf(catalog, extent));
  const std::uint64_t bytes = catalog.extent(extent).bytes;
  FOREBAY_ASSIGN(ArenaBlock block, AllocateWithPatience(bytes, ~std::uint64_t{0} - 1));
  std::shared_ptr<Rank> rank;
  {
    std::lock_guard lock(mutex_);
    rank = std::make_shared<Rank>(next_rank_++);
  }
  FOREBAY_TRY(gfs_.ReadImage(queue, dataset, catalog, extent, *rank, block.bytes()));
  FOREBAY_ASSIGN(Image image, MakeImage(dataset, &form, key, std::move(block)));
  const plan::Home home = HomeOf(std::nullopt, image.block.bytes().size());
  return Publish(dataset, key, home, std::move(image.block), std::move(image.checksums), queue);
}

std::vector<std::uint64_t> Stager::PlanBytes(const catalog::Catalog& catalog,
                                             const PackedForm* form,
                                             std::span<const Found> found) {
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

Result<PackedExtent> Stager::PackWithinBounds(const PackedForm& form, const ExtentKey& key,
                                              std::span<const std::byte> raw) {
  {
    std::unique_lock lock(mutex_);
    packed_.wait(lock, [&] {
      return stopping_ || packing_bytes_ == 0 ||
             raw.size() <= limits::kPackingBytesMax -
                               std::min(limits::kPackingBytesMax, packing_bytes_);
    });
    packing_bytes_ += raw.size();
  }
  Result<PackedExtent> packed = PackExtent(form, key, raw, [this] {
    std::lock_guard lock(mutex_);
    return stopping_;
  });
  return packed;
}

Result<Stager::Image> Stager::MakeImage(Dataset& dataset, const PackedForm* form,
                                        const ExtentKey& key, ArenaBlock raw) {
  std::vector<catalog::Range> pieces;
  if (form == nullptr) {
    FOREBAY_TRY(dataset.catalog()->Pieces(key.extent, pieces));
    tier::ExtentChecksums checksums = tier::ComputeChecksums(key, raw.bytes(), pieces);
    return Image{.block = std::move(raw), .checksums = std::move(checksums)};
  }
  const std::uint64_t raw_bytes = raw.bytes().size();
  Result<PackedExtent> packed = PackWithinBounds(*form, key, raw.bytes());
  raw = ArenaBlock();  // makes room for the packed one
  const auto make = [&]() -> Result<Image> {
    FOREBAY_TRY(packed);
    if (packed->escaped_chunks > 0) {
      spdlog::error("data set '{}': {} chunks of extent {} did not decode to what they were, and "
                    "are stored as they are", dataset.name(), packed->escaped_chunks,
                    key.extent.value());
    }
    FOREBAY_ASSIGN(ArenaBlock block, AllocateWithPatience(packed->bytes, parts_.next_use(key)));
    packed->CopyTo(block.bytes());
    tier::ExtentChecksums checksums =
        tier::ComputeChecksums(key, block.bytes(), packed->pieces);
    return Image{.block = std::move(block), .checksums = std::move(checksums)};
  };
  Result<Image> image = make();
  packed = PackedExtent();  // its memory is counted until here
  {
    std::lock_guard lock(mutex_);
    packing_bytes_ -= raw_bytes;
  }
  packed_.notify_all();
  return image;
}

plan::Home Stager::Settle(Dataset& dataset, ExtentId extent, plan::Home home,
                          std::uint64_t bytes) {
  if (home != dataset.home(extent)) return home;  // a demand's own wish
  std::lock_guard lock(mutex_);
  const plan::Home settled = placer_.Settle(home, dataset.StoredBytes(extent), bytes);
  dataset.SetHome(extent, settled);
  return settled;
}

}  // namespace forebay::stage
