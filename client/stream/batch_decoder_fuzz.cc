// Fuzz target: a StreamReply, the schema that it opens with, its batches and their inline bytes.
// Every span of a batch that decodes lies in the memory it was given.
#include <cstdint>
#include <functional>
#include <memory>

#include "client/stream/batch_decoder.h"
#include "client/stream/inline_assembly.h"
#include "client/testing/sealed_memory.h"

namespace forebay::internal {
namespace {

// Two pages, so that a reference may lie across the border of a page.
constexpr std::uint64_t kRegionBytes = 8192;

// Region 0, the same for every input.
const RegionMap& Regions() {
  // Made once: mapping memory for every input would be most of the fuzzer's time.
  static const std::unique_ptr<const RegionMap> regions = [] {
    auto made = std::make_unique<RegionMap>();
    const UniqueFd memory = testing::MakeSealedMemory(kRegionBytes);
    if (!made->Add({.id = 0, .bytes = kRegionBytes}, memory).has_value()) __builtin_trap();
    return made;
  }();
  return *regions;
}

bool LiesIn(std::span<const std::byte> part, std::span<const std::byte> whole) {
  // Pointers into different objects may be compared by this only; `<=` has no defined answer for
  // them.
  const std::less_equal<const std::byte*> not_after;
  return not_after(whole.data(), part.data()) &&
         not_after(part.data() + part.size(), whole.data() + whole.size());
}

void Visit(const Batch::State& state) {
  const std::byte* region = Regions().Find({.region = 0, .offset = 0, .length = kRegionBytes});
  std::uint64_t bytes = 0;
  for (const Batch::State::Field& field : state.fields) {
    for (std::uint32_t i = 0; i < state.sample_count; ++i) {
      for (const std::span<const std::byte> span : state.SpansOf(field, i)) {
        if (!span.empty() && !LiesIn(span, {region, kRegionBytes}) &&
            !LiesIn(span, state.inline_payload)) {
          __builtin_trap();
        }
        bytes += span.size();
      }
      // `at` throws where the index is outside, which the fuzzer reports as a crash.
      if (field.has_constants) (void)state.constants.at(field.constants_begin + i);
    }
  }
  // The count that statistics and credits are made of must be that of the spans.
  if (bytes != state.payload_bytes) __builtin_trap();
}

void Decode(const v1::Batch& batch, const StreamSchema& schema, Batch::State& state) {
  const DecodeSources sources = {.schema = schema, .regions = Regions()};
  if (DecodeBatch(batch, sources, state).has_value()) Visit(state);
}

void Take(v1::StreamReply& reply) {
  const auto schema = ParseSchema(reply.opened().fields());
  if (!schema.has_value()) return;
  // Few, so that inputs reach the limit.
  constexpr std::size_t kBatchesMax = 4;
  InlineAssembly assembly(kBatchesMax);
  for (v1::Batch& batch : *reply.mutable_batches()) {
    auto state = std::make_unique<Batch::State>();
    if (batch.inline_bytes() == 0) {
      Decode(batch, *schema, *state);
    } else if (!assembly.Begin(batch, std::move(state)).has_value()) {
      return;
    }
  }
  if (!reply.has_chunk()) return;
  auto complete = assembly.Add(reply.chunk());
  if (complete.has_value() && complete->has_value()) {
    Decode((*complete)->message, *schema, *(*complete)->state);
  }
}

}  // namespace
}  // namespace forebay::internal

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forebay::v1::StreamReply reply;
  if (reply.ParseFromArray(data, static_cast<int>(size))) forebay::internal::Take(reply);
  return 0;
}
