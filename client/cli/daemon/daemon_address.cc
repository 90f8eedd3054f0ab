// Looks for the daemon's address. A job has one daemon as a rule; where several sockets lie in its
// place, those that no daemon answers at are left out.
#include "client/cli/daemon/daemon_address.h"

#include <chrono>
#include <cstdlib>
#include <vector>

#include "client/cli/command_context.h"
#include "client/connection/embedded_daemon.h"

namespace forebay::cli {
namespace {

constexpr std::chrono::seconds kLookAround(2);

// A variable that is set to nothing counts as not set, as in shells.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> DefaultAddress() {
  // A name that the user has set goes before anything that is found by looking.
  if (const std::string given = Variable("FOREBAY_ADDRESS"); !given.empty()) return given;
  const std::string job = internal::CurrentJob();
  std::vector<std::string> addresses = internal::AddressesOfJob(job);
  // Asking costs a connection for each, so a single socket is not asked: connecting to it will
  // tell.
  if (addresses.size() > 1) {
    addresses = internal::DaemonsOfJob(job, std::chrono::steady_clock::now() + kLookAround);
  }
  if (addresses.size() > 1) {
    std::string all;
    for (const std::string& address : addresses) all += (all.empty() ? "" : ", ") + address;
    return Error(ErrorCode::kInvalidArgument,
                 "several daemons run for job '" + job + "', each with data sets of its own; "
                 "choose one of " + all + " by --address");
  }
  if (addresses.size() == 1) return addresses.front();
  // No daemon was found. This is where one would be, so that the error of connecting names the
  // place.
  return "unix:" + internal::EmbeddedDirectory(job) + "/forebayd.sock";
}

}  // namespace

Result<std::string> DaemonAddress(const CommandContext& context) {
  std::string address = context.address;
  if (address.empty()) {
    FOREBAY_ASSIGN(address, DefaultAddress());
  }
  if (address.starts_with('/')) address.insert(0, "unix:");
  return address;
}

std::string DaemonConfig(const std::string& given) {
  return given.empty() ? Variable("FOREBAY_CONFIG") : given;
}

}  // namespace forebay::cli
