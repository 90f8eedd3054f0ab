// A small data set in memory, and packs of it: what pack tests compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "compress/decode/pack/pack_file.h"
#include "compress/encode/pack/pack_writer.h"

namespace forebay::compress {

// A temporary folder, removed at the end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

struct PackModel {
  PackSchema schema;
  std::vector<std::vector<std::vector<std::byte>>> samples;  // [sample][field]
  std::vector<std::string> keys;                             // empty: none
  std::vector<std::size_t> sequences;                        // samples that begin one
};

// Images of 8-bit RGB in tiles, 16-bit depth, a label, a float with NaN, and byte strings, some of
// them empty; keys; a sequence of 5 samples, one of 1, the rest.
PackModel MakeModel(std::size_t samples, std::uint32_t seed, bool aligned = false);

// Adds samples from the writer's next one on.
Status AddAll(const PackModel& model, PackWriter& writer, std::size_t end);

std::vector<std::byte> ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::span<const std::byte> bytes);

// Of packs whose bytes are compared.
inline constexpr PackId kTestPackId = {std::byte{0xF0}, std::byte{0x0E}, std::byte{0xBA},
                                       std::byte{0x11}};

// Writes a finished pack and returns its bytes; its id is kTestPackId where the options have none.
std::vector<std::byte> WritePack(const PackModel& model, const TestFolder& folder,
                                 const PackWriterOptions& options = {});

// The start of a pack of two fields, without an end: so many chunks of one sample, and as many of
// two, each of which begins at the second sample of the one before. So the last reaches beyond what
// the first field has; without it, the one before does, and so on. Payloads are zeros.
std::vector<std::byte> OverlappingHeads(std::uint32_t chunks);

// A pack of two samples in one stored chunk that takes more than limits::kChunkScratchBytesMax to
// decode: earlier versions wrote such packs. Element i of sample s is i * 7 + s.
std::vector<std::byte> PackOfNarrowFrames();

// The bytes of a sample's field, whatever its kind; an error where they cannot be had.
Result<std::vector<std::byte>> ReadField(const PackFile& pack, std::uint32_t field,
                                         std::uint64_t sample, std::span<std::byte> scratch);

}  // namespace forebay::compress
