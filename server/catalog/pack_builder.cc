// Catalogs of packs (dataset_builder.h).
#include <array>
#include <optional>
#include <set>

#include "compress/decode/pack_file.h"
#include "proto/contract/limits.h"
#include "server/catalog/dataset_builder.h"
#include "server/catalog/input_error.h"
#include "server/catalog/object_source.h"
#include "server/catalog/pack_catalog.h"
#include "server/catalog/pack_cut.h"
#include "server/catalog/pack_image_writer.h"

namespace forebay::catalog {
namespace {

using compress::PackField;
using compress::PackFile;
using compress::PackSchema;

Error Wrong(const BuildContext& context, const std::string& reason) {
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(context.source.name) + " " + reason);
}

Result<std::vector<std::string>> ListPacks(const BuildContext& context) {
  std::vector<std::string> paths;
  if (context.source.files.empty()) {
    FOREBAY_ASSIGN(paths, FilesNamedLike(context.root, Format::kPack));
  }
  std::set<std::string_view> seen;
  for (const FieldFile& file : context.source.files) {
    if (!file.field.empty()) {
      return Wrong(context, "names a field for " + Quoted(file.path) +
                                ": packs bring the names of their fields with them");
    }
    if (!seen.insert(file.path).second) {
      return Wrong(context, "names " + Quoted(file.path) + " twice");
    }
    paths.push_back(file.path);
  }
  if (paths.empty()) {
    return Wrong(context, "has no *.pack at the top of its root; name its packs in its files");
  }
  if (paths.size() > limits::kPackShardsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "data set " + Quoted(context.source.name) + " has " +
                     std::to_string(paths.size()) + " packs, at most " +
                     std::to_string(limits::kPackShardsMax) + " are allowed (kPackShardsMax)");
  }
  return paths;
}

// The property in which two fields of one name differ, empty where they are the same.
std::string Difference(const PackField& a, const PackField& b) {
  const bool same_bound = a.bound.mode == b.bound.mode && a.bound.absolute == b.bound.absolute &&
                          a.bound.relative == b.bound.relative;
  const std::array<std::pair<bool, const char*>, 10> checks = {{
      {a.name == b.name, "name"},
      {a.kind == b.kind, "kind"},
      {a.dtype == b.dtype, "element type"},
      {a.rank == b.rank && a.extent == b.extent, "shape"},
      {a.channel_axis == b.channel_axis, "channel axis"},
      {a.valid_bits == b.valid_bits, "number of valid bits"},
      {a.fill_bits == b.fill_bits, "fill value"},
      {same_bound, "error bound"},
      {a.samples_per_chunk == b.samples_per_chunk, "number of samples per chunk"},
      {a.tile == b.tile, "tile"},
  }};
  for (const auto& [same, what] : checks) {
    if (!same) return what;
  }
  return "";
}

struct FirstPack {
  std::string path;
  PackSchema schema;
};

// All packs of a data set have the same fields; where they came from may differ.
Status CheckSameSchema(const FirstPack& first, const std::string& path, const PackSchema& schema) {
  std::string reason;
  if (schema.keyed != first.schema.keyed) reason = "only one of them has keys";
  if (schema.fields.size() != first.schema.fields.size()) {
    reason = std::to_string(first.schema.fields.size()) + " and " +
             std::to_string(schema.fields.size()) + " fields";
  }
  for (std::size_t i = 0; i < schema.fields.size() && reason.empty(); ++i) {
    const std::string difference = Difference(first.schema.fields[i], schema.fields[i]);
    if (difference.empty()) continue;
    reason = "field " + std::to_string(i) + " (" + Quoted(first.schema.fields[i].name) + ", " +
             Quoted(schema.fields[i].name) + ") has another " + difference;
  }
  if (reason.empty()) return {};
  return Error(ErrorCode::kInvalidArgument, Quoted(first.path) + " and " + Quoted(path) +
                                                " do not belong to one data set: " + reason);
}

// Builds one catalog, pack after pack.
class PackBuilder {
 public:
  explicit PackBuilder(const BuildContext& context) : context_(context) {}

  Status Add(io::IoQueue& queue, const std::string& path) {
    FOREBAY_ASSIGN(const std::unique_ptr<ObjectSource> source,
                   ObjectSource::Open(context_.root, queue, path));
    const Status added = AddSource(*source, path);
    // A file that is being written reads as a damaged one: say what is wrong.
    FOREBAY_TRY(source->CheckUnchanged());
    return added;
  }

  Result<std::shared_ptr<const Catalog>> Finish() {
    if (!writer_.has_value() || writer_->sample_count() == 0) {
      return Wrong(context_, "has no samples");
    }
    FOREBAY_ASSIGN(ImageBytes image, writer_->Finish());
    return OpenPackImage(std::move(image));
  }

 private:
  Status AddSource(const ObjectSource& source, const std::string& path) {
    const Result<PackFile> pack = PackFile::Open(source);
    if (!pack.has_value()) return pack.error().WithContext(Quoted(path));
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
    for (const compress::KeyEntry& entry : pack->index().keys) {
      const auto keys = pack->Keys(entry.first_sample, entry.sample_count);
      if (!keys.has_value()) return keys.error().WithContext(Quoted(path));
      FOREBAY_TRY(writer_->AddKeys(*keys));
    }
    return {};
  }

  Status TakeSchema(const std::string& path, const PackSchema& schema) {
    if (writer_.has_value()) return CheckSameSchema(first_, path, schema);
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
  std::optional<PackImageWriter> writer_;
};

}  // namespace

Result<std::shared_ptr<const Catalog>> BuildPacks(const BuildContext& context) {
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
  std::uint64_t seen = 0;
  for (const std::string& path : paths) {
    FOREBAY_TRY(builder.Add(*queue, path));
    if (context.progress) context.progress(++seen);
  }
  return builder.Finish();
}

}  // namespace forebay::catalog
