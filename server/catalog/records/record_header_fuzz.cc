// Fuzz target: IDX and .npy headers. A header that parses must fit the file exactly.
#include <cstdint>

#include "server/catalog/records/record_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::catalog;
  const HeaderInput input{
      .path = "f", .file_bytes = size, .start = std::as_bytes(std::span(data, size))};
  // The whole input is the file here, so sizes that a header claims can be compared with it.
  for (const auto& parsed : {ParseIdxHeader(input), ParseNpyHeader(input)}) {
    if (!parsed.has_value()) continue;
    if (parsed->record_bytes == 0 || parsed->sample_count == 0 || parsed->data_offset > size ||
        parsed->sample_count != (size - parsed->data_offset) / parsed->record_bytes) {
      __builtin_trap();
    }
  }
  return 0;
}
