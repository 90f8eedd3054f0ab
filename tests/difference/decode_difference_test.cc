// Every way to read a sample gives the same values, or an error of the same code, whatever the
// payload. FOREBAY_DIFFERENCE_SEED and FOREBAY_DIFFERENCE_MUTATIONS choose the mutations: a single
// one is run again by its seed and 1. Of packs there are a twentieth as many.
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "tests/difference/pack_ways.h"
#include "tests/difference/read_ways.h"
#include "tests/difference/specimen.h"

namespace forebay::compress {
namespace {

constexpr std::uint64_t kSeed = 28'000'000;
constexpr std::uint32_t kModelSeed = 20261125;
#if defined(FOREBAY_INSTRUMENTED)
constexpr std::uint64_t kMutations = 2000;  // several times as slow
#else
constexpr std::uint64_t kMutations = 20'000;
#endif
constexpr std::uint64_t kDifferencesMax = 10;  // then it stops
// A run of fewer need not meet everything.
constexpr std::uint64_t kMutationsForAll = 2000;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  return std::strtoull(text, nullptr, 10);
}

TEST(DecodeDifference, SoundPayloadsAreReadAlikeInEveryWay) {
  std::mt19937 random(static_cast<std::uint32_t>(kSeed));
  std::map<std::string, int> outcomes;
  for (const Specimen& specimen : MakeSpecimens()) {
    ReadWays ways(specimen, random);
    const auto difference = ways.FindDifference();
    EXPECT_FALSE(difference.has_value()) << specimen.name << ": " << *difference;
    const auto error = ways.whole_error();
    const bool lacks_predictor = specimen.name.find("missing") != std::string::npos;
    EXPECT_EQ(error, lacks_predictor ? std::optional(ErrorCode::kFailedPrecondition)
                                     : std::nullopt)
        << specimen.name;
    ++outcomes[error.has_value() ? "refused" : "decoded"];
  }
  EXPECT_GE(outcomes["decoded"], 200);
  EXPECT_GE(outcomes["refused"], 4);
}

TEST(DecodeDifference, DamagedPayloadsAreReadAlikeInEveryWay) {
  const std::uint64_t seed = FromEnvironment("FOREBAY_DIFFERENCE_SEED", kSeed);
  const std::uint64_t mutations = FromEnvironment("FOREBAY_DIFFERENCE_MUTATIONS", kMutations);
  const std::vector<Specimen> specimens = MakeSpecimens();
  std::map<std::string, std::uint64_t> outcomes;
  std::uint64_t differences = 0;
  for (std::uint64_t i = 0; i < mutations && differences < kDifferencesMax; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(seed + i));
    const Specimen& from = specimens[random() % specimens.size()];
    const Specimen mutated = Mutate(from, specimens, random);
    ReadWays ways(mutated, random);
    if (const auto difference = ways.FindDifference()) {
      ADD_FAILURE() << "FOREBAY_DIFFERENCE_SEED=" << seed + i << ", " << from.name << ": "
                    << *difference;
      ++differences;
    }
    const auto error = ways.whole_error();
    ++outcomes[error.has_value() ? std::string(ErrorCodeName(*error)) : "OK"];
  }
  std::cout << mutations << " mutations from seed " << seed << " on:";
  for (const auto& [name, count] : outcomes) std::cout << " " << count << " " << name;
  std::cout << "\n";
  if (mutations < kMutationsForAll) return;
  // Damage that decodes is what finds differences of values; all codes that there are occur.
  EXPECT_GT(outcomes["OK"], mutations / 10);
  EXPECT_GT(outcomes["DATA_LOSS"], mutations / 10);
  EXPECT_GT(outcomes["UNIMPLEMENTED"], 0U);
  EXPECT_GT(outcomes["FAILED_PRECONDITION"], 0U);
}

TEST(DecodeDifference, DamagedPacksAreReadAlikeInEveryWay) {
  const std::uint64_t seed = FromEnvironment("FOREBAY_DIFFERENCE_SEED", kSeed);
  const std::uint64_t wanted = FromEnvironment("FOREBAY_DIFFERENCE_MUTATIONS", kMutations);
  const std::uint64_t mutations = wanted == 1 ? 1 : wanted / 20;
  const std::vector<Specimen> specimens = MakeSpecimens();
  const TestFolder folder;
  std::vector<std::vector<std::byte>> packs;
  for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
    packs.push_back(WritePack(MakeModel(11, kModelSeed), folder, {.profile = profile}));
  }
  std::map<std::string, std::uint64_t> outcomes;
  std::uint64_t differences = 0;
  for (std::uint64_t i = 0; i < mutations && differences < kDifferencesMax; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(seed + i));
    const PackOutcome outcome = DamageAndRead(packs[random() % packs.size()], specimens, random);
    if (outcome.difference.has_value()) {
      ADD_FAILURE() << "FOREBAY_DIFFERENCE_SEED=" << seed + i << ": " << *outcome.difference;
      ++differences;
    }
    ++outcomes[outcome.error.has_value() ? std::string(ErrorCodeName(*outcome.error)) : "OK"];
  }
  std::cout << mutations << " packs from seed " << seed << " on:";
  for (const auto& [name, count] : outcomes) std::cout << " " << count << " " << name;
  std::cout << "\n";
  if (wanted < kMutationsForAll) return;
  EXPECT_GT(outcomes["OK"], mutations / 20);
  EXPECT_GT(outcomes["DATA_LOSS"], mutations / 10);
}

}  // namespace
}  // namespace forebay::compress
