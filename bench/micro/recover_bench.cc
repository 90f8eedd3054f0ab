// Recovery of packs without an end: time in proportion to the heads, however they overlap.
#include <cstdint>

#include <benchmark/benchmark.h>

#include "compress/decode/pack/pack_file.h"
#include "compress/encode/testing/pack_test_model.h"

namespace {

using forebay::compress::MemorySource;
using forebay::compress::OverlappingHeads;
using forebay::compress::PackFile;

// `range` chunks in each of two fields, from memory.
void BM_RecoverOverlappingHeads(benchmark::State& state) {
  const auto bytes = OverlappingHeads(static_cast<std::uint32_t>(state.range(0)));
  const auto source = MemorySource(bytes);
  for (auto _ : state) {
    const auto pack = PackFile::Recover(*source);
    if (!pack.has_value() || pack->samples() != 0) state.SkipWithError("not recovered");
    benchmark::DoNotOptimize(pack);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
  state.counters["MB"] = static_cast<double>(bytes.size()) / 1e6;
}
BENCHMARK(BM_RecoverOverlappingHeads)
    ->Arg(5'000)
    ->Arg(50'000)
    ->Arg(500'000)
    ->Arg(5'000'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
