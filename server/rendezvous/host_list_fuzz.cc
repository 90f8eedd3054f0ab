// Fuzz target: a list of hosts. What is accepted has an address with a port for every rank, and
// makes a list of entries.
#include <cstdint>
#include <string_view>

#include "proto/contract/limits.h"
#include "server/rendezvous/host_list_rendezvous.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = rendezvous::HostList::Parse(text, "hosts", 0);
  if (!list.has_value()) return 0;
  if (list->node_count() == 0 || list->node_count() > limits::kNodeCountMax) __builtin_trap();
  for (std::uint32_t rank = 0; rank < list->node_count(); ++rank) {
    const rendezvous::HostPort& address = list->address(NodeRank(rank));
    // Written and read again, an address stays the same.
    const auto again = rendezvous::ParseHostPort(address.Text());
    if (address.port == 0 || !again.has_value() || *again != address) __builtin_trap();
  }
  if (list->Entries({}).size() != list->node_count()) __builtin_trap();
  return 0;
}
