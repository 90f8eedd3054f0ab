// Checks whether the kernel and its policies allow this process to use io_uring, and how many files
// it may open.
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/open_files.h"
#include "server/io/queues/uring_backend.h"

namespace forebay::daemon {
namespace {

std::string UringRemedy(const Error& error) {
  switch (error.system_errno()) {
    case EPERM: case EACCES:
      return "set kernel.io_uring_disabled to 0, or allow io_uring in the seccomp profile of the "
             "container";
    case ENOSYS: return "allow io_uring in the seccomp profile of the container, or use Linux 5.11";
    // Kernels before 5.12 count rings as locked memory.
    case ENOMEM: return "raise the limit of locked memory (ulimit -l)";
    default: return "use Linux 5.11 or later";
  }
}

// "20000" or "unlimited".
std::string LimitText(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

}  // namespace

void CheckIoUring(const Config& config, CheckReport& report) {
  report.Begin("creating a ring");
  const Status available = io::CheckIoUring();
  const io::BackendChoice choice = ConfiguredBackend(config);
  if (available.has_value()) {
    return report.Ok(choice == io::BackendChoice::kThreads
                         ? "available, and not used, because daemon.io_backend is threads"
                         : "available");
  }
  const std::string text = "not available: " + available.error().message();
  switch (choice) {
    case io::BackendChoice::kThreads:
      return report.Ok(text + "; daemon.io_backend is threads");
    case io::BackendChoice::kAutomatic:
      return report.Warn(text + "; threads are used, which take more processor time",
                         UringRemedy(available.error()) + "; or set daemon.io_backend to threads");
    case io::BackendChoice::kIoUring:
      return report.Fail(text + ", but daemon.io_backend is io_uring",
                         UringRemedy(available.error()) + "; or set daemon.io_backend to auto");
  }
}

void CheckOpenFiles(const Config& config, CheckReport& report) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
    return report.Fail(Error::FromErrno(errno, "getrlimit").message(), "see ulimit -n");
  }
  const std::uint64_t one = DescriptorsNeeded(config, 1);
  const std::uint64_t all = DescriptorsNeeded(config, limits::kClientsMax);
  const std::vector<Figure> figures = {{"limit", files.rlim_cur},
                                       {"needed_by_one_client", one},
                                       {"needed_by_all_clients", all}};
  const std::string limit = fmt::format("{} files may be open", LimitText(files.rlim_cur));
  // forebayd has raised its soft limit to the hard one.
  const std::string remedy =
      fmt::format("have the hard limit of open files raised to {} (limits.conf, or LimitNOFILE of "
                  "the batch system's service; the hard limit is {})", all,
                  LimitText(files.rlim_max));
  if (files.rlim_cur < one) {
    report.Fail(fmt::format("{}, and a daemon with one client needs up to {}", limit, one), remedy,
                figures);
  } else if (files.rlim_cur < all) {
    report.Warn(fmt::format("{}, enough for about {} clients; {} clients need {}", limit,
                            (files.rlim_cur - one) / 2 + 1, limits::kClientsMax, all),
                remedy, figures);
  } else {
    report.Ok(fmt::format("{}, and a daemon with {} clients needs up to {}", limit,
                          limits::kClientsMax, all),
              figures);
  }
}

}  // namespace forebay::daemon
