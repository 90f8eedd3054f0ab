// Runs forebay-compress-train as a child process and reads its events, one JSON object per line,
// from a pipe that carries standard output and standard error. Lines that are no events are kept,
// because they are the error message where the program fails.
#include "client/cli/pack/model_training.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "proto/contract/unique_fd.h"

namespace forebay::cli {
namespace {

constexpr const char* kTrainerName = "forebay-compress-train";
// The trainer's exit code for a wrong command line, as all programs here have it.
constexpr int kUsageExit = 2;
constexpr std::size_t kErrorBytesMax = 4096;

// Lines of the program's output. A line that is longer than any event is dropped.
class LineReader {
 public:
  explicit LineReader(int file) : file_(file) {}

  // The next line without its end; nothing at the end of the output.
  std::optional<std::string> Next() {
    for (;;) {
      const std::size_t end = held_.find('\n');
      if (end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return line;
      }
      std::array<char, 4096> part;
      const ssize_t got = read(file_, part.data(), part.size());
      if (got < 0 && errno == EINTR) continue;
      // A last line without its end is left out: it may be a part of an event.
      if (got <= 0) return std::nullopt;
      held_.append(part.data(), static_cast<std::size_t>(got));
      // Bounds memory where a program writes without line ends.
      if (held_.size() > kErrorBytesMax * 16) held_.clear();
    }
  }

 private:
  const int file_;
  std::string held_;
};

struct Child {
  pid_t pid = -1;
  UniqueFd output;  // standard output and standard error
};

Result<Child> Start(const std::string& program, std::vector<std::string> words) {
  std::array<int, 2> out{};
  // Close-on-exec: the child gets the two copies made below, and no end that would keep the pipe
  // open.
  if (pipe2(out.data(), O_CLOEXEC) != 0) return Error::FromErrno(errno, "a pipe");
  Child child{.pid = -1, .output = UniqueFd(out[0])};
  // This end is closed when the function returns. If this process kept the writing end open, the
  // pipe would never end.
  const UniqueFd out_end(out[1]);
  words.insert(words.begin(), program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out_end.get(), STDOUT_FILENO);
  // Both in one pipe: with two, a child that fills the one which is not being read would hang.
  posix_spawn_file_actions_adddup2(&actions, out_end.get(), STDERR_FILENO);
  // posix_spawn and not fork: this process may have threads, whose locks a forked child would
  // inherit in whatever state they are.
  const int failed =
      posix_spawn(&child.pid, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error::FromErrno(failed, program + ": starting");
  return child;
}

Result<int> WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return Error::FromErrno(errno, "waiting for the trainer");
  }
  // As shells number a death by signal.
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Runs(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

TrainingOutcome OutcomeOf(const ParsedJson& done) {
  return {.model_bytes = done.Count("model_bytes"),
          .held_out_raw_bytes = done.Count("held_out_raw_bytes"),
          .dense_bytes = done.Count("dense_bytes"),
          .learned_bytes = done.Count("learned_bytes"),
          .macs_per_pixel = static_cast<std::uint32_t>(done.Count("macs_per_pixel"))};
}

}  // namespace

bool TrainingOutcome::Pays(std::uint64_t raw_bytes) const {
  // Without samples that the training did not see, the gain would be what it has learned by heart.
  if (held_out_raw_bytes == 0 || learned_bytes >= dense_bytes) return false;
  const double saved = static_cast<double>(dense_bytes - learned_bytes) /
                       static_cast<double>(held_out_raw_bytes) * static_cast<double>(raw_bytes);
  // The model is stored in the pack, so it has to save more than it takes.
  return saved > static_cast<double>(model_bytes);
}

double TrainingOutcome::gain() const {
  return learned_bytes == 0
             ? 0
             : static_cast<double>(dense_bytes) / static_cast<double>(learned_bytes) - 1;
}

Result<std::string> FindTrainer() {
  std::error_code failed;
  // The file that runs and not argv[0], which may be a name without a folder.
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    // Beside this program first, so that both are of one build.
    const std::string beside = (self.parent_path() / kTrainerName).string();
    if (Runs(beside)) return beside;
  }
  const char* const path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const std::string there = std::string(folders.substr(0, end)) + "/" + kTrainerName;
    // An empty entry of $PATH means the current folder; a program that lies there by chance is not
    // run.
    if (end > 0 && Runs(there)) return there;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return Error(ErrorCode::kNotFound,
               fmt::format("{} is neither beside this program nor in $PATH; it is built where "
                           "LibTorch is (apt-get install libtorch-dev), or give a trained model "
                           "with --model", kTrainerName));
}

Result<TrainingOutcome> RunTrainer(const std::string& trainer,
                                   const std::vector<std::string>& arguments,
                                   const std::function<void(const ParsedJson&)>& report) {
  std::vector<std::string> words = arguments;
  words.emplace_back("--json");
  FOREBAY_ASSIGN(Child child, Start(trainer, std::move(words)));
  std::optional<TrainingOutcome> outcome;
  std::string complaint;  // what is no event
  LineReader lines(child.output.get());
  // The output is read to its end, also after "done", because a child whose pipe nobody reads would
  // hang.
  while (const std::optional<std::string> line = lines.Next()) {
    const std::optional<ParsedJson> event = ParsedJson::Parse(*line);
    if (!event) {
      if (complaint.size() < kErrorBytesMax) complaint += (complaint.empty() ? "" : "; ") + *line;
      continue;
    }
    if (event->Text("event") == "done") {
      outcome = OutcomeOf(*event);
    } else {
      report(*event);
    }
  }
  FOREBAY_ASSIGN(const int code, WaitFor(child.pid));
  // A status of 0 without a result is a failure, too: the model may not be there.
  if (code != 0 || !outcome.has_value()) {
    return Error(code == kUsageExit ? ErrorCode::kInvalidArgument : ErrorCode::kInternal,
                 fmt::format("{}: exit status {}: {}", trainer, code, complaint));
  }
  return *outcome;
}

}  // namespace forebay::cli
