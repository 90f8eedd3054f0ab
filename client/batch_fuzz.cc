// Fuzzes what a daemon can put into a batch, and the chunks that follow it. The first byte
// chooses the schema and the size of the one region; the rest is a StreamReply.
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client/batch_decoder.h"
#include "client/inline_assembly.h"
#include "client/region_map.h"
#include "client/stream_schema.h"
#include "proto/contract/check.h"
#include "proto/contract/wire_layout.h"

namespace forebay::internal {
namespace {

constexpr std::uint64_t kRegionBytes = 1 << 16;

const RegionMap& Regions() {
  static const std::unique_ptr<RegionMap> regions = [] {
    auto map = std::make_unique<RegionMap>();
    const UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    FOREBAY_CHECK(::ftruncate(fd.get(), kRegionBytes) == 0);
    FOREBAY_CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    RegionEntry entry;
    entry.bytes = kRegionBytes;
    FOREBAY_CHECK(map->Add(entry, fd).has_value());
    return map;
  }();
  return *regions;
}

StreamSchema MakeSchema(std::uint8_t choice) {
  StreamSchema schema;
  const auto add = [&](FieldSpec spec, std::uint64_t bytes) {
    schema.fields.push_back(std::move(spec));
    schema.sample_bytes.push_back(bytes);
  };
  if ((choice & 1) != 0) add({.name = "image", .dtype = Dtype::kU8, .shape = {16}}, 16);
  if ((choice & 2) != 0) add({.name = "text", .shape = {}}, 0);
  if ((choice & 4) != 0) {
    add({.name = "label", .dtype = Dtype::kI64, .source = FieldSource::kConstant, .shape = {}}, 0);
  }
  return schema;
}

// Touches every byte that the decoder vouches for.
void ReadAll(const Batch::State& state) {
  volatile std::byte sink{};
  for (const auto span : state.spans) {
    if (!span.empty()) sink = span.front() ^ span.back();
  }
  for (const Batch::State::Field& field : state.fields) {
    for (std::uint32_t i = 0; i < state.sample_count; ++i) (void)state.SpansOf(field, i);
  }
  (void)sink;
}

void DecodeReply(std::span<const std::uint8_t> input) {
  const StreamSchema schema = MakeSchema(input[0]);
  v1::StreamReply reply;
  if (!reply.ParseFromArray(input.data() + 1, static_cast<int>(input.size() - 1))) return;
  InlineAssembly assembly(4);
  for (v1::Batch& batch : *reply.mutable_batches()) {
    auto state = std::make_unique<Batch::State>();
    if (batch.inline_bytes() != 0) {
      (void)assembly.Begin(batch, std::move(state)).has_value();
    } else if (DecodeBatch(batch, {.schema = schema, .regions = Regions()}, *state)) {
      ReadAll(*state);
    }
  }
  // The one chunk of a reply stands for a whole series of them.
  for (int i = 0; i < 4 && reply.has_chunk(); ++i) {
    auto complete = assembly.Add(reply.chunk());
    if (!complete) return;
    if (*complete && DecodeBatch((*complete)->message,
                                 {.schema = schema, .regions = Regions()}, *(*complete)->state)) {
      ReadAll(*(*complete)->state);
    }
    reply.mutable_chunk()->set_offset(reply.chunk().offset() + reply.chunk().data().size());
  }
}

}  // namespace
}  // namespace forebay::internal

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size != 0) forebay::internal::DecodeReply({data, size});
  return 0;
}
