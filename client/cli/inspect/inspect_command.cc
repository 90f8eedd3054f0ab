// `forebay inspect`: shows what a pack file or a set of packs holds, and whether all of it is
// sound. One pass over the packs collects everything in an Inspection: the survey reads the heads
// of all chunks, and --verify decodes the chunks as well. Damage does not end the pass, so that the
// user sees all of it; a failure of the system ends it. The figures of a set are sums over its
// shards. The lines of --chunks and --streams are printed during the pass, everything else after
// it.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/pack_streams.h"
#include "client/cli/inspect/pack_survey.h"
#include "client/cli/inspect/pack_verify.h"
#include "client/cli/pack/pack_bounds.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

using compress::ChunkEntry;
using compress::FieldKind;
using compress::PackField;

struct InspectArguments {
  std::string path;
  bool chunks = false, streams = false, verify = false, recover = false;
  std::string plot, plot_field;
};

const char* KindName(FieldKind kind) {
  switch (kind) {
    case FieldKind::kImage: return "image";
    case FieldKind::kLabel: return "label";
    case FieldKind::kMask: return "mask";
    case FieldKind::kMetadata: return "metadata";
    case FieldKind::kRaw: return "raw";
  }
  return "unknown";
}

// Used for shapes and for tiles: a tile has as many axes as its field.
std::string ShapeText(const PackField& field, const std::array<std::uint32_t, 4>& extents) {
  if (field.variable()) return "any length";
  if (field.rank == 0) return "scalar";
  std::string text;
  for (std::size_t axis = 0; axis < field.rank; ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : "x", extents[axis]);
  }
  return text;
}

std::string FormatText(const compress::PackHeader& header) {
  return fmt::format("{}.{}", header.major, header.minor);
}

// Empty for a pack of format 1: ids came with format 2.
std::string IdText(const compress::PackHeader& header) {
  return header.id.has_value() ? compress::PackIdHex(*header.id) : "";
}

JsonArray ExtentsJson(const PackField& field, const std::array<std::uint32_t, 4>& extents) {
  JsonArray array;
  for (std::size_t axis = 0; axis < field.rank; ++axis) array.Add(extents[axis]);
  return array;
}

// Zero stands for "no ratio": a field of a pack without samples has stored nothing.
double RatioOf(std::uint64_t raw, std::uint64_t stored) {
  return stored == 0 ? 0 : static_cast<double>(raw) / static_cast<double>(stored);
}

// Prints a line for each chunk of one pack, in the order of the index. Samples are numbered through
// the whole set, from `first_sample` on, as readers of the set number them.
Status PrintChunks(CommandContext& context, const OpenedPack& pack, const std::string& path,
                   std::uint64_t first_sample) {
  TextTable table({"field", "tile", "samples", "offset", "raw", "stored", "ratio", "codec"});
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    const std::string& name = pack.file->schema().fields[entry.field].name;
    const std::uint64_t stored = entry.head_bytes + entry.payload_bytes;
    const auto facts = ReadChunkFacts(pack, entry);
    // A damaged chunk is shown as such, among its neighbours; its place in the file is known from
    // the index.
    if (!facts && facts.error().code() != ErrorCode::kDataLoss) return facts.error();
    const std::string codec = facts ? CodecName(facts->codec) : "damaged";
    // Only the head says how many raw bytes a chunk has; without it there is no ratio either.
    const std::uint64_t raw = facts ? facts->raw_bytes : 0;
    if (context.json) {
      context.PrintJson("inspect_chunk", {{"path", path},
                                          {"field", name},
                                          {"tile", entry.tile},
                                          {"first_sample", first_sample + entry.first_sample},
                                          {"samples", entry.sample_count},
                                          {"offset", entry.offset},
                                          {"part_offset", entry.part_offset},
                                          {"raw_bytes", raw},
                                          {"stored_bytes", stored},
                                          {"codec", codec},
                                          {"begins_sequence", facts && facts->begins_sequence}});
      continue;
    }
    table.Add({name, std::to_string(entry.tile),
               fmt::format("{}:{}", first_sample + entry.first_sample,
                           first_sample + entry.first_sample + entry.sample_count),
               std::to_string(entry.offset), std::to_string(raw), std::to_string(stored),
               fmt::format("{:.2f}", RatioOf(raw, stored)), codec});
  }
  if (!context.json) context.out << table.ToString() << '\n';
  return {};
}

// The sizes and codecs are those of the survey: a chunk with a damaged head counts in `chunks` and
// `stored_bytes`, whose figures come from the index, but not in `raw_bytes`.
JsonObject FieldJson(const compress::PackSchema& schema, const PackField& field,
               const FieldSurvey& survey) {
  JsonObject codecs;
  for (std::size_t codec = 0; codec < FieldSurvey::kCodecs; ++codec) {
    codecs.Add(CodecName(static_cast<compress::ChunkCodec>(codec)), survey.raw_of_codec[codec]);
  }
  return {{"name", field.name},
          {"kind", KindName(field.kind)},
          {"dtype", DtypeName(field.dtype)},
          {"variable", field.variable()},
          {"shape", ExtentsJson(field, field.extent)},
          {"tile", ExtentsJson(field, field.tile)},
          {"samples_per_chunk", field.samples_per_chunk},
          {"bound", DescribeBound(schema, field)},
          {"chunks", survey.chunks},
          {"chunks_unreadable", survey.unreadable},
          {"raw_bytes", survey.raw_bytes},
          {"stored_bytes", survey.stored_bytes},
          {"raw_bytes_of_codec", codecs}};
}

// Shares are of raw bytes, not of stored ones: they say how much of the data each codec was chosen
// for, and do not depend on how well it did.
std::string CodecShares(const FieldSurvey& survey) {
  std::string text;
  for (std::size_t codec = 0; codec < FieldSurvey::kCodecs; ++codec) {
    if (survey.raw_of_codec[codec] == 0) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ",
                        CodecName(static_cast<compress::ChunkCodec>(codec)),
                        100 * RatioOf(survey.raw_of_codec[codec], survey.raw_bytes));
  }
  return text.empty() ? "-" : text;
}

// Everything that one run finds in a pack, or in all shards of a set.
struct Inspection {
  compress::PackSchema schema;  // the first shard's
  // One for each field, merged over all shards; empty if any shard has none.
  std::vector<compress::FieldStatistics> statistics;
  // Some of them are of format 1: infinities count as valid, and deviations are rough.
  bool old_statistics = false;
  std::vector<compress::PackHeader> headers;  // of each pack
  PackSurvey survey;
  std::vector<std::string> damage;
  std::uint64_t unreadable = 0, chunks = 0;
};

// Merges the statistics of one pack into those found so far. They are a record of their own, which
// can be damaged while all chunks are sound. That is reported as damage, and no statistics are
// shown.
Status TakeStatistics(const OpenedPack& pack, const std::string& path, bool first,
                      Inspection& found) {
  auto statistics = pack.file->Statistics();
  if (!statistics && statistics.error().code() != ErrorCode::kDataLoss) return statistics.error();
  if (!statistics) {
    found.damage.push_back(path + ": " + statistics.error().message());
    statistics = std::vector<compress::FieldStatistics>();
  }
  if (first) {
    found.statistics = std::move(*statistics);
    return {};
  }
  // Statistics of some shards would look like those of the whole set.
  if (statistics->size() != found.statistics.size()) found.statistics.clear();
  for (std::size_t field = 0; field < found.statistics.size(); ++field) {
    found.statistics[field] = compress::Merge(found.schema.fields[field],
                                              found.statistics[field], (*statistics)[field]);
  }
  return {};
}

double ShareOf(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// A minimum or maximum. Those of integers, and of the lengths of byte strings, are shown from their
// bits: a double does not hold every 64-bit integer. Dtypes are numbered with integers first.
JsonValue ExtremeJson(const PackField& field, std::uint64_t bits, double value) {
  if (field.variable() || field.dtype < Dtype::kF16) return static_cast<std::int64_t>(bits);
  return value;
}

std::string ExtremeText(const PackField& field, std::uint64_t bits, double value) {
  if (field.variable() || field.dtype < Dtype::kF16) {
    return fmt::format("{}", static_cast<std::int64_t>(bits));
  }
  return fmt::format("{:.6g}", value);
}

// "valid" is a share of all values and "zeros" is a share of the valid ones, because a NaN or a
// fill value is no candidate for zero. Format 1 did not count infinities, which "?" says.
void PrintStatistics(CommandContext& context, const Inspection& found) {
  if (found.statistics.empty()) return;
  TextTable table({"field", "values", "valid", "NaN", "inf", "zeros", "min", "max", "mean",
                   "deviation"});
  for (std::size_t i = 0; i < found.statistics.size(); ++i) {
    const PackField& field = found.schema.fields[i];
    const compress::FieldStatistics& numbers = found.statistics[i];
    table.Add({field.name + (field.variable() ? " (lengths)" : ""), HumanCount(numbers.values),
               fmt::format("{:.4g} %", 100 * ShareOf(numbers.valid, numbers.values)),
               HumanCount(numbers.nans),
               found.old_statistics
                   ? "?"
                   : HumanCount(numbers.positive_infinities + numbers.negative_infinities),
               fmt::format("{:.4g} %", 100 * ShareOf(numbers.zeros, numbers.valid)),
               ExtremeText(field, numbers.minimum_bits, MinimumOf(field, numbers)),
               ExtremeText(field, numbers.maximum_bits, MaximumOf(field, numbers)),
               fmt::format("{:.6g}", numbers.mean),
               fmt::format("{:.6g}", DeviationOf(numbers))});
  }
  context.out << '\n' << table.ToString();
  if (found.old_statistics) {
    context.out << "statistics of format 1: infinities count as valid, and deviations that are "
                   "small beside the mean are rough; `forebay pack --from` makes new ones\n";
  }
}

JsonObject StatisticsJson(const PackField& field, const compress::FieldStatistics& numbers,
                    bool old_statistics) {
  // Statistics of format 1 do not count infinities: null says so, 0 would be wrong.
  const auto known = [&](std::uint64_t count) { return old_statistics ? JsonValue() : count; };
  return {{"values", numbers.values},
          {"valid", numbers.valid},
          {"nans", numbers.nans},
          {"positive_infinities", known(numbers.positive_infinities)},
          {"negative_infinities", known(numbers.negative_infinities)},
          {"zeros", numbers.zeros},
          {"min", ExtremeJson(field, numbers.minimum_bits, MinimumOf(field, numbers))},
          {"max", ExtremeJson(field, numbers.maximum_bits, MaximumOf(field, numbers))},
          {"mean", numbers.mean},
          {"deviation", DeviationOf(numbers)},
          {"approximate", old_statistics}};
}

// Provenance is text that somebody wrote into the file, so PrintableLine keeps it from adding lines
// or moving the cursor. The table does the same for names of fields.
void PrintFields(CommandContext& context, const compress::PackSchema& schema,
                 const PackSurvey& survey) {
  for (const auto& [name, value] : schema.provenance) {
    context.out << fmt::format("  {}: {}\n", PrintableLine(name), PrintableLine(value));
  }
  TextTable table({"field", "kind", "dtype", "shape", "tile", "bound", "samples/chunk", "chunks",
                   "raw", "stored", "ratio", "codecs"});
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    const PackField& field = schema.fields[i];
    const FieldSurvey& facts = survey.fields[i];
    table.Add({field.name, KindName(field.kind), std::string(DtypeName(field.dtype)),
               ShapeText(field, field.extent), ShapeText(field, field.tile),
               DescribeBound(schema, field), std::to_string(field.samples_per_chunk),
               HumanCount(facts.chunks), HumanBytes(facts.raw_bytes),
               HumanBytes(facts.stored_bytes),
               fmt::format("{:.3f}", RatioOf(facts.raw_bytes, facts.stored_bytes)),
               CodecShares(facts)});
  }
  context.out << '\n' << table.ToString();
}

// A single pack has its format and id in the line below the first. The shards of a set can differ
// in both, so a set shows them in a table of shards.
void PrintTable(CommandContext& context, const InspectArguments& arguments,
                const OpenedPacks& packs, const Inspection& found) {
  std::string shards;
  if (packs.is_set()) {
    shards = fmt::format(", {} shards, generation {}", HumanCount(packs.count()),
                         packs.set().manifest().generation);
  }
  context.out << fmt::format("{}: {} samples{}, {}, raw {}, ratio {:.3f}{}{}{}\n", arguments.path,
                             HumanCount(packs.samples()),
                             // Recovering keeps only samples that are whole in every field.
                             arguments.recover ? " complete" : "",
                             HumanBytes(found.survey.file_bytes),
                             HumanBytes(found.survey.raw_bytes), found.survey.ratio(),
                             found.schema.keyed ? ", keys" : "",
                             found.schema.aligned ? ", aligned" : "", shards);
  if (!packs.is_set()) {
    const std::string id = IdText(found.headers[0]);
    context.out << fmt::format("  format {}{}\n", FormatText(found.headers[0]),
                               id.empty() ? ", without an id" : ", id " + id);
  }
  PrintFields(context, found.schema, found.survey);
  PrintStatistics(context, found);
  if (packs.is_set()) {
    TextTable table({"shard", "samples", "size", "format", "id"});
    for (std::size_t i = 0; i < packs.count(); ++i) {
      const compress::ShardEntry& shard = packs.set().manifest().shards[i];
      table.Add({shard.name,
                 fmt::format("{}:{}", packs.FirstSample(i), packs.FirstSample(i) + shard.samples),
                 HumanBytes(shard.file_bytes), FormatText(found.headers[i]),
                 IdText(found.headers[i])});
    }
    context.out << '\n' << table.ToString();
  }
  for (const std::string& line : found.damage) context.err << PrintableLine(line) << '\n';
  if (arguments.verify) {
    context.out << fmt::format("\nverified {} chunks: {} damaged\n", HumanCount(found.chunks),
                               HumanCount(found.damage.size()));
  } else if (found.unreadable > 0) {
    // The survey counts damaged heads without naming them. With --verify they are in the list
    // above.
    context.err << fmt::format("{}: the heads of {} chunks are damaged; --verify names them\n",
                               arguments.path, found.unreadable);
  }
}

// One object for the whole pack or set. A field without statistics lacks the member "statistics",
// so that a script cannot take zeros for measured values. An empty "damage" means that everything
// is sound only where "verified" is true: without --verify no chunk was decoded.
void PrintObject(CommandContext& context, const InspectArguments& arguments,
                 const OpenedPacks& packs, const Inspection& found) {
  JsonObject provenance;
  for (const auto& [name, value] : found.schema.provenance) provenance.Add(name, value);
  JsonArray fields;
  for (std::size_t i = 0; i < found.schema.fields.size(); ++i) {
    const PackField& field = found.schema.fields[i];
    JsonObject json = FieldJson(found.schema, field, found.survey.fields[i]);
    if (!found.statistics.empty()) {
      json.Add("statistics", StatisticsJson(field, found.statistics[i], found.old_statistics));
    }
    fields.Add(json);
  }
  JsonObject object = {{"path", arguments.path},
                 {"samples", packs.samples()},
                 {"recovered", arguments.recover},
                 {"file_bytes", found.survey.file_bytes},
                 {"raw_bytes", found.survey.raw_bytes},
                 {"ratio", found.survey.ratio()},
                 {"keyed", found.schema.keyed},
                 {"aligned", found.schema.aligned},
                 {"provenance", provenance},
                 {"fields", fields},
                 {"verified", arguments.verify},
                 {"damage", found.damage}};
  if (packs.is_set()) {
    object.Add("generation", packs.set().manifest().generation);
    JsonArray shards;
    for (std::size_t i = 0; i < packs.count(); ++i) {
      const compress::ShardEntry& shard = packs.set().manifest().shards[i];
      shards.Add(JsonObject({{"name", shard.name},
                                  {"first_sample", packs.FirstSample(i)},
                                  {"samples", shard.samples},
                                  {"file_bytes", shard.file_bytes},
                                  {"format", FormatText(found.headers[i])},
                                  {"id", IdText(found.headers[i])}}));
    }
    object.Add("shards", shards);
  } else {
    object.Add("format", FormatText(found.headers[0]));
    object.Add("id", IdText(found.headers[0]));
  }
  context.PrintJson("inspect", object);
}

// The default is the field with the most raw bytes, because it is usually the one whose coding
// matters for the size of the pack.
Result<std::uint32_t> FieldToPlot(const InspectArguments& arguments, const Inspection& found) {
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < found.schema.fields.size(); ++i) {
    if (found.schema.fields[i].name == arguments.plot_field) return i;
    if (found.survey.fields[i].raw_bytes > found.survey.fields[largest].raw_bytes) largest = i;
  }
  if (arguments.plot_field.empty()) return largest;
  return Error(ErrorCode::kNotFound,
               fmt::format("{}: no field {}", arguments.path, arguments.plot_field));
}

Status WritePlot(CommandContext& context, const InspectArguments& arguments,
                 const OpenedPacks& packs, const Inspection& found) {
  FOREBAY_ASSIGN(const std::uint32_t field, FieldToPlot(arguments, found));
  std::vector<PlotColumn> columns;
  for (std::size_t i = 0; i < packs.count(); ++i) {
    FOREBAY_ASSIGN(const OpenedPack pack, packs.Pack(i));
    FOREBAY_TRY(AddPlotColumns(pack, field, packs.FirstSample(i), columns));
  }
  // Opened after everything was read: a pack that cannot be read leaves an older picture as it is.
  std::ofstream file(arguments.plot, std::ios::binary | std::ios::trunc);
  file << PlotOf(fmt::format("{}: field {}", arguments.path, found.schema.fields[field].name),
                 std::move(columns));
  // A full disk may show only when the buffer is written out. The destructor would hide that error,
  // so the file is closed here.
  file.close();
  if (!file) return Error::FromErrno(errno, arguments.plot + ": writing");
  if (!context.json) context.out << "\nplot: " << arguments.plot << '\n';
  return {};
}

// Damage is a result of this command and not a failure of it: it sets the exit code, and the
// function returns success, so that everything that can still be read is shown.
Status RunInspect(CommandContext& context, const InspectArguments& arguments) {
  FOREBAY_ASSIGN(const OpenedPacks packs,
                 OpenedPacks::Open(arguments.path, arguments.recover));
  Inspection found;
  for (std::size_t i = 0; i < packs.count(); ++i) {
    FOREBAY_ASSIGN(const OpenedPack pack, packs.Pack(i));
    // Shards are opened one after the other, so that a set of any size needs one shard's memory.
    FOREBAY_ASSIGN(const PackSurvey survey, SurveyPack(pack));
    AddSurvey(survey, found.survey);
    // All shards of a set have the same fields; PackSet has compared them.
    if (i == 0) found.schema = pack.file->schema();
    // Kept for each shard, because shards of one set may be of different formats.
    found.headers.push_back(pack.file->header());
    found.old_statistics |= pack.file->header().major < 2;
    // A file without its end has no statistics: they are written last.
    if (!arguments.recover) FOREBAY_TRY(TakeStatistics(pack, packs.Path(i), i == 0, found));
    found.chunks += pack.file->index().chunks.size();
    if (arguments.chunks) {
      FOREBAY_TRY(PrintChunks(context, pack, packs.Path(i), packs.FirstSample(i)));
    }
    if (arguments.streams) {
      FOREBAY_TRY(PrintStreams(context, pack, packs.Path(i), packs.FirstSample(i)));
    }
    if (!arguments.verify) continue;
    FOREBAY_ASSIGN(std::vector<std::string> damage, VerifyPack(context, pack));
    // VerifyPack also reports damaged statistics, which TakeStatistics may have listed already. A
    // line with the same text is listed once. The path tells equal lines of two shards apart.
    for (const std::string& line : damage) {
      const std::string named = packs.Path(i) + ": " + line;
      if (std::ranges::count(found.damage, named) == 0) found.damage.push_back(named);
    }
  }
  for (const FieldSurvey& field : found.survey.fields) found.unreadable += field.unreadable;
  // Set before anything is printed, because a damaged pack is shown all the same.
  if (!found.damage.empty() || found.unreadable > 0) context.exit_code = ExitCode::kViolation;
  if (context.json) {
    PrintObject(context, arguments, packs, found);
  } else {
    PrintTable(context, arguments, packs, found);
  }
  // The plot comes last: it reads every chunk of one field again, and a failure to draw it must not
  // keep the tables from the user.
  return arguments.plot.empty() ? Status() : WritePlot(context, arguments, packs, found);
}

}  // namespace

void AddInspect(Command& program, CommandContext& context) {
  Command command = program.AddCommand("inspect",
                         "Show what a pack file or a set of packs holds; no daemon is needed.");
  auto arguments = std::make_shared<InspectArguments>();
  command.AddOption("PACK", arguments->path, "The pack file, or a set's manifest")
      .Required()
      .ValueName("FILE");
  command.AddFlag("--chunks", arguments->chunks, "A line per chunk");
  command.AddFlag("--streams", arguments->streams,
                    "A line per chunk and stream: coder, bits, ratio, share of predictors");
  command.AddOption("--plot", arguments->plot,
                      "Write an SVG: ratio, coders and predictors along the samples")
      .ValueName("FILE");
  command.AddOption("--plot-field", arguments->plot_field,
                      "The field that is plotted (default: the one with most bytes)");
  command.AddFlag("--verify", arguments->verify,
                    "Decode everything and check every checksum; damage is named");
  command.AddFlag("--recover", arguments->recover,
                    "Read a file that lacks its end, as far as its records are whole");
  command.SetFooter("Exit code 3: damage was found, or the file lacks its end.");
  command.OnRun([&context, arguments] { return RunInspect(context, *arguments); });
}

}  // namespace forebay::cli
