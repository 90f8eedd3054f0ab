// The picture of `forebay inspect --plot`, as SVG: panels beneath one another that share the axis
// of samples. The text is put together here, without a library, because it has three kinds of
// shapes only: lines, rectangles and words. Names from the pack are escaped, since a browser will
// read the file.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "client/cli/inspect/pack_streams.h"

namespace forebay::cli {
namespace {

using compress::BlockPrediction;

// Three units of the picture's width for each column.
constexpr std::size_t kColumnsMax = 240;
constexpr double kLeft = 70, kWidth = 720, kPanelHeight = 170, kPanelGap = 60, kTop = 50;
constexpr double kLegendX = kLeft + kWidth + 20;
// Chosen so that people who do not see all colours can tell them apart (Paul Tol's schemes).
constexpr std::array<const char*, 10> kColours = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                                  "#66ccee", "#aa3377", "#bbbbbb", "#222255",
                                                  "#997700", "#44aa99"};

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default:
        // XML allows few control characters, and none of them belongs into a name.
        escaped += static_cast<unsigned char>(letter) < 0x20 ? '?' : letter;
    }
  }
  return escaped;
}

// 1, 2 or 5 times a power of ten, so that about `count` of them make `range`.
double NiceStep(double range, double count) {
  // The lower limit keeps the logarithm finite where all values are 0.
  const double rough = std::max(range, 1e-9) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

// One line of the legend and its colour, which is chosen by its place in the list.
struct Series {
  std::string name;
  std::vector<double> values;  // one per column
};

// Panels beneath one another that share the axis of samples.
class Picture {
 public:
  explicit Picture(const std::vector<PlotColumn>& columns)
      : columns_(columns),
        begin_(static_cast<double>(columns.front().first_sample)),
        end_(static_cast<double>(columns.back().first_sample + columns.back().samples)) {}

  // Steps: one value per column.
  void AddSteps(const std::string& title, const std::vector<double>& values) {
    const double most = *std::ranges::max_element(values);
    // Heights are parts of the panel's range, which must not be 0.
    const double largest = most > 0 ? most : 1;
    const double step = NiceStep(largest, 5);
    // A whole number of steps, so that the uppermost line of the grid is the panel's edge.
    const double top = step * std::ceil(largest / step);
    OpenPanel(title, top, step, "");
    std::string path;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const double y = Y(values[i] / top);
      // Steps and not a slope: a column's ratio is that of all its samples, and nothing lies
      // between two.
      path += fmt::format("{}{:.2f} {:.2f}H{:.2f}", path.empty() ? "M" : "L", X(i), y, X(i + 1));
    }
    body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                         path, kColours[0]);
    ClosePanel();
  }

  // Shares, one upon the other; they sum to one in each column that has any.
  void AddShares(const std::string& title, const std::vector<Series>& all) {
    OpenPanel(title, 100, 20, " %");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      // Shares are stacked upwards in the order of the legend, the same in every column.
      double below = 0;
      for (std::size_t s = 0; s < all.size(); ++s) {
        const double share = all[s].values[i];
        // A rectangle without height would still be some bytes in the file, in each of 240 columns.
        if (share <= 0) continue;
        body_ += fmt::format(
            "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
            X(i), Y(below + share), X(i + 1) - X(i), share * kPanelHeight,
            kColours[s % kColours.size()]);
        below += share;
      }
    }
    for (std::size_t s = 0; s < all.size(); ++s) {
      const double y = panel_ + 12 + 18 * static_cast<double>(s);
      body_ += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>"
          "<text x=\"{}\" y=\"{}\">{}</text>\n",
          kLegendX, y - 10, kColours[s % kColours.size()], kLegendX + 18, y,
          Escaped(all[s].name));
    }
    ClosePanel();
  }

  std::string Finish(const std::string& title) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n{4}</svg>\n",
        kLegendX + 150, panel_, kLeft, Escaped(title), body_);
  }

 private:
  double X(std::size_t column) const {
    const double sample = column == columns_.size()
                              // The right edge of the last column is the end of the samples; there
                              // is no further column to ask.
                              ? end_
                              : static_cast<double>(columns_[column].first_sample);
    return kLeft + kWidth * (sample - begin_) / std::max(end_ - begin_, 1.0);
  }
  // In SVG, y grows downwards.
  double Y(double share) const { return panel_ + kPanelHeight * (1 - share); }

  void OpenPanel(const std::string& title, double top, double step, const char* unit) {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", kLeft,
                         panel_ - 8, Escaped(title));
    // Half a step beyond the top, because sums of steps are not exact.
    for (double value = 0; value <= top + step / 2; value += step) {
      const double y = Y(value / top);
      body_ += fmt::format(
          "<line x1=\"{}\" y1=\"{:.2f}\" x2=\"{}\" y2=\"{:.2f}\" stroke=\"#dddddd\"/>"
          "<text x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\">{:g}{}</text>\n",
          kLeft, y, kLeft + kWidth, y, kLeft - 6, y + 4, value, unit);
    }
  }

  void ClosePanel() {
    const double bottom = panel_ + kPanelHeight;
    body_ += fmt::format(
        "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"black\"/>\n", kLeft, panel_, bottom,
        kLeft + kWidth);
    // Samples are whole numbers, so marks between them would mean nothing.
    const double step = std::max(1.0, NiceStep(end_ - begin_, 8));
    for (double sample = std::ceil(begin_ / step) * step; sample <= end_; sample += step) {
      const double x = kLeft + kWidth * (sample - begin_) / std::max(end_ - begin_, 1.0);
      body_ += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"black\"/>"
          "<text x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\">{4:.0f}</text>\n",
          x, bottom, bottom + 4, bottom + 17, sample);
    }
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">sample</text>\n",
                         kLeft + kWidth / 2, bottom + 31);
    // The next panel begins below this one; the last value is the height of the picture.
    panel_ += kPanelHeight + kPanelGap;
  }

  const std::vector<PlotColumn>& columns_;
  const double begin_, end_;
  double panel_ = kTop + 10;  // where the next panel begins
  std::string body_;
};

// Neighbours are joined until no more than kColumnsMax are left.
std::vector<PlotColumn> Joined(std::vector<PlotColumn> columns) {
  // More columns than this are narrower than a pixel can show, and make a file of megabytes.
  // Rounded up: rounded down, some columns would be left beyond the limit.
  const std::size_t together = (columns.size() + kColumnsMax - 1) / kColumnsMax;
  if (together <= 1) return columns;
  std::vector<PlotColumn> joined;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i % together == 0) {
      joined.push_back(std::move(columns[i]));
      continue;
    }
    PlotColumn& sum = joined.back();
    sum.samples += columns[i].samples;
    sum.raw_bytes += columns[i].raw_bytes;
    sum.stored_bytes += columns[i].stored_bytes;
    for (const auto& [coder, bytes] : columns[i].coder_bytes) sum.coder_bytes[coder] += bytes;
    // Counts are summed and not shares, so a joined column is weighted by the bytes of its parts.
    for (std::size_t k = 0; k < sum.blocks.size(); ++k) sum.blocks[k] += columns[i].blocks[k];
  }
  return joined;
}

double Share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<Series> CoderShares(const std::vector<PlotColumn>& columns) {
  // Collected first: a coder that is absent from a column still has its colour and a share of 0
  // there.
  std::set<std::string> names;
  for (const PlotColumn& column : columns) {
    for (const auto& [coder, bytes] : column.coder_bytes) names.insert(coder);
  }
  std::vector<Series> all;
  for (const std::string& name : names) {
    Series& series = all.emplace_back(Series{.name = name, .values = {}});
    for (const PlotColumn& column : columns) {
      const auto found = column.coder_bytes.find(name);
      series.values.push_back(found == column.coder_bytes.end()
                                  ? 0
                                  : Share(found->second, column.stored_bytes));
    }
  }
  return all;
}

std::vector<Series> PredictionShares(const std::vector<PlotColumn>& columns) {
  std::vector<Series> all;
  bool any = false;
  for (std::size_t k = 0; k < compress::kBlockPredictions; ++k) {
    Series& series = all.emplace_back(
        Series{.name = compress::BlockPredictionName(static_cast<BlockPrediction>(k)),
               .values = {}});
    for (const PlotColumn& column : columns) {
      std::uint64_t sum = 0;
      for (const std::uint64_t blocks : column.blocks) sum += blocks;
      any = any || sum > 0;
      series.values.push_back(Share(column.blocks[k], sum));
    }
  }
  // A field without coded planes has no predictions; its panel would be empty.
  if (!any) all.clear();
  return all;
}

}  // namespace

std::string PlotOf(const std::string& title, std::vector<PlotColumn> all) {
  const std::vector<PlotColumn> columns = Joined(std::move(all));
  if (columns.empty()) {
    // A picture even so: a script that asked for a file should find one.
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"60\">"
           "<text x=\"10\" y=\"30\">no samples</text></svg>\n";
  }
  Picture picture(columns);
  std::vector<double> ratios;
  for (const PlotColumn& column : columns) {
    ratios.push_back(Share(column.raw_bytes, column.stored_bytes));
  }
  picture.AddSteps("ratio: raw bytes / stored bytes", ratios);
  picture.AddShares("stored bytes by coder", CoderShares(columns));
  const std::vector<Series> predictions = PredictionShares(columns);
  if (!predictions.empty()) picture.AddShares("blocks by prediction", predictions);
  return picture.Finish(title);
}

}  // namespace forebay::cli
