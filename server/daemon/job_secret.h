// The secret of a job: where it comes from, and the certificates that this node makes of it
// (peer/job_certificates.h).
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/peer/job_certificates.h"

namespace forebay::daemon {

// By this variable the launcher of the job hands the secret to all nodes.
inline constexpr const char* kSecretVariable = "FOREBAY_JOB_SECRET";

// Returns the certificates of this node, made of the secret that the key peer.secret names; none if
// it names none. `job` is the name of the job, `now_s` the time in seconds since the Unix epoch.
// Errors name key and file, and never tell the secret: kInvalidArgument (it is too short);
// kFailedPrecondition (others can read or replace the file, or it is no ordinary file); those of
// reading it.
Result<peer::NodeCertificates> FindCertificates(const Config& config, const std::string& job,
                                                std::int64_t now_s);

// Overwrites the secret in the environment of this process, where FindCertificates then finds none
// that is long enough. Call it once the certificates are there.
void ForgetSecretVariable();

}  // namespace forebay::daemon
