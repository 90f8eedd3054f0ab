// `forebay secret`: prints a new secret for a job. A job script hands it to all nodes; one
// `forebay launch` cannot, because the launcher starts each of them by itself, on its own node.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "client/cli/command_context.h"
#include "client/cli/command_declaration.h"
#include "client/cli/commands.h"

namespace forebay::cli {
namespace {

// The key that is derived from the secret has as many bytes (server/peer/job_certificates.h).
constexpr std::size_t kRandomBytes = 32;

// Returns random bytes of the kernel as hexadecimal digits, which every shell and launcher hands on
// as they are.
Result<std::string> NewSecret() {
  std::array<std::uint8_t, kRandomBytes> bytes{};
  if (getentropy(bytes.data(), bytes.size()) != 0) {
    return Error::FromErrno(errno, "random bytes (getentropy)");
  }
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

void AddSecret(Command& program, CommandContext& context) {
  program
      .AddCommand("secret",
                  "Print a new secret for a job of several nodes (export "
                  "FOREBAY_JOB_SECRET=$(forebay secret)).")
      .OnRun([&context]() -> Status {
        FOREBAY_ASSIGN(const std::string secret, NewSecret());
        if (context.json) {
          context.PrintJson("secret", {{"secret", secret}});
        } else {
          context.out << secret << '\n';
        }
        return {};
      });
}

}  // namespace forebay::cli
