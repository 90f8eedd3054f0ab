// Derives the sizes of requests from the caps.
#include "server/daemon/gfs_caps.h"

#include <algorithm>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/dataset_config.h"

namespace forebay::daemon {
namespace {

// Smaller reads cost a GFS more than they save.
constexpr std::uint64_t kRequestBytesMin = 128 * limits::kKiB;
// A batch of sizes is as large as a node may ask the GFS for in this time. It is far below the
// deadline, because other batches may be served before it.
constexpr double kStatBatchSeconds = 10;
static_assert(kStatBatchSeconds * 4'000 < limits::kPeerStatDeadlineMs);

}  // namespace

Result<GfsCaps> GfsCaps::Of(const Config& config) {
  GfsCaps caps{.rates = {}, .requests = config.stage_job_requests};
  const auto bytes = ParseByteCount(config.stage_job_bytes_per_second, kCapBounds);
  if (!bytes.has_value()) return bytes.error().WithContext("stage.job_bytes_per_second");
  caps.rates[static_cast<std::size_t>(stage::Cap::kBytes)] = static_cast<double>(*bytes);
  caps.rates[static_cast<std::size_t>(stage::Cap::kOpens)] =
      static_cast<double>(config.stage_job_opens_per_second);
  return caps;
}

std::string GfsCaps::Text() const {
  if (!has_any()) return "none";
  return fmt::format("{:.0f} bytes/s, {:.0f} opens/s, {} requests (0: no cap)",
                     rates[static_cast<std::size_t>(stage::Cap::kBytes)],
                     rates[static_cast<std::size_t>(stage::Cap::kOpens)], requests);
}

std::uint64_t GfsCaps::RequestBytes(std::uint64_t request_bytes, std::uint32_t node_count) const {
  const double rate = rates[static_cast<std::size_t>(stage::Cap::kBytes)] / node_count;
  if (rate <= 0) return request_bytes;
  const auto saved = static_cast<std::uint64_t>(rate * stage::CapShare::kBurstSeconds);
  const std::uint64_t whole_pages =
      saved / limits::kIoAlignmentBytes * limits::kIoAlignmentBytes;
  return std::min(request_bytes, std::max(kRequestBytesMin, whole_pages));
}

std::size_t GfsCaps::StatBatchPaths(std::uint32_t node_count) const {
  const double rate = rates[static_cast<std::size_t>(stage::Cap::kOpens)] / node_count;
  if (rate <= 0) return limits::kStatPathsMax;
  return static_cast<std::size_t>(
      std::clamp(rate * kStatBatchSeconds, 1.0, static_cast<double>(limits::kStatPathsMax)));
}

Status GfsCaps::CheckNodeCount(std::size_t node_count) const {
  if (requests == 0 || requests >= node_count) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("stage.job_requests is {}, but the job has {} nodes, and each of them "
                           "needs one request: raise it to {} at least",
                           requests, node_count, node_count));
}

}  // namespace forebay::daemon
