// The environment and the scheduler's file are read here, because rendezvous has pure functions of
// them, which tests call with environments of all launchers.
#include "server/daemon/job_launch.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/limits.h"
#include "server/daemon/config/small_file.h"
#include "server/daemon/job_secret.h"

namespace forebay::daemon {
namespace {

rendezvous::Environment ReadEnvironment() {
  rendezvous::Environment environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    // It says nothing about the launch, and is not to be copied.
    if (text.substr(0, equals) == kSecretVariable) continue;
    // A broken launcher may set two variables of one name. The first one counts, as in getenv.
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace

Result<JobLaunch> FindJobLaunch(const Config& config, const io::Clock& clock) {
  JobLaunch found;
  const auto choice = rendezvous::ParseRendezvous(config.nodes_rendezvous);
  if (!choice.has_value()) return choice.error().WithContext("nodes.rendezvous");
  found.choice = *choice;
  const rendezvous::Environment environment = ReadEnvironment();
  rendezvous::LaunchSources sources = {.environment = environment,
                                       .node_rank = config.node_rank,
                                       .node_count = config.node_count,
                                       .job = config.job_id};
  // A node that joins a running job was started by another launch, which says nothing about it.
  const bool is_alone = found.choice.kind == rendezvous::RendezvousKind::kNone;
  if (is_alone || found.choice.kind == rendezvous::RendezvousKind::kJoin) {
    FOREBAY_ASSIGN(found.launch.job, rendezvous::FindJob(sources));
    return found;
  }
  if (found.choice.kind == rendezvous::RendezvousKind::kPmix) {
    FOREBAY_ASSIGN(found.pmix, rendezvous::PmixRendezvous::Connect(clock));
    sources.pmix = found.pmix->task();
  }
  const std::string node_file = rendezvous::NodeFilePath(environment);
  if (!node_file.empty()) {
    // The file lies on the first host alone under some schedulers; others have to say how many
    // nodes there are.
    auto text = ReadTextFile(node_file, limits::kNodeFileBytesMax, "kNodeFileBytesMax");
    if (text.has_value()) sources.node_file = std::move(*text);
  }
  FOREBAY_ASSIGN(found.launch, rendezvous::FindLaunch(sources));
  return found;
}

}  // namespace forebay::daemon
