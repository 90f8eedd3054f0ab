// gfs_emu: mounts a folder as if it lay on a shared global file system (README.md). It checks the
// mount point, builds the profile from preset and options, serves with libfuse's threads until
// SIGTERM or SIGINT, answers what still hangs, and unmounts.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "bench/gfs_emu/gfs_filesystem.h"
#include "bench/gfs_emu/gfs_operations.h"
#include "bench/gfs_emu/gfs_presets.h"
#include "bench/gfs_emu/parked_requests.h"

namespace forebay::bench {
namespace {

struct Options {
  std::string backing;
  std::string mount_point;
  std::string preset = "tsubame3";
  // 0 means no limit, so "not given" needs another value.
  double bandwidth_mb_per_s = -1;  // negative: as the preset says
  double opens_per_s = -1;
  double metadata_per_s = -1;
  double seek_us = -1;
  double open_latency_us = -1;
  bool allow_other = false;
  unsigned threads = 64;
};

std::string PresetTable() {
  std::ostringstream table;
  table << "Presets:\n";
  for (const GfsProfile& profile : kGfsProfiles) {
    table << "  " << profile.name << ": " << profile.bandwidth_bytes_per_s / 1e6 << " MB/s, seek "
          << static_cast<double>(profile.seek_ns) / 1e3 << " us, " << profile.opens_per_s
          << " opens/s, open latency " << static_cast<double>(profile.open_latency_ns) / 1e3
          << " us, " << profile.metadata_per_s << " other metadata operations/s\n    "
          << profile.source << '\n';
  }
  table << "Counters: MOUNT/.gfs_emu/counters.json; control: MOUNT/.gfs_emu/control\n";
  return table.str();
}

GfsProfile ProfileOf(const Options& options, GfsProfile profile) {
  if (options.bandwidth_mb_per_s >= 0) {
    profile.bandwidth_bytes_per_s = options.bandwidth_mb_per_s * 1e6;
  }
  if (options.opens_per_s >= 0) profile.opens_per_s = options.opens_per_s;
  if (options.metadata_per_s >= 0) profile.metadata_per_s = options.metadata_per_s;
  if (options.seek_us >= 0) profile.seek_ns = static_cast<std::int64_t>(options.seek_us * 1e3);
  if (options.open_latency_us >= 0) {
    profile.open_latency_ns = static_cast<std::int64_t>(options.open_latency_us * 1e3);
  }
  return profile;
}

// Why `path` cannot be mounted on; empty where it can.
// Checked here, because libfuse mounts over anything: a second mount on the same folder would hide
// the first, and a run would measure the wrong one.
std::string MountPointProblem(const std::string& path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(path, error);
  if (error || !std::filesystem::is_directory(canonical, error)) return "is not a folder";
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // The kernel writes spaces in a path as octal escapes, so the words of a line can be counted.
    // Such a path does not compare equal here; a second mount on it is refused only if it is not
    // empty.
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;  // the fifth is the mount point
    if (word == canonical.string()) return "is already a mount point";
  }
  const bool is_empty = std::filesystem::is_empty(canonical, error);
  if (error) return "cannot be read: " + error.message();
  return is_empty ? "" : "is not empty";
}

// Mounts, says so on stdout, serves until SIGTERM or SIGINT, unmounts. An exit status.
int Serve(const Options& options, GfsFilesystem& filesystem) {
  // The kernel takes max_read from the mount options; what Init sets must agree with it.
  const std::string read_option = "max_read=" + std::to_string(kGfsReadBytesMax);
  std::string mount_options = read_option + ",fsname=gfs_emu,subtype=gfs_emu,default_permissions";
  if (options.allow_other) mount_options += ",allow_other";
  std::string program = "gfs_emu";
  std::string flag = "-o";
  char* arguments[] = {program.data(), flag.data(), mount_options.data(), nullptr};
  fuse_args fuse_arguments = FUSE_ARGS_INIT(3, arguments);
  ParkedRequests parked;
  GfsMount mount{.filesystem = &filesystem, .parked = &parked, .session = nullptr};
  // Destroyed after everything that uses it below; `parked` and `mount` outlive it.
  const std::unique_ptr<fuse_session, void (*)(fuse_session*)> session(
      fuse_session_new(&fuse_arguments, &GfsOperations(), sizeof(fuse_lowlevel_ops), &mount),
      fuse_session_destroy);
  fuse_opt_free_args(&fuse_arguments);
  if (session == nullptr) return EXIT_FAILURE;
  mount.session = session.get();
  if (fuse_set_signal_handlers(session.get()) != 0) return EXIT_FAILURE;
  if (fuse_session_mount(session.get(), options.mount_point.c_str()) != 0) {
    std::fprintf(stderr, "gfs_emu: cannot mount on %s (is /dev/fuse there?)\n",
                 options.mount_point.c_str());
    fuse_remove_signal_handlers(session.get());
    return EXIT_FAILURE;
  }
  // The harness and the tests wait for this line, so they need not guess when the mount is there.
  std::printf("ready %s\n", options.mount_point.c_str());
  std::fflush(stdout);
  const std::unique_ptr<fuse_loop_config, void (*)(fuse_loop_config*)> loop(
      fuse_loop_cfg_create(), fuse_loop_cfg_destroy);
  // Each thread reads requests from a descriptor of its own. With one for all, the threads would
  // take turns, and concurrent reads would be served one after another.
  fuse_loop_cfg_set_clone_fd(loop.get(), 1);
  fuse_loop_cfg_set_max_threads(loop.get(), options.threads);
  // Threads stay: to start one takes longer than a read from page cache.
  fuse_loop_cfg_set_idle_threads(loop.get(), options.threads);
  const int outcome = fuse_session_loop_mt(session.get(), loop.get());
  // The loop has ended, so no request can be parked after this.
  parked.FailAll(EIO);  // whoever waits for them would keep the mount in use
  fuse_session_unmount(session.get());
  fuse_remove_signal_handlers(session.get());
  // The loop answers the number of the signal that ended it.
  const bool ended_well = outcome == 0 || outcome == SIGTERM || outcome == SIGINT;
  return ended_well ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Every open file of a client is one here.
void RaiseFileLimit() {
  rlimit limit{};
  // A client may have thousands of files open; the soft limit of a shell is often 1,024.
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::perror("gfs_emu: setrlimit");
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("gfs_emu: a folder, mounted as if it lay on a shared global file system");
  app.add_option("backing", options.backing, "The folder to show, read-only")->required();
  app.add_option("mount", options.mount_point, "An empty folder to mount on")->required();
  app.add_option("--preset", options.preset, "A profile by name")->capture_default_str();
  app.add_option("--bandwidth-mb-per-s", options.bandwidth_mb_per_s, "Shared; 0: no limit");
  app.add_option("--seek-us", options.seek_us, "Disk time of a discontiguous read");
  app.add_option("--opens-per-s", options.opens_per_s, "Shared; 0: no limit");
  app.add_option("--open-latency-us", options.open_latency_us, "Of each open");
  app.add_option("--metadata-per-s", options.metadata_per_s,
                 "Lookups, getattrs and readdirs, shared; 0: no limit");
  app.add_option("--threads", options.threads, "Requests served at once")
      ->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--allow-other", options.allow_other, "Let other users in (see fuse.conf)");
  app.footer(PresetTable());
  CLI11_PARSE(app, argc, argv);

  const auto profile = FindGfsProfile(options.preset);
  if (!profile) {
    std::fprintf(stderr, "gfs_emu: no preset \"%s\"\n%s", options.preset.c_str(),
                 PresetTable().c_str());
    return EXIT_FAILURE;
  }
  if (const std::string problem = MountPointProblem(options.mount_point); !problem.empty()) {
    std::fprintf(stderr, "gfs_emu: %s %s\n", options.mount_point.c_str(), problem.c_str());
    return EXIT_FAILURE;
  }
  UniqueFd backing(open(options.backing.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!backing.valid()) {
    std::perror(("gfs_emu: " + options.backing).c_str());
    return EXIT_FAILURE;
  }
  RaiseFileLimit();
  GfsFilesystem filesystem(std::move(backing), ProfileOf(options, *profile));
  return Serve(options, filesystem);
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Run(argc, argv); }
