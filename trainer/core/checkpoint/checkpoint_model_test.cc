// The model test of checkpoint folders: random sequences of runs in one folder (fresh ones, resumed
// from the newest, an earlier, the best and a set-aside checkpoint, with other settings, killed at
// any writing call, on full disks, on damaged checkpoints) against a list of what must be there and
// of what each run must begin from. Each run is a child process, so that a kill is one.
//
// FOREBAY_MODEL_SEED and FOREBAY_MODEL_SEQUENCES choose the sequences: a single one is run again by
// its seed and 1. With FOREBAY_SOAK_MINUTES the seeds go on from one that the clock gives, for so
// long. The calls of a run come in one order, so that a seed tells a sequence whole.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/mix64.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/testing/disk_faults.h"
#include "trainer/testing/run_fixture.h"
#include "trainer/testing/scripted_engine.h"
#include "trainer/testing/stored_checkpoint.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;
using testing::DiskFaultPlan;
using testing::DiskFaults;
using testing::RunFixture;
using testing::ScriptedEngine;

constexpr std::uint64_t kSeed = 28'000'000;
constexpr std::uint64_t kSequences = 300;
// A fork of a process with a sanitizer's shadow memory takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSequencesByDefault = 60;
#else
constexpr std::uint64_t kSequencesByDefault = kSequences;
#endif
constexpr std::uint64_t kDifferencesMax = 5;  // then it stops
constexpr std::uint64_t kStepsPerEpoch = 5;
constexpr std::uint32_t kBatch = 4;

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

// A value type: the same seed gives the same draws.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(Mix64(seed)) {}
  std::uint64_t Below(std::uint64_t bound) { return NextWord64(state_) % bound; }
  std::uint64_t Between(std::uint64_t first, std::uint64_t last) {
    return first + Below(last - first + 1);
  }
  bool Chance(std::uint64_t percent) { return Below(100) < percent; }

 private:
  std::uint64_t state_;
};

// What tells a checkpoint from all others: the run that wrote it, each of which has a number, and
// the step.
struct Stored {
  std::uint64_t writer = 0;
  std::uint64_t step = 0;
  std::vector<std::byte> state;  // its tensor
  bool damaged = false;
};

using Places = std::map<std::string, Stored>;  // by path below the folder

// What a child says of its run.
struct Told {
  bool ended = false;  // it was not killed
  bool succeeded = false;
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
  std::array<char, 256> from = {};  // path of the checkpoint; empty: afresh
  std::array<char, 512> error = {};
};

enum class Action : std::uint8_t { kFresh, kAuto, kEarlier, kBest, kAside, kDamage, kCount };
constexpr std::array<const char*, static_cast<std::size_t>(Action::kCount)> kActionNames = {
    "fresh", "auto", "earlier", "best", "aside", "damage"};

// The step of a checkpoint's path below the folder.
std::uint64_t StepOf(const std::string& path) {
  return std::strtoull(path.c_str() + path.rfind("step-") + 5, nullptr, 10);
}

bool IsBest(const std::string& path) { return path.starts_with("best/"); }
bool IsAside(const std::string& path) { return path.starts_with("aside-"); }

// One folder and the runs in it. Texts are differences from the model; "" is none.
class FolderModel {
 public:
  FolderModel(std::uint64_t seed, DiskFaults& faults, std::map<std::string, std::uint64_t>& met)
      : draw_(seed), faults_(faults), met_(met) {
    fixture_.training = testing::MakeBars(kStepsPerEpoch * kBatch, 1);
    fixture_.validation = testing::MakeBars(3, 2);
    fixture_.config.run.metrics_file.clear();
    fixture_.config.train.global_batch = kBatch;
    fixture_.config.train.warmup_steps = 0;
    told_ = static_cast<Told*>(::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    FOREBAY_CHECK(told_ != MAP_FAILED);
  }
  ~FolderModel() { ::munmap(told_, sizeof(Told)); }
  FolderModel(const FolderModel&) = delete;
  FolderModel& operator=(const FolderModel&) = delete;

  std::string Run() {
    const std::uint64_t actions = draw_.Between(3, 8);
    for (std::uint64_t at = 0; at < actions; ++at) {
      const auto action =
          static_cast<Action>(draw_.Below(static_cast<std::uint64_t>(Action::kCount)));
      const std::string difference = action == Action::kDamage ? Damage() : RunOnce(action);
      if (!difference.empty()) return history_ + "  => " + difference + "\n";
    }
    return "";
  }

 private:
  fs::path folder() const { return fixture_.config.checkpoint.checkpoint_dir; }
  void Met(const std::string& what) { ++met_[what]; }

  // All that the model has directly in the folder, or in its `best`.
  std::vector<std::string> Here(bool best) const {
    std::vector<std::string> paths;
    for (const auto& [path, stored] : places_) {
      if (!IsAside(path) && IsBest(path) == best) paths.push_back(path);
    }
    return paths;  // ascending steps: names have leading zeros
  }
  // With those that a crash left replaced: each run begins by giving them their names back.
  std::vector<std::string> Found(bool best) const {
    std::vector<std::string> paths = Here(best);
    for (const auto& [path, stored] : replaced_) {
      if (IsBest(path) == best) paths.push_back(path);
    }
    std::ranges::sort(paths);
    return paths;
  }
  bool IsDamaged(const std::string& path) const {
    const auto replaced = replaced_.find(path);
    return replaced != replaced_.end() ? replaced->second.damaged : places_.at(path).damaged;
  }
  // Of regular and best ones; of both of one step the regular one.
  std::optional<std::string> NewestIntact() const {
    std::optional<std::string> newest;
    for (const bool best : {false, true}) {
      for (const std::string& path : Found(best)) {
        if (IsDamaged(path)) continue;
        if (!newest || StepOf(path) > StepOf(*newest)) newest = path;
      }
    }
    return newest;
  }
  std::string OneOf(const std::vector<std::string>& paths) {
    return paths[draw_.Below(paths.size())];
  }

  // Cuts a shard or a manifest.
  std::string Damage() {
    const std::vector<std::string> here = Here(false);
    if (here.empty()) return "";
    const std::string path = OneOf(here);
    fs::resize_file(folder() / path / (draw_.Chance(50) ? ShardName(0) : "manifest.json"), 60);
    places_[path].damaged = true;
    history_ += fmt::format("  damage {}\n", path);
    Met("damage");
    return "";
  }

  // Sets what is to be resumed; false where there is nothing of that kind.
  bool Choose(Action action, CheckpointConfig& config) {
    config.resume.clear();
    config.new_run = false;
    expected_.reset();
    std::vector<std::string> paths;
    switch (action) {
      case Action::kFresh: config.new_run = draw_.Chance(50); return true;
      case Action::kAuto:
        config.resume = "auto";
        expected_ = NewestIntact();
        return true;
      case Action::kEarlier: paths = Found(false); break;
      case Action::kBest: paths = Found(true); break;
      default:
        for (const auto& [path, stored] : places_) {
          if (IsAside(path)) paths.push_back(path);
        }
    }
    if (paths.empty()) return false;
    expected_ = OneOf(paths);
    config.resume = folder() / *expected_;
    config.new_run = draw_.Chance(action == Action::kAside ? 60 : 10);
    return true;
  }

  bool EvaluationPending() const {
    if (!expected_) return false;
    const Result<Manifest> manifest = ReadManifest(folder() / *expected_);
    return manifest.has_value() && manifest->state.evaluation_pending;
  }

  // Whether the run must be refused before it has done anything.
  bool MustRefuse(const CheckpointConfig& config) const {
    const bool used = !Found(false).empty() || !Found(true).empty();
    if (config.resume.empty()) return used && !config.new_run;
    if (config.resume == "auto") return used && !expected_;
    if (IsDamaged(*expected_)) return true;
    return IsAside(*expected_) && used && !config.new_run;
  }

  std::string RunOnce(Action action) {
    TrainConfig& config = fixture_.config;
    if (!Choose(action, config.checkpoint)) return "";
    ++writer_;
    fixture_.run_number = writer_;
    config.data.delivery_log = fmt::format("writer-{}", writer_);  // into the manifest
    config.train.learning_rate = 0.001 * static_cast<double>(draw_.Between(1, 50));
    config.train.epochs = static_cast<std::int64_t>(draw_.Between(1, 5));
    config.checkpoint.checkpoint_every_steps = static_cast<std::int64_t>(draw_.Between(1, 4));
    config.checkpoint.checkpoints_kept = static_cast<std::int64_t>(draw_.Between(1, 3));
    config.checkpoint.keep_best = draw_.Chance(50);
    fixture_.stop_after_steps = draw_.Chance(60) ? draw_.Between(1, 7) : UINT64_MAX;
    // Stops at an epoch's end, and runs that have only its evaluation left, are rare otherwise.
    const std::uint64_t step = expected_ ? StepOf(*expected_) : 0;
    if (draw_.Chance(30)) fixture_.stop_after_steps = kStepsPerEpoch - step % kStepsPerEpoch;
    const bool makes_up = EvaluationPending() && draw_.Chance(80);
    if (makes_up) config.train.epochs = static_cast<std::int64_t>(step / kStepsPerEpoch);
    config.checkpoint.keep_best = config.checkpoint.keep_best && !makes_up;
    DiskFaultPlan plan;
    const std::uint64_t fault = draw_.Below(100);
    if (makes_up && fault < 70) {
      // Where one checkpoint is put in another's place.
      plan.kill_at = draw_.Between(15, 16);
      plan.kills_before = draw_.Chance(50);
    } else if (fault < 40) {
      plan.kill_at = draw_.Between(1, draw_.Chance(50) ? 12 : 80);
      plan.kills_before = draw_.Chance(50);
    } else if (fault < 55) {
      plan.full_from = draw_.Between(1, 60);
      plan.full_calls = draw_.Between(1, 20);
    }
    history_ += fmt::format(
        "  run {}: {}{}{}, epochs {}, every {}, kept {}{}, stop after {}{}\n", writer_,
        kActionNames[static_cast<std::size_t>(action)],
        expected_ ? " from " + *expected_ : std::string(),
        config.checkpoint.new_run ? " --new-run" : "", config.train.epochs,
        config.checkpoint.checkpoint_every_steps, config.checkpoint.checkpoints_kept,
        config.checkpoint.keep_best ? " and best" : "",
        static_cast<std::int64_t>(fixture_.stop_after_steps),
        plan.kill_at > 0     ? fmt::format(", killed at call {}{}", plan.kill_at,
                                           plan.kills_before ? " before it" : "")
        : plan.full_from > 0 ? fmt::format(", disk full at calls {} to {}", plan.full_from,
                                           plan.full_from + plan.full_calls - 1)
                             : "");
    const bool must_refuse = MustRefuse(config.checkpoint);
    RunChild(plan);
    Met(fmt::format("{}{}", kActionNames[static_cast<std::size_t>(action)],
                    must_refuse ? ", refused" : ""));
    return Judge(must_refuse);
  }

  void RunChild(const DiskFaultPlan& plan) {
    *told_ = {};
    const pid_t child = ::fork();
    FOREBAY_CHECK(child >= 0);
    if (child == 0) {
      faults_.Arm(plan);
      ScriptedEngine engine;
      engine.scores_state = true;
      const auto report = fixture_.Run(engine);
      Tell(report);
      ::_exit(0);
    }
    int status = 0;
    FOREBAY_CHECK(::waitpid(child, &status, 0) == child);
    crashed_ = WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
    if (!told_->ended) Met("killed");
    if (faults_.refused() > 0) Met("disk full");
  }

  void Tell(const Result<TrainingReport>& report) {
    constexpr std::string_view kFrom = " from ";
    for (const std::string& line : fixture_.printed) {
      if (!line.starts_with("resuming at ")) continue;
      const std::string path = line.substr(line.find(kFrom) + kFrom.size());
      std::strncpy(told_->from.data(), path.c_str(), told_->from.size() - 1);
    }
    told_->succeeded = report.has_value();
    if (report.has_value()) {
      told_->first_step = report->first_global_step;
      told_->last_step = report->first_global_step + report->steps;
    } else {
      std::strncpy(told_->error.data(), report.error().ToString().c_str(),
                   told_->error.size() - 1);
    }
    told_->ended = true;
  }

  std::string Judge(bool must_refuse) {
    if (crashed_) return "the run crashed";
    const bool on_full_disk = faults_.refused() > 0;
    if (must_refuse) {
      if (told_->ended && told_->succeeded) return "the run must be refused, and was not";
      if (std::string difference = JudgeRenames(); !difference.empty()) return difference;
      if (published_ + moved_ > 0) return "the run was refused and changed the folder";
      return CheckFolder();
    }
    if (told_->ended && !told_->succeeded && !on_full_disk) {
      return fmt::format("the run failed: {}", told_->error.data());
    }
    if (told_->ended && told_->succeeded) {
      const std::string from = told_->from.data();
      const std::string wanted = expected_ ? (folder() / *expected_).string() : "";
      if (from != wanted) return fmt::format("it began from '{}', not '{}'", from, wanted);
      const std::uint64_t step = expected_ ? StepOf(*expected_) : 0;
      if (told_->first_step != step) return fmt::format("it began at {}", told_->first_step);
    }
    if (std::string difference = JudgeRenames(); !difference.empty()) return difference;
    if (std::string difference = CheckFolder(); !difference.empty()) return difference;
    return told_->ended && told_->succeeded && !on_full_disk ? CheckEnd() : "";
  }

  // Goes through what the run renamed, each of which must be allowed where it happens.
  std::string JudgeRenames() {
    published_ = moved_ = 0;
    own_.clear();
    for (const auto& [from, to] : faults_.Renames()) {
      const std::string source = fs::path(from).lexically_relative(folder()).string();
      const std::string target = fs::path(to).lexically_relative(folder()).string();
      const std::string difference = JudgeRename(source, target);
      if (!difference.empty()) return fmt::format("{} -> {}: {}", source, target, difference);
    }
    return "";
  }

  std::string JudgeRename(const std::string& from, const std::string& to) {
    if (to.ends_with(".old.tmp")) return JudgeRemoval(from);
    if (to.ends_with(".replaced.tmp")) {
      replaced_[from] = places_.at(from);
      places_.erase(from);
      Met("replacement");
      return "";
    }
    if (from.ends_with(".replaced.tmp")) {
      const auto node = replaced_.extract(to);
      if (node.empty()) return "nothing was replaced";
      places_[to] = node.mapped();
      Met("replacement undone");
      return "";
    }
    if (IsAside(to)) return JudgeMove(from, to);
    return from == to + ".tmp" ? JudgePublishing(to) : "what is this for?";
  }

  // The newest of the run and those before stay.
  std::string JudgeRemoval(const std::string& path) {
    if (published_ == 0) return "removed before anything was published";
    const std::uint64_t kept =
        IsBest(path) ? 1 : static_cast<std::uint64_t>(fixture_.config.checkpoint.checkpoints_kept);
    std::uint64_t later = 0;
    for (const std::string& other : Here(IsBest(path))) later += other > path ? 1 : 0;
    if (later < kept) return fmt::format("removed, with {} later ones of {} kept", later, kept);
    places_.erase(path);
    Met("retention");
    return "";
  }

  std::string JudgeMove(const std::string& from, const std::string& to) {
    if (published_ > 0) return "moved aside behind the first checkpoint";
    const bool all = fixture_.config.checkpoint.new_run;
    if (!all && (!expected_ || StepOf(from) <= StepOf(*expected_))) return "moved without need";
    if (!IsBest(from)) {
      for (const std::string& other : Here(false)) {
        if (other < from && (all || StepOf(other) > StepOf(*expected_))) {
          return "moved before " + other;
        }
      }
    }
    if (places_.contains(to)) return "another lies there";
    places_[to] = places_.at(from);
    places_.erase(from);
    ++moved_;
    Met("moved aside");
    return "";
  }

  // Nothing of another history may be beside it any more.
  std::string JudgePublishing(const std::string& path) {
    const bool goes_on = expected_ && !fixture_.config.checkpoint.new_run && !IsAside(*expected_);
    for (const bool best : {false, true}) {
      for (const std::string& other : Here(best)) {
        const bool own = own_.contains(other);
        if (!own && (!goes_on || StepOf(other) > StepOf(*expected_))) {
          return other + " of another history lies beside it";
        }
      }
    }
    if (places_.contains(path)) return "over one that is there";
    own_[path] = true;
    Stored stored{.writer = writer_, .step = StepOf(path), .state = {}};
    // Read when the run is over; until then it may have been removed again.
    places_[path] = std::move(stored);
    replaced_.erase(path);
    ++published_;
    Met(IsBest(path) ? "best published" : "published");
    return "";
  }

  // What lies in the folder is what the model has, intact and as it was written.
  std::string CheckFolder() {
    for (auto& [path, stored] : places_) {
      if (stored.damaged) {
        if (!fs::exists(folder() / path)) return path + " is gone";
        continue;
      }
      if (std::string difference = CheckStored(folder() / path, stored); !difference.empty()) {
        return path + ": " + difference;
      }
    }
    for (auto& [path, stored] : replaced_) {
      const fs::path at = folder() / (path + ".replaced.tmp");
      if (stored.damaged) continue;
      if (std::string difference = CheckStored(at, stored); !difference.empty()) {
        return path + ", replaced: " + difference;
      }
    }
    if (!fs::exists(folder())) return "";
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      const std::string path = entry.path().lexically_relative(folder()).string();
      const std::string name = entry.path().filename().string();
      const bool named = name.starts_with("step-") && !name.ends_with(".tmp");
      if (named && !places_.contains(path)) return path + ": nobody published it";
    }
    return "";
  }

  std::string CheckStored(const fs::path& path, Stored& stored) {
    const auto whole = testing::ReadWhole(path);
    if (!whole.has_value()) return whole.error().ToString();
    if (whole->global_step != stored.step) return "of another step";
    const std::string writer = fmt::format("delivery_log = \"writer-{}\"", stored.writer);
    if (whole->configuration.find(writer) == std::string::npos) return "of another run";
    if (stored.state.empty()) stored.state = whole->tensors.at(0).bytes;
    return stored.state == whole->tensors.at(0).bytes ? "" : "has other bytes now";
  }

  // After a run that ended well: the newest are kept, no more, and the last one is of its end.
  std::string CheckEnd() {
    if (published_ == 0) return "";
    const std::vector<std::string> here = Here(false);
    const auto kept = static_cast<std::size_t>(fixture_.config.checkpoint.checkpoints_kept);
    if (here.size() > kept) return fmt::format("{} are kept, not {}", here.size(), kept);
    if (here.empty() || StepOf(here.back()) != told_->last_step) {
      return "the newest is not of the run's end";
    }
    if (Here(true).size() > 1) return "there are several best ones";
    Met("ended well");
    return "";
  }

  Draw draw_;
  DiskFaults& faults_;
  std::map<std::string, std::uint64_t>& met_;
  RunFixture fixture_;
  Told* told_ = nullptr;
  std::uint64_t writer_ = 0;
  Places places_;
  Places replaced_;  // by the name that another one is to have
  std::optional<std::string> expected_;  // what the run begins from
  std::map<std::string, bool> own_;      // published by the run
  std::uint64_t published_ = 0;
  std::uint64_t moved_ = 0;
  bool crashed_ = false;
  std::string history_;
};

TEST(CheckpointModelTest, EverySequenceIsAsTheModelSays) {
  // Syncing to a disk is not what is tried here.
  if (fs::exists("/dev/shm")) {
    ASSERT_EQ(::setenv("TMPDIR", "/dev/shm", 1), 0);
  }
  const std::chrono::minutes soak(FromEnvironment("FOREBAY_SOAK_MINUTES", 0));
  const auto begun = std::chrono::steady_clock::now();
  const auto by_clock =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  const std::uint64_t first =
      FromEnvironment("FOREBAY_MODEL_SEED", soak.count() > 0 ? by_clock : kSeed);
  const std::uint64_t sequences = FromEnvironment("FOREBAY_MODEL_SEQUENCES", kSequencesByDefault);
  std::cout << "seeds from " << first << " on\n";
  DiskFaults faults;
  std::map<std::string, std::uint64_t> met;
  std::uint64_t differences = 0;
  const auto goes_on = [&](std::uint64_t at) {
    if (differences == kDifferencesMax) return false;
    return at < sequences || std::chrono::steady_clock::now() - begun < soak;
  };
  for (std::uint64_t at = 0; goes_on(at); ++at) {
    const std::string difference = FolderModel(first + at, faults, met).Run();
    if (difference.empty()) continue;
    ++differences;
    ADD_FAILURE() << difference << "again: FOREBAY_MODEL_SEED=" << first + at
                  << " FOREBAY_MODEL_SEQUENCES=1";
  }
  for (const auto& [what, count] : met) std::cout << "  " << what << ": " << count << '\n';
  if (sequences < kSequences) return;
  for (const char* what :
       {"fresh", "fresh, refused", "auto", "auto, refused", "earlier", "earlier, refused", "best",
        "aside", "aside, refused", "damage", "killed", "disk full", "moved aside", "retention",
        "published", "best published", "replacement", "replacement undone", "ended well"}) {
    EXPECT_GT(met[what], 0U) << what << " did not happen";
  }
}

}  // namespace
}  // namespace forebay::train
