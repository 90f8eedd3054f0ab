// The model test of the tiers. FOREBAY_MODEL_SEED and FOREBAY_MODEL_SEQUENCES choose the sequences:
// a single one is run again by its seed and 1. With FOREBAY_SOAK_MINUTES the seeds go on from one
// that the clock gives, for so long.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "server/io/testing/io_test_fixture.h"
#include "tests/model/occurrences.h"
#include "tests/model/sequence_plan.h"
#include "tests/model/sequence_run.h"

namespace forebay::model {
namespace {

constexpr std::uint64_t kSeed = 27'000'000;
constexpr std::uint64_t kSequences = 500;
constexpr std::uint64_t kDifferencesMax = 10;  // then it stops
// A run of fewer need not meet everything.
constexpr std::uint64_t kSequencesForAll = kSequences;

std::optional<std::uint64_t> FromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

// What a run must have met.
std::vector<std::string> Required() {
  std::vector<std::string> required = FaultNames();
  for (std::size_t i = 0; i < kActionCount; ++i) {
    required.emplace_back(ActionName(static_cast<Action>(i)));
  }
  for (const char* what :
       {"samples delivered", "epoch without the GFS", "global order refused",
        "extent at home in ram", "extent at home on ssd", "extent without a home",
        "read on after a rebuild", "bad copy on ssd found by a scrub", "refused: DATA_LOSS",
        "refused: FAILED_PRECONDITION", "refused: NOT_FOUND", "refused: UNAVAILABLE",
        "failed pass: DATA_LOSS", "failed pass: FAILED_PRECONDITION", "failed pass: NOT_FOUND",
        "failed pass: UNAVAILABLE",
        "rebuild refused"}) {
    required.emplace_back(what);
  }
  return required;
}

class TierModelTest : public ::testing::Test {
 protected:
  // Each injected fault is worth a warning to the service.
  TierModelTest() {
    if (FromEnvironment("FOREBAY_MODEL_SEQUENCES") != 1) spdlog::set_level(spdlog::level::off);
  }
  ~TierModelTest() override { spdlog::set_level(spdlog::level::info); }

  // "" where the sequence agrees with the model.
  std::string RunSequence(std::uint64_t seed) {
    const std::string folder = folder_ / std::to_string(seed);
    std::filesystem::create_directory(folder);
    const SequencePlan plan = DrawSequence(seed);
    std::string difference = SequenceRun(plan, folder, occurrences_).Run();
    std::filesystem::remove_all(folder);
    return difference;
  }

  void Report(std::uint64_t sequences, std::chrono::steady_clock::time_point begun) const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
    std::cout << sequences << " sequences in " << passed.count() << " s\n";
    for (const auto& [what, count] : occurrences_.counts()) {
      std::cout << "  " << what << ": " << count << '\n';
    }
  }

  io::testing::TempFolder folder_;
  Occurrences occurrences_{Required()};
};

TEST_F(TierModelTest, EverySequenceIsAsTheModelSays) {
  const auto minutes = FromEnvironment("FOREBAY_SOAK_MINUTES");
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t by_clock =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  const std::uint64_t first =
      FromEnvironment("FOREBAY_MODEL_SEED").value_or(minutes ? by_clock : kSeed);
  const std::uint64_t wanted = FromEnvironment("FOREBAY_MODEL_SEQUENCES").value_or(kSequences);
  std::cout << "seeds from " << first << " on\n";
  std::uint64_t done = 0, differences = 0;
  const auto goes_on = [&] {
    if (differences == kDifferencesMax) return false;
    const bool has_time = std::chrono::steady_clock::now() - begun <
                          std::chrono::minutes(minutes.value_or(0));
    return minutes ? has_time : done < wanted;
  };
  for (; goes_on(); ++done) {
    const std::string difference = RunSequence(first + done);
    if (difference.empty()) continue;
    ADD_FAILURE() << difference << "again: FOREBAY_MODEL_SEED=" << first + done
                  << " FOREBAY_MODEL_SEQUENCES=1";
    ++differences;
  }
  Report(done, begun);
  if (done < kSequencesForAll) return;
  for (const std::string& what : occurrences_.Missing()) {
    ADD_FAILURE() << "'" << what << "' did not happen in " << done << " sequences";
  }
}

}  // namespace
}  // namespace forebay::model
