// SvgPage: plots, one below the other, as one SVG document without scripts or fonts of its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forebay::train {

// Escapes text for XML and HTML, also for attribute values. Control characters become question
// marks.
std::string EscapedXml(std::string_view text);

struct PlotLine {
  std::string name = {};                              // empty: no entry in the legend
  std::vector<std::pair<double, double>> points = {};  // x ascending; not finite: a gap
};

struct PlotBar {
  std::string label = {};
  std::vector<double> parts = {};  // not negative, in the order of the names
};

// Not thread-safe.
class SvgPage {
 public:
  // Adds a plot of lines over a common x axis. The y axis begins at their lowest value, or at 0. A
  // plot without a finite point says so.
  void AddLines(const std::string& title, const std::string& x_title,
                const std::vector<PlotLine>& lines, bool from_zero = false);
  // Adds a plot of bars side by side. The parts of a bar are stacked. `unit` stands behind the
  // numbers of the axis.
  void AddBars(const std::string& title, const std::string& unit,
               const std::vector<std::string>& part_names, const std::vector<PlotBar>& bars);
  std::string Finish() const;

 private:
  double Y(double share) const;
  void Open(const std::string& title);
  void DrawScale(double bottom, double top, const std::string& unit);
  void DrawLegend(const std::vector<std::string>& names);
  void Close(const std::string& x_title);

  double panel_ = 40;  // where the next plot begins
  std::string body_;
};

}  // namespace forebay::train
