#include "server/catalog/dataset_builder.h"

#include <algorithm>
#include <array>
#include <optional>

#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

bool IsHidden(std::string_view name) { return name.starts_with('.'); }

// The position of "-idx" or ".idx" followed by a digit, as in "labels-idx1-ubyte".
std::optional<std::size_t> FindIdxTag(std::string_view name) {
  for (std::size_t at = 1; at + 4 < name.size(); ++at) {
    const char digit = name[at + 4];
    if ((name[at] == '-' || name[at] == '.') && name.substr(at + 1, 3) == "idx" &&
        digit >= '0' && digit <= '9') {
      return at;
    }
  }
  return std::nullopt;
}

bool IsNamedLike(std::string_view name, Format format) {
  switch (format) {
    case Format::kTar: return name.ends_with(".tar");
    case Format::kPack:
      return name.ends_with(".fbp") || name.ends_with(".pack") || name.ends_with(".fbset");
    case Format::kNpy: return name.ends_with(".npy");
    case Format::kIdx:
      return name.ends_with(".idx") || (FindIdxTag(name).has_value() && !name.ends_with(".gz"));
    case Format::kImageFolder:
    case Format::kRaw: return false;
  }
  return false;
}

}  // namespace

Error NotAFile(std::string_view path) {
  return Error(ErrorCode::kFailedPrecondition,
               Quoted(path) + " is not a file beneath the data set's root "
                              "(a dangling link?)");
}

Status CheckExtentBytes(const DatasetSource& source) {
  if (source.extent_bytes >= 1 && source.extent_bytes <= limits::kExtentBytesMax) return {};
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(source.name) + ": extent_bytes must be 1 to " +
                   std::to_string(limits::kExtentBytesMax) + " (kExtentBytesMax)");
}

Result<std::vector<std::string>> FilesNamedLike(io::Directory& root, Format format) {
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, root.List(""));
  std::vector<std::string> names;
  for (const io::DirectoryEntry& entry : entries) {
    if (IsHidden(entry.name) || entry.is_directory || !IsNamedLike(entry.name, format)) continue;
    if (!entry.is_regular) return NotAFile(entry.name);
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string DefaultFieldName(std::string_view path, Format format) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  if (format == Format::kIdx) {
    const std::optional<std::size_t> tag = FindIdxTag(name);
    if (tag.has_value()) {
      name = name.substr(0, *tag);
      return std::string(name.substr(name.rfind('-') + 1));
    }
  }
  const std::size_t dot = name.rfind('.');
  return std::string(dot == 0 ? name : name.substr(0, dot));
}

bool BuildsFromMetadata(Format format) { return format != Format::kTar; }

Result<Format> DetectFormat(io::Directory& root, const DatasetSource& source) {
  std::vector<Format> found;
  for (const Format format : {Format::kTar, Format::kIdx, Format::kNpy, Format::kPack}) {
    FOREBAY_ASSIGN(const std::vector<std::string> names, FilesNamedLike(root, format));
    if (!names.empty()) found.push_back(format);
  }
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> entries, root.List(""));
  const bool has_directories =
      std::any_of(entries.begin(), entries.end(), [](const io::DirectoryEntry& entry) {
        return entry.is_directory && !IsHidden(entry.name);
      });
  if (has_directories) found.push_back(Format::kImageFolder);
  if (found.size() == 1) return found.front();
  std::string reason = "data set " + Quoted(source.name);
  if (found.empty()) {
    reason += " has no class directories, *.tar, *.npy, packs (*.fbset, *.fbp, *.pack) or IDX "
              "files at the top of its root";
  } else {
    reason += " fits several formats:";
    for (const Format format : found) reason += " " + std::string(FormatName(format));
  }
  return Error(ErrorCode::kInvalidArgument, reason + "; set its format");
}

Result<std::shared_ptr<const Catalog>> BuildFromMetadata(
    io::IoBackend& backend, io::Directory& root, const DatasetSource& source,
    const std::function<void(std::uint64_t)>& progress, const RunSink& runs,
    const BuildScratch& scratch) {
  FOREBAY_TRY(CheckExtentBytes(source));
  Format format = Format::kRaw;
  if (source.format.has_value()) {
    format = *source.format;
  } else {
    FOREBAY_ASSIGN(format, DetectFormat(root, source));
  }
  const BuildContext context{backend, root, source, progress, runs, scratch};
  switch (format) {
    case Format::kImageFolder: return BuildImageFolder(context);
    case Format::kIdx:
    case Format::kNpy:
    case Format::kRaw: return BuildRecordFiles(context, format);
    case Format::kPack: return BuildPacks(context);
    case Format::kTar: break;
  }
  return Error(ErrorCode::kFailedPrecondition,
               "data set " + Quoted(source.name) + " is tar shards: its catalog is built while "
                                                   "it is staged (CreateScanBuilder)");
}

}  // namespace forebay::catalog
