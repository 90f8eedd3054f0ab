// Writes the golden packs, which are checked in, and prints the hashes that the test holds:
// write_golden FOLDER
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <string>

#include "compress/decode/pack/predictor_file.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/golden/golden_manifests.h"
#include "compress/golden/golden_packs.h"
#include "proto/contract/check.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_golden FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  for (const char* part : {"good", "bad"}) std::filesystem::create_directories(folder / part);
  const std::string good = folder / "good";
  const auto predictor = forebay::compress::GoldenPredictor();
  // The predictor comes first: one of the packs names it only, and hashing that pack needs the
  // file.
  forebay::compress::WriteFile(forebay::compress::PredictorFileName(good, predictor->id()),
                               predictor->bytes());
  const forebay::compress::PackReadOptions options{
      .budget = {}, .find_predictor = forebay::compress::PredictorsIn(good)};
  std::vector<std::byte> scratch;
  for (const auto& pack : forebay::compress::MakeGoodPacks()) {
    forebay::compress::WriteFile(folder / "good" / (pack.name + ".fbp"), pack.bytes);
    const auto hash = forebay::compress::HashPack(pack.bytes, scratch, options);
    FOREBAY_CHECK(hash.has_value());
    // As lines of C++, to be pasted into golden_test.cc.
    std::printf("    {\"%s\", 0x%016" PRIX64 "},\n", pack.name.c_str(), *hash);
  }
  // Broken packs have no hash: the test holds the error that each must give.
  for (const auto& pack : forebay::compress::MakeBadPacks()) {
    forebay::compress::WriteFile(folder / "bad" / (pack.name + ".fbp"), pack.bytes);
  }
  forebay::compress::WriteFile(folder / "good" / "pictures.fbset",
                               forebay::compress::MakeGoodManifest());
  for (const auto& manifest : forebay::compress::MakeBadManifests()) {
    forebay::compress::WriteFile(folder / "bad" / (manifest.name + ".fbset"), manifest.bytes);
  }
  return 0;
}
