// A pack of a source's first samples, for the trainer.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/source/pack_source.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"

namespace forebay::cli {

// Bytes of a sample's fields, those of any length left out; at least 1.
std::uint64_t FixedSampleBytes(const compress::PackSchema& schema);

// The file is removed with the object, unless it was there before.
class TrainingPack {
 public:
  explicit TrainingPack(std::string path) : path_(std::move(path)) {}
  ~TrainingPack();
  TrainingPack(const TrainingPack&) = delete;
  TrainingPack& operator=(const TrainingPack&) = delete;

  const std::string& path() const { return path_; }

  struct Options {
    std::uint64_t samples = 0;  // of the source; those beyond 512 MiB are not taken
    unsigned threads = 1;
    std::uint64_t sequence_length = 0;  // as of `forebay pack`
  };
  // Writes the pack, in profile fast. Errors: kAlreadyExists if there is such a file; the source's
  // and the writer's.
  Status Write(const compress::PackSchema& schema, const Options& options, PackSource& source);

 private:
  const std::string path_;
  bool is_created_ = false;
};

}  // namespace forebay::cli
