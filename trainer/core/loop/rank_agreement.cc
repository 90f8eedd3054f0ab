// Errors travel as text in a broadcast from the lowest rank that has one. That rank is found by a
// reduction over flags, so the call costs one small reduction when all is well.
#include "trainer/core/loop/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace forebay::train {
namespace {

constexpr std::byte kNoError{0};

// The result of rank `root`, on every rank. All ranks send the same number of bytes, because they
// do not know the length of the text.
Result<std::string> Spread(const Result<std::string>& own, std::uint32_t root,
                           Communicator& communicator) {
  // The code, the text, and its end.
  std::vector<std::byte> packed(kAgreedTextBytesMax + 2);
  const std::string& text = own.has_value() ? *own : own.error().message();
  packed[0] = own.has_value() ? kNoError : static_cast<std::byte>(own.error().code());
  std::memcpy(packed.data() + 1, text.data(), std::min(text.size(), kAgreedTextBytesMax));
  FOREBAY_TRY(communicator.Broadcast(packed, root));
  const auto end = std::find(packed.begin() + 1, packed.end(), std::byte{0});
  std::string spread(reinterpret_cast<const char*>(packed.data() + 1),
                     static_cast<std::size_t>(end - packed.begin() - 1));
  if (packed[0] == kNoError) return spread;
  return Error(static_cast<ErrorCode>(packed[0]), std::move(spread));
}

}  // namespace

// The flags of all ranks first. If all are clear, that is all.
Status AgreeOn(const Status& own, Communicator& communicator) {
  std::vector<double> failed(communicator.size());
  failed[communicator.rank()] = own.has_value() ? 0 : 1;
  FOREBAY_TRY(communicator.AllReduceSum(std::span<double>(failed)));
  const auto first = std::ranges::find_if(failed, [](double vote) { return vote > 0; });
  if (first == failed.end()) return {};
  if (communicator.size() == 1) return own;
  // Of several errors that of the lowest rank is returned everywhere: all ranks have to return the
  // same one.
  const auto root = static_cast<std::uint32_t>(first - failed.begin());
  Result<std::string> mine = std::string();
  if (!own.has_value()) mine = own.error().WithContext(fmt::format("rank {}", root));
  const Result<std::string> agreed = Spread(mine, root, communicator);
  if (!agreed.has_value()) return agreed.error();
  return Error(ErrorCode::kInternal, "a rank failed and did not say why");
}

// An error of rank 0 travels like a text.
Result<std::string> FromRankZero(const Result<std::string>& own, Communicator& communicator) {
  if (communicator.size() == 1) return own;
  if (own.has_value() && own->size() > kAgreedTextBytesMax) {
    return Spread(Error(ErrorCode::kResourceExhausted,
                        fmt::format("a text of {} bytes, at most {} are shared among ranks "
                                    "(kAgreedTextBytesMax)",
                                    own->size(), kAgreedTextBytesMax)),
                  0, communicator);
  }
  return Spread(own, 0, communicator);
}

}  // namespace forebay::train
