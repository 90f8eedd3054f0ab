// A check that uses files gets the back end that the daemon would use, made in the check's own
// process, because its threads and rings do not survive a fork.
#include "server/daemon/doctor/doctor.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/daemon/config/tier_config.h"
#include "server/daemon/daemon_paths.h"
#include "server/daemon/doctor/check_runner.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/job_launch.h"
#include "server/io/backend_selection.h"

namespace forebay::daemon {
namespace {

// Appends a check to the table: name, subject, hung_remedy and run of Check.
using AddCheck = std::function<void(std::string, std::string, std::string,
                                    std::function<void(CheckReport&)>)>;

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

// The daemon's paths, which depend on the job's id. Does not ask a PMIx server, which would start
// threads here; the check of nodes does that in its own process.
Result<DaemonPaths> FindPaths(const Config& config, const io::Clock& clock) {
  Config alone = config;
  alone.nodes_rendezvous = "none";
  FOREBAY_ASSIGN(const JobLaunch launch, FindJobLaunch(alone, clock));
  return PathsOf(config, launch.launch.job.name);
}

// The checks that need the paths.
void CheckPaths(const Config& config, const DaemonPaths& paths, const io::Clock& clock,
                const AddCheck& add) {
  const std::string silent = "look at the file system of this directory (df, dmesg)";
  add("socket", "", silent, [paths](CheckReport& report) { CheckSocket(paths, report); });
  add("state_dir", "", silent,
      WithBackend(config, [paths](io::IoBackend& backend, CheckReport& report) {
        CheckStateDirectory(paths, backend, report);
      }));
  add("ssd", "", silent,
      WithBackend(config, [&config, &clock, paths](io::IoBackend& backend, CheckReport& report) {
        CheckSsd(config, paths, backend, clock, report);
      }));
}

}  // namespace

std::vector<Check> ChecksOf(const Config& config, const io::Clock& clock) {
  std::vector<Check> checks;
  const AddCheck add = [&checks](std::string name, std::string subject, std::string hung_remedy,
                                 std::function<void(CheckReport&)> run) {
    checks.push_back({.name = std::move(name),
                      .subject = std::move(subject),
                      .hung_remedy = std::move(hung_remedy),
                      .run = std::move(run)});
  };
  const std::string busy = "look what keeps the kernel of this node busy (dmesg)";
  add("io_uring", "", busy, [&config](CheckReport& report) { CheckIoUring(config, report); });
  add("memory", "", busy, [&config](CheckReport& report) { CheckMemory(config, report); });
  add("huge_pages", "", busy, [&config](CheckReport& report) { CheckHugePages(config, report); });
  add("open_files", "", busy, [&config](CheckReport& report) { CheckOpenFiles(config, report); });
  const auto paths = FindPaths(config, clock);
  if (paths.has_value()) {
    CheckPaths(config, *paths, clock, add);
  } else {
    const std::string reason = paths.error().message();
    add("job", "", "", [reason](CheckReport& report) {
      report.Fail(reason, "set daemon.job_id, or $FOREBAY_JOB_ID");
    });
  }
  add("nodes", "", "look at the launcher, the name service and the directory of nodes.rendezvous",
      WithBackend(config, [&config, &clock](io::IoBackend& backend, CheckReport& report) {
        CheckNodes(config, backend, clock, report);
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
