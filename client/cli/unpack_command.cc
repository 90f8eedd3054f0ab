// `forebay unpack`: a pack's fields as arrays and files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/human_text.h"
#include "client/cli/npy_file.h"
#include "client/cli/pack_plan.h"
#include "client/cli/pack_survey.h"
#include "client/cli/progress_line.h"
#include "client/cli/safe_path.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

using compress::PackField;
using compress::PackFile;

constexpr std::uint64_t kReadBytesMax = 256 << 20;  // at once, but one sample at least

struct UnpackArguments {
  std::string path, folder, range;
  std::vector<std::string> fields;
};

class Unpacker {
 public:
  Unpacker(CommandContext& context, const PackFile& file, const UnpackArguments& arguments,
           SampleRange range)
      : context_(context), file_(file), folder_(arguments.folder), range_(range),
        scratch_(file.ScratchBytes()), line_(std::in_place, context.out, context.terminal) {}

  Status Open() {
    if (mkdir(folder_.c_str(), 0755) != 0 && errno != EEXIST) {
      return Error::FromErrno(errno, folder_ + ": creating");
    }
    root_ = UniqueFd(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_.valid()) return Error::FromErrno(errno, folder_ + ": opening");
    return {};
  }

  Status Write(std::uint32_t number) {
    const PackField& field = file_.schema().fields[number];
    FOREBAY_ASSIGN(const std::vector<std::string> parts, SafePathParts(field.name));
    if (parts.size() != 1) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("field {}: its name has '/' and cannot be a file's; choose others "
                               "with --field", field.name));
    }
    state_ = {.name = field.name, .note = {}};
    return field.variable() ? WriteFiles(number) : WriteArray(number);
  }

  std::uint64_t files = 0, bytes = 0;

 private:
  Status WriteArray(std::uint32_t number) {
    const PackField& field = file_.schema().fields[number];
    std::vector<std::uint64_t> shape = {range_.count()};
    for (std::size_t axis = 0; axis < field.rank; ++axis) shape.push_back(field.extent[axis]);
    const std::string name = field.name + ".npy";
    FOREBAY_ASSIGN(NewFile out, NewFile::Create(root_.get(), name, folder_ + "/" + name));
    const std::string header = NpyHeader(field.dtype, shape);
    FOREBAY_TRY(out.Append(std::as_bytes(std::span(header))));
    const std::uint64_t sample_bytes = field.sample_bytes();
    if (sample_bytes > limits::kSampleBytesMax) {
      return Error(ErrorCode::kResourceExhausted,
                   fmt::format("a sample of {} bytes; unpacked are at most {}", sample_bytes,
                               limits::kSampleBytesMax));
    }
    state_.bytes_total = range_.count() * sample_bytes;
    const std::uint64_t at_once = std::max<std::uint64_t>(1, kReadBytesMax / sample_bytes);
    std::vector<std::byte> samples;
    std::uint64_t next = range_.begin;
    while (next < range_.end) {
      // As many as end with a chunk, so that none is decoded twice.
      const auto& chunk = file_.Chunks(number, next, 1).front();
      const std::uint64_t end = std::min(range_.end, chunk.first_sample + chunk.sample_count);
      const std::uint64_t count = std::min(at_once, end - next);
      samples.resize(static_cast<std::size_t>(count * sample_bytes));
      FOREBAY_TRY(file_.ReadSamples(number, next, count, samples, scratch_));
      FOREBAY_TRY(out.Append(samples));
      next += count;
      Advance(samples.size());
    }
    FOREBAY_TRY(out.Finish());
    ++files;
    Report(fmt::format("{} samples, {}", HumanCount(range_.count()),
                       HumanBytes(state_.bytes_done)));
    return {};
  }

  // Chunk by chunk, so that each is decoded once; a sample longer than a chunk is written part
  // by part.
  Status WriteFiles(std::uint32_t number) {
    std::optional<FileBeneath> open;  // of the sample whose parts are coming
    std::uint64_t part_offset = 0;
    for (const compress::ChunkEntry& entry :
         file_.Chunks(number, range_.begin, range_.count())) {
      FOREBAY_ASSIGN(const PackFile::DecodedChunk chunk, file_.DecodeWhole(entry, scratch_));
      FOREBAY_ASSIGN(const std::vector<std::string> keys, KeysOf(entry));
      std::size_t at = 0;
      for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
        const auto value = chunk.bytes.subspan(at, chunk.head.LengthOf(i));
        at += value.size();
        const std::uint64_t sample = entry.first_sample + i;
        if (sample < range_.begin || sample >= range_.end) continue;
        if (entry.part_offset == 0) {
          part_offset = 0;
          FOREBAY_ASSIGN(FileBeneath created, Create(number, sample, keys[i]));
          open.emplace(std::move(created));
        }
        if (!open || entry.part_offset != part_offset) {
          return Error(ErrorCode::kDataLoss, fmt::format("the parts of sample {} do not follow "
                                                         "one another", sample));
        }
        FOREBAY_TRY(open->file.Append(value));
        part_offset += value.size();
        Advance(value.size());
        if (entry.sample_bytes != 0 && part_offset < entry.sample_bytes) continue;
        FOREBAY_TRY(open->file.Finish());
        open.reset();
        ++files;
      }
    }
    Report(fmt::format("{} files, {}", HumanCount(range_.count()),
                       HumanBytes(state_.bytes_done)));
    return {};
  }

  // Numbers where the pack has no keys.
  Result<std::vector<std::string>> KeysOf(const compress::ChunkEntry& entry) const {
    if (file_.has_keys()) return file_.Keys(entry.first_sample, entry.sample_count);
    std::vector<std::string> keys;
    for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
      keys.push_back(fmt::format("{:012}", entry.first_sample + i));
    }
    return keys;
  }

  Result<FileBeneath> Create(std::uint32_t number, std::uint64_t sample, const std::string& key) {
    auto parts = SafePathParts(key);
    if (!parts) return parts.error().WithContext(fmt::format("key of sample {}", sample));
    parts->insert(parts->begin(), file_.schema().fields[number].name);
    return CreateBeneath(root_.get(), folder_, *parts);
  }

  void Advance(std::uint64_t written) {
    bytes += written;
    state_.bytes_done += written;
    if (!context_.json) line_->Show(state_);
  }

  void Report(const std::string& verdict) {
    if (!context_.json) line_->Done(state_, verdict);
    line_.emplace(context_.out, context_.terminal);
  }

  CommandContext& context_;
  const PackFile& file_;
  const std::string folder_;
  const SampleRange range_;
  std::vector<std::byte> scratch_;
  UniqueFd root_;
  std::optional<ProgressLine> line_;
  ProgressLine::State state_;
};

Status RunUnpack(CommandContext& context, const UnpackArguments& arguments) {
  FOREBAY_ASSIGN(const OpenedPack pack, OpenPack(arguments.path, false));
  SampleRange range{0, pack.file->samples()};
  if (!arguments.range.empty()) {
    FOREBAY_ASSIGN(range, ParseRange(arguments.range, pack.file->samples()));
  }
  std::vector<std::uint32_t> fields;
  for (const std::string& name : arguments.fields) {
    FOREBAY_ASSIGN(const std::uint32_t field, pack.file->FindField(name));
    fields.push_back(field);
  }
  for (std::uint32_t i = 0; arguments.fields.empty() && i < pack.file->schema().fields.size();
       ++i) {
    fields.push_back(i);
  }
  Unpacker unpacker(context, *pack.file, arguments, range);
  FOREBAY_TRY(unpacker.Open());
  for (const std::uint32_t field : fields) {
    const Status written = unpacker.Write(field);
    if (!written) {
      return written.error().WithContext(arguments.path + ": " +
                                         pack.file->schema().fields[field].name);
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

void AddUnpack(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand(
      "unpack", "Write a pack's fields as .npy arrays, those of any length as files by key.");
  auto arguments = std::make_shared<UnpackArguments>();
  command->add_option("PACK", arguments->path, "The pack file")->required();
  command->add_option("--to", arguments->folder, "The folder; nothing in it is overwritten")
      ->required();
  command->add_option("--field", arguments->fields, "Fields (default: all)");
  command->add_option("--range", arguments->range, "Samples BEGIN:END, without END");
  command->footer("Exit code 3: a chunk is damaged; `forebay inspect --verify` names all.");
  command->callback([&context, arguments] {
    Status status = RunUnpack(context, *arguments);
    if (!status) context.Fail(status.error());
  });
}

}  // namespace forebay::cli
