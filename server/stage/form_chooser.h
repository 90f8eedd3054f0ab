// FormChooser: whether a data set is compressed at staging, by a trial of some of its extents
// before any of them has a home.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/packing.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_packer.h"
#include "server/stage/gfs_reader.h"
#include "server/stage/housing.h"
#include "server/stage/packed_form.h"
#include "server/stage/request_gate.h"
#include "server/stage/staging_tiers.h"

namespace forebay::stage {

// What the plan reckons with.
struct FormChooserOptions {
  std::uint32_t encode_cores = 1;  // threads that stage
  std::uint32_t decode_cores = 1;  // threads that put batches together
  std::uint64_t decoded_cache_bytes = 0;
};

// Borrowed; all outlive the chooser.
struct FormChooserParts {
  StagingTiers& tiers;
  ExtentPacker& packer;
  Housing& housing;
  GfsReader& gfs;
  RequestGate& gate;
  io::Clock& clock;
};

// Thread-safe.
class FormChooser {
 public:
  FormChooser(const FormChooserOptions& options, const FormChooserParts& parts)
      : options_(options), parts_(parts) {}

  // Decides once, before `dataset` has a catalog, and says so to it. Some extents may be on a tier
  // afterwards.
  void Choose(Dataset& dataset, const std::shared_ptr<const catalog::Catalog>& catalog,
              io::IoQueue& queue);

 private:
  // An extent that was read and encoded before the form is decided.
  struct Trial {
    ExtentId extent;
    tier::ArenaBlock raw;
    PackedExtent packed;
    std::uint64_t gfs_ns = 0;  // 0: the GFS was not asked
  };
  // Extents of a form that are on a tier already.
  struct FoundForm {
    std::vector<ExtentId> extents;
    std::uint64_t raw_bytes = 0;  // of them as they came off the GFS
    std::uint64_t ssd_bytes = 0;  // that they take on SSD
  };

  FoundForm FindForm(const catalog::Catalog& catalog, const PackedForm* form) const;
  // Tries some of `found`, which lie on a tier as they came off the GFS; of the GFS where there
  // are none.
  std::vector<Trial> TryForm(Dataset& dataset, const PackedForm& form,
                             std::span<const ExtentId> found, io::IoQueue& queue);
  Status ReadTrial(Dataset& dataset, const catalog::Catalog& catalog, io::IoQueue& queue,
                   Trial& trial);
  Result<Trial> TryExtent(Dataset& dataset, const PackedForm& form, ExtentId extent,
                          io::IoQueue& queue);
  plan::PackingAdvice Advise(const Dataset& dataset, const PackedForm& form,
                             std::span<const Trial> trials, std::uint64_t found_ssd_bytes) const;
  // Stores what was tried, in the form that was decided.
  Status Keep(const Dataset& dataset, const catalog::Catalog& catalog, const PackedForm* form,
              Trial trial, io::IoQueue& queue);

  const FormChooserOptions options_;
  const FormChooserParts parts_;
};

// An extent that is on a tier before the rest of its data set.
struct FoundExtent {
  std::uint64_t image_bytes = 0;  // 0: it is on no tier
  tier::TierKind tier = tier::TierKind::kRam;
};
// What extents take, and absent ones will, by those of the same part that were found. `found`: of
// all extents of `catalog`; `form`: null where they stay as they are.
std::vector<std::uint64_t> PlanImageBytes(const catalog::Catalog& catalog, const PackedForm* form,
                                          std::span<const FoundExtent> found);

}  // namespace forebay::stage
