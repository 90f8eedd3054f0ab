// Plots are panels of equal size, one below the other; panel_ is the y coordinate of the next one.
// All text goes through EscapedXml. Axis ticks are 1, 2 or 5 times a power of ten.
#include "trainer/core/report/svg_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace forebay::train {
namespace {

constexpr double kLeft = 80, kWidth = 720, kHeight = 170, kGap = 70;
constexpr double kLegendX = kLeft + kWidth + 20;
constexpr double kBarWidthMax = 60;
// Told apart by most who cannot see all colours (Tol, 2021).
constexpr std::array<const char*, 10> kColours = {"#4477aa", "#66ccee", "#228833", "#ee6677",
                                                  "#ccbb44", "#aa3377", "#bbbbbb", "#222255",
                                                  "#997700", "#44aa99"};

// A class has the same colour in every plot of a page, because its index is the same.
const char* ColourOf(std::size_t index) { return kColours[index % kColours.size()]; }

// 1, 2 or 5 times a power of ten, so that about `count` of them make `range`.
double NiceStep(double range, double count) {
  const double rough = std::max(range, 1e-12) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

// The range of values that was seen.
struct Extent {
  double low = 0;
  double high = 0;
  bool any = false;

  void Take(double value) {
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
  // A range of one value: its points stand in the middle instead of at infinity.
  double ShareOf(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

// Widened to whole steps of the axis; a single value stands within some room.
Extent Rounded(const Extent& extent) {
  Extent rounded = extent;
  // Relative to the values: a difference that rounding of doubles can make is no range.
  if (rounded.high - rounded.low < 1e-9 * std::abs(rounded.high)) {
    rounded.low -= 0.1 * std::abs(rounded.low);
    rounded.high += 0.1 * std::abs(rounded.high);
  }
  const double step = NiceStep(rounded.high - rounded.low, 5);
  rounded.low = step * std::floor(rounded.low / step);
  rounded.high = step * std::ceil(rounded.high / step);
  // A single 0 is not widened above, and needs some height as well.
  if (rounded.high <= rounded.low) rounded.high = rounded.low + step;
  return rounded;
}

// The "d" of an SVG path through the points of a line.
std::string PathOf(const PlotLine& line, const Extent& xs, const Extent& ys, double top) {
  std::string path;
  bool pen_down = false;
  for (const auto& [x, y] : line.points) {
    // A gap: the line ends here and begins again at the next point.
    if (!std::isfinite(y)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.2f} {:.2f}", pen_down ? "L" : "M", kLeft + kWidth * xs.ShareOf(x),
                        top + kHeight * (1 - ys.ShareOf(y)));
    pen_down = true;
  }
  return path;
}

}  // namespace

// Names of folders and metrics come from files: they must not become tags.
std::string EscapedXml(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += static_cast<unsigned char>(letter) < 0x20 ? '?' : letter;
    }
  }
  return escaped;
}

// y grows downwards in SVG.
double SvgPage::Y(double share) const { return panel_ + kHeight * (1 - share); }

// The title stands above the panel.
void SvgPage::Open(const std::string& title) {
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", kLeft,
                       panel_ - 10, EscapedXml(title));
}

// Horizontal lines with their values to the left.
void SvgPage::DrawScale(double bottom, double top, const std::string& unit) {
  const double step = NiceStep(top - bottom, 5);
  // Half a step more, because sums of steps are not exact.
  for (double value = bottom; value <= top + step / 2; value += step) {
    const double y = Y((value - bottom) / (top - bottom));
    // A sum of steps that should be 0 may be 1e-17.
    const double shown = std::abs(value) < step / 1000 ? 0 : value;
    body_ += fmt::format(
        "<line x1=\"{}\" y1=\"{:.2f}\" x2=\"{}\" y2=\"{:.2f}\" stroke=\"#dddddd\"/>"
        "<text x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\">{:g}{}</text>\n",
        kLeft, y, kLeft + kWidth, y, kLeft - 6, y + 4, shown, EscapedXml(unit));
  }
}

// To the right of the panel. A plot of a single line needs none, and has no name.
void SvgPage::DrawLegend(const std::vector<std::string>& names) {
  double y = panel_ + 12;
  for (std::size_t at = 0; at < names.size(); ++at) {
    if (names[at].empty()) continue;
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        kLegendX, y - 10, ColourOf(at), kLegendX + 18, y, EscapedXml(names[at]));
    y += 17;
  }
}

// Axes are drawn last, above the curves. The next panel begins below.
void SvgPage::Close(const std::string& x_title) {
  body_ += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"black\"/>\n", kLeft,
                       panel_, panel_ + kHeight, kLeft + kWidth);
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + kWidth / 2, panel_ + kHeight + 33, EscapedXml(x_title));
  panel_ += kHeight + kGap;
}

void SvgPage::AddLines(const std::string& title, const std::string& x_title,
                       const std::vector<PlotLine>& lines, bool from_zero) {
  Open(title);
  Extent xs;
  Extent ys;
  std::vector<std::string> names;
  for (const PlotLine& line : lines) {
    names.push_back(line.name);
    for (const auto& [x, y] : line.points) {
      xs.Take(x);
      // A loss that became infinite must not press all others into one line.
      if (std::isfinite(y)) ys.Take(y);
    }
  }
  if (!ys.any) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\">no figures</text>\n", kLeft + 20, panel_ + 40);
    Close(x_title);
    return;
  }
  if (from_zero) ys.Take(0);
  ys = Rounded(ys);
  DrawScale(ys.low, ys.high, "");
  for (std::size_t at = 0; at < lines.size(); ++at) {
    // A path of one point draws nothing: a short line with round ends makes it a dot.
    const bool single = lines[at].points.size() == 1;
    const std::string path = PathOf(lines[at], xs, ys, panel_);
    body_ += fmt::format(
        "<path d=\"{}{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-linecap=\"round\"/>\n",
        path, single ? "h0.01" : "", ColourOf(at), single ? "6" : "1.5");
  }
  // Steps of the run are whole numbers.
  const double step = std::max(1.0, NiceStep(xs.high - xs.low, 8));
  for (double x = std::ceil(xs.low / step) * step; x <= xs.high; x += step) {
    body_ += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n",
                         kLeft + kWidth * xs.ShareOf(x), panel_ + kHeight + 17, x);
  }
  DrawLegend(names);
  Close(x_title);
}

void SvgPage::AddBars(const std::string& title, const std::string& unit,
                      const std::vector<std::string>& part_names,
                      const std::vector<PlotBar>& bars) {
  Open(title);
  double top = 0;
  for (const PlotBar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    top = std::max(top, sum);
  }
  // The negation also takes a sum that is NaN.
  if (!(top > 0)) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\">no figures</text>\n", kLeft + 20, panel_ + 40);
    Close("");
    return;
  }
  const double step = NiceStep(top, 5);
  // A sum that is 100 % up to rounding must not open a further step.
  top = step * std::ceil(top / step - 1e-9);
  DrawScale(0, top, unit);
  // Bars share the width; few bars are not made wider than kBarWidthMax.
  const double slot = kWidth / static_cast<double>(bars.size());
  const double width = std::min(kBarWidthMax, slot * 0.8);
  for (std::size_t at = 0; at < bars.size(); ++at) {
    const double x = kLeft + slot * (static_cast<double>(at) + 0.5) - width / 2;
    double below = 0;
    for (std::size_t part = 0; part < bars[at].parts.size(); ++part) {
      const double value = bars[at].parts[part];
      // A part of no height would still be drawn as a line. The negation also leaves out NaN.
      if (!(value > 0)) continue;
      body_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\">"
          "<title>{}: {:.4g}{}</title></rect>\n",
          x, Y((below + value) / top), width, value / top * kHeight, ColourOf(part),
          EscapedXml(part < part_names.size() ? part_names[part] : ""), value, EscapedXml(unit));
      below += value;
    }
    body_ += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                         x + width / 2, panel_ + kHeight + 17, EscapedXml(bars[at].label));
  }
  DrawLegend(part_names);
  Close("");
}

std::string SvgPage::Finish() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
      kLegendX + 150, panel_, body_);
}

}  // namespace forebay::train
