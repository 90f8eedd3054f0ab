#include "client/cli/daemon/admin_link.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/connection/embedded_daemon.h"

namespace forebay::cli {
namespace {

constexpr std::chrono::seconds kLookAround(2);

Result<std::string> DefaultAddress() {
  const char* given = std::getenv("FOREBAY_ADDRESS");
  if (given != nullptr && *given != '\0') return std::string(given);
  const std::string job = internal::CurrentJob();
  std::vector<std::string> addresses = internal::AddressesOfJob(job);
  if (addresses.size() > 1) {
    addresses = internal::DaemonsOfJob(job, std::chrono::steady_clock::now() + kLookAround);
  }
  if (addresses.size() > 1) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("several daemons run for job '{}', each with data sets of its own; "
                             "choose one of {} by --address",
                             job, fmt::join(addresses, ", ")));
  }
  if (addresses.size() == 1) return addresses.front();
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

Result<AdminLink> ConnectAdmin(const CommandContext& context) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(context.connect_timeout_ms);
  FOREBAY_ASSIGN(const std::string address, DaemonAddress(context));
  AdminLink link;
  FOREBAY_ASSIGN(link.connection,
                 internal::DaemonConnection::Open({.address = address,
                                                   .job_id = {},
                                                   .client_name = "forebay-cli",
                                                   .shared_memory = false,
                                                   .deadline = deadline}));
  link.stub = v1::Admin::NewStub(link.connection->channel());
  return link;
}

void SetDeadline(grpc::ClientContext& call, std::chrono::milliseconds timeout) {
  call.set_deadline(std::chrono::system_clock::now() + timeout);
}

}  // namespace forebay::cli
