// What a daemon that was killed has left in the directory of its socket, where nobody else removes
// it: the socket, its lock, and what it has kept for a daemon in its place.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "proto/contract/result.h"

namespace forebay::cli {

// Removes it, and then the directory if nothing else is in it. `socket` is the path of the socket,
// `daemons` are the processes that used it one after the other, all of which have ended. Does
// nothing unless the directory belongs to this user, its lock is that of one of these daemons, and
// no daemon holds it: another one may have taken their place. An error names the file that could
// not be removed.
Status RemoveFilesOfDead(const std::string& socket, std::span<const pid_t> daemons);

}  // namespace forebay::cli
