// Reads the class of every sample of a selection, through the daemon, for ClassLayout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "forebay/client.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Larger selections are not read for their labels: a look at a data set should take seconds.
inline constexpr std::uint64_t kLabelSamplesMax = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kLabelBytesMax = std::uint64_t{8} << 30;

// The field that holds a sample's class: `wanted`, or, if that is empty, a field named "label" or
// "labels" that is one whole number per sample; nothing if there is none. kNotFound or
// kInvalidArgument if there is no field `wanted`, or it is not such a number.
Result<std::optional<std::string>> FindLabelField(const DatasetInfo& info,
                                                  const std::string& wanted);

// The label of each sample, by its index in the selection. A stream delivers all fields of a
// sample, so this reads the whole selection once, in the order of storage. Requires a field that
// FindLabelField returned. kDataLoss if a sample has no label; the errors of a stream.
Result<std::vector<std::int64_t>> ReadLabels(Client& client, const DatasetInfo& info,
                                             const std::string& selection,
                                             const std::string& field);

}  // namespace forebay::cli
