// SvgPage: plots beneath one another, as one SVG document without scripts or fonts of its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forebay::train {

// For text and attribute values of XML and HTML; control characters become question marks.
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
  // Lines over one axis of x; that of y begins where they do, or at 0. A plot without a finite
  // point says so.
  void AddLines(const std::string& title, const std::string& x_title,
                const std::vector<PlotLine>& lines, bool from_zero = false);
  // Bars side by side, the parts of each upon one another; `unit` stands behind the axis' numbers.
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
