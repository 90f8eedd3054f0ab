// SurveyNode: asks a running daemon for what `forebay tune` needs: the size of a data set, the
// nodes and their tiers, and how fast each source is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "client/cli/tune/reading_cost.h"
#include "forebay/client.h"
#include "proto/contract/result.h"

namespace forebay::cli {

struct CommandContext;

struct NodeSurvey {
  DatasetSize dataset;  // of the selection
  std::uint64_t nodes = 1;
  double ram_bytes = 0;  // capacities of this node's tiers
  double ssd_bytes = 0;
  double copies_bytes = 0;  // of the data set's extents that other nodes own
  // Bytes per second, by source; nothing where the daemon has not used a source enough to tell.
  std::array<std::optional<double>, kReadSources> rates = {};
  // The message with which the daemon refused a stream in mode `global`, because the tiers do not
  // hold the data set. Empty if it accepted the stream.
  std::string refusal;
};

struct SurveyOptions {
  std::uint32_t global_batch = 64;
  double seconds = 2;  // how long samples are read, to measure
};

// Reads the selection for some seconds, in mode `global`, or in mode `block` if the daemon refuses
// `global`, and asks the daemon where the samples came from:
//
//   RAM, SSD  the rate of the stream, if at least 95 % of its samples came from this one tier
//   link      what this node has received from all others, over the time that requests took
//   GFS       what was staged of the data set, over the time that staging took
//
// Requires a data set with a catalog. Errors: those of streams and of the admin service.
Result<NodeSurvey> SurveyNode(const CommandContext& context, Client& client,
                              const DatasetInfo& info, const std::string& selection,
                              const SurveyOptions& options);

}  // namespace forebay::cli
