// Only names, types and help texts: values are checked where they are used, by the table of keys.
#include "server/daemon/config/daemon_arguments.h"

#include <CLI/CLI.hpp>

#include "server/daemon/version.h"

namespace forebay::daemon {

void DefineArguments(CLI::App& app, DaemonArguments& arguments) {
  app.name("forebayd");
  app.description("Forebay's daemon: stages data sets from the global file system to this node's "
                  "memory and SSD, and streams minibatches to clients.");
  app.set_version_flag("-V,--version", std::string("forebayd ") + kVersion);
  app.add_option("--config", arguments.config_path, "TOML file (docs/configuration.md)")
      // Reports a wrong path as a usage error, with CLI11's own message.
      ->check(CLI::ExistingFile);
  app.add_option("--set", arguments.settings, "Overrides a key of the file; repeatable")
      ->type_name("KEY=VALUE");
  // Some keys have options of their own, because launchers set them for every daemon.
  app.add_option("--socket", arguments.socket, "The same as --set daemon.socket=PATH")
      ->type_name("PATH");
  app.add_option("--exit-when-idle-s", arguments.exit_when_idle_s,
                 "The same as --set daemon.exit_when_idle_s=N")
      ->type_name("N");
  app.add_option("--job", arguments.job, "The same as --set daemon.job_id=ID")->type_name("ID");
  // No keys, because a configuration file is the same on all nodes.
  app.add_option("--node-rank", arguments.node_rank,
                 "This node's rank in a job of several nodes, from 0 (nodes.rendezvous); needed "
                 "only where no launcher says it")
      ->type_name("N");
  app.add_option("--node-count", arguments.node_count, "The number of nodes of the job; likewise")
      ->type_name("N");
  app.add_option("--ready-fd", arguments.ready_fd,
                 "File descriptor that gets the line 'READY unix:PATH' once clients may connect, "
                 "and with it the line 'OTHER-DAEMONS N' where N daemons of other nodes serve them "
                 "when this one is gone");
  app.add_flag("--check", arguments.check,
               "Check the configuration, report whether the tiers hold its data sets and which "
               "capacity would, and exit; looks at names, sizes and headers for at most 10 s");
  CLI::Option* doctor = app.add_flag(
      "--doctor", arguments.doctor,
      "Try on this node what a job of this configuration needs (GFS, SSD, memory, huge pages, "
      "io_uring, limits, directories), print what was measured and each remedy, and exit within "
      "about a minute; leaves nothing behind");
  app.add_flag("--json", arguments.json, "With --doctor: print JSON, one object per line")
      ->needs(doctor);
  app.add_flag("--config-reference", arguments.config_reference,
               "Print the reference of all keys and exit");
}

}  // namespace forebay::daemon
