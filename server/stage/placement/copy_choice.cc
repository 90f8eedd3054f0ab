// A hash of node and extent decides, so that a daemon that is started again chooses the same
// copies, which it finds on its SSD.
#include "server/stage/placement/copy_choice.h"

#include <algorithm>
#include <utility>

#include "proto/contract/mix64.h"

namespace forebay::stage {

std::vector<ExtentId> CopyOrder(const std::vector<bool>& remote, std::uint64_t node_identity) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> hashed;
  for (std::uint32_t i = 0; i < remote.size(); ++i) {
    if (remote[i]) hashed.emplace_back(Mix64(node_identity + Mix64(i + kGolden64)), i);
  }
  std::ranges::sort(hashed);
  std::vector<ExtentId> order;
  order.reserve(hashed.size());
  for (const auto& [hash, extent] : hashed) order.emplace_back(extent);
  return order;
}

}  // namespace forebay::stage
