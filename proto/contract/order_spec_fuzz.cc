// Fuzz target: OrderSpec. What parses is canonical, and its order maps positions into the data
// set and back.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "proto/contract/order.h"
#include "proto/contract/order_spec.h"

namespace forebay {
namespace {

void CheckOrder(const OrderSpec& spec, EpochId epoch) {
  const Order order(spec, epoch);
  for (const std::uint64_t p : {std::uint64_t{0}, spec.sample_count / 2, spec.sample_count - 1}) {
    const std::uint64_t index = order.Forward(Position(p));
    if (index >= spec.sample_count || order.Inverse(index) != Position(p)) __builtin_trap();
  }
}

}  // namespace
}  // namespace forebay

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto spec = OrderSpec::Parse(bytes);
  if (!spec.has_value()) return 0;
  if (!std::ranges::equal(spec->Encode(), bytes)) __builtin_trap();
  CheckOrder(*spec, EpochId(0));
  CheckOrder(*spec, EpochId(7));
  return 0;
}
