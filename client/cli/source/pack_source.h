// PackSource: where `forebay pack` takes samples from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::cli {

class Command;

// The provenance of a pack names at most so many classes. It has room for
// limits::kPackProvenanceMax entries; the rest is for the writer and bounds.
inline constexpr std::size_t kNamedClassesMax = 200;

// One sample. Its fields are borrowed from the source, until its next call.
struct PackSample {
  std::vector<std::span<const std::byte>> fields;  // in the schema's order
  std::string key;                                 // empty where the schema is not keyed
  bool begins_sequence = false;
};

// Samples in a fixed order. Not thread-safe.
class PackSource {
 public:
  virtual ~PackSource() = default;
  // Fields with dtype and extents; how they are cut into chunks is the caller's matter.
  virtual const compress::PackSchema& schema() const = 0;
  virtual std::uint64_t samples() const = 0;
  // Whether opening it once more costs no more than reading files again. Those of a daemon come
  // from wherever they are, as they come to trainers.
  virtual bool can_be_read_again() const = 0;
  // What a person should know: fields that are stored in another shape, files passed over.
  virtual const std::vector<std::string>& notes() const = 0;
  // Goes on at this sample; only forward.
  virtual Status Skip(std::uint64_t sample) = 0;
  // The next sample; there is one.
  virtual Status Next(PackSample& sample) = 0;
};

// A folder of images of one size (PGM, PPM, JPEG, PNG): field `image`, [rows, columns] or [rows,
// columns, 3]. Where the folder has folders, those are classes, and field `label` (i32) has their
// place in byte order of names. Samples are in that order, too, a folder's images before its
// folders; their paths are their keys; each folder is a sequence. Links to folders are not
// followed. Errors: kNotFound (no folder, no images), kInvalidArgument (images beside class
// folders; one that differs in size, in Next), those of ReadImage.
Result<std::unique_ptr<PackSource>> OpenImageFolder(const std::string& folder);

struct PathSourceOptions {
  std::string path;
  std::string dtype, shape;        // of a raw file's records: "u16", "480x640"
  std::uint64_t header_bytes = 0;  // of a raw file
};

// What lies at a path: a folder as OpenImageFolder, a pack or a set of packs with all its fields,
// keys and sequences, or else a raw file, whose records become field `data`. Errors name the path;
// kInvalidArgument for a raw file without dtype and shape, or not of whole records.
Result<std::unique_ptr<PackSource>> OpenPathSource(const PathSourceOptions& options);

// Adds options for what a raw file is to a command.
void AddPathOptions(Command& command, PathSourceOptions& options);

struct DatasetSourceOptions {
  std::string address;          // of the daemon, without embedded_config
  std::string embedded_config;  // a private daemon with this configuration is started
  std::int64_t connect_timeout_ms = 10'000;
  std::string dataset;
  std::string selection = "all";
};

// A data set of a daemon, in the catalog's order. Samples of a selection have their number in the
// catalog as key. Big-endian fields come little-endian. Errors: those of the client.
Result<std::unique_ptr<PackSource>> OpenDatasetSource(const DatasetSourceOptions& options);

}  // namespace forebay::cli
