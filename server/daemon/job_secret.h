// Finds the secret of a job, and makes the certificates of this node from it
// (peer/job_certificates.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/peer/job_certificates.h"

namespace forebay::daemon {

// The environment variable in which the launcher of the job hands the secret to all nodes.
inline constexpr const char* kSecretVariable = "FOREBAY_JOB_SECRET";

// Returns the certificates of this node, made of the secret that the key peer.secret names; none if
// it names none. `job` is the name of the job, `now_s` the time in seconds since the Unix epoch.
// Errors name key and file, and never tell the secret: kInvalidArgument (it is too short);
// kFailedPrecondition (others can read or replace the file, or it is no ordinary file); those of
// reading it.
Result<peer::NodeCertificates> FindCertificates(const Config& config, const std::string& job,
                                                std::int64_t now_s);

// Returns the type of the file system of a path (f_type of statfs(2)), or 0 if it is not known.
std::uint64_t FileSystemType(const std::string& path);

// Returns what is at risk if the file of the secret that peer.secret names lies on a file system
// that other machines mount; otherwise an empty text. `type_of` is a parameter for tests.
std::string SecretFileRisk(
    const Config& config,
    const std::function<std::uint64_t(const std::string& path)>& type_of = FileSystemType);
// What a warning of SecretFileRisk tells the user to do instead.
inline constexpr const char* kSecretFileRemedy =
    "hand the secret over in FOREBAY_JOB_SECRET or by 'forebay launch --secret-fd 0', or keep the "
    "file on a tmpfs of the node, such as /dev/shm (docs/security.md)";

// Overwrites the secret in the environment of this process, where FindCertificates then finds none
// that is long enough. Call it once the certificates are there.
void ForgetSecretVariable();

}  // namespace forebay::daemon
