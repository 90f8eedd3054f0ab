// `forebay inspect`: what a pack file holds, and whether all of it is sound.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/human_text.h"
#include "client/cli/pack_survey.h"
#include "client/cli/progress_line.h"

namespace forebay::cli {
namespace {

using compress::ChunkEntry;
using compress::FieldKind;
using compress::PackField;

struct InspectArguments {
  std::string path;
  bool chunks = false, verify = false, recover = false;
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

// "lossless", "abs 0.5".
std::string BoundText(const compress::DeclaredBound& bound) {
  switch (bound.mode) {
    case 0: return "lossless";
    case 1: return fmt::format("abs {}", bound.absolute);
    case 2: return fmt::format("rel {}", bound.relative);
    case 3: return fmt::format("abs {} and rel {}", bound.absolute, bound.relative);
    case 4: return fmt::format("abs {} or rel {}", bound.absolute, bound.relative);
    default: return fmt::format("pw {}", bound.relative);
  }
}

std::string ShapeText(const PackField& field, const std::array<std::uint32_t, 4>& extents) {
  if (field.variable()) return "any length";
  if (field.rank == 0) return "scalar";
  std::string text;
  for (std::size_t axis = 0; axis < field.rank; ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : "x", extents[axis]);
  }
  return text;
}

Json ExtentsJson(const PackField& field, const std::array<std::uint32_t, 4>& extents) {
  Json array = Json::array();
  for (std::size_t axis = 0; axis < field.rank; ++axis) array.push_back(extents[axis]);
  return array;
}

double RatioOf(std::uint64_t raw, std::uint64_t stored) {
  return stored == 0 ? 0 : static_cast<double>(raw) / static_cast<double>(stored);
}

Status PrintChunks(CommandContext& context, const OpenedPack& pack) {
  TextTable table({"field", "tile", "samples", "offset", "raw", "stored", "ratio", "codec"});
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    const std::string& name = pack.file->schema().fields[entry.field].name;
    const std::uint64_t stored = entry.head_bytes + entry.payload_bytes;
    const auto facts = ReadChunkFacts(pack, entry);
    if (!facts && facts.error().code() != ErrorCode::kDataLoss) return facts.error();
    const std::string codec = facts ? CodecName(facts->codec) : "damaged";
    const std::uint64_t raw = facts ? facts->raw_bytes : 0;
    if (context.json) {
      context.PrintJson("inspect_chunk", {{"field", name},
                                          {"tile", entry.tile},
                                          {"first_sample", entry.first_sample},
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
               fmt::format("{}:{}", entry.first_sample, entry.first_sample + entry.sample_count),
               std::to_string(entry.offset), std::to_string(raw), std::to_string(stored),
               fmt::format("{:.2f}", RatioOf(raw, stored)), codec});
  }
  if (!context.json) context.out << table.ToString() << '\n';
  return {};
}

// Decodes everything; what is damaged, one line each. Errors of the system end it.
Result<std::vector<std::string>> Verify(CommandContext& context, const OpenedPack& pack) {
  std::vector<std::string> damage;
  std::vector<std::byte> scratch(pack.file->ScratchBytes());
  ProgressLine line(context.out, context.terminal);
  ProgressLine::State state{.name = "verifying", .note = {}};
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    state.bytes_total += entry.head_bytes + entry.payload_bytes;
  }
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    const auto decoded = pack.file->DecodeWhole(entry, scratch);
    // Whatever is wrong with the bytes: a decoder calls damage by several names.
    if (!decoded && decoded.error().system_errno() != 0) return decoded.error();
    if (!decoded) damage.push_back(decoded.error().message());
    state.bytes_done += entry.head_bytes + entry.payload_bytes;
    if (!damage.empty()) state.note = fmt::format("{} damaged", damage.size());
    if (!context.json && context.terminal) line.Show(state);
  }
  if (!context.json && context.terminal) context.out << "\r\x1b[K";
  for (const compress::KeyEntry& entry : pack.file->index().keys) {
    const auto keys = pack.file->Keys(entry.first_sample, entry.sample_count);
    if (!keys && keys.error().system_errno() != 0) return keys.error();
    if (!keys) {
      damage.push_back(fmt::format("keys of samples {} to {}, at byte {}: {}", entry.first_sample,
                                   entry.first_sample + entry.sample_count - 1, entry.offset,
                                   keys.error().message()));
    }
  }
  return damage;
}

Json FieldJson(const PackField& field, const FieldSurvey& survey) {
  Json codecs = Json::object();
  for (std::size_t codec = 0; codec < FieldSurvey::kCodecs; ++codec) {
    codecs[CodecName(static_cast<compress::ChunkCodec>(codec))] = survey.raw_of_codec[codec];
  }
  return {{"name", field.name},
          {"kind", KindName(field.kind)},
          {"dtype", DtypeName(field.dtype)},
          {"variable", field.variable()},
          {"shape", ExtentsJson(field, field.extent)},
          {"tile", ExtentsJson(field, field.tile)},
          {"samples_per_chunk", field.samples_per_chunk},
          {"bound", BoundText(field.bound)},
          {"chunks", survey.chunks},
          {"chunks_unreadable", survey.unreadable},
          {"raw_bytes", survey.raw_bytes},
          {"stored_bytes", survey.stored_bytes},
          {"raw_bytes_of_codec", std::move(codecs)}};
}

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

void PrintTable(CommandContext& context, const InspectArguments& arguments,
                const OpenedPack& pack, const PackSurvey& survey) {
  const compress::PackSchema& schema = pack.file->schema();
  context.out << fmt::format("{}: {} samples{}, {}, raw {}, ratio {:.3f}{}{}\n", arguments.path,
                             HumanCount(pack.file->samples()),
                             arguments.recover ? " complete" : "", HumanBytes(survey.file_bytes),
                             HumanBytes(survey.raw_bytes), survey.ratio(),
                             schema.keyed ? ", keys" : "", schema.aligned ? ", aligned" : "");
  for (const auto& [name, value] : schema.provenance) {
    context.out << fmt::format("  {}: {}\n", name, value);
  }
  TextTable table({"field", "kind", "dtype", "shape", "tile", "bound", "samples/chunk", "chunks",
                   "raw", "stored", "ratio", "codecs"});
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    const PackField& field = schema.fields[i];
    const FieldSurvey& facts = survey.fields[i];
    table.Add({field.name, KindName(field.kind), std::string(DtypeName(field.dtype)),
               ShapeText(field, field.extent), ShapeText(field, field.tile),
               BoundText(field.bound), std::to_string(field.samples_per_chunk),
               HumanCount(facts.chunks), HumanBytes(facts.raw_bytes),
               HumanBytes(facts.stored_bytes),
               fmt::format("{:.3f}", RatioOf(facts.raw_bytes, facts.stored_bytes)),
               CodecShares(facts)});
  }
  context.out << '\n' << table.ToString();
}

void PrintObject(CommandContext& context, const InspectArguments& arguments,
                 const OpenedPack& pack, const PackSurvey& survey,
                 const std::vector<std::string>& damage) {
  const compress::PackSchema& schema = pack.file->schema();
  Json provenance = Json::object();
  for (const auto& [name, value] : schema.provenance) provenance[name] = value;
  Json fields = Json::array();
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    fields.push_back(FieldJson(schema.fields[i], survey.fields[i]));
  }
  Json object = {{"path", arguments.path},
                 {"samples", pack.file->samples()},
                 {"recovered", arguments.recover},
                 {"file_bytes", survey.file_bytes},
                 {"raw_bytes", survey.raw_bytes},
                 {"ratio", survey.ratio()},
                 {"keyed", schema.keyed},
                 {"aligned", schema.aligned},
                 {"provenance", std::move(provenance)},
                 {"fields", std::move(fields)},
                 {"verified", arguments.verify},
                 {"damage", damage}};
  context.PrintJson("inspect", std::move(object));
}

Status RunInspect(CommandContext& context, const InspectArguments& arguments) {
  FOREBAY_ASSIGN(const OpenedPack pack, OpenPack(arguments.path, arguments.recover));
  FOREBAY_ASSIGN(const PackSurvey survey, SurveyPack(pack));
  if (arguments.chunks) FOREBAY_TRY(PrintChunks(context, pack));
  std::vector<std::string> damage;
  if (arguments.verify) {
    FOREBAY_ASSIGN(damage, Verify(context, pack));
  }
  std::uint64_t unreadable = 0;
  for (const FieldSurvey& field : survey.fields) unreadable += field.unreadable;
  if (!damage.empty() || unreadable > 0) context.exit_code = ExitCode::kViolation;
  if (context.json) {
    PrintObject(context, arguments, pack, survey, damage);
    return {};
  }
  PrintTable(context, arguments, pack, survey);
  for (const std::string& line : damage) context.err << line << '\n';
  if (arguments.verify) {
    context.out << fmt::format("\nverified {} chunks: {} damaged\n",
                               HumanCount(pack.file->index().chunks.size()),
                               HumanCount(damage.size()));
  } else if (unreadable > 0) {
    context.err << fmt::format("{}: the heads of {} chunks are damaged; --verify names them\n",
                               arguments.path, unreadable);
  }
  return {};
}

}  // namespace

void AddInspect(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a pack file holds; no daemon is needed.");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("PACK", arguments->path, "The pack file")->required();
  command->add_flag("--chunks", arguments->chunks, "A line per chunk");
  command->add_flag("--verify", arguments->verify,
                    "Decode everything and check every checksum; damage is named");
  command->add_flag("--recover", arguments->recover,
                    "Read a file that lacks its end, as far as its records are whole");
  command->footer("Exit code 3: damage was found, or the file lacks its end.");
  command->callback([&context, arguments] {
    Status status = RunInspect(context, *arguments);
    if (!status) context.Fail(status.error());
  });
}

}  // namespace forebay::cli
