// A job scheduler confines a job with a cgroup, often far below the machine's memory, so a share of
// the memory must be a share of the cgroup's limit. The process's own group and all its ancestors
// count, because a limit of an ancestor binds it too.
#include "server/tier/capacity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "proto/contract/limits.h"

namespace forebay::tier {
namespace {

struct Unit {
  std::string_view name;  // lower case
  std::uint64_t bytes;
};
constexpr std::uint64_t kKilo = 1000;
// kB is 1000 bytes and KiB is 1024, as the IEC defines them. A bare "8G" is refused: readers
// disagree about what it means.
constexpr std::array<Unit, 12> kUnits = {{
    {"", 1}, {"b", 1},
    {"kb", kKilo}, {"mb", kKilo * kKilo}, {"gb", kKilo * kKilo * kKilo},
    {"tb", kKilo * kKilo * kKilo * kKilo}, {"pb", kKilo * kKilo * kKilo * kKilo * kKilo},
    {"kib", limits::kKiB}, {"mib", limits::kMiB}, {"gib", limits::kGiB},
    {"tib", limits::kGiB * 1024}, {"pib", limits::kGiB * 1024 * 1024},
}};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// A number and its unit, in lower case and not checked yet.
struct Quantity {
  std::uint64_t number = 0;
  std::string unit;
};

Error Malformed(std::string_view text, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument, "'" + std::string(text.substr(0, 64)) + "': " + why);
}

Result<Quantity> ParseQuantity(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  const char* const end = trimmed.data() + trimmed.size();
  Quantity quantity;
  const auto parsed = std::from_chars(trimmed.data(), end, quantity.number);
  // A sign is no digit, and a point or an exponent leaves characters that are no unit: all of them
  // are refused.
  if (parsed.ec == std::errc::result_out_of_range) return Malformed(text, "too large");
  if (parsed.ec != std::errc()) {
    return Malformed(text, "expected a number such as 8GiB, 500MB or 25%");
  }
  quantity.unit = LowerCase(Trim({parsed.ptr, static_cast<std::size_t>(end - parsed.ptr)}));
  return quantity;
}

Result<std::uint64_t> PercentOf(std::uint64_t percent, std::uint64_t whole_bytes) {
  if (percent < 1 || percent > 100) {
    return Error(ErrorCode::kInvalidArgument, "a percentage must be 1% to 100%");
  }
  if (whole_bytes == 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the size that the percentage refers to is not known; write bytes instead");
  }
  // Divided first, so that the product does not overflow; the remainder is added exactly.
  const std::uint64_t bytes = whole_bytes / 100 * percent + whole_bytes % 100 * percent / 100;
  return std::max<std::uint64_t>(bytes, 1);
}

// The content of a small text file; nullopt if it cannot be read. Files in /proc report size 0, so
// the size is not asked for.
std::optional<std::string> ReadText(const std::string& path) {
  constexpr std::size_t kTextBytesMax = 64 * 1024;
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  // A file that is longer is cut. The callers need only its first lines.
  std::string text(kTextBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// The number in a limit file. "max" (cgroup v2) and numbers beyond 64 bits mean no limit.
std::optional<std::uint64_t> ReadLimit(const std::string& path) {
  const std::optional<std::string> text = ReadText(path);
  if (!text) return std::nullopt;
  std::uint64_t bytes = 0;
  // "max" has no digits, so it is no number; cgroup v1 writes a number near 2^63 for no limit,
  // which the smallest of all limits leaves out by itself.
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), bytes);
  if (parsed.ec != std::errc() || parsed.ptr == text->data()) return std::nullopt;
  return bytes;
}

std::optional<std::uint64_t> MachineBytes(const std::string& root) {
  const std::optional<std::string> text = ReadText(root + "/proc/meminfo");
  if (!text) return std::nullopt;
  constexpr std::string_view kLabel = "MemTotal:";
  const std::size_t at = text->find(kLabel);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(text->substr(at + kLabel.size()));
  std::uint64_t kib = 0;
  if (!(words >> kib) || kib > ~std::uint64_t{0} / limits::kKiB) return std::nullopt;
  return kib * limits::kKiB;
}

// A cgroup hierarchy that limits memory: where it may be mounted, the name of the file that holds a
// limit, and the cgroup of this process in it.
struct Hierarchy {
  std::vector<std::string_view> mounts;
  std::string_view limit_file;
  std::string group;
};

// Whether the comma-separated list names the memory controller.
bool NamesMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    controllers = comma == std::string_view::npos ? std::string_view()
                                                  : controllers.substr(comma + 1);
  }
  return false;
}

// Version 2 has one hierarchy, without a list of controllers. In version 1 each controller has its
// own. A machine may have both.
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::istringstream lines(ReadText(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {  // "<number>:<controllers>:<group>"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      found.push_back({{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, "memory.max", group});
    } else if (NamesMemory(controllers)) {
      found.push_back({{"/sys/fs/cgroup/memory"}, "memory.limit_in_bytes", group});
    }
  }
  return found;
}

}  // namespace

Result<std::uint64_t> ParseBytes(std::string_view text) {
  FOREBAY_ASSIGN(const Quantity quantity, ParseQuantity(text));
  const auto* known = std::ranges::find(kUnits, quantity.unit, &Unit::name);
  if (known == kUnits.end()) {
    return Malformed(text, "unknown unit; use a whole number with B, kB, MB, GB, TB, PB, KiB, MiB, "
                           "GiB, TiB or PiB");
  }
  // Division, because the product could wrap to a small number.
  if (quantity.number > ~std::uint64_t{0} / known->bytes) return Malformed(text, "too large");
  return quantity.number * known->bytes;
}

Result<std::uint64_t> ParseCapacity(std::string_view text, std::uint64_t whole_bytes) {
  FOREBAY_ASSIGN(const Quantity quantity, ParseQuantity(text));
  if (quantity.unit == "%") {
    Result<std::uint64_t> bytes = PercentOf(quantity.number, whole_bytes);
    if (bytes.has_value()) return bytes;
    return bytes.error().WithContext("'" + std::string(text.substr(0, 64)) + "'");
  }
  FOREBAY_ASSIGN(const std::uint64_t bytes, ParseBytes(text));
  if (bytes == 0) return Malformed(text, "must be more than 0");
  return bytes;
}

std::uint64_t MemoryLimitBytes(const std::string& root) {
  // A source that cannot be read sets no limit. If nothing can be read the answer is 0, and a
  // percentage is then an error of ParseCapacity.
  std::optional<std::uint64_t> smallest = MachineBytes(root);
  const auto take = [&smallest](std::optional<std::uint64_t> limit) {
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
  };
  for (const Hierarchy& hierarchy : Hierarchies(root)) {
    for (const std::string_view mount : hierarchy.mounts) {
      // From the process's own group up to the mount point. Inside a container the path of the
      // group may not exist there, because the mount point shows the container's own group. The
      // last step, the mount point itself, then finds its limit.
      std::string group = hierarchy.group;
      while (true) {
        if (group == "/") group.clear();
        take(ReadLimit(root + std::string(mount) + group + "/" +
                       std::string(hierarchy.limit_file)));
        if (group.empty()) break;
        const std::size_t slash = group.rfind('/');
        group.resize(slash == std::string::npos ? 0 : slash);
      }
    }
  }
  return smallest.value_or(0);
}

}  // namespace forebay::tier
