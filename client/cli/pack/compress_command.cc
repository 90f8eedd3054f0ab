// `forebay compress bench`: measures how well and how fast each profile, and zstd, compress a
// user's own data. Samples are held in memory before the first measurement, and decoding is timed
// from memory, without a disk. Encoding is timed as `forebay pack` does it: each chunk is decoded
// again to compare, written to a file in the temporary folder, and the file is synced. zstd gets
// the same chunks as the first profile, byte for byte, and does the same work on as many threads,
// so that ratios and rates can be compared.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"
#include "client/cli/human_text.h"
#include "client/cli/inspect/pack_survey.h"
#include "client/cli/pack/pack_plan.h"
#include "client/cli/source/pack_source.h"
#include "compress/decode/chunk/byte_stream.h"
#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/pack/pack_writer.h"
#include "compress/encode/pack/publish_file.h"

namespace forebay::cli {
namespace {

using compress::ChunkEntry;
using compress::PackField;
using std::chrono::steady_clock;

struct CompressBenchArguments {
  PathSourceOptions from;
  std::vector<std::string> profiles = {"fast", "balanced", "dense"};
  std::vector<int> zstd_levels = {3, 9};
  std::uint64_t bytes_max = 256 << 20;
  std::uint32_t samples_per_chunk = 0;
  unsigned threads = 1;
  // The fastest of the repeats counts: what disturbs a run only makes it slower.
  int repeats = 3;
};

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// The samples in memory, so that no source is read while encoding is timed. Every profile encodes
// these same samples.
struct HeldSamples {
  compress::PackSchema schema;
  std::vector<std::vector<std::vector<std::byte>>> fields;  // [sample][field]
  std::vector<std::string> keys;
  std::vector<bool> begins_sequence;
  std::uint64_t raw_bytes = 0;
};

// Takes samples from the front of the source until they would pass `bytes_max`, and lays their
// fields out as `forebay pack` would, so that the chunks are those of a real pack.
Result<HeldSamples> Hold(const CompressBenchArguments& arguments) {
  FOREBAY_ASSIGN(const std::unique_ptr<PackSource> source, OpenPathSource(arguments.from));
  HeldSamples held;
  held.schema = source->schema();
  LayoutOptions layout;
  if (arguments.samples_per_chunk > 0) layout.samples_per_chunk = arguments.samples_per_chunk;
  for (PackField& field : held.schema.fields) {
    FOREBAY_TRY(LayOut(layout, field));
    // A pack may have declared an error bound. zstd has no such thing, so all methods are compared
    // at the same output, which is the exact one.
    field.bound = {};
  }
  PackSample sample;
  for (std::uint64_t s = 0; s < source->samples(); ++s) {
    FOREBAY_TRY(source->Next(sample));
    std::uint64_t bytes = 0;
    for (const auto field : sample.fields) bytes += field.size();
    // The first sample is taken in any case: a bench of nothing says nothing. The subtraction is
    // clamped, because that first sample may be larger than the bound.
    if (s > 0 && bytes > arguments.bytes_max - std::min(arguments.bytes_max, held.raw_bytes)) {
      break;
    }
    auto& fields = held.fields.emplace_back();
    for (const auto field : sample.fields) fields.emplace_back(field.begin(), field.end());
    held.keys.push_back(sample.key);
    held.begins_sequence.push_back(sample.begins_sequence);
    held.raw_bytes += bytes;
  }
  if (held.raw_bytes == 0) {
    return Error(ErrorCode::kInvalidArgument, arguments.from.path + ": has nothing to compress");
  }
  return held;
}

// A folder for the packs, which the destructor removes with everything in it, also when a
// measurement fails. Its errors are ignored: the figures are valid all the same.
class BenchFolder {
 public:
  static Result<BenchFolder> Create() {
    std::error_code failed;
    const auto parent = std::filesystem::temp_directory_path(failed);
    if (failed) return Error::FromErrno(failed.value(), "the temporary folder");
    std::string name = (parent / "forebay-compress-bench-XXXXXX").string();
    // A new folder with a random name, closed to others: a name that can be guessed in a shared
    // temporary folder could be a link of somebody else's.
    if (mkdtemp(name.data()) == nullptr) return Error::FromErrno(errno, name + ": creating");
    BenchFolder folder;
    folder.path_ = name;
    return folder;
  }
  BenchFolder(BenchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  BenchFolder& operator=(BenchFolder&&) = delete;
  ~BenchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  BenchFolder() = default;
  std::string path_;
};

// Rates are in raw bytes per second in both directions, so that methods with different ratios can
// be compared by them.
struct Measured {
  std::string method;
  std::uint64_t raw_bytes = 0, coded_bytes = 0;
  double encode_seconds = 0, decode_seconds = 0;

  double ratio() const {
    return static_cast<double>(raw_bytes) / static_cast<double>(std::max<std::uint64_t>(
                                                coded_bytes, 1));
  }
  double Rate(double seconds) const {
    return static_cast<double>(raw_bytes) / std::max(seconds, 1e-9);
  }
};

// Sequences begin where the source has them, so that chunks end and predictions start anew where
// they would in a real pack.
Status WriteAll(const HeldSamples& held, compress::PackWriter& writer) {
  for (std::size_t s = 0; s < held.fields.size(); ++s) {
    if (held.begins_sequence[s]) FOREBAY_TRY(writer.BeginSequence());
    const std::vector<std::span<const std::byte>> fields(held.fields[s].begin(),
                                                         held.fields[s].end());
    FOREBAY_TRY(writer.Add(fields, held.keys[s]));
  }
  const auto summary = writer.Finish();
  if (!summary) return summary.error();
  return {};
}

// A pack in memory. `source` points to `bytes`, and `file` to `source`, so an object of this type
// lives on the heap and is never moved.
struct PackInMemory {
  std::vector<std::byte> bytes;
  std::unique_ptr<compress::ByteSource> source;
  std::optional<compress::PackFile> file;
};

Result<std::unique_ptr<PackInMemory>> Load(const std::string& path) {
  auto pack = std::make_unique<PackInMemory>();
  FOREBAY_ASSIGN(const auto file, compress::OpenByteSource(path));
  pack->bytes.resize(static_cast<std::size_t>(file->size()));
  FOREBAY_TRY(file->ReadAt(0, pack->bytes));
  pack->source = compress::MemorySource(pack->bytes);
  FOREBAY_ASSIGN(compress::PackFile opened, compress::PackFile::Open(*pack->source));
  pack->file.emplace(std::move(opened));
  return pack;
}

// Encodes as `forebay pack` does, which decodes each chunk again to compare it, and decodes as
// readers do, who check every checksum. Encoding runs once, because it takes longest. Decoding runs
// `repeats` times, and the fastest run counts.
Result<Measured> MeasureProfile(const CompressBenchArguments& arguments, const HeldSamples& held,
                                const BenchFolder& folder, const std::string& profile) {
  compress::PackWriterOptions options{.threads = arguments.threads};
  FOREBAY_ASSIGN(options.profile, ParseProfile(profile));
  const std::string path = folder.Path(profile + ".fbp");
  Measured measured{.method = profile, .raw_bytes = held.raw_bytes};
  const auto begin = steady_clock::now();
  FOREBAY_ASSIGN(const auto writer, compress::PackWriter::Create(path, held.schema, options));
  FOREBAY_TRY(WriteAll(held, *writer));
  measured.encode_seconds = SecondsSince(begin);
  // Reading the file back belongs to neither of the two times, so it stands between them.
  FOREBAY_ASSIGN(const std::unique_ptr<PackInMemory> pack, Load(path));
  measured.coded_bytes = pack->bytes.size();
  std::vector<std::byte> scratch(pack->file->ScratchBytes());
  for (int run = 0; run < arguments.repeats; ++run) {
    const auto start = steady_clock::now();
    for (const ChunkEntry& entry : pack->file->index().chunks) {
      FOREBAY_TRY(pack->file->DecodeWhole(entry, scratch));
    }
    const double seconds = SecondsSince(start);
    // The best run is the one that other programs disturbed least.
    if (run == 0 || seconds < measured.decode_seconds) measured.decode_seconds = seconds;
  }
  return measured;
}

// The raw bytes of the chunks of a pack, which zstd gets.
Result<std::vector<std::vector<std::byte>>> RawChunks(const std::string& pack_path) {
  FOREBAY_ASSIGN(const std::unique_ptr<PackInMemory> pack, Load(pack_path));
  std::vector<std::byte> scratch(pack->file->ScratchBytes());
  std::vector<std::vector<std::byte>> chunks;
  for (const ChunkEntry& entry : pack->file->index().chunks) {
    FOREBAY_ASSIGN(const auto chunk, pack->file->DecodeWhole(entry, scratch));
    chunks.emplace_back(chunk.bytes.begin(), chunk.bytes.end());
  }
  return chunks;
}

Status DecodeZstd(std::span<const std::byte> coded, std::span<std::byte> decoded) {
  // Each thread keeps one scratch buffer, because it is large and its contents do not matter.
  thread_local std::vector<std::byte> scratch(compress::ByteStreamScratchBytes());
  return compress::DecodeByteStream(compress::StreamCoder::kZstd, coded, decoded, scratch);
}

// Compresses each chunk and decodes it again to compare, on as many threads as a profile gets.
Result<std::vector<std::vector<std::byte>>> EncodeZstd(
    const std::vector<std::vector<std::byte>>& chunks, int level, unsigned threads) {
  std::vector<std::vector<std::byte>> coded(chunks.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> differs = false;
  const auto work = [&] {
    std::vector<std::byte> decoded;
    for (std::size_t i = next++; i < chunks.size(); i = next++) {
      coded[i] = compress::CompressZstd(chunks[i], level);
      decoded.resize(chunks[i].size());
      if (!DecodeZstd(coded[i], decoded).has_value() || decoded != chunks[i]) differs = true;
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (differs) return Error(ErrorCode::kInternal, "zstd: does not decode to what was encoded");
  return coded;
}

// Measures zstd, with its own checksum, as a profile is measured: encoding includes comparing and
// writing. The size is that of the coded chunks alone, without the index that a profile's pack has.
Result<Measured> MeasureZstd(const CompressBenchArguments& arguments, const BenchFolder& folder,
                             const std::vector<std::vector<std::byte>>& chunks, int level) {
  Measured measured{.method = fmt::format("zstd -{}", level)};
  for (const std::vector<std::byte>& chunk : chunks) measured.raw_bytes += chunk.size();
  const auto begin = steady_clock::now();
  FOREBAY_ASSIGN(const auto coded, EncodeZstd(chunks, level, arguments.threads));
  measured.encode_seconds = SecondsSince(begin);
  // Joining is not timed: the writer of a pack writes chunk after chunk, without a copy.
  std::vector<std::byte> joined;
  for (const std::vector<std::byte>& chunk : coded) {
    joined.insert(joined.end(), chunk.begin(), chunk.end());
  }
  const auto writing = steady_clock::now();
  FOREBAY_TRY(compress::ReplaceFile(folder.Path("zstd"), joined));
  measured.encode_seconds += SecondsSince(writing);
  measured.coded_bytes = joined.size();
  std::vector<std::byte> decoded;
  for (int run = 0; run < arguments.repeats; ++run) {
    const auto start = steady_clock::now();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      decoded.resize(chunks[i].size());
      FOREBAY_TRY(DecodeZstd(coded[i], decoded));
    }
    const double seconds = SecondsSince(start);
    if (run == 0 || seconds < measured.decode_seconds) measured.decode_seconds = seconds;
  }
  return measured;
}

void Print(CommandContext& context, const CompressBenchArguments& arguments,
           const std::vector<Measured>& all, std::size_t samples) {
  if (!context.json) {
    context.out << fmt::format("{}: {} samples, {}; encode on {} thread{}, decode on one\n\n",
                               arguments.from.path, HumanCount(samples),
                               HumanBytes(all.front().raw_bytes), arguments.threads,
                               arguments.threads == 1 ? "" : "s");
  }
  TextTable table({"method", "size", "ratio", "encode", "decode"});
  for (const Measured& measured : all) {
    const double encode = measured.Rate(measured.encode_seconds);
    const double decode = measured.Rate(measured.decode_seconds);
    table.Add({measured.method, HumanBytes(measured.coded_bytes),
               fmt::format("{:.3f}", measured.ratio()), HumanRate(encode), HumanRate(decode)});
    if (context.json) {
      context.PrintJson("compress_bench", {{"path", arguments.from.path},
                                           {"method", measured.method},
                                           {"samples", samples},
                                           {"threads", arguments.threads},
                                           {"raw_bytes", measured.raw_bytes},
                                           {"coded_bytes", measured.coded_bytes},
                                           {"ratio", measured.ratio()},
                                           {"encode_bytes_per_s", encode},
                                           {"decode_bytes_per_s", decode}});
    }
  }
  if (!context.json) context.out << table.ToString();
}

// A method that is measured twice would give two lines of one name, which no script can tell apart.
template <typename Value>
Status CheckOnce(const char* option, std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice == values.end()) return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} is given twice", option, *twice));
}

Status RunCompressBench(CommandContext& context, const CompressBenchArguments& arguments) {
  FOREBAY_TRY(CheckOnce("--profiles", arguments.profiles));
  FOREBAY_TRY(CheckOnce("--zstd", arguments.zstd_levels));
  FOREBAY_ASSIGN(const HeldSamples held, Hold(arguments));
  FOREBAY_ASSIGN(const BenchFolder folder, BenchFolder::Create());
  std::vector<Measured> all;
  for (const std::string& profile : arguments.profiles) {
    FOREBAY_ASSIGN(Measured measured, MeasureProfile(arguments, held, folder, profile));
    all.push_back(std::move(measured));
  }
  // Any profile's pack has the same chunks, because the layout does not depend on the profile.
  FOREBAY_ASSIGN(const auto chunks, RawChunks(folder.Path(arguments.profiles.front() + ".fbp")));
  for (const int level : arguments.zstd_levels) {
    FOREBAY_ASSIGN(Measured measured, MeasureZstd(arguments, folder, chunks, level));
    all.push_back(std::move(measured));
  }
  Print(context, arguments, all, held.fields.size());
  return {};
}

}  // namespace

void AddCompress(Command& program, CommandContext& context) {
  Command compress = program.AddCommand("compress", "Measure codecs on your own data.");
  compress.RequireCommand();
  Command command = compress.AddCommand(
      "bench", "Ratio, encode and decode speed of each profile and of zstd, in one run.");
  auto arguments = std::make_shared<CompressBenchArguments>();
  command.AddOption("PATH", arguments->from.path,
                      "A folder of images, a pack, a set of packs, or a raw file")
      .Required();
  AddPathOptions(command, arguments->from);
  command.AddOption("--profiles", arguments->profiles, "Default: fast balanced dense")
      .OneOf({"fast", "balanced", "dense", "auto"});
  command.AddOption("--zstd", arguments->zstd_levels, "Levels of zstd (default: 3 9)")
      .Within(-7, 22);
  command.AddOption("--bytes", arguments->bytes_max,
                      "Of the data from its front, held in memory (default: 256MiB)")
      .Bytes()
      .Positive();
  command.AddOption("--samples-per-chunk", arguments->samples_per_chunk, "As of pack")
      .Within(1U, 65536U);
  command.AddOption("--threads", arguments->threads, "That encode (default: 1)")
      .Within(1U, 1024U);
  command.AddOption("--repeats", arguments->repeats,
                      "Of decoding; the best counts (default: 3)")
      .Within(1, 1000);
  command.SetFooter(
      "Sizes of profiles are of whole packs: index, checksums and all; those of zstd of its frames "
      "alone. Encoding includes decoding each chunk again to compare, and writing and syncing a "
      "file in the temporary folder. Decoding, on one thread from memory, verifies every checksum, "
      "zstd's its own.");
  command.OnRun([&context, arguments] { return RunCompressBench(context, *arguments); });
}

}  // namespace forebay::cli
