#include "tests/model/served_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace forebay::model {
namespace {

// What two ranges share; nothing: no bytes.
ValuePlace Shared(const ValuePlace& a, const ValuePlace& b) {
  const std::uint64_t begin = std::max(a.offset, b.offset);
  const std::uint64_t end = std::min(a.offset + a.length, b.offset + b.length);
  return {.offset = begin, .length = end > begin ? end - begin : 0};
}

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::Create(const GfsModel& gfs,
                                                         std::vector<Object> objects,
                                                         const catalog::Catalog& catalog,
                                                         std::shared_ptr<ReadLedger> ledger) {
  std::unique_ptr<ServedModel> model(
      new ServedModel(gfs, std::move(objects), std::move(ledger)));
  FOREBAY_TRY(model->CheckObjects(catalog));
  model->AddExtents(catalog);
  model->AddSamples(catalog.format());
  if (model->sample_count() != catalog.sample_count()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("the catalog has {} samples, the objects {}",
                             catalog.sample_count(), model->sample_count()));
  }
  return model;
}

Status ServedModel::CheckObjects(const catalog::Catalog& catalog) const {
  if (catalog.object_count() != objects_.size()) {
    return Error(ErrorCode::kDataLoss, fmt::format("the catalog has {} objects, not {}",
                                                   catalog.object_count(), objects_.size()));
  }
  for (std::uint32_t i = 0; i < catalog.object_count(); ++i) {
    const catalog::ObjectInfo info = catalog.object(ObjectId(i));
    const Incarnation& object = *objects_[i];
    if (info.path == object.path() && info.bytes == object.bytes() &&
        info.mtime_ns == object.mtime_ns()) {
      continue;
    }
    return Error(ErrorCode::kDataLoss,
                 fmt::format("object {} of the catalog is '{}', {} bytes, of {}; it should be "
                             "'{}', {} bytes, of {}",
                             i, info.path, info.bytes, info.mtime_ns, object.path(),
                             object.bytes(), object.mtime_ns()));
  }
  return {};
}

void ServedModel::AddExtents(const catalog::Catalog& catalog) {
  covered_.resize(objects_.size());
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog.extent(ExtentId(i));
    Extent extent;
    for (std::uint32_t j = 0; j < info.object_count; ++j) {
      const std::size_t object = info.first_object.value() + j;
      const ValuePlace place =
          info.object_count == 1
              ? ValuePlace{.offset = info.object_offset, .length = info.bytes}
              : ValuePlace{.offset = 0, .length = objects_[object]->bytes()};
      extent.spans.push_back({.object = object, .place = place});
      extent.name += fmt::format("{}@{}:{}+{} ", objects_[object]->path(),
                                 objects_[object]->mtime_ns(), place.offset, place.length);
      covered_[object].push_back({.place = place, .extent = ExtentId(i)});
    }
    extent.name += fmt::format("#{}", i);
    extents_.push_back(std::move(extent));
  }
}

// Records: sample i is the i-th of every object. Otherwise the samples of an object follow those of
// the one before.
void ServedModel::AddSamples(catalog::Format format) {
  const bool are_parts = format == catalog::Format::kRaw;
  for (std::size_t object = 0; object < objects_.size(); ++object) {
    const auto& places = objects_[object]->samples();
    const std::size_t first = are_parts ? 0 : samples_.size();
    samples_.resize(std::max(samples_.size(), first + places.size()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      Sample& sample = samples_[first + i];
      for (const ValuePlace& place : places[i]) {
        sample.values.push_back({.object = object, .place = place});
      }
      if (const auto label = objects_[object]->label()) {
        sample.constants.push_back(std::to_string(*label));
      }
    }
  }
}

Status ServedModel::Deliver(std::uint64_t sample, std::span<const std::string> values) {
  if (sample >= samples_.size()) {
    return Error(ErrorCode::kDataLoss, fmt::format("sample {} does not exist", sample));
  }
  const Sample& expected = samples_[sample];
  if (values.size() != expected.values.size() + expected.constants.size()) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("sample {} came with {} values", sample, values.size()));
  }
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const Status outcome = DeliverValue(expected.values[i], values[i]);
    if (!outcome.has_value()) {
      return outcome.error().WithContext(fmt::format("WRONG BYTES of sample {}, field {}", sample,
                                                     i));
    }
  }
  for (std::size_t i = 0; i < expected.constants.size(); ++i) {
    const std::string& value = values[expected.values.size() + i];
    if (value == expected.constants[i]) continue;
    return Error(ErrorCode::kDataLoss, fmt::format("sample {} has label {}, not {}", sample, value,
                                                   expected.constants[i]));
  }
  return {};
}

// Each extent that the value lies in was read at one time.
Status ServedModel::DeliverValue(const Span& span, std::string_view value) {
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("'{}' at {}, {} bytes: {}", objects_[span.object]->path(),
                             span.place.offset, span.place.length, why));
  };
  if (value.size() != span.place.length) return fail(fmt::format("{} came", value.size()));
  std::uint64_t seen = 0;
  for (const Covered& covered : covered_[span.object]) {
    const ValuePlace shared = Shared(covered.place, span.place);
    if (shared.length == 0) continue;
    seen += shared.length;
    const std::string_view came = value.substr(shared.offset - span.place.offset, shared.length);
    ReadLedger::Entry& entry = ledger_->Of(name(covered.extent));
    std::vector<std::uint64_t> fitting;
    for (const std::uint64_t revision : entry.candidates) {
      if (objects_[span.object]->At(revision, shared) == came) fitting.push_back(revision);
    }
    if (fitting.empty()) {
      return fail(fmt::format("extent {} was read at revision {}{}; these bytes are {}",
                              covered.extent.value(), entry.candidates.back(),
                              entry.candidates.size() > 1 ? " or before" : "",
                              objects_[span.object]->At(gfs_.revision(), shared) == came
                                  ? "what lies there now"
                                  : "no such thing"));
    }
    if (entry.is_loose) continue;
    entry.candidates = std::move(fitting);
    entry.is_read = true;
  }
  return seen == span.place.length ? Status() : fail("extents leave some of it out");
}

std::set<ExtentId> ServedModel::ExtentsOf(std::span<const std::uint64_t> samples) const {
  std::set<ExtentId> extents;
  for (const std::uint64_t sample : samples) {
    // What lies between two values of a sample in one object is read with them.
    std::map<std::size_t, ValuePlace> hulls;
    for (const Span& value : samples_[sample].values) {
      const auto [hull, is_new] = hulls.try_emplace(value.object, value.place);
      const std::uint64_t end = std::max(hull->second.offset + hull->second.length,
                                         value.place.offset + value.place.length);
      hull->second.offset = std::min(hull->second.offset, value.place.offset);
      hull->second.length = end - hull->second.offset;
    }
    for (const auto& [object, hull] : hulls) {
      for (const Covered& covered : covered_[object]) {
        if (Shared(covered.place, hull).length > 0) extents.insert(covered.extent);
      }
    }
  }
  return extents;
}

std::set<ErrorCode> ServedModel::ReasonsToFail(ExtentId extent) const {
  std::set<ErrorCode> reasons;
  const ReadLedger::Entry& entry = ledger_->Of(name(extent));
  for (const Span& span : extents_[extent.value()].spans) {
    const Object& object = objects_[span.object];
    if (gfs_.IsAway(object->path())) {
      reasons.insert(ErrorCode::kNotFound);
    } else if (!gfs_.Has(object)) {
      reasons.insert(ErrorCode::kFailedPrecondition);
    }
    const std::string_view now = object->At(gfs_.revision(), span.place);
    for (const std::uint64_t revision : entry.candidates) {
      if (object->At(revision, span.place) != now) reasons.insert(ErrorCode::kDataLoss);
    }
  }
  return reasons;
}

std::set<ErrorCode> ServedModel::ReasonsToFail() const {
  std::set<ErrorCode> reasons;
  for (std::uint32_t i = 0; i < extent_count(); ++i) reasons.merge(ReasonsToFail(ExtentId(i)));
  return reasons;
}

void ServedModel::OnResident(ExtentId extent) {
  ReadLedger::Entry& entry = ledger_->Of(name(extent));
  if (!entry.is_loose) entry.is_read = true;
}

}  // namespace forebay::model
