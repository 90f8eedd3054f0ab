// The driver of format pack: packs, or the shards that a manifest (*.fbset) names. Reads header,
// schema, footer, index and keys of each file, but none of its chunks. All packs must have the same
// fields, and a shard must be the file that its manifest describes. Memory: what BuildScratch
// allows for each table, and 130 bytes per chunk of one file at a time.
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "compress/decode/pack/pack_file.h"
#include "compress/format/pack/pack_manifest.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"
#include "server/catalog/pack/object_source.h"
#include "server/catalog/pack/pack_catalog.h"
#include "server/catalog/pack/pack_cut.h"
#include "server/catalog/pack/pack_image_writer.h"

namespace forebay::catalog {
namespace {

using compress::PackField;
using compress::PackFile;
using compress::PackSchema;

constexpr auto kPackKeys = std::to_array<FormatKey>({
    {.name = "files",
     .default_text = "(found)",
     .help = "list of paths of packs or sets beneath the root; with it, the key format must be set",
     .check = CheckBy<&ParsePaths>,
     .identify = IdentifyPaths},
});

bool IsPackName(std::string_view name) {
  return name.ends_with(".fbp") || name.ends_with(".pack") || name.ends_with(".fbset");
}

Error DatasetError(const BuildContext& context, const std::string& reason) {
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(context.source.name) + " " + reason);
}

// Returns the manifest at the top of the root if there is one, else the packs there. Packs that a
// manifest does not name are ignored: an interrupted `forebay pack`, or an older one, left them.
Result<std::vector<std::string>> FindPacks(const BuildContext& context) {
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, context.root.List(""));
  FOREBAY_ASSIGN(std::vector<std::string> paths, FilesNamedLike(top, IsPackName));
  std::vector<std::string> manifests;
  for (const std::string& path : paths) {
    if (path.ends_with(".fbset")) manifests.push_back(path);
  }
  if (manifests.size() > 1) {
    return DatasetError(context, "has several sets of packs, " + Quoted(manifests[0]) + " and " +
                                     Quoted(manifests[1]) +
                                     " among them; name one in its key 'files'");
  }
  return manifests.empty() ? paths : manifests;
}

// Lists the packs and manifests that the configuration names, or else those at the top of the root.
Result<std::vector<std::string>> ListPacks(const BuildContext& context) {
  FOREBAY_ASSIGN(std::vector<std::string> paths,
                 SettingOf<&ParsePaths>(context.source, "files", std::vector<std::string>()));
  if (paths.empty()) {
    FOREBAY_ASSIGN(paths, FindPacks(context));
  }
  if (paths.empty()) {
    return DatasetError(context, "has no packs (*.fbset, *.fbp, *.pack) at the top of its root; "
                                 "name them in its key 'files'");
  }
  if (paths.size() > limits::kPackShardsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "data set " + Quoted(context.source.name) + " has " +
                     std::to_string(paths.size()) + " packs, at most " +
                     std::to_string(limits::kPackShardsMax) + " are allowed (kPackShardsMax)");
  }
  return paths;
}

// Returns the first property in which two fields differ; empty if they are equal.
std::string Difference(const PackField& a, const PackField& b) {
  const bool same_bound = a.bound.mode == b.bound.mode && a.bound.absolute == b.bound.absolute &&
                          a.bound.relative == b.bound.relative;
  // Everything that decides what a sample is or how a chunk is decoded, except the alignment of
  // records, which may differ between packs.
  const std::array<std::pair<bool, const char*>, 10> checks = {{
      {a.name == b.name, "name"},
      {a.kind == b.kind, "kind"},
      {a.dtype == b.dtype, "element type"},
      {a.rank == b.rank && a.extent == b.extent, "shape"},
      {a.channel_axis == b.channel_axis, "channel axis"},
      {a.valid_bits == b.valid_bits, "number of valid bits"},
      {a.fill_bits == b.fill_bits, "fill value"},
      // Two bounds that differ would make the error of a sample depend on the pack in which it
      // lies.
      {same_bound, "error bound"},
      {a.samples_per_chunk == b.samples_per_chunk, "number of samples per chunk"},
      {a.tile == b.tile, "tile"},
  }};
  for (const auto& [same, what] : checks) {
    if (!same) return what;
  }
  return "";
}

// Describes the first class that the two packs name differently; empty if there is none, or if one
// of them names no classes.
std::string ClassDifference(const PackSchema& a, const PackSchema& b, const std::string& field) {
  const auto of_a = compress::ClassNames(a, field);
  // Packs that name no classes fit those that do: the labels themselves are numbers in both.
  const auto of_b = compress::ClassNames(b, field);
  if (of_a.empty() || of_b.empty()) return "";
  const auto [at_a, at_b] = std::ranges::mismatch(of_a, of_b);
  if (at_a == of_a.end() && at_b == of_b.end()) return "";
  const auto name = [](const auto& names, auto at) {
    return at == names.end() ? std::string("missing") : Quoted(std::string(*at));
  };
  return "class " + std::to_string(at_a - of_a.begin()) + " of field " + Quoted(field) + " is " +
         name(of_a, at_a) + " in the one and " + name(of_b, at_b) + " in the other";
}

// The pack with which all others are compared.
struct FirstPack {
  std::string path;
  PackSchema schema;
};

// All packs of a data set have the same fields. Their provenance may differ.
Status CheckSameSchema(const FirstPack& first, const std::string& path, const PackSchema& schema) {
  std::string reason;
  // A data set either has a key for every sample or for none.
  if (schema.keyed != first.schema.keyed) reason = "only one of them has keys";
  if (schema.fields.size() != first.schema.fields.size()) {
    reason = "they have " + std::to_string(first.schema.fields.size()) + " and " +
             std::to_string(schema.fields.size()) + " fields";
  }
  for (std::size_t i = 0; i < schema.fields.size() && reason.empty(); ++i) {
    const std::string difference = Difference(first.schema.fields[i], schema.fields[i]);
    if (difference.empty()) continue;
    reason = "field " + std::to_string(i) + " (" + Quoted(first.schema.fields[i].name) + ", " +
             Quoted(schema.fields[i].name) + ") differs in its " + difference;
  }
  for (std::size_t i = 0; i < schema.fields.size() && reason.empty(); ++i) {
    reason = ClassDifference(first.schema, schema, schema.fields[i].name);
  }
  for (const auto& predictor : schema.predictors) {
    const bool shared = std::ranges::any_of(first.schema.predictors, [&](const auto& other) {
      return other->id() == predictor->id();
    });
    // The catalog keeps the predictors of the first pack, and all chunks are decoded with them.
    if (!shared) reason = "they were coded with different learned predictors";
  }
  if (reason.empty()) return {};
  return Error(ErrorCode::kInvalidArgument, Quoted(first.path) + " and " + Quoted(path) +
                                                " do not belong to one data set: " + reason);
}

// What a manifest says about one of its shards.
struct ManifestShard {
  const compress::ShardEntry& entry;
  std::uint64_t schema_fingerprint = 0;
  const std::string& manifest;  // path of the manifest
};

// A shard that was replaced or truncated after the manifest was written would give other samples,
// so it is refused.
Status CheckShard(const ManifestShard& shard, const PackFile& pack, std::uint64_t bytes) {
  const auto refuse = [&](ErrorCode code, const std::string& reason) {
    return Error(code, "not the file that " + Quoted(shard.manifest) + " names: " + reason);
  };
  if (bytes != shard.entry.file_bytes) {
    return refuse(ErrorCode::kDataLoss, "it has " + std::to_string(bytes) +
                                            " bytes, the manifest says " +
                                            std::to_string(shard.entry.file_bytes));
  }
  if (pack.schema_fingerprint() != shard.schema_fingerprint) {
    return refuse(ErrorCode::kFailedPrecondition, "its schema differs from the manifest's");
  }
  if (pack.samples() != shard.entry.samples || pack.root() != shard.entry.root) {
    return refuse(ErrorCode::kDataLoss, "its index differs from the one that the manifest records");
  }
  return {};
}

// Reads a manifest into memory. Its size is bounded before anything is allocated.
Result<compress::PackManifest> ReadManifest(const ObjectSource& source, const std::string& path) {
  std::array<std::byte, compress::kManifestHeaderBytes> header;
  // The size on the GFS is compared, and not one that the manifest claims, because the buffer is
  // allocated by it.
  if (source.size() < header.size() || source.size() > limits::kPackManifestBytesMax) {
    return InputError(ErrorCode::kDataLoss, path, 0,
                      "a manifest of " + std::to_string(source.size()) +
                          " bytes is too short or too long");
  }
  // The header alone is checked first, so that no memory is allocated for a file that is no
  // manifest.
  FOREBAY_TRY(source.ReadAt(0, header));
  const auto bytes = compress::PackManifestBytes(header);
  if (!bytes.has_value()) return bytes.error().WithContext(Quoted(path));
  std::vector<std::byte> whole(static_cast<std::size_t>(source.size()));
  FOREBAY_TRY(source.ReadAt(0, whole));
  auto manifest = compress::ReadPackManifest(whole);
  if (!manifest.has_value()) return manifest.error().WithContext(Quoted(path));
  return manifest;
}

// Builds one catalog: Add for each path, then Finish.
class PackBuilder {
 public:
  explicit PackBuilder(const BuildContext& context) : context_(context) {}

  // Adds a pack, or all packs that a manifest names. The file's first bytes tell which of the two
  // it is.
  Status Add(io::IoQueue& queue, const std::string& path) {
    FOREBAY_ASSIGN(const std::unique_ptr<ObjectSource> source,
                   ObjectSource::Open(context_.root, queue, path));
    // A file that is too short for a magic number goes to PackFile::Open, whose error says so.
    std::array<std::byte, sizeof(std::uint64_t)> magic = {};
    if (source->size() >= magic.size()) FOREBAY_TRY(source->ReadAt(0, magic));
    if (!compress::IsManifest(magic)) return AddPack(*source, path, nullptr);
    FOREBAY_ASSIGN(const compress::PackManifest manifest, ReadManifest(*source, path));
    // A manifest names its shards relative to its own folder. rfind + 1 is 0 where there is no '/'.
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    // One shard is open at a time, so the number of open files does not grow with the set.
    for (const compress::ShardEntry& entry : manifest.shards) {
      const std::string shard_path = folder + entry.name;
      FOREBAY_ASSIGN(const std::unique_ptr<ObjectSource> shard,
                     ObjectSource::Open(context_.root, queue, shard_path));
      const ManifestShard expected{entry, manifest.schema_fingerprint, path};
      FOREBAY_TRY(AddPack(*shard, shard_path, &expected));
    }
    return {};
  }

  Result<std::shared_ptr<const Catalog>> Finish() {
    if (!writer_.has_value() || writer_->sample_count() == 0) {
      return DatasetError(context_, "has no samples");
    }
    // Opening checks every row again, so a mistake of the writer is an error here and no catalog is
    // saved.
    FOREBAY_ASSIGN(ImageBytes image, writer_->Finish());
    return OpenPackImage(std::move(image));
  }

 private:
  // `expected` is null for a pack that no manifest describes.
  Status AddPack(const ObjectSource& source, const std::string& path,
                 const ManifestShard* expected) {
    // The same pack named twice, or by two manifests, would deliver each of its samples twice in an
    // epoch.
    if (!seen_.insert(path).second) return DatasetError(context_, "has " + Quoted(path) + " twice");
    const Status added = AddSource(source, path, expected);
    // A file that is still being written looks damaged. "It changed" is the error that helps.
    FOREBAY_TRY(source.CheckUnchanged());
    if (added.has_value() && context_.progress) context_.progress(seen_.size());
    return added;
  }

  Status AddSource(const ObjectSource& source, const std::string& path,
                   const ManifestShard* expected) {
    const Result<PackFile> pack = PackFile::Open(source);
    if (!pack.has_value()) return pack.error().WithContext(Quoted(path));
    if (expected != nullptr) {
      const Status named = CheckShard(*expected, *pack, source.size());
      if (!named.has_value()) return named.error().WithContext(Quoted(path));
    }
    // An empty pack still has to fit the others, but gives no extents and is no object.
    FOREBAY_TRY(TakeSchema(path, pack->schema()));
    if (pack->samples() == 0) return {};
    const auto cut = CutPack(pack->schema(), pack->index().chunks, context_.source.extent_bytes);
    if (!cut.has_value()) return cut.error().WithContext(Quoted(path));
    const io::FileInfo& info = source.info();
    FOREBAY_TRY(writer_->AddPack({.path = path,
                                  .bytes = info.bytes,
                                  .mtime_ns = info.mtime_ns,
                                  .identity = pack->identity(),
                                  .samples = pack->samples(),
                                  .chunks = pack->index().chunks},
                                 *cut));
    // One key record at a time, which bounds the memory to limits::kPackKeysBytesMax.
    for (const compress::KeyEntry& entry : pack->index().keys) {
      const auto keys = pack->Keys(entry.first_sample, entry.sample_count);
      if (!keys.has_value()) return keys.error().WithContext(Quoted(path));
      FOREBAY_TRY(writer_->AddKeys(*keys));
    }
    return {};
  }

  // The first pack's schema becomes the data set's; every other pack's must agree with it.
  Status TakeSchema(const std::string& path, const PackSchema& schema) {
    if (writer_.has_value()) return CheckSameSchema(first_, path, schema);
    // Checked once, because the schemas of all packs agree in shape and element type.
    for (const PackField& field : schema.fields) {
      const auto bytes = SpecOf(field).BytesPerSample();
      if (bytes.has_value()) continue;
      return bytes.error().WithContext(Quoted(path) + ", field " + Quoted(field.name));
    }
    first_ = {.path = path, .schema = schema};
    writer_.emplace(context_.source.name, schema, context_.scratch);
    return {};
  }

  const BuildContext& context_;
  FirstPack first_;
  std::set<std::string> seen_;  // paths of packs
  std::optional<PackImageWriter> writer_;
};

Result<std::shared_ptr<const Catalog>> BuildPacks(const BuildContext& context) {
  // Other formats leave this to CatalogWriter, which does not write images of packs.
  const std::string& name = context.source.name;
  if (name.empty() || name.size() > limits::kNameBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "data set name " + Quoted(name) + " must have 1 to " +
                     std::to_string(limits::kNameBytesMax) + " bytes (kNameBytesMax)");
  }
  FOREBAY_ASSIGN(const std::vector<std::string> paths, ListPacks(context));
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue,
                 context.backend.CreateQueue({.depth = 1}));
  PackBuilder builder(context);
  for (const std::string& path : paths) FOREBAY_TRY(builder.Add(*queue, path));
  return builder.Finish();
}

}  // namespace

constinit const FormatDriver kPackDriver = {
    .format = Format::kPack,
    .name = "pack",
    .detected_by = "packs (*.fbset, *.fbp, *.pack)",
    .keys = kPackKeys,
    .detect = [](std::span<const io::DirectoryEntry> top) -> Result<bool> {
      FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(top, IsPackName));
      return !names.empty();
    },
    .build = BuildPacks,
    .is_own_image = IsPackImage,
    .open_image = OpenPackImage,
};

}  // namespace forebay::catalog
