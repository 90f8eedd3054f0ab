// A thread does the looking, because a file system may not answer. Every entry of the report begins
// as "not looked at" or "does not answer", and is replaced when its call returns, so that a report
// at any time says what is known. plan::NeedOf computes the advice, as it does for a running
// daemon.
#include "server/daemon/config/capacity_survey.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/plan/capacity_need.h"
#include "server/stage/placement/bounded_directory.h"

namespace forebay::daemon {
namespace {

// No call begins after the deadline; this is for the one that is under way then.
constexpr std::int64_t kLastCallMs = 1'000;

std::string Bytes(std::uint64_t bytes) {
  return fmt::format("{} bytes ({:.1f} MiB)", bytes,
                     static_cast<double>(bytes) / static_cast<double>(limits::kMiB));
}

// One line of facts for each data set. Each doubt about the size adds a clause.
std::string DescribeSize(const CapacityReport::Sized& dataset) {
  if (!dataset.size.has_value()) {
    return fmt::format("data set '{}': size not known: {}", dataset.name,
                       dataset.size.error().message());
  }
  const stage::DatasetSize& size = *dataset.size;
  std::string text = fmt::format("data set '{}': {}{}, {} objects of format {}", dataset.name,
                                 size.is_at_most ? "at most " : "", Bytes(size.bytes),
                                 size.objects, catalog::FormatName(size.format));
  if (size.is_at_most) text += "; its exact size is known once it has been staged";
  if (size.is_compressed) text += "; compressed at staging, which saves space that is not counted";
  if (!size.note.empty()) text += "; " + size.note;
  return text;
}

std::string DescribeTiers(const plan::TierPlan& tiers) {
  const auto tier = [](std::string_view name, std::uint64_t capacity, std::uint64_t homes) {
    return fmt::format("{} {} MiB, {} MiB of it for extents", name, capacity / limits::kMiB,
                       homes / limits::kMiB);
  };
  return fmt::format("tiers: {}; {}",
                     tier("RAM", tiers.ram.capacity_bytes, tiers.ram.HomeBytes()),
                     tiers.ssd.capacity_bytes == 0
                         ? "no SSD"
                         : tier("SSD", tiers.ssd.capacity_bytes, tiers.ssd.HomeBytes()));
}

// The need of all data sets together.
struct Need {
  std::vector<plan::Footprint> extents;
  std::uint64_t bytes = 0;
  std::uint64_t unplaced_bytes = 0;
  std::vector<std::string> unplaced;  // names of data sets
  std::vector<std::string> unknown;
  bool is_at_most = false;
};

// Places all extents as the daemon will: data set after data set, in the order of the
// configuration.
Need NeedOf(const CapacityReport& report) {
  Need need;
  // Starts with all space for homes: what a running daemon holds now does not matter for a
  // configuration.
  plan::TierSpace room = report.tiers->HomeSpace();
  for (const CapacityReport::Sized& dataset : report.datasets) {
    if (!dataset.size.has_value()) {
      need.unknown.push_back(dataset.name);
      continue;
    }
    const stage::DatasetSize& size = *dataset.size;
    need.bytes += size.bytes;
    need.is_at_most = need.is_at_most || size.is_at_most || size.is_compressed;
    need.extents.insert(need.extents.end(), size.extents.begin(), size.extents.end());
    // Each data set gets what the ones before it have left.
    const plan::Fill fill = plan::FillSpace(room, size.extents);
    room = fill.left;
    if (!fill.extents_without_home.empty()) need.unplaced.push_back(dataset.name);
    for (const std::size_t extent : fill.extents_without_home) {
      need.unplaced_bytes += size.image_bytes[extent];
    }
  }
  return need;
}

std::vector<std::string> DescribeLack(const plan::TierPlan& tiers, const Need& need) {
  // Computed from nothing placed yet, for all data sets together: one advice that is enough for
  // all.
  const plan::CapacityNeed capacity = plan::NeedOf(tiers, tiers.HomeSpace(), need.extents);
  return {
      fmt::format("the tiers {} the data sets: {}{} of {} fit on none (data set {})",
                  need.is_at_most ? "may not hold" : "do not hold",
                  need.is_at_most ? "up to " : "", Bytes(need.unplaced_bytes), Bytes(need.bytes),
                  fmt::join(need.unplaced, ", ")),
      "order 'block' reads these from the GFS in every epoch, order 'global' is refused",
      fmt::format("{}{}", plan::CapacityAdvice(tiers, capacity),
                  need.unknown.empty() ? "" : ", and more for data sets of unknown size")};
}

}  // namespace

CapacityText Describe(const CapacityReport& report) {
  CapacityText text;
  for (const CapacityReport::Sized& dataset : report.datasets) {
    text.facts.push_back(DescribeSize(dataset));
  }
  // Without the tiers only the sizes can be reported.
  if (!report.tiers.has_value()) {
    // A warning and not an error, because the configuration itself may be right.
    text.warnings.push_back(fmt::format("whether the tiers hold the data sets is not known: {}",
                                        report.tiers.error().message()));
    return text;
  }
  text.facts.push_back(DescribeTiers(*report.tiers));
  if (report.datasets.empty()) return text;
  const Need need = NeedOf(report);
  if (!need.unplaced.empty()) {
    text.warnings = DescribeLack(*report.tiers, need);
  }
  if (!need.unknown.empty()) {
    text.warnings.push_back(fmt::format(
        "whether the tiers hold these data sets is not known: {}", fmt::join(need.unknown, ", ")));
  }
  // Said only if every size is known and every extent has a home.
  if (text.warnings.empty()) {
    text.facts.push_back(
        "the tiers hold all data sets: order 'global' works, and the GFS is read once");
  }
  return text;
}

CapacitySurvey::CapacitySurvey(const Config& config, io::IoBackend& backend, const io::Clock& clock,
                       std::int64_t patience_ms)
    : config_(config),
      backend_(backend),
      clock_(clock),
      patience_ms_(patience_ms),
      deadline_ns_(clock.NowNs() + patience_ms * 1'000'000) {
  // The entries as they are reported if the thread does not get to them.
  report_.tiers = Silent(config.ssd_directory);
  for (const stage::DatasetOptions& dataset : config.datasets) {
    report_.datasets.push_back(
        {.name = dataset.source.name,
         .size = Error(ErrorCode::kDeadlineExceeded, "the time was up before it was looked at")});
  }
  // Last, when every member that the thread reads exists.
  thread_ = std::jthread([this] { Run(); });
}

bool CapacitySurvey::Await() {
  MutexLock lock(mutex_);
  // False: the caller reports what is known and leaves without joining the thread.
  return over_.WaitFor(mutex_, std::chrono::milliseconds(patience_ms_ + kLastCallMs),
                       [this]() FOREBAY_REQUIRES(mutex_) { return is_over_; });
}

CapacityReport CapacitySurvey::Report() const {
  MutexLock lock(mutex_);
  return report_;
}

// The entry for a path while a call about it is under way.
Error CapacitySurvey::Silent(const std::string& path) const {
  return Error(ErrorCode::kDeadlineExceeded,
               fmt::format("the file system of {} has not answered within {} s", path,
                           patience_ms_ / 1000));
}

void CapacitySurvey::Run() {
  // The lock is never held during a call, so Report never waits for a file system.
  // The tiers first: a local file system answers more often than a GFS.
  Result<plan::TierPlan> tiers = LookAtTiers();
  {
    MutexLock lock(mutex_);
    report_.tiers = std::move(tiers);
  }
  for (std::size_t i = 0; i < config_.datasets.size(); ++i) {
    // Set before the call, which may not return, and replaced after it.
    {
      MutexLock lock(mutex_);
      report_.datasets[i].size = Silent(config_.datasets[i].root_path);
    }
    Result<stage::DatasetSize> size = LookAt(config_.datasets[i]);
    MutexLock lock(mutex_);
    report_.datasets[i].size = std::move(size);
  }
  MutexLock lock(mutex_);
  is_over_ = true;
  over_.NotifyAll();
}

Result<plan::TierPlan> CapacitySurvey::LookAtTiers() {
  FOREBAY_ASSIGN(const std::uint64_t ram_bytes, RamCapacity(config_));
  std::uint64_t ssd_bytes = 0;
  if (!config_.ssd_directory.empty()) {
    // The check must not create the directory; `--check` changes nothing.
    const auto directory = backend_.OpenDirectory(NearestDirectory(config_.ssd_directory));
    if (!directory.has_value()) return directory.error().WithContext("tier.ssd.directory");
    FOREBAY_ASSIGN(ssd_bytes, SsdCapacity(config_, **directory));
  }
  return PlanTiers(config_, {.ram_bytes = ram_bytes, .ssd_bytes = ssd_bytes});
}

Result<stage::DatasetSize> CapacitySurvey::LookAt(const stage::DatasetOptions& dataset) {
  auto root = backend_.OpenDirectory(dataset.root_path);
  if (!root.has_value()) return root.error().WithContext("path " + dataset.root_path);
  // Ends a listing of millions of files at the deadline. Calls that are not answered at all are the
  // thread's problem, not the directory's.
  stage::BoundedDirectory bounded(std::move(*root), clock_, deadline_ns_);
  // A saved catalog in the state directory is used if there is one, which spares the listing.
  auto size = stage::SizeOf(backend_, bounded, dataset, config_.state_dir);
  const bool is_late =
      !size.has_value() && size.error().code() == ErrorCode::kDeadlineExceeded;
  if (!is_late) return size;
  return Error(ErrorCode::kDeadlineExceeded,
               fmt::format("{} files were looked at within {} s, and there are more; stage the "
                           "data set once with daemon.state_dir set, then its catalog is used",
                           bounded.stats(), patience_ms_ / 1000));
}

}  // namespace forebay::daemon
