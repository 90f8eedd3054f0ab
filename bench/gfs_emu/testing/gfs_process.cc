#include "bench/gfs_emu/testing/gfs_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "proto/contract/check.h"

namespace forebay::bench {

bool GfsProcess::IsPossible() { return access("/dev/fuse", R_OK | W_OK) == 0; }

GfsProcess::GfsProcess(const std::vector<std::string>& arguments) : mount_(arguments.at(1)) {
  std::array<int, 2> pipe_fds{};
  FOREBAY_CHECK(pipe2(pipe_fds.data(), O_CLOEXEC) == 0);
  output_ = UniqueFd(pipe_fds[0]);
  const UniqueFd write_end(pipe_fds[1]);
  std::vector<std::string> words = {GFS_EMU_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  FOREBAY_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a test that is killed leaves nothing mounted
    dup2(write_end.get(), STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

GfsProcess::~GfsProcess() { Stop(); }

bool GfsProcess::AwaitReady() {
  std::string line;
  char byte = 0;
  while (read(output_.get(), &byte, 1) == 1 && byte != '\n') line.push_back(byte);
  return line == "ready " + mount_.string();
}

int GfsProcess::Stop() {
  if (pid_ <= 0) return -1;
  kill(pid_, SIGTERM);
  return Wait();
}

int GfsProcess::Wait() {
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool GfsProcess::Control(const std::string& lines) const {
  const UniqueFd fd(open((mount_ / ".gfs_emu" / "control").c_str(), O_WRONLY | O_CLOEXEC));
  return write(fd.get(), lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
}

nlohmann::json GfsProcess::Counters() const {
  const std::filesystem::path path = mount_ / ".gfs_emu" / "counters.json";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = read(fd.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  const nlohmann::json counters = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (counters.is_discarded()) {
    std::perror(path.c_str());
    FOREBAY_CHECK(false && "gfs_emu does not show its counters");
  }
  return counters;
}

std::uint64_t GfsProcess::InjectedCount() const {
  return Counters()["total"]["faults"].get<std::uint64_t>();
}

bool IsMounted(const std::filesystem::path& folder) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string needle = " ";
  needle.append(folder.string()).append(" ");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(needle) != std::string::npos) return true;
  }
  return false;
}

}  // namespace forebay::bench
