// The builders behind BuildFromMetadata: one per format family.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/dataset_source.h"

namespace forebay::catalog {

// What a builder works on; all outlive the call. `progress` and `runs` may be null.
struct BuildContext {
  io::IoBackend& backend;
  io::Directory& root;
  const DatasetSource& source;
  const std::function<void(std::uint64_t)>& progress;
  const RunSink& runs;
  const BuildScratch& scratch;
};

Result<std::shared_ptr<const Catalog>> BuildImageFolder(const BuildContext& context);
// kIdx, kNpy and kRaw: every file is a part and supplies one field.
Result<std::shared_ptr<const Catalog>> BuildRecordFiles(const BuildContext& context,
                                                        Format format);
// kPack: packs, or the shards of a manifest. Reads header, schema, footer, index and keys of each
// file, none of its chunks. Memory: what `scratch` says for each table, and 130 bytes per chunk of
// one file at a time.
Result<std::shared_ptr<const Catalog>> BuildPacks(const BuildContext& context);

// Files at the top of `root` that look like `format` by their name, sorted by bytes.
Result<std::vector<std::string>> FilesNamedLike(io::Directory& root, Format format);

// The field an IDX, .npy or raw file supplies unless configuration says so: its stem, and of
// the MNIST family's names ("train-images-idx3-ubyte") the word before "-idx" ("images").
std::string DefaultFieldName(std::string_view path, Format format);

// kInvalidArgument unless 1 <= source.extent_bytes <= limits::kExtentBytesMax.
Status CheckExtentBytes(const DatasetSource& source);

// The error for an object that is no regular file.
Error NotAFile(std::string_view path);

}  // namespace forebay::catalog
