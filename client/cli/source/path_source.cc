// What lies at a path as samples of a pack, without a daemon: a folder of images, a pack or a set
// of packs, or records one after the other in a file. The kind is found by looking: a folder, the
// first bytes of a pack or manifest, else a raw file, which --dtype and --shape must describe. All
// of them can be read again from their front.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "client/cli/command_declaration.h"
#include "client/cli/inspect/pack_survey.h"
#include "client/cli/pack/pack_plan.h"
#include "client/cli/source/pack_source.h"
#include "compress/decode/pack/byte_source.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

constexpr std::uint64_t kReadBytes = 8 << 20;  // of a raw file at once, but one record at least

Result<std::vector<std::uint64_t>> ParseShape(const std::string& text) {
  std::vector<std::uint64_t> shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::uint64_t extent = 0;
    const auto [next, failed] = std::from_chars(at, end, extent);
    // The last condition refuses "480x", whose missing extent would otherwise go unnoticed.
    if (failed != std::errc() || (next != end && (*next != 'x' || next + 1 == end))) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--shape {}: wanted are the elements of a record along each axis, "
                               "as in 480x640", text));
    }
    shape.push_back(extent);
    at = next == end ? end : next + 1;
  }
  return shape;
}

// Records of one shape, behind a header.
class RawFile : public PackSource {
 public:
  explicit RawFile(PathSourceOptions options) : options_(std::move(options)) {}

  Status Start() {
    if (options_.dtype.empty() || options_.shape.empty()) {
      return Error(ErrorCode::kInvalidArgument,
                   options_.path + ": neither a folder nor a pack: say with --dtype and --shape "
                                   "what a record of this file is");
    }
    FieldSpec spec{.name = "data", .shape = {}};
    FOREBAY_ASSIGN(spec.dtype, ParseDtype(options_.dtype));
    FOREBAY_ASSIGN(spec.shape, ParseShape(options_.shape));
    FOREBAY_ASSIGN(compress::PackField field, PackFieldOf(spec, notes_));
    // PackFieldOf has refused extents of 0, and this refuses a product that would wrap. The
    // divisions below rely on both.
    FOREBAY_ASSIGN(record_bytes_, spec.BytesPerSample());
    if (record_bytes_ > limits::kSampleBytesMax) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--shape {}: a record of {} bytes; a sample has at most {}",
                               options_.shape, record_bytes_, limits::kSampleBytesMax));
    }
    schema_.fields = {std::move(field)};
    schema_.provenance = {{"source", "raw file"}};
    FOREBAY_ASSIGN(source_, compress::OpenByteSource(options_.path));
    // A size that does not fit means a wrong shape or header. Packed anyway, every sample would be
    // shifted.
    if (source_->size() < options_.header_bytes ||
        (source_->size() - options_.header_bytes) % record_bytes_ != 0) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: {} bytes are no header of {} and whole records of {}",
                               options_.path, source_->size(), options_.header_bytes,
                               record_bytes_));
    }
    samples_ = (source_->size() - options_.header_bytes) / record_bytes_;
    return {};
  }

  const compress::PackSchema& schema() const override { return schema_; }
  std::uint64_t samples() const override { return samples_; }
  bool can_be_read_again() const override { return true; }
  const std::vector<std::string>& notes() const override { return notes_; }

  Status Skip(std::uint64_t sample) override {
    next_ = sample;
    return {};
  }

  Status Next(PackSample& sample) override {
    // Reads of several megabytes: a read for each small record would be a system call for each.
    if (next_ < first_ || next_ >= first_ + held_) FOREBAY_TRY(Fill());
    // Within the buffer, whose size Fill has computed from the same two numbers.
    const auto at = static_cast<std::size_t>((next_ - first_) * record_bytes_);
    sample.fields = {std::span<const std::byte>(buffer_).subspan(
        at, static_cast<std::size_t>(record_bytes_))};
    sample.key.clear();
    sample.begins_sequence = false;
    ++next_;
    return {};
  }

 private:
  Status Fill() {
    first_ = next_;
    // Never beyond the last record: the reader refuses a range that ends behind the file.
    held_ = std::min(samples_ - first_, std::max<std::uint64_t>(1, kReadBytes / record_bytes_));
    buffer_.resize(static_cast<std::size_t>(held_ * record_bytes_));
    return source_->ReadAt(options_.header_bytes + first_ * record_bytes_, buffer_);
  }

  const PathSourceOptions options_;
  std::unique_ptr<compress::ByteSource> source_;
  compress::PackSchema schema_;
  std::vector<std::string> notes_;
  std::uint64_t record_bytes_ = 0, samples_ = 0, next_ = 0;
  std::uint64_t first_ = 0, held_ = 0;  // records in the buffer
  std::vector<std::byte> buffer_;
};

// A pack's samples, to be packed anew: another profile, other chunks.
class PackedSamples : public PackSource {
 public:
  explicit PackedSamples(OpenedPacks packs) : packs_(std::move(packs)) {}

  Status Start() {
    FOREBAY_TRY(Enter(0));
    // The schema is that of the first pack. PackSet makes sure that the other shards have the same
    // one, except for provenance.
    schema_ = pack_.file->schema();
    // The command that writes the new pack decides whether its records are aligned.
    schema_.aligned = false;
    // The new file gets its own entries for the writer and the profile.
    std::erase_if(schema_.provenance, [](const auto& entry) {
      return entry.first == "writer" || entry.first == "profile";
    });
    // Predictors are the new file's profile's: no chunk of it needs those of this one.
    schema_.predictors.clear();
    schema_.named_predictors.clear();
    for (compress::PackField& field : schema_.fields) DropBoundOnBytes(field);
    held_.resize(schema_.fields.size());
    return {};
  }

  const compress::PackSchema& schema() const override { return schema_; }
  std::uint64_t samples() const override { return packs_.samples(); }
  bool can_be_read_again() const override { return true; }
  const std::vector<std::string>& notes() const override { return notes_; }

  Status Skip(std::uint64_t sample) override {
    next_ = sample;
    return {};
  }

  Status Next(PackSample& sample) override {
    // A loop, because Skip may have gone over several shards at once.
    while (next_ >= first_ + pack_.file->samples()) FOREBAY_TRY(Enter(number_ + 1));
    const std::uint64_t local = next_ - first_;
    sample.fields.clear();
    // No shard is predicted from the one before it, so a sequence begins with each.
    sample.begins_sequence = local == 0 && number_ > 0;
    for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
      FOREBAY_ASSIGN(const std::span<const std::byte> bytes, FieldBytes(field, local, sample));
      sample.fields.push_back(bytes);
    }
    sample.key.clear();
    if (schema_.keyed) {
      // Keys lie in records of many; asking for one at a time would parse such a record for each
      // sample.
      FOREBAY_TRY(HoldKeys(local));
      sample.key = keys_[static_cast<std::size_t>(local - keys_first_)];
    }
    ++next_;
    return {};
  }

 private:
  // Decoded samples of a field: those of one run of chunks.
  struct Held {
    std::uint64_t first = 0, count = 0;
    bool begins_sequence = false;
    std::vector<std::byte> bytes;
    std::vector<std::size_t> ends;  // of byte strings, in `bytes`
  };

  // Packs of earlier versions may have a bound on byte strings, which is no longer written.
  void DropBoundOnBytes(compress::PackField& field) {
    // Asked of the function that the writer itself asks, so both agree on what is refused.
    if (compress::CheckWritableBound(field).has_value()) return;
    field.bound = {};
    notes_.push_back(fmt::format("field {} was packed with an error bound, which may have changed "
                                 "its bytes; they are packed as they are, without a bound",
                                 field.name));
  }

  Status Enter(std::size_t number) {
    number_ = number;
    first_ = packs_.FirstSample(number);
    FOREBAY_ASSIGN(pack_, packs_.Pack(number));
    // Grows to the largest need of any shard and stays there.
    scratch_.resize(std::max(scratch_.size(), pack_.file->ScratchBytes()));
    // The held samples and keys are numbered within the previous pack, so they are dropped.
    for (Held& held : held_) held.count = 0;
    keys_.clear();
    return {};
  }

  Status HoldKeys(std::uint64_t local) {
    if (local >= keys_first_ && local - keys_first_ < keys_.size()) return {};
    keys_first_ = local;
    const std::uint64_t count = std::min<std::uint64_t>(4096, pack_.file->samples() - local);
    FOREBAY_ASSIGN(keys_, pack_.file->Keys(local, count));
    return {};
  }

  Result<std::span<const std::byte>> FieldBytes(std::uint32_t number, std::uint64_t local,
                                                PackSample& sample) {
    const compress::PackField& field = schema_.fields[number];
    Held& held = held_[number];
    if (field.variable()) return StringBytes(number, local);
    const auto sample_bytes = static_cast<std::size_t>(field.sample_bytes());
    if (local < held.first || local - held.first >= held.count) {
      const compress::ChunkEntry& entry = pack_.file->Chunks(number, local, 1).front();
      FOREBAY_ASSIGN(const ChunkFacts facts, ReadChunkFacts(pack_, entry));
      held.first = local;
      // The samples up to the chunk's end are decoded together, so that a run from the front
      // decodes each chunk once.
      held.count = entry.first_sample + entry.sample_count - local;
      // The flag is about the chunk's first sample. After a Skip into the middle it says nothing.
      held.begins_sequence = facts.begins_sequence && local == entry.first_sample;
      held.bytes.resize(static_cast<std::size_t>(held.count) * sample_bytes);
      FOREBAY_TRY(pack_.file->ReadSamples(number, held.first, held.count, held.bytes, scratch_));
    }
    // Sequences matter to images only, which are predicted from the sample before. At the first
    // sample of all a sequence begins anyway.
    if (local == held.first && field.rank >= 2 && held.begins_sequence && next_ > 0) {
      sample.begins_sequence = true;
    }
    return std::span<const std::byte>(held.bytes)
        .subspan(static_cast<std::size_t>(local - held.first) * sample_bytes, sample_bytes);
  }

  Result<std::span<const std::byte>> StringBytes(std::uint32_t number, std::uint64_t local) {
    Held& held = held_[number];
    const compress::ChunkEntry& entry = pack_.file->Chunks(number, local, 1).front();
    if (entry.sample_bytes != 0) {
      // A string longer than a chunk lies in several, which have no other string.
      held.count = 0;
      held.bytes.resize(static_cast<std::size_t>(entry.sample_bytes));
      FOREBAY_TRY(pack_.file->ReadBytes(number, local, held.bytes, scratch_));
      return std::span<const std::byte>(held.bytes);
    }
    if (local < held.first || local - held.first >= held.count) {
      // The whole chunk is kept: it may hold thousands of small strings, and reading one of them
      // decodes all.
      held.count = 0;
      FOREBAY_ASSIGN(const auto chunk, pack_.file->DecodeWhole(entry, scratch_));
      held.bytes.assign(chunk.bytes.begin(), chunk.bytes.end());
      held.ends.clear();
      for (std::uint32_t i = 0; i < entry.sample_count; ++i) {
        held.ends.push_back((i == 0 ? 0 : held.ends.back()) + chunk.head.LengthOf(i));
      }
      held.first = entry.first_sample;
      held.count = entry.sample_count;
    }
    const auto index = static_cast<std::size_t>(local - held.first);
    const std::size_t begin = index == 0 ? 0 : held.ends[index - 1];
    return std::span<const std::byte>(held.bytes).subspan(begin, held.ends[index] - begin);
  }

  const OpenedPacks packs_;
  OpenedPack pack_;             // that is being read
  std::size_t number_ = 0;      // its number
  std::uint64_t first_ = 0;     // its first sample
  std::uint64_t next_ = 0;
  compress::PackSchema schema_;
  std::vector<std::string> notes_, keys_;
  std::uint64_t keys_first_ = 0;
  std::vector<Held> held_;
  std::vector<std::byte> scratch_;
};

Result<bool> IsPack(const std::string& path) {
  FOREBAY_ASSIGN(const bool is_set, compress::IsManifestFile(path));
  if (is_set) return true;
  FOREBAY_ASSIGN(const auto source, compress::OpenByteSource(path));
  std::array<std::byte, 8> magic = {};
  if (source->size() < magic.size()) return false;
  FOREBAY_TRY(source->ReadAt(0, magic));
  // Eight bytes are enough: a pack's other bytes are checked when it is opened, and a damaged pack
  // should be reported as such and not be taken for a raw file.
  std::uint64_t word = 0;
  // The magic is a little-endian number in the file.
  for (std::size_t i = magic.size(); i-- > 0;) {
    word = word << 8 | std::to_integer<std::uint64_t>(magic[i]);
  }
  return word == compress::kPackMagic;
}

}  // namespace

Result<std::unique_ptr<PackSource>> OpenPathSource(const PathSourceOptions& options) {
  std::error_code failed;
  if (std::filesystem::is_directory(options.path, failed)) return OpenImageFolder(options.path);
  FOREBAY_ASSIGN(const bool is_pack, IsPack(options.path));
  if (is_pack) {
    // A damaged pack is not recovered here, because a new pack of the samples that are left would
    // make the loss look intended.
    FOREBAY_ASSIGN(OpenedPacks packs, OpenedPacks::Open(options.path, false));
    auto source = std::make_unique<PackedSamples>(std::move(packs));
    FOREBAY_TRY(source->Start());
    return std::unique_ptr<PackSource>(std::move(source));
  }
  auto source = std::make_unique<RawFile>(options);
  FOREBAY_TRY(source->Start());
  return std::unique_ptr<PackSource>(std::move(source));
}

void AddPathOptions(Command& command, PathSourceOptions& options) {
  command.AddOption("--dtype", options.dtype, "Of a raw file: its elements' type, as in u16");
  command.AddOption("--shape", options.shape, "Of a raw file: a record's shape, as in 480x640");
  command.AddOption("--header", options.header_bytes,
                     "Of a raw file: bytes before the first record");
}

}  // namespace forebay::cli
