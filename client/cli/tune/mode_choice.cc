// Runs of `block` are whole extents and multiples of them, because an extent is what the GFS
// delivers best. The candidates are a grid and no search: their costs differ by factors, and a user
// who wants to look between them names a mode (ParseMode).
#include "client/cli/tune/mode_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::cli {
namespace {

// Costs that differ by less are equal: the rates behind them were measured in seconds.
constexpr double kEqualCost = 1.01;

OrderShape Block(std::uint64_t run, std::uint64_t window) {
  return {.mode = OrderMode::kBlock, .block_samples = run, .window_runs = window};
}

OrderShape Partial(const ModeSetting& setting, std::uint64_t run, std::uint32_t millionths) {
  return {.mode = OrderMode::kPartial,
          .block_samples = run,
          .canonical_nodes = setting.nodes,
          .exchange_millionths = millionths,
          .global_batch = setting.global_batch};
}

double FractionOf(const OrderShape& shape) {
  return static_cast<double>(shape.exchange_millionths) / kExchangeMillionths;
}

// The parts of "block:4096:16". An empty part stays one, so that "block:4096:" is refused.
std::vector<std::string> PartsOf(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The whole text has to be a number; nothing may follow it.
template <typename Number>
bool ParseNumber(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::vector<OrderShape> UsualModes(const ModeSetting& setting) {
  std::vector<OrderShape> modes = {OrderShape{}};
  // A run is an extent, so that a home share is made of whole extents.
  if (setting.nodes > 1) {
    for (const std::uint32_t percent : {100U, 50U, 20U, 10U, 5U}) {
      modes.push_back(Partial(setting, setting.extent_samples,
                              percent * (kExchangeMillionths / 100)));
    }
  }
  struct Window {
    std::uint64_t extents, runs;  // extents of a run, runs of a window
  };
  // By the samples of a window, the largest first; of equal ones, that with more runs.
  // Windows of fewer than 16 runs lose a tenth of the class entropy and more where a set is sorted.
  for (const Window& window : std::initializer_list<Window>{{16, 256}, {4, 256}, {16, 64},
                                                            {1, 256}, {4, 64}, {16, 16},
                                                            {1, 64}, {4, 16}, {1, 16}}) {
    const std::uint64_t run = window.extents * setting.extent_samples;
    // A window of the whole set needs the memory that `global` needs.
    if (window.runs >= (setting.samples + run - 1) / run) continue;
    modes.push_back(Block(run, window.runs));
  }
  return modes;
}

Result<OrderShape> ParseMode(const std::string& text, const ModeSetting& setting) {
  // Ranges are checked by OrderSpec::Validate, which also names the field that is wrong.
  const Error wrong(ErrorCode::kInvalidArgument,
                    "'" + text + "' is no mode: write global, sequential, block:RUN:WINDOW or "
                    "partial:FRACTION[:RUN], such as block:4096:16 or partial:0.1");
  const std::vector<std::string> parts = PartsOf(text);
  if (parts[0] == "global" && parts.size() == 1) return OrderShape{};
  if (parts[0] == "sequential" && parts.size() == 1) {
    return OrderShape{.mode = OrderMode::kSequential};
  }
  if (parts[0] == "block" && parts.size() == 3) {
    OrderShape shape = Block(0, 0);
    if (!ParseNumber(parts[1], shape.block_samples)) return wrong;
    if (!ParseNumber(parts[2], shape.window_runs)) return wrong;
    return shape;
  }
  if (parts[0] == "partial" && (parts.size() == 2 || parts.size() == 3)) {
    double fraction = 0;
    std::uint64_t run = setting.extent_samples;
    if (!ParseNumber(parts[1], fraction)) return wrong;
    if (parts.size() == 3 && !ParseNumber(parts[2], run)) return wrong;
    FOREBAY_ASSIGN(const std::uint32_t millionths, ExchangeMillionths(fraction));
    return Partial(setting, run, millionths);
  }
  return wrong;
}

std::string ModeText(const OrderShape& shape) {
  if (shape.mode == OrderMode::kBlock) {
    return fmt::format("block({}, {})", shape.block_samples, shape.window_runs);
  }
  if (shape.mode == OrderMode::kPartial) return fmt::format("partial({:g})", FractionOf(shape));
  return std::string(OrderModeName(shape.mode));
}

std::string TrainerFlags(const OrderShape& shape) {
  std::string flags = fmt::format("--order-mode {}", OrderModeName(shape.mode));
  if (shape.mode == OrderMode::kBlock) {
    flags += fmt::format(" --block-samples {} --window-runs {}", shape.block_samples,
                         shape.window_runs);
  } else if (shape.mode == OrderMode::kPartial) {
    flags += fmt::format(" --block-samples {} --canonical-nodes {} --exchange-fraction {:g}",
                         shape.block_samples, shape.canonical_nodes, FractionOf(shape));
  }
  return flags;
}

// Names are qualified, so that the line compiles wherever it is pasted.
std::string StreamOptionsText(const OrderShape& shape) {
  const std::string block = fmt::format("options.block_samples = {}; ", shape.block_samples);
  switch (shape.mode) {
    case OrderMode::kBlock:
      return fmt::format("options.mode = forebay::OrderMode::kBlock; {}options.window_runs = {};",
                         block, shape.window_runs);
    case OrderMode::kPartial:
      return fmt::format(
          "options.mode = forebay::OrderMode::kPartial; {}options.canonical_nodes = {}; "
          "options.exchange_millionths = {};",
          block, shape.canonical_nodes, shape.exchange_millionths);
    case OrderMode::kSequential: return "options.mode = forebay::OrderMode::kSequential;";
    default: return "options.mode = forebay::OrderMode::kGlobal;";
  }
}

ModeChoice ChooseMode(std::span<const ModeAssessment> modes, const LossTolerance& tolerance) {
  FOREBAY_CHECK(!modes.empty() && modes[0].shape.mode == OrderMode::kGlobal);
  const auto cheapest = [&](auto may_take) -> std::optional<std::size_t> {
    // There are two passes, because what counts as equal to the cheapest is known only then.
    double seconds = std::numeric_limits<double>::infinity();
    for (const ModeAssessment& mode : modes) {
      if (may_take(mode)) seconds = std::min(seconds, mode.cost.seconds);
    }
    for (std::size_t i = 0; i < modes.size(); ++i) {
      if (may_take(modes[i]) && modes[i].cost.seconds <= seconds * kEqualCost) return i;
    }
    return std::nullopt;
  };
  const std::optional<std::size_t> good = cheapest([&](const ModeAssessment& mode) {
    return !mode.is_refused && tolerance.Allows(mode.loss);
  });
  if (good) return {.index = *good};
  const std::optional<std::size_t> any =
      cheapest([](const ModeAssessment& mode) { return !mode.is_refused; });
  FOREBAY_CHECK(any.has_value());
  return {.index = *any, .mixes_well = false};
}

std::string ReasonOf(std::span<const ModeAssessment> modes, const ModeChoice& choice) {
  const ModeAssessment& global = modes[0];
  const ModeAssessment& mode = modes[choice.index];
  if (choice.index == 0) return "no mode that mixes well enough costs less";
  const std::string beside =
      global.is_refused ? std::string("and a daemon refuses global")
                        : fmt::format("where global takes {:.3g} s, limited by its {}",
                                      global.cost.seconds, ReadSourceName(global.cost.slowest));
  return fmt::format(
      "{}a node takes {:.3g} s for an epoch, limited by its {}, {}; beside those of global, "
      "batches lose {:.2g} % of their class entropy, and nodes' parts of them {:.2g} %",
      choice.mixes_well ? ""
                        : "no mode that a daemon accepts mixes well enough, and this one is the "
                          "cheapest of them; ",
      mode.cost.seconds, ReadSourceName(mode.cost.slowest), beside, 100 * mode.loss.batch,
      100 * mode.loss.part);
}

}  // namespace forebay::cli
