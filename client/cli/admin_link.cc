#include "client/cli/admin_link.h"

namespace forebay::cli {

Result<AdminLink> ConnectAdmin(const CommandContext& context) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(context.connect_timeout_ms);
  AdminLink link;
  FOREBAY_ASSIGN(link.connection,
                 internal::DaemonConnection::Open({.address = context.address,
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
