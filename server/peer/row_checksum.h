// The checksum that travels with a row: the sender takes it of the bytes that it sends, the
// receiver of the memory that it has filled.
#pragma once

#include <cstdint>
#include <span>

#include "proto/contract/checksum.h"
#include "proto/contract/ids.h"
#include "server/fetch/row_source.h"

namespace forebay::peer {

// The identity of a row of `bytes` bytes. `dataset` is the hash of the data set's name. The nodes
// have compared the fingerprints of their catalogs, so sample, field and chunk name the row.
inline ChecksumIdentity RowIdentity(std::uint64_t dataset, const fetch::Row& row,
                                    std::uint64_t bytes) {
  return {.dataset = dataset,
          .object = row.sample.value(),
          .offset = (std::uint64_t{row.chunk} << 32) | row.field.value(),
          .length = bytes};
}

// `runs` are the bytes of the row, in order.
inline std::uint64_t RowChecksum(const ChecksumIdentity& identity,
                                 std::span<const std::span<const std::byte>> runs) {
  if (runs.size() == 1) return Checksum(identity, runs.front());
  ChecksumStream stream(identity);
  for (const std::span<const std::byte> run : runs) stream.Update(run);
  return stream.Finish();
}

}  // namespace forebay::peer
