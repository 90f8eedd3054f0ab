// Fuzz target: another node's answer to a request for a catalog part, as messages each behind its
// length (protobuf's delimited form). Whatever they are, no more is kept than they have, and what
// is taken for a part of the object is encoded again to the same bytes.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/checksum.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/format_driver.h"
#include "server/peer/part_receiver.h"
#include "server/peer/testing/delimited_messages.h"

namespace forebay::peer {
namespace {

// The seeds have this format and this object.
catalog::Format ScannedFormat() { return catalog::FindDriver("tar")->format; }
const catalog::PlannedObject kObject = {.path = "a.tar", .bytes = 12'288, .mtime_ns = 0};

std::vector<std::byte> BytesOf(const catalog::TableSpool& spool) {
  std::vector<std::byte> bytes(spool.size());
  FOREBAY_CHECK(spool.Read(0, bytes).has_value());
  return bytes;
}

void DecodeAndCompare(const catalog::TableSpool& spool) {
  const auto part = catalog::DecodePart(ScannedFormat(), kObject, {}, spool);
  if (!part.has_value()) return;
  catalog::MemorySink again;
  FOREBAY_CHECK(
      catalog::EncodePart(catalog::TablesOf(ScannedFormat(), **part), again).has_value());
  FOREBAY_CHECK(again.Release() == BytesOf(spool));
}

// Decodes what the node would get past the receiver with a right checksum.
void DecodeWithItsChecksum(const catalog::TableSpool& spool) {
  std::vector<std::byte> bytes = BytesOf(spool);
  if (bytes.size() < sizeof(std::uint64_t)) return;
  const std::size_t covered = bytes.size() - sizeof(std::uint64_t);
  ByteWriter sum;
  sum.Le(Checksum(std::span(bytes).first(covered)));
  std::ranges::copy(sum.bytes(), bytes.begin() + static_cast<std::ptrdiff_t>(covered));
  catalog::TableSpool summed({});
  FOREBAY_CHECK(summed.Append(bytes).has_value());
  DecodeAndCompare(summed);
}

void Receive(const std::vector<std::string>& messages) {
  catalog::TableSpool spool({});
  PartReceiver receiver(spool);
  std::size_t bytes = 0;
  for (const std::string& message : messages) {
    bytes += message.size();
    const grpc::Slice slice(message);
    if (!receiver.Take(grpc::ByteBuffer(&slice, 1)).has_value()) return;
  }
  const Result<stage::PartAnswer> answer = receiver.Finish();
  if (!answer.has_value()) return;
  FOREBAY_CHECK(answer->is_there == (spool.size() > 0) && spool.size() <= bytes);
  if (answer->failure) FOREBAY_CHECK(!answer->is_there && answer->failure->age_ns >= 0);
  DecodeAndCompare(spool);
  DecodeWithItsChecksum(spool);
}

}  // namespace
}  // namespace forebay::peer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  forebay::peer::Receive(forebay::peer::DelimitedMessages(data, size));
  return 0;
}
