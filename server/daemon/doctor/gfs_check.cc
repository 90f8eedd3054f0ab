// A data set is catalogued as far as a few seconds allow, which finds wrong paths, formats and
// headers, and its first objects are read as the stager reads them: beneath the root, in requests
// of stage.request, stage.requests at a time. Nothing is retried: what the daemon would wait out is
// worth a word before the job.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "proto/contract/limits.h"
#include "server/catalog/dataset_source.h"
#include "server/daemon/config/dataset_config.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/measured_transfer.h"
#include "server/stage/placement/bounded_directory.h"

namespace forebay::daemon {
namespace {

// At most so many bytes and objects are read. That is enough for a rough rate, and takes little
// time and memory.
constexpr std::uint64_t kReadBytesMax = 32 * limits::kMiB;
constexpr std::size_t kObjectsMax = 64;
// Looking and reading have times of their own, so that a large data set, whose objects take long to
// list, is read all the same.
constexpr std::int64_t kLookNs = 3'000'000'000;  // for listing and cataloguing
constexpr std::int64_t kReadNs = 2'000'000'000;

struct FoundObject {
  std::string path;
  std::uint64_t bytes = 0;
};

// The first objects of a data set: at most kObjectsMax, and no more than kReadBytesMax needs.
struct FoundObjects {
  std::vector<FoundObject> first;
  std::uint64_t bytes = 0;  // of `first`
  std::uint64_t count = 0;  // of all objects that were seen
  bool is_complete = false;
  catalog::Format format{};

  void Add(std::string_view path, std::uint64_t object_bytes) {
    ++count;
    if (first.size() >= kObjectsMax || bytes >= kReadBytesMax || object_bytes == 0) return;
    first.push_back({.path = std::string(path), .bytes = object_bytes});
    bytes += object_bytes;
  }
};

// Adds the files at the top of `root`. This is done if no object was found in time, because any
// file can show whether the GFS can be read at all.
Status AddTopFiles(io::Directory& root, FoundObjects& found) {
  FOREBAY_ASSIGN(const auto entries, root.List(""));
  for (const io::DirectoryEntry& entry : entries) {
    if (!entry.is_regular || found.first.size() >= kObjectsMax) continue;
    FOREBAY_ASSIGN(const io::FileInfo info, root.Stat(entry.name));
    found.Add(entry.name, info.bytes);
  }
  return {};
}

// Catalogues with `root`, which refuses after a time; that is no error once the format is known.
Result<FoundObjects> FindObjects(io::IoBackend& backend, stage::BoundedDirectory& root,
                                 catalog::DatasetSource source) {
  FoundObjects found;
  if (!source.format) {
    FOREBAY_ASSIGN(source.format, catalog::DetectFormat(root, source));
  }
  found.format = *source.format;
  Status looked;
  if (catalog::BuildsFromMetadata(found.format)) {
    // Runs of small files are passed on while the catalog is built, and so are known also if there
    // is no time for all of them.
    const auto catalog = catalog::BuildFromMetadata(
        backend, root, source, nullptr,
        [&found](ExtentId, const catalog::ExtentInfo&,
                 std::span<const catalog::ObjectInfo> objects) {
          for (const catalog::ObjectInfo& object : objects) found.Add(object.path, object.bytes);
        });
    if (catalog.has_value()) {
      // Formats without small files pass on no runs. Their objects are taken from the catalog.
      const bool has_runs = found.count > 0;
      for (std::uint32_t i = 0; !has_runs && i < (*catalog)->object_count(); ++i) {
        const catalog::ObjectInfo object = (*catalog)->object(ObjectId(i));
        found.Add(object.path, object.bytes);
      }
      found.count = (*catalog)->object_count();
    } else {
      looked = catalog.error();
    }
  } else {
    // To scan the objects would read all bytes, so they are only listed.
    const auto plan = catalog::PlanScan(root, source);
    if (plan.has_value()) {
      for (const auto& object : plan->objects) found.Add(object.path, object.bytes);
    } else {
      looked = plan.error();
    }
  }
  found.is_complete = looked.has_value();
  // What was found until the time was over is enough for reading. The daemon would have any other
  // error, too.
  const bool is_late =
      !found.is_complete && looked.error().code() == ErrorCode::kDeadlineExceeded;
  if (!found.is_complete && !is_late) return looked.error();
  return found;
}

// Opens and reads the first objects. The time includes opening them.
Result<TransferRate> ReadObjects(const Config& config, const FoundObjects& found,
                                 io::IoBackend& backend, io::Directory& root,
                                 const io::Clock& clock, CheckReport& report) {
  const std::int64_t begun_ns = clock.NowNs();
  const std::int64_t deadline_ns = begun_ns + kReadNs;
  std::vector<std::unique_ptr<io::File>> files;
  std::vector<FileRange> ranges;
  std::uint64_t left = kReadBytesMax;
  for (const FoundObject& object : found.first) {
    if (left == 0 || clock.NowNs() >= deadline_ns) break;
    report.Begin("opening " + object.path);
    FOREBAY_ASSIGN(auto file, root.Open(object.path, io::OpenMode::kRead));
    // Otherwise the rate would be that of this node's memory if the file was read lately.
    file->DropCached();
    const std::uint64_t bytes = std::min(left, object.bytes);
    ranges.push_back({.file = file.get(), .bytes = bytes});
    files.push_back(std::move(file));
    left -= bytes;
  }
  report.Begin(fmt::format("reading {}", found.first.front().path));
  const auto request_bytes = ParseByteCount(config.stage_request, kRequestBounds);
  if (!request_bytes.has_value()) return request_bytes.error().WithContext("stage.request");
  // No more memory than what is read.
  const std::uint64_t requests =
      std::clamp<std::uint64_t>(kReadBytesMax / *request_bytes, 1, config.stage_requests);
  FOREBAY_ASSIGN(TransferRate rate,
                 Transfer(backend, clock, ranges,
                          {.request_bytes = *request_bytes,
                           .requests = static_cast<std::size_t>(requests),
                           .deadline_ns = deadline_ns}));
  // The daemon has to open objects as well, so their time belongs to the rate.
  rate.ns = clock.NowNs() - begun_ns;
  return rate;
}

// Says what a user can do, by the errno of the call that has failed. An error without one was found
// by this program, in the configuration or in the contents of a file.
std::string RemedyFor(const Error& error, const stage::DatasetOptions& dataset) {
  switch (error.system_errno()) {
    case ENOENT: case ENOTDIR:
      return fmt::format("mount the file system on this node, or correct 'path' or 'files' of data "
                         "set '{}'",
                         dataset.source.name);
    case EACCES: case EPERM:
      return fmt::format("give uid {} the right to read these files", geteuid());
    case EXDEV: return "replace links that lead out of 'path' by the files";
    case EMFILE: case ENFILE: return "raise the limit of open files (ulimit -n)";
    case 0: break;
    default:
      return fmt::format("look in the kernel's log (dmesg) and at the mount of {}",
                         dataset.root_path);
  }
  return fmt::format("correct the table [[dataset]] of '{}' (docs/configuration.md), or its files",
                     dataset.source.name);
}

}  // namespace

void CheckGfs(const Config& config, const stage::DatasetOptions& dataset, io::IoBackend& backend,
              const io::Clock& clock, CheckReport& report) {
  const auto fail = [&](const Error& error) {
    report.Fail(fmt::format("{}: {}", dataset.root_path, error.message()),
                RemedyFor(error, dataset));
  };
  report.Begin("opening " + dataset.root_path);
  auto root = backend.OpenDirectory(dataset.root_path);
  if (!root.has_value()) return fail(root.error());
  // Reading has a time of its own, so it opens files past the bounded directory.
  const auto unbounded = backend.OpenDirectory(dataset.root_path);
  if (!unbounded.has_value()) return fail(unbounded.error());
  report.Begin("looking at the objects beneath " + dataset.root_path);
  stage::BoundedDirectory bounded(std::move(*root), clock, clock.NowNs() + kLookNs);
  auto found = FindObjects(backend, bounded, dataset.source);
  if (!found.has_value()) return fail(found.error());
  if (found->first.empty() && !found->is_complete) {
    const Status added = AddTopFiles(**unbounded, *found);
    if (!added.has_value()) return fail(added.error());
  }
  const std::string described =
      fmt::format("{}: format {}, {}{} objects", dataset.root_path,
                  catalog::FormatName(found->format), found->is_complete ? "" : "more than ",
                  found->count);
  if (found->first.empty()) {
    return report.Warn(described + "; no file was found that could be read",
                       fmt::format("look whether data set '{}' has files", dataset.source.name));
  }
  const auto rate = ReadObjects(config, *found, backend, **unbounded, clock, report);
  if (!rate.has_value()) return fail(rate.error());
  const std::string text = fmt::format("{}; {} read at {}/s", described, SizeText(rate->bytes),
                                       SizeText(rate->BytesPerSecond()));
  const std::vector<Figure> figures = {{"objects", found->count},
                                       {"read_bytes", rate->bytes},
                                       {"read_bytes_per_s", rate->BytesPerSecond()}};
  if (rate->bytes == 0) {
    return report.Fail(text, fmt::format("look at the mount of {}: nothing was read in {} s",
                                         dataset.root_path, kReadNs / 1'000'000'000),
                       figures);
  }
  report.Ok(text, figures);
}

}  // namespace forebay::daemon
