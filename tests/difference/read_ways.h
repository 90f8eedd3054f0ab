// Reads a chunk in every way there is, and says where two of them differ.
#pragma once

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compress/decode/chunk/chunk_decoder.h"
#include "compress/decode/isa.h"
#include "proto/contract/result.h"
#include "tests/difference/specimen.h"

namespace forebay::compress {

// What one way of reading gives: elements, dense, or an error's code.
struct ReadOutcome {
  std::optional<ErrorCode> error;
  std::vector<std::byte> bytes;
};

// The name of the error's code, or "OK".
std::string NameOf(std::optional<ErrorCode> error);

// The rule: a sample is what the scalar decoder makes of it alone, or fails as it fails alone. All
// else must follow: samples together are those samples, in every way, with every instruction set,
// or fail with the code of one of them that fails alone. Nothing beside the wanted elements is
// written, whatever comes of it.
class ReadWays {
 public:
  // `specimen` outlives it.
  ReadWays(const Specimen& specimen, std::mt19937& random);

  // The first difference, in words; nothing where all ways agree.
  std::optional<std::string> FindDifference();

  // After FindDifference: whether the whole chunk decodes, or why not.
  std::optional<ErrorCode> whole_error() const;

 private:
  using Bytes = std::vector<std::byte>;

  ReadOutcome ReadDense(std::uint32_t first, std::uint32_t count, Isa isa);
  void ReadAlone();
  bool CheckKernels();
  bool CheckPlaces(bool as_records);
  bool CheckBox();
  bool CheckTile();
  bool CheckRecord();
  // Compares with the samples alone; false, and the difference noted, where they differ.
  bool IsExplained(const std::vector<std::uint32_t>& samples, const ReadOutcome& outcome,
                   const std::string& way);
  bool HasDifference(std::string what);

  std::uint32_t Below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  Isa AnyIsa();
  // A run of samples: the first, and how many.
  std::pair<std::uint32_t, std::uint32_t> AnyRun();

  const Specimen& specimen_;
  const ChunkShape& shape_;
  std::mt19937& random_;
  Bytes scratch_;
  std::vector<ReadOutcome> alone_;
  std::string difference_;
};

}  // namespace forebay::compress
