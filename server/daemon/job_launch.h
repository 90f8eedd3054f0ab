// FindJobLaunch: what the launcher of this daemon says about the job, and the means by which the
// daemons of the job find each other. Reads the environment; starts nothing but, for the key
// nodes.rendezvous = "pmix", the connection to the PMIx server.
#pragma once

#include <memory>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/io/clock.h"
#include "server/rendezvous/launch_environment.h"
#include "server/rendezvous/pmix_rendezvous.h"
#include "server/rendezvous/rendezvous.h"

namespace forebay::daemon {

struct JobLaunch {
  rendezvous::RendezvousChoice choice;  // nodes.rendezvous
  // The job alone if `choice` is kNone or kJoin: then it does not matter where the daemon was
  // started.
  rendezvous::Launch launch;
  std::unique_ptr<rendezvous::PmixRendezvous> pmix;  // null, but for kPmix
};

// Errors: those of ParseRendezvous, PmixRendezvous::Connect, FindLaunch and FindJob.
Result<JobLaunch> FindJobLaunch(const Config& config, const io::Clock& clock);

}  // namespace forebay::daemon
