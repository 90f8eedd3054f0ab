// The sections of a schema that hold learned predictors or name them by SHA-256. A predictor that
// is only named is asked for by a callback, and its hash is compared with the name, so that another
// network can never be used silently. Called while a pack's start is read or written.
#include "compress/format/pack/pack_predictors.h"

#include <algorithm>
#include <set>
#include <string>

#include "compress/format/damaged.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

bool IsNamed(const PackSchema& schema, const Sha256Digest& id) {
  return std::ranges::find(schema.named_predictors, id) != schema.named_predictors.end();
}

Error Unusable(const Sha256Digest& id, const std::string& why) {
  return Error(ErrorCode::kFailedPrecondition,
               "pack: coded with the learned predictor of SHA-256 " + Sha256Hex(id) + ", " + why);
}

}  // namespace

Status CheckPredictors(const PackSchema& schema) {
  const auto invalid = [](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument, "pack: " + what);
  };
  // A predictor that is both named and in memory counts once, because a reader needs it once.
  std::set<Sha256Digest> ids;
  std::set<std::uint64_t> short_ids;
  for (const auto& predictor : schema.predictors) {
    if (predictor == nullptr) return invalid("a predictor that is null");
    ids.insert(predictor->id());
    // Planes name a predictor by 8 bytes of its hash, so these must differ within a pack.
    if (!short_ids.insert(predictor->short_id()).second) return invalid("a predictor twice");
  }
  for (const Sha256Digest& id : schema.named_predictors) ids.insert(id);
  if (ids.size() > limits::kPackModelsMax) {
    return invalid("more than " + std::to_string(limits::kPackModelsMax) + " predictors");
  }
  return {};
}

void WriteSections(const PackSchema& schema, ByteWriter& writer) {
  // The number of sections precedes them, so those that are written are counted first.
  const auto embedded = std::ranges::count_if(
      schema.predictors,
      [&](const auto& predictor) { return !IsNamed(schema, predictor->id()); });
  writer.Varint(static_cast<std::uint64_t>(embedded) + schema.named_predictors.size());
  for (const auto& predictor : schema.predictors) {
    // A named predictor may be in memory as well, because FindPredictors adds it. It is still
    // written by name only.
    if (IsNamed(schema, predictor->id())) continue;
    writer.Varint(kSectionPredictor);
    writer.Varint(predictor->bytes().size());
    writer.Bytes(predictor->bytes());
  }
  for (const Sha256Digest& id : schema.named_predictors) {
    writer.Varint(kSectionPredictorName);
    writer.Varint(id.size());
    writer.Bytes(id);
  }
}

Status ReadSections(const PredictorBudget& budget, ByteReader& reader, PackSchema& schema) {
  const auto damaged = [] {
    return Damaged("pack", "a section of the schema is cut off or has the wrong size");
  };
  const std::uint64_t sections = reader.ReadVarint();
  for (std::uint64_t i = 0; i < sections; ++i) {
    const std::uint64_t type = reader.ReadVarint();
    const std::uint64_t size = reader.ReadVarint();
    // Sections of an unknown type are passed over by their size, so the size is checked for all
    // types. `sections` itself needs no bound: each one takes bytes, and the loop ends with them.
    if (!reader.ok() || size > reader.remaining()) return damaged();
    const std::span<const std::byte> bytes = reader.Take(static_cast<std::size_t>(size));
    // Checked for each section, before the next one is parsed: a file cannot make a reader parse
    // networks without end.
    if (schema.predictors.size() + schema.named_predictors.size() > limits::kPackModelsMax) {
      return damaged();
    }
    if (type == kSectionPredictor) {
      FOREBAY_ASSIGN(auto predictor, Predictor::Parse(bytes, budget));
      schema.predictors.push_back(std::move(predictor));
    } else if (type == kSectionPredictorName) {
      Sha256Digest& id = schema.named_predictors.emplace_back();
      // The place was added before the size was checked. On damage the caller drops the whole
      // schema.
      if (bytes.size() != id.size()) return damaged();
      std::ranges::copy(bytes, id.begin());
    }
  }
  return {};
}

Status FindPredictors(const PredictorFinder& finder, PackSchema& schema) {
  for (const Sha256Digest& id : schema.named_predictors) {
    const bool there = std::ranges::any_of(
        schema.predictors, [&](const auto& predictor) { return predictor->id() == id; });
    if (there) continue;
    if (!finder) {
      return Unusable(id, "which the file names and does not hold; say in which folder its file "
                          "lies");
    }
    const auto found = finder(id);
    if (!found.has_value()) {
      return found.error().WithContext("pack: looking for the learned predictor of SHA-256 " +
                                       Sha256Hex(id));
    }
    // Whatever the callback brings, only the network with the right hash decodes the right pixels.
    if (*found == nullptr || (*found)->id() != id) {
      return Unusable(id, *found == nullptr
                              ? "which was not found"
                              : "brought was " + Sha256Hex((*found)->id()) +
                                    "; find the right one");
    }
    schema.predictors.push_back(*found);
  }
  return {};
}

}  // namespace forebay::compress
