// How a pack's chunks are coded: streams in a table, ratios and shares as a picture.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/cli/command_context.h"
#include "client/cli/inspect/pack_survey.h"
#include "compress/decode/chunk/chunk_description.h"

namespace forebay::cli {

// A chunk's streams. Errors: kDataLoss (damaged), a system's.
struct ChunkStreams {
  ChunkFacts facts;
  std::vector<compress::StreamDescription> streams;
};
Result<ChunkStreams> ReadChunkStreams(const OpenedPack& pack, const compress::ChunkEntry& entry,
                                      std::vector<std::byte>& scratch);

// A line, or an object, for each stream of each chunk. Samples count from `first_sample`.
Status PrintStreams(CommandContext& context, const OpenedPack& pack, const std::string& path,
                    std::uint64_t first_sample);

// What a run of chunks of one field is made of.
struct PlotColumn {
  std::uint64_t first_sample = 0, samples = 0;
  std::uint64_t raw_bytes = 0, stored_bytes = 0;
  std::map<std::string, std::uint64_t> coder_bytes;  // "heads", "wavefront", "zstd" ...
  std::array<std::uint64_t, compress::kBlockPredictions> blocks = {};
};

// Adds the chunks of one field of a pack, whose samples count from `first_sample`.
Status AddPlotColumns(const OpenedPack& pack, std::uint32_t field, std::uint64_t first_sample,
                      std::vector<PlotColumn>& columns);

// A picture of ratio, shares of bytes by coder and shares of blocks by prediction, along the
// samples; columns that lie too close are joined. An SVG document.
std::string PlotOf(const std::string& title, std::vector<PlotColumn> columns);

}  // namespace forebay::cli
