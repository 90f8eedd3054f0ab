// Runs on the node that is asked. Bring waits, without a thread, until the data set is catalogued
// and the extent is on a tier; Read copies it out, on a thread of the transport. Staging works as
// for a local reader, so the extent is read from the GFS once, whoever asked first.
#include "server/stage/local_extents.h"

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/dataset_source.h"
#include "server/plan/placement.h"
#include "server/stage/cataloguing/object_scans.h"

namespace forebay::stage {
namespace {

// Blocks until `begin` has called the waiter that it is given.
template <typename Begin>
Status Await(Begin&& begin) {
  // Shared, because the thread that calls the waiter may still be in set_value when get returns.
  const auto outcome = std::make_shared<std::promise<Status>>();
  begin([outcome](const Status& status) { outcome->set_value(status); });
  return outcome->get_future().get();
}

// Reads the copy on SSD into `image`, and verifies it as a whole.
Status ReadSegment(const tier::ResidentExtent& extent, std::span<std::byte> image,
                   io::IoQueue& queue) {
  // A direct read needs whole blocks. Blocks of an arena are whole pages, so there is room for
  // them.
  const std::span<std::byte> pages(image.data(), plan::FootprintBytes(image.size()));
  FOREBAY_TRY(io::ReadFully(queue, *extent.segment->file, 0, pages));
  if (tier::ComputeChecksums(extent.key, image, {}).image == extent.sums().image) return {};
  return Error(ErrorCode::kDataLoss, fmt::format("extent {} on SSD does not match its checksum",
                                                 tier::KeyText(extent.key)));
}

}  // namespace

Status CheckFingerprint(const Dataset& dataset, std::uint64_t fingerprint) {
  const std::uint64_t ours = dataset.catalog()->fingerprint();
  if (ours == fingerprint) return {};
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("data set '{0}' has fingerprint {1:016x} here and {2:016x} on the node "
                           "that asks; the nodes must be configured alike, and the objects must "
                           "not change during a job (remedy if they have: forebay stage --rebuild "
                           "{0}, on every node)",
                           dataset.name(), ours, fingerprint));
}

void LocalExtents::Bring(Dataset& dataset, std::uint64_t fingerprint, ExtentId extent,
                         Waiter waiter) {
  // The node that asks may be ahead of this one, which then begins with the catalogue.
  stager_.StageForReader(dataset);
  if (dataset.catalog() == nullptr && stager_.Yields()) return waiter(AskNext());
  dataset.WhenCatalogued([this, &dataset, fingerprint, extent,
                          waiter = std::move(waiter)](const Status& catalogued) {
    // An error of this node's GFS must not look like a node that does not answer.
    const auto answer = [waiter](const Status& status) {
      waiter(status.has_value() ? status : Status(ErrorForOthers(status.error())));
    };
    if (!catalogued.has_value()) return answer(catalogued);
    const Status is_same = CheckFingerprint(dataset, fingerprint);
    if (!is_same.has_value()) return answer(is_same);
    // Equal fingerprints mean equal numbers of extents, but the number comes from outside.
    if (extent.value() >= dataset.catalog()->extent_count()) {
      return answer(Error(ErrorCode::kInvalidArgument,
                          fmt::format("data set '{}' has no extent {}", dataset.name(),
                                      extent.value())));
    }
    if (stager_.RefusesOthers(dataset, extent) && !cache_.Find(dataset.key(extent))) {
      return answer(AskNext());
    }
    stager_.Demand(dataset, extent, answer, Access::kWhole);
  });
}

Result<SuppliedExtent> LocalExtents::Read(Dataset& dataset, std::uint64_t fingerprint,
                                          ExtentId extent, const AllocateImage& allocate,
                                          io::IoQueue& queue) {
  // The extent may be evicted after it was staged and before it is copied, and a copy on SSD may be
  // damaged. It is then staged again, a limited number of times.
  for (int arrivals = 0; arrivals < limits::kExtentArrivalsMax; ++arrivals) {
    FOREBAY_TRY(Await([&](Waiter waiter) { Bring(dataset, fingerprint, extent, waiter); }));
    const tier::ExtentRef found = cache_.Find(dataset.key(extent));
    // After the look-up: a rebuild has marked the data set before the tiers get other bytes under
    // its keys.
    if (dataset.is_outdated()) return ErrorForOthers(dataset.Outdated());
    if (!found) continue;
    SuppliedExtent supplied{.image = {},
                            .checksums = {.image = found->sums().image, .pieces = {}},
                            .is_packed = dataset.form() != nullptr};
    FOREBAY_ASSIGN(supplied.image, allocate(found->image_bytes));
    if (found->tier == tier::TierKind::kRam) {
      std::memcpy(supplied.image.bytes().data(), found->block.bytes().data(), found->image_bytes);
      return supplied;
    }
    const Status read = ReadSegment(*found, supplied.image.bytes(), queue);
    if (read.has_value()) return supplied;
    cache_.ReportBad(found, read.error(), clock_.NowNs());
  }
  return Error(ErrorCode::kAborted,
               fmt::format("extent {} of '{}' was evicted or damaged {} times before it could be "
                           "copied; try again",
                           extent.value(), dataset.name(), limits::kExtentArrivalsMax));
}

namespace {

// The object that another node asks for must be the one that this node has listed. kOutOfRange if
// it is not.
Status CheckObject(const std::string& dataset, std::size_t object_count, ObjectId object,
                   const auto& object_of, std::uint64_t object_hash) {
  if (object.value() >= object_count) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("data set '{}' has {} objects here, and more on the node that asks; "
                             "objects must not be added or removed during a job",
                             dataset, object_count));
  }
  const catalog::PlannedObject ours = object_of(object);
  if (catalog::HashOf(ours) == object_hash) return {};
  // A message names no paths, so this node does not know which object the other one means.
  return Error(ErrorCode::kOutOfRange,
               fmt::format("object {} of data set '{}' is '{}' with {} bytes here, and another one "
                           "on the node that asks: this object, or one before it in the order of "
                           "names, was changed, added or removed; objects must not change during a "
                           "job",
                           object.value(), dataset, ours.path, ours.bytes));
}

}  // namespace

Result<PartAnswer> LocalExtents::ReadPart(Dataset& dataset, ObjectId object,
                                          std::uint64_t object_hash, catalog::ImageSink& part) {
  const auto failed = [](PartFailure failure) -> Result<PartAnswer> {
    const Error error = ErrorForOthers(failure.error);
    // This node shuts down, which says nothing about the data set.
    if (IsNoAnswer(error)) return error;
    failure.error = error;
    return PartAnswer{.failure = std::move(failure)};
  };
  // In this order: what was scanned is dropped when the catalog is there.
  if (const std::shared_ptr<ObjectScans> scans = dataset.scans()) {
    const catalog::ScanPlan& plan = scans->plan();
    const auto planned = [&](ObjectId number) { return plan.objects[number.value()]; };
    FOREBAY_TRY(CheckObject(plan.name, plan.objects.size(), object, planned, object_hash));
    Result<PartAnswer> answer = scans->Encode(object, part, clock_.NowNs());
    if (!answer.has_value()) return ErrorForOthers(answer.error());
    return answer->failure ? failed(std::move(*answer->failure)) : answer;
  }
  if (const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog()) {
    if (catalog::BuildsFromMetadata(catalog->format())) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("data set '{}' is not scanned, so its objects have no parts",
                               dataset.name()));
    }
    const auto planned = [&](ObjectId number) {
      return catalog::PlannedObjectOf(catalog->object(number));
    };
    FOREBAY_TRY(CheckObject(dataset.name(), catalog->object_count(), object, planned,
                            object_hash));
    FOREBAY_ASSIGN(const std::unique_ptr<catalog::CatalogPart> made,
                   catalog::CatalogPartOf(*catalog, object, scratch_));
    FOREBAY_TRY(catalog::EncodePart(catalog::TablesOf(catalog->format(), *made), part));
    return PartAnswer{.is_there = true, .failure = {}};
  }
  const std::optional<CatalogFailure> failure = dataset.failure();
  const std::int64_t now_ns = clock_.NowNs();
  // Not tried again for each node that asks, because the GFS may have the trouble.
  if (failure && !failure->IsOld(now_ns)) {
    return failed({.error = failure->error,
                   .age_ns = failure->AgeNs(now_ns),
                   .is_reported = failure->is_reported});
  }
  // The node that asks is ahead of this one.
  stager_.StageForReader(dataset);
  return PartAnswer();
}

void LocalExtents::Stat(Dataset& dataset, std::span<const std::string> paths,
                        LocalStats::Done done) {
  stager_.local_stats().Answer(
      dataset, paths, [done = std::move(done)](const Result<LocalStats::Outcome>& outcome) {
        done(outcome.has_value() ? outcome
                                 : Result<LocalStats::Outcome>(ErrorForOthers(outcome.error())));
      });
}

}  // namespace forebay::stage
