// Where `forebay pack` writes: one pack file, or a set of packs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "compress/encode/pack/pack_set_writer.h"
#include "compress/encode/pack/pack_writer.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::cli {

struct PackSinkOptions {
  compress::PackWriterOptions pack = {};
  bool set = false;                   // `path` is a manifest's
  bool append = false;                // to a set
  std::uint64_t shard_raw_bytes = 0;  // of a set; 0: no bound
  bool resume = false;
};

// As compress::PackWriter and PackSetWriter, whichever it is.
class PackSink {
 public:
  static Result<std::unique_ptr<PackSink>> Open(const std::string& path,
                                                const compress::PackSchema& schema,
                                                const PackSinkOptions& options);
  virtual ~PackSink() = default;

  virtual std::uint64_t next_sample() const = 0;
  virtual Status BeginSequence() = 0;
  virtual Status Add(std::span<const std::span<const std::byte>> fields,
                     std::string_view key) = 0;
  // The shards and samples that this run added; of a pack 0 shards.
  virtual Result<compress::PackSetSummary> Finish() = 0;
};

}  // namespace forebay::cli
