// ServedModel: what the samples of a catalogued data set must be, and with which errors its extents
// may be refused.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "tests/model/gfs_model.h"
#include "tests/model/read_ledger.h"

namespace forebay::model {

// Knows of the service's catalog only where extents begin and end; where samples lie, the objects
// of the model say. Not thread-safe.
class ServedModel {
 public:
  // kDataLoss where `catalog` does not describe `objects`, in this order. `gfs` is borrowed.
  static Result<std::unique_ptr<ServedModel>> Create(const GfsModel& gfs,
                                                     std::vector<Object> objects,
                                                     const catalog::Catalog& catalog,
                                                     std::shared_ptr<ReadLedger> ledger);

  const std::vector<Object>& objects() const { return objects_; }
  std::uint64_t sample_count() const { return samples_.size(); }
  std::uint32_t extent_count() const { return static_cast<std::uint32_t>(extents_.size()); }
  const std::string& name(ExtentId extent) const { return extents_[extent.value()].name; }
  ReadLedger& ledger() { return *ledger_; }

  // A sample was delivered with these values of its fields. kDataLoss where they are wrong; where
  // they are right, they tell when their extents were read.
  Status Deliver(std::uint64_t sample, std::span<const std::string> values);
  // Of the extents of these samples.
  std::set<ExtentId> ExtentsOf(std::span<const std::uint64_t> samples) const;
  // Why the GFS may refuse an extent now; none: it must not.
  std::set<ErrorCode> ReasonsToFail(ExtentId extent) const;
  std::set<ErrorCode> ReasonsToFail() const;  // any of them
  // The extent lies on a tier of the daemon, so it has been read.
  void OnResident(ExtentId extent);

 private:
  struct Span {
    std::size_t object = 0;
    ValuePlace place;
  };
  struct Extent {
    std::string name;
    std::vector<Span> spans;
  };
  // Of one object, in the order of offsets.
  struct Covered {
    ValuePlace place;
    ExtentId extent;
  };
  struct Sample {
    std::vector<Span> values;
    std::vector<std::string> constants;  // after the values
  };

  ServedModel(const GfsModel& gfs, std::vector<Object> objects,
              std::shared_ptr<ReadLedger> ledger)
      : gfs_(gfs), objects_(std::move(objects)), ledger_(std::move(ledger)) {}
  Status CheckObjects(const catalog::Catalog& catalog) const;
  void AddExtents(const catalog::Catalog& catalog);
  void AddSamples(catalog::Format format);
  Status DeliverValue(const Span& span, std::string_view value);

  const GfsModel& gfs_;
  const std::vector<Object> objects_;
  const std::shared_ptr<ReadLedger> ledger_;
  std::vector<Extent> extents_;
  std::vector<std::vector<Covered>> covered_;  // by object
  std::vector<Sample> samples_;
};

}  // namespace forebay::model
