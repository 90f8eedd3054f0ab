// A check that uses files gets the back end that the daemon would use, made in the check's own
// process, because its threads and rings do not survive a fork.
#include "server/daemon/doctor/doctor.h"

#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/daemon/config/tier_config.h"
#include "server/daemon/daemon_paths.h"
#include "server/daemon/doctor/check_runner.h"
#include "server/daemon/doctor/checks.h"
#include "server/io/backend_selection.h"

namespace forebay::daemon {
namespace {

// Runs `check` with the configured back end.
template <typename CheckWithBackend>
auto WithBackend(const Config& config, CheckWithBackend check) {
  return [&config, check](CheckReport& report) {
    auto selected = io::SelectBackend(ConfiguredBackend(config));
    if (!selected.has_value()) {
      // The check of io_uring gives the remedy that fits.
      return report.Fail("not tried: " + selected.error().message(),
                         "set daemon.io_backend to auto");
    }
    check(*selected->backend, report);
  };
}

// The job's id, by which the daemon names its directory.
std::string JobOf(const Config& config) {
  if (!config.job_id.empty()) return config.job_id;
  for (const char* name : {"FOREBAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "local";
}

}  // namespace

std::vector<Check> ChecksOf(const Config& config, const io::Clock& clock) {
  std::vector<Check> checks;
  const auto add = [&checks](std::string name, std::string subject, std::string hung_remedy,
                             std::function<void(CheckReport&)> run) {
    checks.push_back({.name = std::move(name),
                      .subject = std::move(subject),
                      .hung_remedy = std::move(hung_remedy),
                      .run = std::move(run)});
  };
  const std::string busy = "look what keeps the kernel of this node busy (dmesg)";
  const std::string silent = "look at the file system of this directory (df, dmesg)";
  add("io_uring", "", busy, [&config](CheckReport& report) { CheckIoUring(config, report); });
  add("memory", "", busy, [&config](CheckReport& report) { CheckMemory(config, report); });
  add("huge_pages", "", busy, [&config](CheckReport& report) { CheckHugePages(config, report); });
  add("open_files", "", busy, [&config](CheckReport& report) { CheckOpenFiles(config, report); });
  const DaemonPaths paths = PathsOf(config, JobOf(config));
  add("socket", "", silent, [paths](CheckReport& report) { CheckSocket(paths, report); });
  add("state_dir", "", silent,
      WithBackend(config, [paths](io::IoBackend& backend, CheckReport& report) {
        CheckStateDirectory(paths, backend, report);
      }));
  add("ssd", "", silent,
      WithBackend(config, [&config, &clock, paths](io::IoBackend& backend, CheckReport& report) {
        CheckSsd(config, paths, backend, clock, report);
      }));
  for (const stage::DatasetOptions& dataset : config.datasets) {
    add("gfs", "data set '" + dataset.source.name + "'",
        fmt::format("look at the mount of {} (df, dmesg), or use another node", dataset.root_path),
        WithBackend(config,
                    [&config, &clock, &dataset](io::IoBackend& backend, CheckReport& report) {
                      CheckGfs(config, dataset, backend, clock, report);
                    }));
  }
  return checks;
}

FindingCounts ExamineNode(std::span<const Check> checks, const io::Clock& clock,
                          const DoctorPatience& patience,
                          const std::function<void(const Finding&)>& found) {
  FindingCounts counts;
  const auto count = [&](const Finding& finding) {
    counts.Count(finding.verdict);
    found(finding);
  };
  const std::int64_t deadline_ns = clock.NowNs() + patience.total_ms * 1'000'000;
  for (const Check& check : checks) {
    if (clock.NowNs() < deadline_ns) {
      RunCheck(check, patience.check_ms, count);
      continue;
    }
    count({.check = check.name,
           .subject = check.subject,
           .verdict = Verdict::kWarning,
           .text = fmt::format("not tried, because {} s were over", patience.total_ms / 1000),
           .remedy = "set right what failed to answer, and run the doctor again"});
  }
  return counts;
}

}  // namespace forebay::daemon
