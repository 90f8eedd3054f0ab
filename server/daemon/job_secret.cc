// The file is opened before it is looked at, so that what was looked at is what is read. Its bytes
// are in the memory of this process only as long as the certificates are being made.
#include "server/daemon/job_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <openssl/crypto.h>

#include "proto/contract/unique_fd.h"

namespace forebay::daemon {
namespace {

constexpr const char* kKey = "peer.secret";
// A longer file is refused, because it was hardly made to be a secret.
constexpr std::size_t kSecretBytesMax = 4096;
// Certificates are valid from so long before now, because the clocks of the nodes differ.
constexpr std::int64_t kBeforeS = 86'400;
// They are valid for so long from now, and not to the end of the job, which may be extended. The
// secret ends with the job, and the key of a certificate ends with its daemon.
constexpr std::int64_t kLongestJobS = 366 * 86'400LL;

// Holds the text of a secret, and overwrites it in its destructor.
class Secret {
 public:
  Secret() = default;
  ~Secret() {
    // The memory behind the end of the text may hold bytes of a longer text.
    text_.resize(text_.capacity());
    OPENSSL_cleanse(text_.data(), text_.size());
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  std::string& text() { return text_; }

 private:
  std::string text_;
};

Error Refused(const std::string& path, std::string_view why) {
  return Error(ErrorCode::kFailedPrecondition, fmt::format("{}: {}: {}", kKey, path, why));
}

Status ReadSecretFile(const std::string& path, std::string& secret) {
  // O_NONBLOCK: a pipe in place of the file must not hold the daemon.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Error::FromErrno(errno, fmt::format("{}: {}: opening", kKey, path));
  struct stat found{};
  if (fstat(file.get(), &found) != 0) {
    return Error::FromErrno(errno, fmt::format("{}: {}: looking at it", kKey, path));
  }
  if (!S_ISREG(found.st_mode)) return Refused(path, "is no ordinary file");
  if (found.st_uid != geteuid()) return Refused(path, "belongs to another user");
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Refused(path, "other users may use it; run 'chmod 600' on it, and make a new secret if "
                         "somebody may have read it");
  }
  // Reserved at once: a string that grows would leave copies behind.
  secret.resize(kSecretBytesMax + 1);
  const ssize_t count = read(file.get(), secret.data(), secret.size());
  if (count < 0) return Error::FromErrno(errno, fmt::format("{}: {}: reading", kKey, path));
  secret.resize(static_cast<std::size_t>(count));
  if (secret.size() > kSecretBytesMax) {
    return Refused(path, fmt::format("has more than {} bytes", kSecretBytesMax));
  }
  // `forebay secret > FILE` ends the file with a newline.
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  return {};
}

struct NetworkFileSystem {
  std::uint64_t type;
  const char* name;
};

// File systems whose servers, and whose other clients, see what is written to a file. Most numbers
// are in <linux/magic.h>; those of file systems outside the kernel are in their sources.
constexpr std::array<NetworkFileSystem, 17> kNetworkFileSystems = {{
    {0x6969, "NFS"},
    {0x0bd00bd0, "Lustre"},
    {0x47504653, "GPFS"},
    {0x19830326, "BeeGFS"},
    {0x00c36400, "Ceph"},
    {0x517b, "SMB"},
    {0xff534d42, "CIFS"},
    {0xfe534d42, "SMB 2"},
    {0x5346414f, "AFS"},
    {0x6b414653, "AFS"},
    {0x73757245, "Coda"},
    {0x7461636f, "OCFS2"},
    {0x01161970, "GFS2"},
    {0xaad7aaea, "PanFS"},
    {0x20030528, "OrangeFS"},
    {0x01021997, "9P"},
    // sshfs, GlusterFS and others. Some are local, but the type does not say which.
    {0x65735546, "FUSE"},
}};

}  // namespace

std::uint64_t FileSystemType(const std::string& path) {
  struct statfs found{};
  // A file that cannot be looked at cannot be read either, and FindCertificates says why.
  if (statfs(path.c_str(), &found) != 0) return 0;
  // On some machines f_type is a signed number of 32 bits.
  return static_cast<std::uint32_t>(found.f_type);
}

std::string SecretFileRisk(
    const Config& config, const std::function<std::uint64_t(const std::string& path)>& type_of) {
  if (!config.peer_secret.starts_with(kSecretFile)) return {};
  const std::string path = config.peer_secret.substr(kSecretFile.size());
  const auto* const found =
      std::ranges::find(kNetworkFileSystems, type_of(path), &NetworkFileSystem::type);
  if (found == kNetworkFileSystems.end()) return {};
  return fmt::format(
      "{}: {} lies on a network file system ({}): the secret crosses the network when the file is "
      "read, may stay on servers and in backups, and root of any machine that mounts it can read "
      "it",
      kKey, path, found->name);
}

Result<peer::NodeCertificates> FindCertificates(const Config& config, const std::string& job,
                                                std::int64_t now_s) {
  Secret secret;
  std::string source = kSecretVariable;
  if (config.peer_secret.starts_with(kSecretFile)) {
    source = config.peer_secret.substr(kSecretFile.size());
    FOREBAY_TRY(ReadSecretFile(source, secret.text()));
  } else {
    const char* const value = std::getenv(kSecretVariable);
    if (value == nullptr || config.peer_secret == kNoSecret) return peer::NodeCertificates();
    secret.text() = value;
  }
  auto made = peer::MakeNodeCertificates(
      secret.text(), job, {.from_s = now_s - kBeforeS, .until_s = now_s + kLongestJobS});
  if (!made.has_value()) return made.error().WithContext(source);
  return made;
}

void ForgetSecretVariable() {
  // In place: the kernel shows the memory in which the process got it, and a core dump has it.
  char* const value = std::getenv(kSecretVariable);
  if (value != nullptr) OPENSSL_cleanse(value, std::string_view(value).size());
}

}  // namespace forebay::daemon
