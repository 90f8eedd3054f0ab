// `forebay pack`: a data set, a folder of images, a raw file or another pack as a pack file or a
// set of packs. The steps are: open the source, plan the schema (layout, error bounds), get the
// predictor of profile learned, open the sink, copy sample by sample, print the result. The output
// appears under its name when it is whole; an interrupted run leaves OUTPUT.part, which --resume
// continues.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/daemon/daemon_address.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/pack_survey.h"
#include "client/cli/pack/model_training.h"
#include "client/cli/pack/pack_bounds.h"
#include "client/cli/pack/pack_plan.h"
#include "client/cli/pack/pack_progress.h"
#include "client/cli/pack/pack_sink.h"
#include "client/cli/pack/training_pack.h"
#include "client/cli/source/pack_source.h"
#include "compress/decode/pack/predictor_file.h"
#include "compress/encode/pack/pack_writer.h"
#include "compress/encode/pack/publish_file.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

using compress::PackField;
using compress::PackSchema;

constexpr unsigned kThreadsMax = 1024;

// The options as the parser fills them in. Zero and "" mean that an option was not given.
struct PackArguments {
  std::vector<std::string> names;  // [DATASET] OUTPUT
  std::string images, config, selection = "all";
  PathSourceOptions from;
  std::string profile = "balanced", tile, model, id;
  unsigned threads = 0;
  std::vector<std::string> fields, bounds;
  std::uint32_t samples_per_chunk = 0;
  std::uint64_t sequence_length = 0, limit = 0;
  bool align = false, resume = false, append = false, force = false;
  bool train = false, name_model = false;
  std::uint64_t shard_bytes = 0;

  bool set() const { return append || shard_bytes > 0; }
  const std::string& output() const { return names.back(); }
};

Result<std::unique_ptr<PackSource>> OpenSource(const CommandContext& context,
                                               const PackArguments& arguments) {
  // A run opens its source up to three times: for the samples, for a pass over their values, and
  // for training. Each of them begins at the first sample.
  if (!arguments.images.empty()) return OpenImageFolder(arguments.images);
  if (!arguments.from.path.empty()) return OpenPathSource(arguments.from);
  std::string address;
  // With --config the data set comes from a private daemon, so the job's daemon is not looked for.
  if (arguments.config.empty()) {
    FOREBAY_ASSIGN(address, DaemonAddress(context));
  }
  return OpenDatasetSource({.address = std::move(address),
                            .embedded_config = arguments.config,
                            .connect_timeout_ms = context.connect_timeout_ms,
                            .dataset = arguments.names.front(),
                            .selection = arguments.selection});
}

// The schema of the set that the samples are added to, or of the pack that is resumed; nothing
// where there is none yet. PlanSchema takes the ranges of values from it, because a range that is
// found anew could differ and would make another bound.
Result<std::optional<PackSchema>> SchemaBefore(const PackArguments& arguments) {
  if (arguments.resume && !arguments.set()) {
    const std::string part = arguments.output() + ".part";
    if (access(part.c_str(), F_OK) != 0) return std::optional<PackSchema>();
    // Its head may be cut off; then nothing of it is known, and it is begun again.
    const auto begun = OpenedPacks::Open(part, /*recover=*/true);
    if (!begun.has_value()) return std::optional<PackSchema>();
    FOREBAY_ASSIGN(const OpenedPack pack, begun->Pack(0));
    return std::optional(pack.file->schema());
  }
  if (!arguments.append || access(arguments.output().c_str(), F_OK) != 0) {
    return std::optional<PackSchema>();
  }
  FOREBAY_ASSIGN(const auto set, compress::PackSet::Open(arguments.output()));
  FOREBAY_ASSIGN(PackSchema schema, set->Schema());
  return std::optional(std::move(schema));
}

// All shards of a set have the same bounds. The writer of the set checks that as well, but it can
// only say that the schemas differ. This check runs first and says which option would make the
// bounds the same.
Status CheckBoundsOfSet(const std::string& set, const PackSchema& before,
                        const PackSchema& schema) {
  for (std::size_t i = 0; i < std::min(before.fields.size(), schema.fields.size()); ++i) {
    const PackField& theirs = before.fields[i];
    const PackField& ours = schema.fields[i];
    const bool same = theirs.bound.mode == ours.bound.mode &&
                      theirs.bound.absolute == ours.bound.absolute &&
                      theirs.bound.relative == ours.bound.relative;
    // Fields of other names are a different error, which the writer of the set reports.
    if (theirs.name != ours.name || same) continue;
    const std::string there = DescribeBound(before, theirs);
    const std::string here = DescribeBound(schema, ours);
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}: the bound of its field {} is {}, that of these samples {}; give "
                             "the set's with --bound{}",
                             set, ours.name, there, here,
                             there.find("chunk-") == there.npos
                                 ? ""
                                 : " (earlier versions called chunk-rel:X rel:X)"));
  }
  return {};
}

// Decides on everything that the writer has to know before the first sample: chunks, tiles and
// bounds. Bounds come after the layout. They read the whole source once more where a bound asks for
// the range of a field's values, and a wrong --tile should fail before that.
Result<PackSchema> PlanSchema(const CommandContext& context, const PackArguments& arguments,
                              const PackSource& source, std::uint64_t samples) {
  PackSchema schema = source.schema();
  LayoutOptions layout;
  if (arguments.samples_per_chunk > 0) layout.samples_per_chunk = arguments.samples_per_chunk;
  if (!arguments.tile.empty()) {
    FOREBAY_ASSIGN(layout.tile, ParseTile(arguments.tile));
  }
  for (PackField& field : schema.fields) FOREBAY_TRY(LayOut(layout, field));
  FOREBAY_ASSIGN(const std::optional<PackSchema> before, SchemaBefore(arguments));
  FOREBAY_TRY(SetBounds({.bounds = arguments.bounds,
                         .fields = arguments.fields,
                         .samples = samples,
                         .open = [&] { return OpenSource(context, arguments); },
                         .before = before.has_value() ? &*before : nullptr,
                         .resumes = arguments.resume && !arguments.set()},
                        source, schema));
  if (arguments.append && before.has_value()) {
    FOREBAY_TRY(CheckBoundsOfSet(arguments.output(), *before, schema));
  }
  schema.aligned = arguments.align;
  schema.provenance.emplace_back("writer", std::string("forebay ") + FOREBAY_VERSION);
  return schema;
}

// Adds the samples that the writer lacks.
Status AddSamples(const PackArguments& arguments, PackSource& source, std::uint64_t samples,
                  PackSink& writer, PackProgress& progress) {
  // A resumed pack has samples already. Skipping nothing at the very end could ask a source for a
  // sample that it does not have.
  if (writer.next_sample() < samples) FOREBAY_TRY(source.Skip(writer.next_sample()));
  PackSample sample;
  while (writer.next_sample() < samples) {
    const std::uint64_t number = writer.next_sample();
    FOREBAY_TRY(source.Next(sample));
    // Counted from the first sample of the source, not of this run, so that a resumed pack is the
    // same as one written in one go.
    const bool cut = arguments.sequence_length > 0 && number % arguments.sequence_length == 0;
    if (sample.begins_sequence || cut) FOREBAY_TRY(writer.BeginSequence());
    FOREBAY_TRY(writer.Add(sample.fields, sample.key));
    std::uint64_t bytes = 0;
    for (const auto field : sample.fields) bytes += field.size();
    progress.Took(number + 1, bytes);
  }
  return {};
}

// Warns where the values do not fit a range that the user gave with --bound. Only the statistics,
// which the writer measured while packing, can tell. So the warning comes after the pack is
// written; the pack is valid, and its values are within the bound.
Status WarnOfRanges(CommandContext& context, const compress::PackFile& pack) {
  FOREBAY_ASSIGN(const std::vector<compress::FieldStatistics> statistics, pack.Statistics());
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    const auto warning = RangeWarning(pack.schema(), pack.schema().fields[i], statistics[i]);
    if (!warning) continue;
    if (context.json) {
      context.PrintJson("pack", {{"event", "warning"}, {"message", *warning}});
    } else {
      context.err << "warning: " << PrintableLine(*warning) << '\n';
    }
  }
  return {};
}

// The figures are read back from the finished file. The writer's summary has no codecs or heads,
// and a run that resumed or appended wrote only a part of the pack or set.
Status PrintResult(CommandContext& context, const PackArguments& arguments,
                   PackProgress& progress, const compress::PackSetSummary& summary) {
  // The time is taken first, so that it ends with the packing and leaves out the survey below.
  const double seconds = progress.Seconds();
  FOREBAY_ASSIGN(const OpenedPacks packs, OpenedPacks::Open(arguments.output(), false));
  PackSurvey survey;
  std::uint64_t chunks = 0;
  for (std::size_t i = 0; i < packs.count(); ++i) {
    FOREBAY_ASSIGN(const OpenedPack pack, packs.Pack(i));
    FOREBAY_TRY(WarnOfRanges(context, *pack.file));
    // Heads only: reading all payloads again would double the time of packing.
    FOREBAY_ASSIGN(const PackSurvey one, SurveyPack(pack));
    AddSurvey(one, survey);
    chunks += pack.file->index().chunks.size();
  }
  if (context.json) {
    JsonObject object = {{"event", "done"},
                   {"path", arguments.output()},
                   {"samples", summary.samples},
                   {"raw_bytes", survey.raw_bytes},
                   {"file_bytes", survey.file_bytes},
                   {"ratio", survey.ratio()},
                   {"chunks", chunks},
                   {"seconds", seconds}};
    if (packs.is_set()) {
      object.Add("generation", summary.generation);
      object.Add("shards", summary.shards);
      object.Add("shards_added", summary.shards_added);
      object.Add("samples_added", summary.samples_added);
    }
    context.PrintJson("pack", object);
    return {};
  }
  std::string set;
  if (packs.is_set()) {
    set = fmt::format(", generation {}: {} shards, {} of them and {} samples new",
                      summary.generation, HumanCount(summary.shards),
                      HumanCount(summary.shards_added), HumanCount(summary.samples_added));
  }
  progress.Done(fmt::format("{} samples, raw {}, file {}, ratio {:.3f}, {}{}",
                            HumanCount(summary.samples), HumanBytes(survey.raw_bytes),
                            HumanBytes(survey.file_bytes), survey.ratio(),
                            HumanSeconds(seconds), set));
  return {};
}

// Labels are numbers of classes, and a number must mean the same class in every shard of a set. The
// names of classes are in the provenance, which shards need not share otherwise, so the writer of
// the set does not compare them.
Status CheckClasses(const std::string& manifest, const PackSchema& schema) {
  if (access(manifest.c_str(), F_OK) != 0) return {};
  FOREBAY_ASSIGN(const auto set, compress::PackSet::Open(manifest));
  FOREBAY_ASSIGN(PackSchema there, set->Schema());
  const auto no_class = [](const auto& entry) { return !entry.first.starts_with("class."); };
  auto wanted = schema.provenance;
  // The order counts as well: class 3 has to be the same folder in both.
  std::erase_if(wanted, no_class);
  std::erase_if(there.provenance, no_class);
  if (wanted == there.provenance) return {};
  return Error(ErrorCode::kFailedPrecondition,
               manifest + ": its labels are of other classes than these samples'; give them the "
                          "same class folders");
}

// Checks combinations of options, which the parser cannot. It runs before anything is opened or
// written, so a wrong command line leaves no file behind.
Status CheckArguments(const PackArguments& arguments) {
  const bool images = !arguments.images.empty();
  const bool from = !arguments.from.path.empty();
  if (arguments.names.size() != (images || from ? 1U : 2U) || (images && from)) {
    return Error(ErrorCode::kInvalidArgument,
                 "wanted is `forebay pack DATASET OUTPUT`, `forebay pack --images FOLDER OUTPUT` "
                 "or `forebay pack --from PATH OUTPUT`");
  }
  if ((images || from) && (arguments.selection != "all" || !arguments.config.empty())) {
    return Error(ErrorCode::kInvalidArgument,
                 "--selection and --config are for data sets, not for --images and --from");
  }
  // --force replaces one finished pack and drops its unfinished one. --resume asks for the
  // opposite, and a set is a manifest and many packs.
  if (arguments.force && (arguments.set() || arguments.resume)) {
    return Error(ErrorCode::kInvalidArgument,
                 "--force replaces one pack: not with --append, --shard-size or --resume");
  }
  if (!from && (!arguments.from.dtype.empty() || !arguments.from.shape.empty() ||
                arguments.from.header_bytes > 0)) {
    return Error(ErrorCode::kInvalidArgument,
                 "--dtype, --shape and --header are for a raw file that --from names");
  }
  const bool learned = arguments.profile == "learned";
  // Exactly one of --model and --train.
  const bool one = arguments.train != !arguments.model.empty();
  if (learned ? !one : arguments.train || !arguments.model.empty() || arguments.name_model) {
    return Error(ErrorCode::kInvalidArgument,
                 "--profile learned takes either --model FILE or --train; no other takes them");
  }
  // Training again could give another predictor, and the samples that are already in the pack were
  // coded with the first one.
  if (arguments.train && arguments.resume) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--resume: go on with the model of the run before, --model {}.net",
                             arguments.output()));
  }
  return {};
}

void ReportTraining(CommandContext& context, const ParsedJson& event) {
  if (context.json) {
    context.PrintJson("pack", {{"event", "train"}, {"training", event.value()}});
    return;
  }
  context.err << fmt::format("training, {}: epoch {}, {:.3f} bits per pixel\n",
                             event.Text("kind"), event.Count("epoch"),
                             event.Number("bits_per_pixel"));
}

// Trains a predictor on the first samples and leaves it in OUTPUT.net. Returns null where it would
// save fewer bytes in a pack of `samples` samples than it has itself. The last quarter of the
// training pack's chunks is not trained on, and the gain is measured there.
Result<std::shared_ptr<const compress::Predictor>> TrainModel(
    CommandContext& context, const PackArguments& arguments, const PackSchema& schema,
    unsigned threads, std::uint64_t samples) {
  FOREBAY_ASSIGN(const std::string trainer, FindTrainer());
  FOREBAY_ASSIGN(const std::unique_ptr<PackSource> source, OpenSource(context, arguments));
  const std::string model = arguments.output() + ".net";
  TrainingPack pack(arguments.output() + ".train");
  FOREBAY_TRY(pack.Write(schema, {.samples = samples,
                                  .threads = threads,
                                  .sequence_length = arguments.sequence_length},
                         *source));
  FOREBAY_ASSIGN(const TrainingOutcome outcome,
                 RunTrainer(trainer, {pack.path(), "--out", model, "--held-out", "0.25"},
                            [&](const ParsedJson& event) { ReportTraining(context, event); }));
  // Only fields of fixed size have planes that a predictor can predict.
  const bool pays = outcome.Pays(FixedSampleBytes(schema) * samples);
  if (!context.json) {
    context.err << fmt::format(
        "{}: {} bytes, {} multiplications per pixel; on later samples {:+.2f} % over dense{}\n",
        model, outcome.model_bytes, outcome.macs_per_pixel, 100 * outcome.gain(),
        pays ? "" : ": it does not pay, and is not used");
  }
  // Profile learned without a predictor codes all planes without learned predictions. OUTPUT.net
  // stays, so that the user can try it on other data with --model.
  if (!pays) return std::shared_ptr<const compress::Predictor>();
  return compress::LoadPredictor(model);
}

// A pack that names its predictor is unreadable without it, and readers look for it beside the
// pack, by its SHA-256. An earlier pack may have put it there, or --model may name that very file.
Status PutPredictorBeside(const std::string& output, const compress::Predictor& predictor) {
  const std::string beside =
      compress::PredictorFileName(compress::FolderOf(output), predictor.id());
  if (access(beside.c_str(), F_OK) != 0) return compress::ReplaceFile(beside, predictor.bytes());
  const auto there = compress::LoadPredictor(beside);
  if (there.has_value() && (*there)->id() == predictor.id()) return {};
  const bool is_another = there.has_value() || there.error().code() == ErrorCode::kDataLoss ||
                          there.error().code() == ErrorCode::kInvalidArgument;
  if (!is_another) return there.error();  // such as a file that this user may not read
  return Error(ErrorCode::kAlreadyExists,
               beside + ": this file is not the predictor of its name, which the pack needs there; "
                        "move or remove it");
}

// Gets the predictor of profile learned: reads the one of --model, or trains one for --train.
Status SetModel(CommandContext& context, const PackArguments& arguments, const PackSchema& schema,
                std::uint64_t samples, compress::PackWriterOptions& options) {
  if (options.profile != compress::Profile::kLearned) return {};
  options.embed_predictor = !arguments.name_model;
  if (arguments.train) {
    FOREBAY_ASSIGN(options.predictor,
                   TrainModel(context, arguments, schema, options.threads, samples));
  } else {
    FOREBAY_ASSIGN(options.predictor, compress::LoadPredictor(arguments.model));
  }
  if (!arguments.name_model || options.predictor == nullptr) return {};
  return PutPredictorBeside(arguments.output(), *options.predictor);
}

// Cheap checks come before expensive steps, and nothing is written before the source and the schema
// are known to be good.
Status RunPack(CommandContext& context, const PackArguments& arguments) {
  FOREBAY_TRY(CheckArguments(arguments));
  compress::PackWriterOptions options{.statistics = true, .replace = arguments.force};
  FOREBAY_ASSIGN(options.profile, ParseProfile(arguments.profile));
  if (!arguments.id.empty()) {
    auto id = compress::ParsePackId(arguments.id);
    if (!id) return id.error().WithContext("--id");
    options.id = *id;
  }
  options.threads = arguments.threads > 0
                        ? arguments.threads
                        : std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsMax);
  FOREBAY_ASSIGN(const std::unique_ptr<PackSource> source, OpenSource(context, arguments));
  std::uint64_t samples = source->samples();
  if (arguments.limit > 0) samples = std::min(samples, arguments.limit);
  FOREBAY_ASSIGN(const PackSchema schema, PlanSchema(context, arguments, *source, samples));
  if (!context.json) {
    for (const std::string& note : source->notes()) {
      context.err << "note: " << PrintableLine(note) << '\n';
    }
    if (const auto note = MemoryNote(schema, options.threads)) {
      context.err << "note: " << *note << '\n';
    }
  }
  // After the checks of arguments, source and bounds, because training takes long.
  FOREBAY_TRY(SetModel(context, arguments, schema, samples, options));
  const std::string& output = arguments.output();
  // An unfinished pack of an earlier run would be refused as one that --resume could continue.
  if (arguments.force) FOREBAY_TRY(compress::PackWriter::Discard(output));
  // Before the writer is opened, so that nothing is written for samples that do not belong.
  if (arguments.append) FOREBAY_TRY(CheckClasses(output, schema));
  auto opened = PackSink::Open(output, schema,
                               {.pack = options,
                                .set = arguments.set(),
                                .append = arguments.append,
                                .shard_raw_bytes = arguments.shard_bytes,
                                .resume = arguments.resume});
  // The writer does not know of --force, so its message is completed here.
  const bool is_there = !opened && opened.error().code() == ErrorCode::kAlreadyExists;
  if (is_there && !arguments.set()) {
    return Error(ErrorCode::kAlreadyExists,
                 opened.error().message() + ", or replace it with --force");
  }
  FOREBAY_ASSIGN(const std::unique_ptr<PackSink> writer, std::move(opened));
  // An unfinished pack with more samples than wanted is of another run, or --limit has changed. To
  // cut it off would throw away work that the user may want.
  if (writer->next_sample() > samples) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}.part: has {} samples, more than the {} to be packed; remove it "
                             "to begin anew", output, writer->next_sample(), samples));
  }
  PackProgress progress(context, schema, output, options.threads, writer->next_sample(), samples);
  const Status added = AddSamples(arguments, *source, samples, *writer, progress);
  if (!added) {
    return added.error().WithContext(arguments.set() ? "the shard's .part stays, for --resume"
                                                     : output + ".part stays, for --resume");
  }
  FOREBAY_ASSIGN(const compress::PackSetSummary summary, writer->Finish());
  return PrintResult(context, arguments, progress, summary);
}

void AddModelOptions(Command& command, PackArguments& arguments) {
  command.AddOption("--model", arguments.model,
                     "Of profile learned: a predictor that forebay-compress-train wrote")
      .ValueName("FILE");
  command.AddFlag("--train", arguments.train,
                   "Of profile learned: train a predictor on the first samples, into OUTPUT.net; "
                   "it is left out where it does not pay for its own bytes");
  command.AddFlag("--name-model", arguments.name_model,
                   "Of profile learned: name the predictor by its SHA-256, without its bytes");
}

}  // namespace

void AddPack(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "pack", "Write a data set, or a folder of images without any daemon, as a pack file.");
  auto arguments = std::make_shared<PackArguments>();
  command.AddOption("NAMES", arguments->names,
                      "DATASET OUTPUT, or OUTPUT with --images or --from")
      .Required()
      .Count(1, 2)
      .ValueName("NAME|FILE");
  command.AddOption("--images", arguments->images,
                      "A folder of PGM, PPM, JPEG or PNG images of one size, in byte order of "
                      "names; folders in it are classes, each folder is a sequence")
      .ValueName("FOLDER");
  command.AddOption("--from", arguments->from.path,
                      "Without a daemon: a folder of images, a pack or a set of packs to be packed "
                      "anew, or a raw file")
      .ValueName("PATH");
  AddPathOptions(command, arguments->from);
  command.AddOption("--config", arguments->config,
                      "Start a private daemon with this configuration file")
      .ExistingFile();
  command.AddOption("--selection", arguments->selection, "Which samples (default: all)");
  command.AddOption("--profile", arguments->profile,
                      "fast, balanced, dense, learned or auto (default: balanced)")
      .OneOf({"fast", "balanced", "dense", "learned", "auto"});
  AddModelOptions(command, *arguments);
  command.AddOption("--threads", arguments->threads, "That encode (default: one per core)")
      .Within(1U, kThreadsMax);
  command.AddOption("--bound", arguments->bounds,
                      "How far values may lie from the originals (default: lossless): abs:X, rel:X "
                      "of the range of the field's values, pw:X of each value, both:ABS,REL or "
                      "either:ABS,REL; rel:X,LOW,HIGH gives the range, which is otherwise found by "
                      "reading all samples first; chunk-rel:X, chunk-both and chunk-either are of "
                      "the range of each chunk's values; one per --field");
  command.AddOption("--field", arguments->fields, "The field that a bound is of");
  command.AddOption("--samples-per-chunk", arguments->samples_per_chunk,
                      "Of fixed fields (default: 8 of images, 4096 of others, as far as fits)")
      .Within(1U, 65536U);
  command.AddOption("--tile", arguments->tile,
                      "Rows and columns, as in 256x256, that decode alone (default: whole, or as "
                      "large as a chunk can be)");
  command.AddOption("--sequence-length", arguments->sequence_length,
                      "Begin a sequence every so many samples, too");
  command.AddOption("--limit", arguments->limit, "At most so many samples");
  command.AddFlag("--align", arguments->align, "Payloads at multiples of 4096 bytes");
  command.AddOption("--id", arguments->id,
                      "32 hexadecimal digits that tell the pack from all others, where it is to be "
                      "the same bytes as one written elsewhere (default: random); of a set, what "
                      "the ids of its shards are derived from")
      .ValueName("HEX");
  command.AddFlag("--resume", arguments->resume,
                    "Go on with OUTPUT.part, if there is one, of a run with the same options");
  command.AddFlag("--force", arguments->force,
                    "Replace OUTPUT, once the new pack is whole, and drop an unfinished one");
  command.AddOption("--shard-size", arguments->shard_bytes,
                      "Write a set of packs, whose shards hold at most so many raw bytes (1GiB); "
                      "OUTPUT is its manifest")
      .Bytes()
      .Positive();
  command.AddFlag("--append", arguments->append,
                    "Add the samples to the set whose manifest is OUTPUT, which may not exist yet");
  command.SetFooter("OUTPUT appears when it is whole; until then it is OUTPUT.part. Shards lie "
                  "beside a manifest; the set has the new samples when all are written.");
  command.OnRun([&context, arguments] { return RunPack(context, *arguments); });
}

}  // namespace forebay::cli
