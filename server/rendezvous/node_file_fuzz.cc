// Fuzz target: a node file, as the fuzzer made it and with its checksum made right. What decodes
// is written and read again as the same, and its list is checked. In a list that passes, a node may
// stay in its place, and another one that takes it does not change the digest.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/contract/checksum.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous {
namespace {

// node_file.h: the checksum covers everything before it.
void Seal(std::vector<std::byte>& file) {
  if (file.size() < sizeof(std::uint64_t)) return;
  const std::size_t body_bytes = file.size() - sizeof(std::uint64_t);
  const std::uint64_t sum = Checksum(std::span(file).first(body_bytes));
  std::memcpy(file.data() + body_bytes, &sum, sizeof(sum));
}

void Check(std::span<const std::byte> bytes) {
  const auto file = Decode(bytes);
  if (!file.has_value()) return;
  const auto again = Decode(Encode(*file));
  if (!again.has_value() || *again != *file) __builtin_trap();
  // A list that passes has each rank once, so nothing is missing.
  const auto count = static_cast<std::uint32_t>(file->nodes.size());
  const bool passes = CheckNodeList(file->nodes, count).has_value();
  if (!passes || count == 0) return;
  if (NodeWeights(file->nodes).size() != count) __builtin_trap();
  std::vector<NodeEntry> nodes = file->nodes;
  std::ranges::sort(nodes, {}, &NodeEntry::rank);
  const std::uint64_t digest = NodeListDigest(nodes);
  NodeEntry& last = nodes.back();
  if (!last.is_free() && !CheckMayTake(nodes, last).has_value()) __builtin_trap();
  NodeEntry node = last;
  node.identity.host += '+';
  node.address = {.host = "fd00::ffff", .port = 1};
  const NodeEntry taken = TakePlace(last, node);
  if (!CheckRoom(last, node).has_value()) __builtin_trap();
  if (CheckMayTake(nodes, taken).has_value()) {
    last = taken;
    if (!CheckNodeList(nodes, count).has_value()) __builtin_trap();
  }
  if (NodeListDigest(nodes) != digest) __builtin_trap();
}

}  // namespace
}  // namespace forebay::rendezvous

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(raw.begin(), raw.end());
  forebay::rendezvous::Check(file);
  forebay::rendezvous::Seal(file);
  forebay::rendezvous::Check(file);
  return 0;
}
