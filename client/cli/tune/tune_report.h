// Prints the result of `forebay tune`, for people or as JSON: the figures that it computes with,
// the modes, and the mode that it recommends.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "client/cli/tune/class_layout.h"
#include "client/cli/tune/mode_choice.h"
#include "client/cli/tune/reading_cost.h"

namespace forebay::cli {

struct CommandContext;

// A number, and where it comes from.
struct Figure {
  double value = 0;
  const char* origin = "assumed";
};

// Everything that the assessment is made from.
struct TuneFigures {
  std::uint32_t global_batch = 0;
  LossTolerance tolerance = {};
  bool keeps_home_shares = false;
  DatasetSize dataset;
  const char* dataset_origin = "given";
  Figure nodes, ram, ssd, copies, gfs_reads;
  std::array<Figure, kReadSources> rates;
  std::optional<ClassLayout> classes;
  std::string classes_origin;
  // Why a daemon refuses modes that need the whole set on the tiers; empty: it accepts them.
  std::string refusal;

  JobFigures Job() const;
};

// Print `modes`, and the one of them that was chosen.
void PrintTuneText(CommandContext& context, const TuneFigures& figures,
                   std::span<const ModeAssessment> modes, const ModeChoice& choice);
void PrintTuneJson(CommandContext& context, const TuneFigures& figures,
                   std::span<const ModeAssessment> modes, const ModeChoice& choice);

}  // namespace forebay::cli
