// Which daemon a command talks to, and with which configuration it starts one.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::cli {

struct CommandContext;

// The daemon's address as "unix:/path": the one given by --address, else $FOREBAY_ADDRESS, else
// that of this job's daemon, in its default place. kInvalidArgument where several daemons run for
// this job: the message names their addresses.
Result<std::string> DaemonAddress(const CommandContext& context);

// The configuration file of a daemon that a command starts: `given`, else $FOREBAY_CONFIG, else "".
std::string DaemonConfig(const std::string& given);

}  // namespace forebay::cli
