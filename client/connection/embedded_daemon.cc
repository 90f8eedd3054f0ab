// Starts a private forebayd, or joins the one that another process of the job has started. Who
// starts it is decided by a file lock in the daemon's directory: the process that holds it looks
// whether a daemon answers, and starts one if not. The directory's name has the job and a checksum
// of the configuration, so that two configurations get two daemons.
#include "client/connection/embedded_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/scheduler_job.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Long enough for one client to go and the next to come, as scripts of several commands do.
constexpr const char* kIdleExitSeconds = "2";
constexpr milliseconds kLockRetry(10);
constexpr std::string_view kReadyWord = "READY ";
constexpr std::size_t kReadyLineBytesMax = 512;
constexpr const char* kSocketName = "forebayd.sock";
constexpr std::string_view kUnixScheme = "unix:";
constexpr std::size_t kDigitsOfConfig = 9;  // "-" and eight digits

// Opens the directory of the socket, and makes it where it is missing. One that others can write to
// is refused: they could put a socket of theirs into it.
Result<UniqueFd> OpenDirectory(const std::string& path) {  // made where missing
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error::FromErrno(errno, "creating " + path);
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return Error::FromErrno(errno, "opening " + path);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return Error::FromErrno(errno, path);
  if (info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0) {
    return Error(ErrorCode::kPermissionDenied,
                 path + " must belong to this user and be closed to all others (mode 0700)");
  }
  return fd;
}

// An exclusive lock on a file that exists only while somebody holds or awaits it.
class StartLock {
 public:
  static Result<StartLock> Take(const std::string& directory, Deadline deadline) {
    for (;;) {
      FOREBAY_ASSIGN(UniqueFd opened, OpenDirectory(directory));
      // The file is opened beneath the directory that was checked, whatever the path leads to by
      // now.
      UniqueFd file(::openat(opened.get(), kLockName,
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
      // ENOENT: a daemon that ended has just removed the directory.
      if (!file.valid() && errno != ENOENT) {
        return Error::FromErrno(errno, "opening the lock of " + directory);
      }
      if (file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
        // The former holder may have removed the file between our open and our lock.
        if (StillNamed(opened, file)) {
          return StartLock(std::move(opened), std::move(file), directory);
        }
      } else if (file.valid() && errno != EWOULDBLOCK && errno != EINTR) {
        return Error::FromErrno(errno, "locking " + directory);
      }
      // The lock is tried again and again instead of waited for, because flock has no deadline.
      if (steady_clock::now() + kLockRetry >= deadline) {
        return Error(ErrorCode::kDeadlineExceeded,
                     "another process is still starting this job's daemon in " + directory);
      }
      std::this_thread::sleep_for(kLockRetry);
    }
  }
  StartLock(StartLock&&) noexcept = default;
  ~StartLock() {
    if (!file_.valid()) return;
    // Removed while the lock is held. A process that has the file open and gets the lock then finds
    // by StillNamed that its file has no name any more, and opens a new one.
    ::unlinkat(directory_.get(), kLockName, 0);
    // Succeeds where no daemon was started; a running one keeps its directory.
    ::rmdir(path_.c_str());
  }

 private:
  static constexpr const char* kLockName = "client.lock";
  StartLock(UniqueFd directory, UniqueFd file, std::string path)
      : directory_(std::move(directory)), file_(std::move(file)), path_(std::move(path)) {}

  static bool StillNamed(const UniqueFd& directory, const UniqueFd& file) {
    struct stat named = {};
    struct stat opened = {};
    return ::fstat(file.get(), &opened) == 0 &&
           ::fstatat(directory.get(), kLockName, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
  }

  UniqueFd directory_;
  UniqueFd file_;
  std::string path_;
};

// Starts the daemon with the write end of a pipe as its --ready-fd.
Result<pid_t> Spawn(const std::string& socket_path, const std::string& job,
                    const EmbeddedOptions& options, const UniqueFd& ready) {
  // The daemon inherits nothing but the three standard descriptors and this one.
  constexpr int kReadyFd = 3;
  const std::string binary = options.binary.empty() ? DaemonProgram() : options.binary;
  std::vector<std::string> words = {binary,
                                    "--config",
                                    options.config,
                                    "--socket",
                                    socket_path,
                                    "--exit-when-idle-s",
                                    kIdleExitSeconds,
                                    "--ready-fd",
                                    std::to_string(kReadyFd)};
  // The client may have the job's name from its options, where the daemon does not look.
  words.emplace_back("--set");
  words.push_back("daemon.job_id=" + job);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  // posix_spawn, not fork: the program has threads (gRPC's, torch's), and often gigabytes of memory
  // whose page tables fork would copy. Where `ready` is descriptor 3 already, the action below
  // still clears its close-on-exec flag.
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, ready.get(), kReadyFd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kReadyFd + 1);
  // A session of its own: Ctrl-C ends the job's processes first, the daemon follows them.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, binary.c_str(), &actions, &attributes,
                                    arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return Error(failed == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                 "starting '" + binary + "': " + std::strerror(failed) +
                     "; set ClientOptions::embedded_daemon, or FOREBAY_ADDRESS to a running one",
                 failed);
  }
  return pid;
}

// Reads the daemon's "READY unix:/path" line.
Status AwaitReady(const UniqueFd& pipe, Deadline deadline) {
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) {
      return Error(ErrorCode::kDeadlineExceeded, "the private forebayd did not become ready");
    }
    pollfd waited = {.fd = pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waited, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) <= 0) continue;
    std::array<char, 128> part;
    const ssize_t got = ::read(pipe.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    // The daemon has the only write end, so the end of the stream means that it has exited. It
    // writes its reason to standard error, which is this program's.
    if (got <= 0 || line.size() > kReadyLineBytesMax) {
      return Error(ErrorCode::kUnavailable,
                   "the private forebayd ended before it was ready; run it by hand with the same "
                   "configuration to see why");
    }
    line.append(part.data(), static_cast<std::size_t>(got));
  }
  if (!line.starts_with(kReadyWord)) {
    return Error(ErrorCode::kInternal, "the private forebayd's first words are not READY");
  }
  return {};
}

// Whether a daemon answers there, tried by a whole handshake.
bool Answers(const std::string& path, Deadline deadline) {
  const Deadline soon = steady_clock::now() + milliseconds(limits::kHandshakeDeadlineMs);
  // Without shared memory: no region is mapped for a look.
  return ShakeHands({.path = path, .shared_memory = false, .deadline = std::min(deadline, soon)})
      .has_value();
}

Status CheckJobId(const std::string& job_id) {
  // The id becomes part of a directory's name: no '/' and no leading '.' may lead elsewhere.
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '-' || c == '_' || c == '.';
  };
  if (job_id.size() <= 64 && std::all_of(job_id.begin(), job_id.end(), plain) &&
      !job_id.starts_with('.')) {
    return {};
  }
  return Error(ErrorCode::kInvalidArgument,
               "a job id has up to 64 letters, digits, '-', '_' and '.'; it names files");
}

}  // namespace

std::string CurrentJob() {
  const char* const chosen = std::getenv("FOREBAY_JOB_ID");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const std::vector<SchedulerJob> jobs = SchedulerJobs(std::getenv);
  return jobs.empty() ? "local" : jobs.front().id;
}

// Beside the running program first: an installation or a build tree then uses its own daemon, of
// the same version, whatever $PATH finds.
std::string DaemonProgram() {
  std::array<char, 4096> self;
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  if (length > 0 && static_cast<std::size_t>(length) < self.size()) {
    std::string beside(self.data(), static_cast<std::size_t>(length));
    beside.replace(beside.rfind('/') + 1, std::string::npos, "forebayd");
    if (::access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "forebayd";
}

std::string EmbeddedDirectory(const std::string& job_id, std::string_view config_text) {
  // The temporary folder is shared by all users, so that the name there has the user's id.
  // OpenDirectory checks the owner: a name proves nothing.
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string directory;
  if (runtime != nullptr && *runtime != '\0') {
    directory = std::string(runtime) + "/forebay-" + job_id;
  } else {
    std::error_code ignored;
    directory = std::filesystem::temp_directory_path(ignored).string();
    if (directory.empty()) directory = "/tmp";
    directory += "/forebay-" + std::to_string(::geteuid()) + "-" + job_id;
  }
  // 32 bits of the checksum keep the path short: a socket's address has room for 107 bytes. Where
  // two configurations had the same digits, Hello would refuse the second one.
  if (config_text.empty()) return directory;
  const std::uint64_t sum = Checksum(std::as_bytes(std::span(config_text)));
  std::array<char, 16> digits;
  std::snprintf(digits.data(), digits.size(), "-%08x", static_cast<unsigned>(sum));
  return directory + digits.data();
}

std::vector<std::string> AddressesOfJob(const std::string& job_id) {
  const std::filesystem::path base = EmbeddedDirectory(job_id);
  const std::string name = base.filename().string();
  std::vector<std::string> addresses;
  std::error_code error;
  // A folder that cannot be listed has no daemons: the caller then says how to name one.
  for (std::filesystem::directory_iterator entry(base.parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    // The digits are checked so that job "a" does not take the daemons of job "a-b" for its own.
    const bool is_of_job =
        found == name ||
        (found.size() == name.size() + kDigitsOfConfig && found.starts_with(name + "-") &&
         found.find_first_not_of("0123456789abcdef", name.size() + 1) == std::string::npos);
    if (!is_of_job) continue;
    std::error_code absent;
    const std::filesystem::path socket = entry->path() / kSocketName;
    if (std::filesystem::is_socket(socket, absent)) addresses.push_back("unix:" + socket.string());
  }
  std::ranges::sort(addresses);
  return addresses;
}

Result<std::string> ReadConfigText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(ErrorCode::kNotFound, "the configuration " + path + " cannot be opened");
  // One byte more than allowed, to tell a file of the greatest size from a larger one.
  std::string text(limits::kConfigFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > limits::kConfigFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "the configuration " + path + " exceeds kConfigFileBytesMax (" +
                     std::to_string(limits::kConfigFileBytesMax) + " bytes)");
  }
  return text;
}

std::vector<std::string> DaemonsOfJob(const std::string& job_id, Deadline deadline) {
  std::vector<std::string> addresses = AddressesOfJob(job_id);
  std::erase_if(addresses, [&](const std::string& address) {
    return !Answers(address.substr(kUnixScheme.size()), deadline);
  });
  return addresses;
}

Result<std::shared_ptr<EmbeddedDaemon>> EmbeddedDaemon::Join(const std::string& job,
                                                             Deadline deadline) {
  const std::vector<std::string> running = DaemonsOfJob(job, deadline);
  if (running.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "no daemon runs for this job and no configuration for a private one is given: "
                 "set FOREBAY_ADDRESS, or FOREBAY_CONFIG, or ClientOptions::embedded_config");
  }
  // Choosing one would decide which data sets the program sees, by chance.
  if (running.size() > 1) {
    std::string listed;
    for (const std::string& address : running) listed += (listed.empty() ? "" : ", ") + address;
    return Error(ErrorCode::kFailedPrecondition,
                 "several daemons run for this job, each with data sets of its own: set "
                 "FOREBAY_ADDRESS to one of " + listed);
  }
  std::shared_ptr<EmbeddedDaemon> daemon(new EmbeddedDaemon());
  daemon->address_ = running.front();
  return daemon;
}

Result<std::shared_ptr<EmbeddedDaemon>> EmbeddedDaemon::StartOrJoin(
    const EmbeddedOptions& options) {
  const std::string job = options.job_id.empty() ? CurrentJob() : options.job_id;
  FOREBAY_TRY(CheckJobId(job));
  if (options.config.empty()) return Join(job, options.deadline);
  std::string text = options.config_text;
  if (text.empty()) {
    FOREBAY_ASSIGN(text, ReadConfigText(options.config));
  }
  const std::string directory =
      options.directory.empty() ? EmbeddedDirectory(job, text) : options.directory;
  const std::string path = directory + "/" + kSocketName;
  std::shared_ptr<EmbeddedDaemon> daemon(new EmbeddedDaemon());
  daemon->address_ = std::string(kUnixScheme) + path;
  // Checks the length now, before the lock is taken and a daemon started that cannot be reached.
  FOREBAY_TRY(ParseUnixAddress(daemon->address_));

  // Held until the daemon is ready: whoever waits for the lock then finds a daemon that answers.
  FOREBAY_ASSIGN(const StartLock lock, StartLock::Take(directory, options.deadline));
  // A socket file may be left from a daemon that was killed, so only an answer counts.
  if (Answers(path, options.deadline)) return daemon;
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Error::FromErrno(errno, "pipe");
  const UniqueFd ready(ends[0]);
  UniqueFd theirs(ends[1]);
  FOREBAY_ASSIGN(daemon->pid_, Spawn(path, job, options, theirs));
  // With this end open here, the pipe would never report that the daemon has gone.
  theirs.Reset();
  FOREBAY_TRY(AwaitReady(ready, options.deadline));
  return daemon;
}

EmbeddedDaemon::~EmbeddedDaemon() {
  // The daemon ends by itself when its last client has gone; if it has ended already, no zombie
  // stays.
  if (pid_ > 0) ::waitpid(pid_, nullptr, WNOHANG);
}

}  // namespace forebay::internal
