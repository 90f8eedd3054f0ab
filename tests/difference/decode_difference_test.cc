// Every way to read a sample gives the same values, or an error of the same code, whatever the
// payload. FOREBAY_DIFFERENCE_SEED and FOREBAY_DIFFERENCE_MUTATIONS choose the mutations: a single
// one is run again by its seed and 1.
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/difference/read_ways.h"
#include "tests/difference/specimen.h"

namespace forebay::compress {
namespace {

constexpr std::uint64_t kSeed = 28'000'000;
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

}  // namespace
}  // namespace forebay::compress
