// The control of the scaling row: arithmetic on a cached block and a copy per piece, with nothing
// shared between threads. The gain of two threads here is the most that the machine allows. A codec
// that gains less than its control shares something that it should not, and a machine on which the
// control gains nothing says nothing about codecs.
#include <array>
#include <cstring>
#include <utility>

#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kWords = 2048;  // 16 KiB
// About 1 ms of arithmetic per MiB copied: the balance of a codec at 1 GB/s. A quarter of it for
// one at 4 GB/s, for which memory counts four times as much.
constexpr int kPasses = 1200;
constexpr int kFastPasses = kPasses / 4;

template <int passes>
class ControlCodec : public PieceCodec {
 public:
  Result<std::vector<std::byte>> Encode(const PieceShape& /*shape*/,
                                        std::span<const std::byte> raw) override {
    return std::vector<std::byte>(raw.begin(), raw.end());
  }

  Status Decode(const PieceShape& /*shape*/, std::span<const std::byte> coded,
                std::span<std::byte> out) override {
    for (int pass = 0; pass < passes; ++pass) {
      // Each word depends on its value in the pass before, so the compiler cannot drop passes;
      // within a pass the words are independent, as lanes of a codec are.
      for (std::uint64_t& word : words_) word = (word ^ (word >> 7)) + 0x9E3779B97F4A7C15U;
    }
    if (words_[0] == 1) return Error(ErrorCode::kInternal, "control");  // keeps the work alive
    // Copied like the output of a decoder, so that memory is written at the same rate.
    std::memcpy(out.data(), coded.data(), out.size());
    return {};
  }

 private:
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace

std::unique_ptr<Peer> MakeControlPeer() {
  return MakePiecewisePeer({.name = "control",
                            .settings = "arithmetic on 16 KiB, then memcpy of 1 MiB",
                            .piece_bytes = kPieceBytes,
                            .make_codec = AlwaysCodec<ControlCodec<kPasses>>()});
}

std::unique_ptr<Peer> MakeFastControlPeer() {
  return MakePiecewisePeer({.name = "control_fast",
                            .settings = "a quarter of the arithmetic, then memcpy of 1 MiB",
                            .piece_bytes = kPieceBytes,
                            .make_codec = AlwaysCodec<ControlCodec<kFastPasses>>()});
}

}  // namespace forebay::bench
