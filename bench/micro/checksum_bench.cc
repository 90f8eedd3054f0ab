// Checksum with identity: what each sample read from the SSD tier or a peer costs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/checksum.h"

namespace forebay {
namespace {

void BM_Checksum(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  ChecksumIdentity identity{.dataset = 1, .object = 2, .offset = 0, .length = bytes.size()};
  for (auto _ : state) {
    ++identity.offset;
    benchmark::DoNotOptimize(Checksum(identity, bytes));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// An extent, in pieces as reads complete.
void BM_ChecksumStream(benchmark::State& state) {
  const std::vector<std::byte> bytes(std::size_t{32} << 20, std::byte{0x5A});
  const auto piece_bytes = static_cast<std::size_t>(state.range(0));
  const ChecksumIdentity identity{.dataset = 1, .object = 2, .offset = 0, .length = bytes.size()};
  ChecksumStream stream(identity);
  for (auto _ : state) {
    stream.Reset(identity);
    for (std::size_t done = 0; done < bytes.size(); done += piece_bytes) {
      stream.Update(std::span(bytes).subspan(done, std::min(piece_bytes, bytes.size() - done)));
    }
    benchmark::DoNotOptimize(stream.Finish());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

// A small field, a 4 KiB sample, MLPerf's resnet50 sample, an extent.
BENCHMARK(BM_Checksum)->Arg(1)->Arg(784)->Arg(4096)->Arg(114'660)->Arg(32 << 20);
BENCHMARK(BM_ChecksumStream)->Arg(4096)->Arg(1 << 20);

}  // namespace
}  // namespace forebay
