// The checks of `forebayd --doctor`. Each tries one thing on this node and reports what it finds.
// It may block for as long as a file system does, changes nothing that lasts, and needs no other
// check. doctor.cc lists them.
#pragma once

#include "server/daemon/config/config.h"
#include "server/daemon/daemon_paths.h"
#include "server/daemon/doctor/node_check.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"

namespace forebay::daemon {

// Whether io_uring can be used, as far as daemon.io_backend wants it.
void CheckIoUring(const Config& config, CheckReport& report);
// Whether tiers, slots and decoded chunks fit into the memory that this process may use, and
// whether the kernel provides the shared memory (memfds of the configured sizes, of which no page
// is touched).
void CheckMemory(const Config& config, CheckReport& report);
// Which huge pages the shared memory would get.
void CheckHugePages(const Config& config, CheckReport& report);
// Whether this process may open as many files as a daemon does.
void CheckOpenFiles(const Config& config, CheckReport& report);

// Whether a daemon can take part in a job of several nodes: this node's place, the address on which
// it listens, the limit of locked memory if MPI is used, and the directory or the list of hosts of
// nodes.rendezvous.
void CheckNodes(const Config& config, io::IoBackend& backend, const io::Clock& clock,
                CheckReport& report);

// Whether the daemon's socket can be made.
void CheckSocket(const DaemonPaths& paths, CheckReport& report);
// Whether the daemon can write to daemon.state_dir.
void CheckStateDirectory(const DaemonPaths& paths, io::IoBackend& backend, CheckReport& report);
// Space, O_DIRECT, syncs and the rates of the directory of the SSD tier, measured with a file of at
// most 256 MiB.
void CheckSsd(const Config& config, const DaemonPaths& paths, io::IoBackend& backend,
              const io::Clock& clock, CheckReport& report);
// Whether a data set's objects are found, fit its format and can be read; reads at most 32 MiB.
void CheckGfs(const Config& config, const stage::DatasetOptions& dataset, io::IoBackend& backend,
              const io::Clock& clock, CheckReport& report);

}  // namespace forebay::daemon
