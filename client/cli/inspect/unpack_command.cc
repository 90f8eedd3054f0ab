// `forebay unpack`: a pack's fields as arrays and files. Fields of fixed size become one .npy array
// each, fields of any length one file for each sample, named by its key. The range is worked
// through pack by pack and chunk by chunk, so that each chunk is decoded once and memory holds one
// chunk's samples. Names come from the pack and are not trusted (safe_path.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/npy_file.h"
#include "client/cli/inspect/pack_survey.h"
#include "client/cli/inspect/safe_path.h"
#include "client/cli/pack/pack_plan.h"
#include "client/cli/progress_line.h"
#include "client/cli/source/pnm_image.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

using compress::PackField;
using compress::PackFile;

constexpr std::uint64_t kReadBytesMax = 256 << 20;  // at once, but one sample at least

struct UnpackArguments {
  std::string path, folder, range;
  std::vector<std::string> fields;
  bool images = false;
};

class Unpacker {
 public:
  Unpacker(CommandContext& context, const OpenedPacks& packs, const compress::PackSchema& schema,
           const UnpackArguments& arguments, SampleRange range)
      : context_(context), packs_(packs), schema_(schema), folder_(arguments.folder),
        images_(arguments.images), range_(range),
        line_(std::in_place, context.out, context.terminal) {}

  Status Open() {
    // A folder that exists is taken: several runs may write different fields into it. Files in it
    // are never overwritten, as NewFile makes sure.
    if (mkdir(folder_.c_str(), 0755) != 0 && errno != EEXIST) {
      return Error::FromErrno(errno, folder_ + ": creating");
    }
    // Every file is created relative to this descriptor: what happens to the path later does not
    // lead the files elsewhere.
    root_ = UniqueFd(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_.valid()) return Error::FromErrno(errno, folder_ + ": opening");
    return {};
  }

  Status Write(std::uint32_t number) {
    const PackField& field = schema_.fields[number];
    // The name of a field comes from the pack, so it is checked as the keys are.
    FOREBAY_ASSIGN(const std::vector<std::string> parts, SafePathParts(field.name));
    if (parts.size() != 1) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("field {}: its name has '/' and cannot be a file's; choose others "
                               "with --field", field.name));
    }
    file_name_ = parts.front();
    state_ = {.name = field.name, .note = {}};
    // Byte strings have no common length, so no array can hold them.
    if (field.variable()) return WriteFiles(number);
    return images_ && PnmShapeOf(field).channels != 0 ? WriteImages(number) : WriteArray(number);
  }

  std::uint64_t files = 0, bytes = 0;

 private:
  Status WriteArray(std::uint32_t number) {
    const PackField& field = schema_.fields[number];
    std::vector<std::uint64_t> shape = {range_.count()};
    // Samples are the first axis, as training code has it.
    for (std::size_t axis = 0; axis < field.rank; ++axis) shape.push_back(field.extent[axis]);
    const std::string name = file_name_ + ".npy";
    // Its destructor removes the file where anything below fails, so no half array is left behind.
    FOREBAY_ASSIGN(NewFile out, NewFile::Create(root_.get(), name, folder_ + "/" + name));
    // The shape is known before the first sample, so the header is written once and in front.
    const std::string header = NpyHeader(field.dtype, shape);
    FOREBAY_TRY(out.Append(std::as_bytes(std::span(header))));
    const std::uint64_t sample_bytes = field.sample_bytes();
    // A damaged or hostile schema may claim any size; a buffer for one sample is allocated below.
    if (sample_bytes > limits::kSampleBytesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("a sample of {} bytes; unpacked are at most {}", sample_bytes,
                               limits::kSampleBytesMax));
    }
    state_.bytes_total = range_.count() * sample_bytes;
    FOREBAY_TRY(ForPacks([&](SampleRange part) { return AppendArray(number, part, out); }));
    FOREBAY_TRY(out.Finish());
    ++files;
    Report(fmt::format("{} samples, {}", HumanCount(range_.count()),
                       HumanBytes(state_.bytes_done)));
    return {};
  }

  // Calls write(samples of the open pack) for each pack that has any of the range's.
  template <typename Write>
  Status ForPacks(Write write) {
    for (std::size_t i = 0; i < packs_.count(); ++i) {
      first_sample_ = packs_.FirstSample(i);
      const std::uint64_t end =
          i + 1 < packs_.count() ? packs_.FirstSample(i + 1) : packs_.samples();
      // The range in the pack's own numbers. It is empty, or wraps, for packs outside the range,
      // which the next line leaves out.
      const SampleRange part{std::max(range_.begin, first_sample_) - first_sample_,
                             std::min(range_.end, end) - first_sample_};
      if (first_sample_ >= range_.end || end <= range_.begin || part.count() == 0) continue;
      // Assigning lets go of the pack before, whose file the set may then close.
      FOREBAY_ASSIGN(pack_, packs_.Pack(i));
      scratch_.resize(std::max(scratch_.size(), pack_.file->ScratchBytes()));
      const Status written = write(part);
      if (!written) {
        // A set consists of several files, so the error names the one that is damaged.
        return packs_.is_set() ? written.error().WithContext(packs_.Path(i)) : written;
      }
    }
    return {};
  }

  Status AppendArray(std::uint32_t number, SampleRange part, NewFile& out) {
    const std::uint64_t sample_bytes = schema_.fields[number].sample_bytes();
    // A sample of 0 bytes cannot be: CheckSchema refuses extents of 0.
    const std::uint64_t at_once = std::max<std::uint64_t>(1, kReadBytesMax / sample_bytes);
    std::vector<std::byte> samples;
    std::uint64_t next = part.begin;
    while (next < part.end) {
      // As many as end with a chunk, so that none is decoded twice.
      const auto& chunk = pack_.file->Chunks(number, next, 1).front();
      const std::uint64_t end = std::min(part.end, chunk.first_sample + chunk.sample_count);
      const std::uint64_t count = std::min(at_once, end - next);
      samples.resize(static_cast<std::size_t>(count * sample_bytes));
      FOREBAY_TRY(pack_.file->ReadSamples(number, next, count, samples, scratch_));
      FOREBAY_TRY(out.Append(samples));
      next += count;
      Advance(samples.size());
    }
    return {};
  }

  Status WriteFiles(std::uint32_t number) {
    FOREBAY_TRY(ForPacks([&](SampleRange part) { return AppendFiles(number, part); }));
    Report(fmt::format("{} files, {}", HumanCount(range_.count()),
                       HumanBytes(state_.bytes_done)));
    return {};
  }

  // A field's samples as PGM or PPM; no channels where they are neither.
  ImageShape PnmShapeOf(const PackField& field) const {
    const bool colour = field.rank == 3 && field.extent[2] == 3;
    const bool grey = field.rank == 2 || (field.rank == 3 && field.extent[2] == 1);
    const bool pixels = field.dtype == Dtype::kU8 || field.dtype == Dtype::kU16;
    // Rows and columns are the first two axes; colours that lie first ([3, rows, columns]) are not
    // rearranged and become an array.
    ImageShape shape{.rows = field.extent[0],
                   .columns = field.extent[1],
                   .channels = !pixels ? 0U : colour ? 3U : grey ? 1U : 0U,
                   .value_max = field.dtype == Dtype::kU8 ? 255U : 65535U};
    for (const auto& [name, value] : schema_.provenance) {
      // The pack has the maximum that its source images named. It is used for lossless fields only,
      // because a lossy value may lie above it. The entry may hold any text. Text that is no number
      // reads as 0, which `fits` refuses.
      const auto given = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
      const bool fits = given > 0 && (given > 255) == (field.dtype == Dtype::kU16);
      if (name == "value_max" && field.bound.mode == 0 && fits && given <= 65535) {
        shape.value_max = given;
      }
    }
    return shape;
  }

  Status WriteImages(std::uint32_t number) {
    state_.bytes_total = range_.count() * schema_.fields[number].sample_bytes();
    FOREBAY_TRY(ForPacks([&](SampleRange part) { return AppendImages(number, part); }));
    Report(fmt::format("{} images, {}", HumanCount(range_.count()),
                       HumanBytes(state_.bytes_done)));
    return {};
  }

  Status AppendImages(std::uint32_t number, SampleRange part) {
    const PackField& field = schema_.fields[number];
    const ImageShape shape = PnmShapeOf(field);
    const std::string suffix = shape.channels == 3 ? ".ppm" : ".pgm";
    const auto sample_bytes = static_cast<std::size_t>(field.sample_bytes());
    std::vector<std::byte> samples;
    for (std::uint64_t next = part.begin; next < part.end;) {
      const compress::ChunkEntry& chunk = pack_.file->Chunks(number, next, 1).front();
      const std::uint64_t end = std::min(part.end, chunk.first_sample + chunk.sample_count);
      // One chunk at most, which has no more than limits::kChunkBytesMax bytes for each tile.
      samples.resize(static_cast<std::size_t>(end - next) * sample_bytes);
      FOREBAY_TRY(pack_.file->ReadSamples(number, next, end - next, samples, scratch_));
      FOREBAY_ASSIGN(const std::vector<std::string> keys, KeysOf(chunk));
      for (std::size_t i = 0; next < end; ++next, ++i) {
        std::string name = keys[static_cast<std::size_t>(next - chunk.first_sample)];
        // The key may be the path of a JPEG or PNG file. The suffix is added and not put in its
        // place, because two keys may differ in theirs only.
        if (!name.ends_with(suffix)) name += suffix;
        FOREBAY_ASSIGN(FileBeneath created, Create(first_sample_ + next, name));
        FOREBAY_TRY(created.file.Append(WritePnm(
            shape, std::span(samples).subspan(i * sample_bytes, sample_bytes))));
        // Closed one by one: an error of closing is the last sign that a quota was reached.
        FOREBAY_TRY(created.file.Finish());
        ++files;
        Advance(sample_bytes);
      }
    }
    return {};
  }

  // Chunk by chunk, so that each is decoded once; a sample longer than a chunk is written part
  // by part.
  Status AppendFiles(std::uint32_t number, SampleRange range) {
    std::optional<FileBeneath> open;  // of the sample whose parts are coming
    std::uint64_t part_offset = 0;
    for (const compress::ChunkEntry& entry :
         pack_.file->Chunks(number, range.begin, range.count())) {
      FOREBAY_ASSIGN(const PackFile::DecodedChunk chunk,
                     pack_.file->DecodeWhole(entry, scratch_));
      FOREBAY_ASSIGN(const std::vector<std::string> keys, KeysOf(entry));
      std::size_t at = 0;
      for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
        // ReadChunkHead has compared the sum of all lengths with the chunk's bytes, so this stays
        // within them.
        const auto value = chunk.bytes.subspan(at, chunk.head.LengthOf(i));
        at += value.size();
        const std::uint64_t sample = entry.first_sample + i;
        // Its bytes had to be decoded with the chunk, and `at` has moved past them.
        if (sample < range.begin || sample >= range.end) continue;
        // The first part, or the whole of a sample that fits in a chunk.
        if (entry.part_offset == 0) {
          part_offset = 0;
          FOREBAY_ASSIGN(FileBeneath created, Create(first_sample_ + sample, keys[i]));
          open.emplace(std::move(created));
        }
        // The index was checked when the pack was opened. This asks once more, because parts that
        // are missing or out of order would give a file of wrong bytes.
        if (!open || entry.part_offset != part_offset) {
          return Error(ErrorCode::kDataLoss, fmt::format("the parts of sample {} do not follow "
                                                         "one another", sample));
        }
        FOREBAY_TRY(open->file.Append(value));
        part_offset += value.size();
        Advance(value.size());
        // More parts of this sample follow; the file stays open for them.
        if (entry.sample_bytes != 0 && part_offset < entry.sample_bytes) continue;
        FOREBAY_TRY(open->file.Finish());
        open.reset();
        ++files;
      }
    }
    return {};
  }

  // Numbers where the pack has no keys.
  Result<std::vector<std::string>> KeysOf(const compress::ChunkEntry& entry) const {
    if (schema_.keyed) return pack_.file->Keys(entry.first_sample, entry.sample_count);
    std::vector<std::string> keys;
    for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
      // The numbers are padded with zeros, so that a listing by name is in the order of samples.
      keys.push_back(fmt::format("{:012}", first_sample_ + entry.first_sample + i));
    }
    return keys;
  }

  Result<FileBeneath> Create(std::uint64_t sample, const std::string& key) {
    auto parts = SafePathParts(key);
    if (!parts) return parts.error().WithContext(fmt::format("key of sample {}", sample));
    // Beneath a folder of the field: two fields of one sample have the same key.
    parts->insert(parts->begin(), file_name_);
    return CreateBeneath(root_.get(), folder_, *parts);
  }

  void Advance(std::uint64_t written) {
    bytes += written;
    state_.bytes_done += written;
    if (!context_.json) line_->Show(state_);
  }

  void Report(const std::string& verdict) {
    if (!context_.json) line_->Done(state_, verdict);
    // The next field's progress begins from nothing.
    line_.emplace(context_.out, context_.terminal);
  }

  CommandContext& context_;
  const OpenedPacks& packs_;
  const compress::PackSchema& schema_;
  const std::string folder_;
  const bool images_;
  const SampleRange range_;
  OpenedPack pack_;                 // that is being read
  std::uint64_t first_sample_ = 0;  // of the range's numbers, in pack_
  std::vector<std::byte> scratch_;
  UniqueFd root_;
  std::optional<ProgressLine> line_;
  std::string file_name_;  // of the field that is written, without its suffix
  ProgressLine::State state_;
};

Status RunUnpack(CommandContext& context, const UnpackArguments& arguments) {
  FOREBAY_ASSIGN(const OpenedPacks packs, OpenedPacks::Open(arguments.path, false));
  // The schema is that of every shard (PackSet compares them), so the first one's stands for all.
  FOREBAY_ASSIGN(const OpenedPack first, packs.Pack(0));
  const compress::PackSchema& schema = first.file->schema();
  SampleRange range{0, packs.samples()};
  if (!arguments.range.empty()) {
    FOREBAY_ASSIGN(range, ParseRange(arguments.range, packs.samples()));
  }
  std::vector<std::uint32_t> fields;
  // All names are looked up before anything is written: a mistyped one leaves no files behind.
  for (const std::string& name : arguments.fields) {
    FOREBAY_ASSIGN(const std::uint32_t field, first.file->FindField(name));
    fields.push_back(field);
  }
  for (std::uint32_t i = 0; arguments.fields.empty() && i < schema.fields.size(); ++i) {
    fields.push_back(i);
  }
  Unpacker unpacker(context, packs, schema, arguments, range);
  FOREBAY_TRY(unpacker.Open());
  for (const std::uint32_t field : fields) {
    const Status written = unpacker.Write(field);
    if (!written) {
      return written.error().WithContext(arguments.path + ": " + schema.fields[field].name);
    }
  }
  if (context.json) {
    context.PrintJson("unpack", {{"path", arguments.path},
                                 {"folder", arguments.folder},
                                 {"samples", range.count()},
                                 {"files", unpacker.files},
                                 {"bytes", unpacker.bytes}});
  }
  return {};
}

}  // namespace

void AddUnpack(Command& program, CommandContext& context) {
  Command command = program.AddCommand(
      "unpack", "Write the fields of a pack or a set of packs as .npy arrays, those of any length "
                "as files by key.");
  auto arguments = std::make_shared<UnpackArguments>();
  command.AddOption("PACK", arguments->path, "The pack file, or a set's manifest")
      .Required()
      .ValueName("FILE");
  command.AddOption("--to", arguments->folder, "The folder; nothing in it is overwritten")
      .Required()
      .ValueName("FOLDER");
  command.AddOption("--field", arguments->fields, "Fields (default: all)");
  command.AddFlag("--images", arguments->images,
                    "Write u8 and u16 fields of rows and columns as PGM or PPM files by key");
  command.AddOption("--range", arguments->range, "Samples BEGIN:END, without END");
  command.SetFooter("Exit code 3: a chunk is damaged; `forebay verify` names all.");
  command.OnRun([&context, arguments] { return RunUnpack(context, *arguments); });
}

}  // namespace forebay::cli
