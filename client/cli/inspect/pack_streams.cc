// Describes the coded streams of chunks, for a table, for JSON and for the plot. A chunk is loaded
// and its streams' headers are parsed; nothing is decoded.
#include "client/cli/inspect/pack_streams.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "proto/contract/printable.h"

namespace forebay::cli {

using compress::BlockPrediction;
using compress::ChunkEntry;
using compress::PackField;
using compress::StreamDescription;

Result<ChunkStreams> ReadChunkStreams(const OpenedPack& pack, const ChunkEntry& entry,
                                      std::vector<std::byte>& scratch) {
  const PackField& field = pack.file->schema().fields[entry.field];
  // Grown once and kept by the caller, who passes the same buffer for every chunk.
  scratch.resize(std::max(scratch.size(), pack.file->ScratchBytes()));
  FOREBAY_ASSIGN(const auto loaded, pack.file->Load(entry, scratch));
  ChunkStreams chunk{.facts = {.entry = entry,
                               .codec = loaded.record.head.codec,
                               .begins_sequence = loaded.record.head.begins_sequence,
                               .raw_bytes = loaded.record.head.raw_bytes},
                     .streams = {}};
  // A chunk of empty values has no streams to describe.
  if (loaded.record.head.raw_bytes == 0) return chunk;
  // The description of the streams depends on the shape: a stream says how it is coded, not how
  // many values it has.
  const compress::ChunkShape shape = field.variable()
                                         ? compress::BytesShape(loaded.record.head.raw_bytes)
                                         : field.Shape(entry.tile, entry.sample_count);
  // The payload's checksum was compared by Load. Even so the parsers take it as hostile, because
  // whoever writes a pack also writes its checksums.
  auto streams = compress::DescribeChunk(shape, loaded.record.head.codec, loaded.record.payload,
                                         pack.file->schema().predictors);
  if (!streams) return streams.error().WithContext(compress::NameOf(pack.file->schema(), entry));
  chunk.streams = std::move(*streams);
  return chunk;
}

namespace {

std::string PredictionText(const StreamDescription& stream) {
  if (stream.block_count() == 0) return "-";
  std::string text;
  const auto percent = [&](std::uint64_t blocks) {
    return 100 * static_cast<double>(blocks) / static_cast<double>(stream.block_count());
  };
  for (std::size_t i = 0; i < compress::kBlockPredictions; ++i) {
    // Kinds that do not occur are left out here; JSON has them all, for scripts that add up chunks.
    if (stream.blocks[i] == 0) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ",
                        compress::BlockPredictionName(static_cast<BlockPrediction>(i)),
                        percent(stream.blocks[i]));
  }
  // Blocks that are predicted from another place of the sample before, as where the picture moved.
  if (stream.moved_blocks > 0) {
    text += fmt::format("; moved {:.0f} %", percent(stream.moved_blocks));
  }
  return text;
}

double Quotient(std::uint64_t part, std::uint64_t whole) {
  // A stream may have no bytes: a plane of one value needs none.
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

JsonObject StreamJson(const StreamDescription& stream) {
  JsonObject object = {{"stream", stream.name},
                 {"coder", stream.coder},
                 {"bits", stream.bits},
                 {"raw_bytes", stream.raw_bytes},
                 {"coded_bytes", stream.coded_bytes},
                 {"ratio", Quotient(stream.raw_bytes, stream.coded_bytes)}};
  // Only planes that are coded in blocks have predictions; a byte stream has none.
  if (stream.block_count() > 0) {
    JsonObject blocks;
    for (std::size_t i = 0; i < compress::kBlockPredictions; ++i) {
      blocks.Add(compress::BlockPredictionName(static_cast<BlockPrediction>(i)), stream.blocks[i]);
    }
    object.Add("blocks", blocks);
    object.Add("blocks_moved", stream.moved_blocks);
  }
  return object;
}

}  // namespace

Status PrintStreams(CommandContext& context, const OpenedPack& pack, const std::string& path,
                    std::uint64_t first_sample) {
  TextTable table({"field", "tile", "samples", "stream", "coder", "bits", "raw", "coded", "ratio",
                   "bits/value", "predictors"});
  std::vector<std::byte> scratch;
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    const std::string& name = pack.file->schema().fields[entry.field].name;
    const auto chunk = ReadChunkStreams(pack, entry, scratch);
    // An error with an errno is the system's, and says nothing about the pack. Everything else is
    // damage, which is reported while the other chunks are still described.
    if (!chunk && chunk.error().system_errno() != 0) return chunk.error();
    if (!chunk) {
      context.exit_code = ExitCode::kViolation;
      if (!context.json) {
        context.err << PrintableLine(path + ": " + chunk.error().message()) << '\n';
      }
      continue;
    }
    const std::uint64_t begin = first_sample + entry.first_sample;
    for (const StreamDescription& stream : chunk->streams) {
      if (context.json) {
        JsonObject object = {{"path", path},
                       {"field", name},
                       {"tile", entry.tile},
                       {"first_sample", begin},
                       {"samples", entry.sample_count}};
        // One object for each stream and not one for the pack, which may have millions of chunks.
        object.Add(StreamJson(stream));
        context.PrintJson("inspect_stream", object);
        continue;
      }
      // Planes of more than 8 bits lie in two bytes a value.
      const std::uint64_t values = stream.bits > 8 ? stream.raw_bytes / 2 : stream.raw_bytes;
      table.Add({name, std::to_string(entry.tile),
                 fmt::format("{}:{}", begin, begin + entry.sample_count), stream.name,
                 stream.coder, stream.bits == 0 ? "-" : std::to_string(stream.bits),
                 std::to_string(stream.raw_bytes), std::to_string(stream.coded_bytes),
                 fmt::format("{:.2f}", Quotient(stream.raw_bytes, stream.coded_bytes)),
                 fmt::format("{:.2f}", 8 * Quotient(stream.coded_bytes, values)),
                 PredictionText(stream)});
    }
  }
  if (!context.json) context.out << table.ToString() << '\n';
  return {};
}

Status AddPlotColumns(const OpenedPack& pack, std::uint32_t field, std::uint64_t first_sample,
                      std::vector<PlotColumn>& columns) {
  std::vector<std::byte> scratch;
  for (const ChunkEntry& entry : pack.file->Chunks(field, 0, pack.file->samples())) {
    // Unlike in the table, damage ends it: a picture with a hole would look like one of fewer
    // samples.
    FOREBAY_ASSIGN(const ChunkStreams chunk, ReadChunkStreams(pack, entry, scratch));
    // Tiles and parts of the same samples are one column.
    const std::uint64_t begin = first_sample + entry.first_sample;
    if (columns.empty() || columns.back().first_sample != begin) {
      columns.push_back({.first_sample = begin, .samples = entry.sample_count, .coder_bytes = {}});
    }
    PlotColumn& column = columns.back();
    column.raw_bytes += chunk.facts.raw_bytes;
    column.stored_bytes += entry.head_bytes + entry.payload_bytes;
    std::uint64_t bodies = 0;
    for (const StreamDescription& stream : chunk.streams) {
      column.coder_bytes[stream.coder] += stream.coded_bytes;
      bodies += stream.coded_bytes;
      for (std::size_t i = 0; i < compress::kBlockPredictions; ++i) {
        column.blocks[i] += stream.blocks[i];
      }
    }
    // The remaining bytes, which belong to no stream's body, are heads and the descriptions within
    // the payload. With them the shares sum to the stored bytes.
    column.coder_bytes["heads"] += entry.head_bytes + entry.payload_bytes - bodies;
  }
  return {};
}

}  // namespace forebay::cli
