// Reads one byte at a time: what is read of a pipe beyond the line could not be put back, and the
// command would miss it.
#include "client/cli/launch/secret_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include <fmt/format.h>

namespace forebay::cli {
namespace {

// A longer line was hardly made to be a secret. The daemon refuses longer files, too.
constexpr std::size_t kSecretBytesMax = 4096;

Error RefusedSecret(int fd, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("--secret-fd {}: {}", fd, why));
}

}  // namespace

Result<std::string> ReadSecretLine(int fd) {
  std::string secret;
  // A string that grows leaves copies behind.
  secret.reserve(kSecretBytesMax);
  while (true) {
    char letter = 0;
    const ssize_t count = read(fd, &letter, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::FromErrno(errno, fmt::format("--secret-fd {}: reading", fd));
    if (count == 0 || letter == '\n') break;
    // The environment of the daemon would end there, and the secret would be a shorter one.
    if (letter == '\0') return RefusedSecret(fd, "the secret must not have a byte 0");
    if (secret.size() == kSecretBytesMax) {
      return RefusedSecret(fd, fmt::format("the line has more than {} bytes", kSecretBytesMax));
    }
    secret += letter;
  }
  if (secret.ends_with('\r')) secret.pop_back();
  if (secret.empty()) {
    return RefusedSecret(fd, "there is no secret; write the output of 'forebay secret' there");
  }
  if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return secret;
}

}  // namespace forebay::cli
