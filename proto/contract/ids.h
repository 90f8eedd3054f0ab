// Strong types for ids and indices, so that a sample is never passed where an extent is meant.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace forebay {

// An integer with a name. Converts from its representation explicitly, to it by value().
template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;

 private:
  Rep value_ = 0;
};

using SampleId = StrongId<struct SampleIdTag, std::uint64_t>;  // index in the catalog, 0-based
using ObjectId = StrongId<struct ObjectIdTag, std::uint32_t>;  // index in the catalog's objects
using ExtentId = StrongId<struct ExtentIdTag, std::uint32_t>;  // index in the catalog's extents
using FieldId = StrongId<struct FieldIdTag, std::uint32_t>;    // index in the catalog's fields
using EpochId = StrongId<struct EpochIdTag, std::uint32_t>;    // 0-based
using StepId = StrongId<struct StepIdTag, std::uint64_t>;      // 0-based within an epoch
using Position = StrongId<struct PositionTag, std::uint64_t>;  // index in an epoch's order
using NodeRank = StrongId<struct NodeRankTag, std::uint32_t>;  // number of a node of the job
using StreamId = StrongId<struct StreamIdTag, std::uint64_t>;  // names one open stream
using RegionId = StrongId<struct RegionIdTag, std::uint32_t>;  // index in the region table
using SlotId = StrongId<struct SlotIdTag, std::uint32_t>;      // index of a slot

// Hash functor for unordered containers in memory. It must not become part of anything that two
// processes must agree on.
struct IdHash {
  template <typename Tag, typename Rep>
  std::size_t operator()(StrongId<Tag, Rep> id) const {
    std::uint64_t x = static_cast<std::uint64_t>(id.value()) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};

}  // namespace forebay
