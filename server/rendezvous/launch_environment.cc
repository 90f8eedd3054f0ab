// Reads each source into a list of facts about the rank and a list of facts about the number of
// nodes. The facts of a list must agree. A source that does not apply leaves a remedy behind, which
// is shown if no other source gives the number.
#include "server/rendezvous/launch_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "proto/contract/scheduler_job.h"

namespace forebay::rendezvous {
namespace {

struct Bounds {
  std::uint32_t min;
  std::uint32_t max;
};
constexpr Bounds kRankBounds = {0, limits::kNodeCountMax - 1};
constexpr Bounds kCountBounds = {1, limits::kNodeCountMax};
constexpr Bounds kTaskBounds = {1, ~0U};  // tasks on a node: only whether there is one matters

// What the sources say. A fact keeps its source, because a message has to name it.
struct Findings {
  std::vector<LaunchFact> ranks;
  std::vector<LaunchFact> counts;
  std::optional<LaunchFact> allocation;
  std::string remedy;
};

// A variable that is set to nothing counts as not set, as in shells.
const std::string* Find(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

Result<LaunchFact> ParseFact(std::string_view source, std::string_view text, Bounds bounds) {
  LaunchFact fact{.source = std::string(source)};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fact.value);
  // The whole text must be a number: "4(x2)" or "3 " would otherwise be taken for another one.
  if (error != std::errc() || end != text.data() + text.size() || fact.value < bounds.min ||
      fact.value > bounds.max) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}={} is not a whole number from {} to {}", source, Quoted(text),
                             bounds.min, bounds.max));
  }
  return fact;
}

// Adds the fact if the variable is set.
Status AddVariable(std::vector<LaunchFact>& facts, const Environment& environment,
                   std::string_view name, Bounds bounds) {
  const std::string* text = Find(environment, name);
  if (text == nullptr) return {};
  FOREBAY_ASSIGN(LaunchFact fact, ParseFact(name, *text, bounds));
  facts.push_back(std::move(fact));
  return {};
}

Status ReadCommandLine(const LaunchSources& sources, Findings& findings) {
  if (!sources.node_rank.empty()) {
    FOREBAY_ASSIGN(LaunchFact rank, ParseFact("--node-rank", sources.node_rank, kRankBounds));
    findings.ranks.push_back(std::move(rank));
  }
  if (!sources.node_count.empty()) {
    FOREBAY_ASSIGN(LaunchFact count, ParseFact("--node-count", sources.node_count, kCountBounds));
    findings.counts.push_back(std::move(count));
  }
  return {};
}

// The number of tasks of the launch on this node, from the first source that knows it.
Result<std::optional<LaunchFact>> TasksOnThisNode(const LaunchSources& sources) {
  // The server knows; variables may be inherited from a launcher further out.
  if (sources.pmix) {
    return LaunchFact{sources.pmix->tasks_on_this_node, "the PMIx server's local size"};
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "PJM_PROC_BY_NODE"}) {
    const std::string* text = Find(sources.environment, name);
    if (text == nullptr) continue;
    FOREBAY_ASSIGN(LaunchFact fact, ParseFact(name, *text, kTaskBounds));
    return fact;
  }
  return std::nullopt;
}

bool IsUnderMpirun(const Environment& environment) {
  return Find(environment, "OMPI_COMM_WORLD_RANK") != nullptr;
}

// Sources that count tasks. Under srun, SLURM_NODEID counts nodes and is there, too.
Status ReadTasks(const LaunchSources& sources, Findings& findings) {
  const Environment& environment = sources.environment;
  const bool under_srun = Find(environment, "SLURM_STEP_NUM_NODES") != nullptr;
  const bool has_pmix = Find(environment, "PMIX_RANK") != nullptr || sources.pmix.has_value();
  if (!IsUnderMpirun(environment) && (under_srun || !has_pmix)) return {};
  FOREBAY_ASSIGN(const std::optional<LaunchFact> tasks, TasksOnThisNode(sources));
  // As under prterun, which sets no more than PMIX_RANK.
  if (!tasks) {
    findings.remedy =
        "PMIX_RANK is the rank of a task, and nothing says whether its node has others: give "
        "--node-rank and --node-count, or set nodes.rendezvous to \"pmix\"";
    return {};
  }
  // The rank of one of several tasks says nothing about the rank of their node.
  if (tasks->value != 1) {
    findings.remedy = fmt::format(
        "{}={}: the launcher started several tasks on this node, which has one daemon. Start one "
        "task per node (mpirun --map-by ppr:1:node), or give --node-rank and --node-count",
        tasks->source, tasks->value);
    return {};
  }
  FOREBAY_TRY(AddVariable(findings.ranks, environment, "OMPI_COMM_WORLD_RANK", kRankBounds));
  FOREBAY_TRY(AddVariable(findings.ranks, environment, "PMIX_RANK", kRankBounds));
  FOREBAY_TRY(AddVariable(findings.counts, environment, "OMPI_COMM_WORLD_SIZE", kCountBounds));
  // Compared with the variables: an inherited variable of another launch would differ.
  if (sources.pmix) {
    findings.ranks.push_back({sources.pmix->rank, "the PMIx server's rank"});
    findings.counts.push_back({sources.pmix->task_count, "the PMIx server's job size"});
  }
  return {};
}

Status ReadSlurm(const Environment& environment, Findings& findings) {
  if (IsUnderMpirun(environment)) return {};
  // srun sets it for its own step, and sbatch does not.
  if (Find(environment, "SLURM_STEP_NUM_NODES") != nullptr) {
    FOREBAY_TRY(AddVariable(findings.ranks, environment, "SLURM_NODEID", kRankBounds));
    return AddVariable(findings.counts, environment, "SLURM_STEP_NUM_NODES", kCountBounds);
  }
  if (Find(environment, "SLURM_JOB_ID") != nullptr && findings.remedy.empty()) {
    findings.remedy = "in a batch script of Slurm, start the daemons with "
                      "srun --ntasks-per-node=1 forebayd";
  }
  return {};
}

// The number of different hosts in a scheduler's file, which names a host once for each of its
// processes.
std::uint32_t CountHosts(std::string_view text) {
  std::set<std::string_view> hosts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) {
      line.remove_suffix(1);
    }
    if (!line.empty()) hosts.insert(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return static_cast<std::uint32_t>(hosts.size());
}

// The name of the variable that holds the path of the scheduler's file; empty: neither is set.
std::string_view NodeFileVariable(const Environment& environment) {
  for (const std::string_view name : {"PBS_NODEFILE", "PJM_O_NODEINF"}) {
    if (Find(environment, name) != nullptr) return name;
  }
  return {};
}

// The scheduler's file comes before PBS_NUM_NODES: Torque counts virtual nodes there, of which a
// host may have several.
Status ReadAllocation(const LaunchSources& sources, Findings& findings) {
  if (sources.node_file) {
    const std::uint32_t hosts = CountHosts(*sources.node_file);
    if (hosts > 0) {
      findings.allocation = LaunchFact{
          hosts, fmt::format("number of hosts in ${}", NodeFileVariable(sources.environment))};
      return {};
    }
  }
  for (const char* name : {"PBS_NUM_NODES", "PJM_NODE"}) {
    const std::string* text = Find(sources.environment, name);
    if (text == nullptr) continue;
    FOREBAY_ASSIGN(findings.allocation, ParseFact(name, *text, kCountBounds));
    return {};
  }
  return {};
}

Status ReadPbs(const Environment& environment, Findings& findings) {
  if (IsUnderMpirun(environment) || Find(environment, "PBS_NODENUM") == nullptr) return {};
  // A site sees this if it starts the daemons with pbsdsh: the file lies on the first host alone.
  if (findings.remedy.empty()) {
    findings.remedy = "PBS tells only the first node how many there are: pbsdsh -- forebayd "
                      "--node-count $(sort -u $PBS_NODEFILE | wc -l)";
  }
  return AddVariable(findings.ranks, environment, "PBS_NODENUM", kRankBounds);
}

// Grid Engine says to a task which job it belongs to, and nothing about its node. NHOSTS is the
// number of hosts in the job script, and 1 in a task on another host, so it is not read.
void ReadGridEngine(const Environment& environment, Findings& findings) {
  if (Find(environment, "SGE_TASK_ID") == nullptr || !findings.remedy.empty()) return;
  findings.remedy = "Grid Engine tells a task nothing about its node: number the hosts of "
                    "$PE_HOSTFILE in the job script, and give --node-rank and --node-count, or "
                    "start the daemons with mpirun";
}

std::string Shown(const LaunchFact& fact) { return fmt::format("{}={}", fact.source, fact.value); }

// Returns the fact on which all agree, or none if there are no facts. Each is compared with the
// first, which is the command line's if that says anything: a user sees it first.
Result<std::optional<LaunchFact>> Agreed(const std::vector<LaunchFact>& facts,
                                         std::string_view what) {
  if (facts.empty()) return std::nullopt;
  for (const LaunchFact& fact : facts) {
    if (fact.value == facts.front().value) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} and {} disagree about {}; leave out the option, or unset the "
                             "variable (env -u NAME forebayd ...), that is wrong",
                             Shown(facts.front()), Shown(fact), what));
  }
  return facts.front();
}

Error Unknown(std::string_view what, std::string_view option, const std::string& remedy) {
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("{} is unknown: neither {} nor a launcher (Open MPI, PMIx, srun, PBS, "
                           "PJM) says it{}{}",
                           what, option, remedy.empty() ? "" : "; ", remedy));
}

// The job's id becomes part of paths, whoever chose it.
Result<JobName> Checked(JobName job) {
  FOREBAY_TRY(CheckJobId(job.name, job.source));
  return job;
}

}  // namespace

Result<JobName> FindJob(const LaunchSources& sources) {
  if (!sources.job.empty()) return Checked({sources.job, "daemon.job_id (--job)"});
  if (const std::string* job = Find(sources.environment, "FOREBAY_JOB_ID")) {
    return Checked({*job, "FOREBAY_JOB_ID"});
  }
  const std::vector<SchedulerJob> jobs = SchedulerJobs([&sources](const char* name) {
    const std::string* value = Find(sources.environment, name);
    return value == nullptr ? nullptr : value->c_str();
  });
  if (jobs.empty()) return JobName{"local", "the default"};
  const SchedulerJob& first = jobs.front();
  for (const SchedulerJob& job : jobs) {
    if (job.id == first.id) continue;
    // A process that two schedulers claim: nothing says which of them will end it.
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}={} and {}={} disagree about the job; give --job", first.variable,
                             Quoted(first.id), job.variable, Quoted(job.id)));
  }
  return Checked({first.id, std::string(first.variable)});
}

Result<Launch> FindLaunch(const LaunchSources& sources) {
  FOREBAY_ASSIGN(JobName job, FindJob(sources));
  // In this order, which decides the remedy that is shown and the fact that is compared with.
  Findings findings;
  FOREBAY_TRY(ReadCommandLine(sources, findings));
  FOREBAY_TRY(ReadTasks(sources, findings));
  FOREBAY_TRY(ReadSlurm(sources.environment, findings));
  FOREBAY_TRY(ReadPbs(sources.environment, findings));
  ReadGridEngine(sources.environment, findings);
  FOREBAY_TRY(ReadAllocation(sources, findings));

  Launch launch{.job = std::move(job),
                .remedy = std::move(findings.remedy)};
  FOREBAY_ASSIGN(launch.rank, Agreed(findings.ranks, "this node's rank"));
  FOREBAY_ASSIGN(launch.node_count, Agreed(findings.counts, "the number of nodes"));
  if (!launch.node_count) launch.node_count = findings.allocation;
  // A launch may use a part of the allocation, but never more than it.
  if (findings.allocation && launch.node_count->value > findings.allocation->value) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} is more than the nodes of the allocation, {}",
                             Shown(*launch.node_count), Shown(*findings.allocation)));
  }
  if (launch.rank && launch.node_count && launch.rank->value >= launch.node_count->value) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{} is no rank of a job with {} nodes ({}): ranks count from 0",
                             Shown(*launch.rank), launch.node_count->value,
                             Shown(*launch.node_count)));
  }
  return launch;
}

Result<NodePlace> PlaceOf(const Launch& launch) {
  if (!launch.rank) return Unknown("this node's rank", "--node-rank", launch.remedy);
  if (!launch.node_count) return Unknown("the number of nodes", "--node-count", launch.remedy);
  return NodePlace{NodeRank(launch.rank->value), launch.node_count->value};
}

std::string NodeFilePath(const Environment& environment) {
  const std::string_view variable = NodeFileVariable(environment);
  return variable.empty() ? std::string() : *Find(environment, variable);
}

// The rules are those of a file's name that is visible and safe to print.
Status CheckJobId(std::string_view job, std::string_view source) {
  const bool is_plain = !job.empty() && job.size() <= limits::kJobIdBytesMax &&
                        job.front() != '.' && std::ranges::all_of(job, [](unsigned char c) {
                          return std::isgraph(c) != 0 && c != '/';
                        });
  if (is_plain) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{}: the job's id {} must be 1 to {} visible characters, without '/' "
                           "and not starting with '.'",
                           source, Quoted(job), limits::kJobIdBytesMax));
}

}  // namespace forebay::rendezvous
