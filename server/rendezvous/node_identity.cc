// The id is a checksum of the three texts, each with its length before it, so that no two triples
// give the same bytes.
#include "server/rendezvous/node_identity.h"

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/printable.h"

namespace forebay::rendezvous {

std::uint64_t NodeIdentity::Id() const {
  ByteWriter writer;
  // The first text tells this hash from others, such as those of data sets.
  for (const std::string_view text : {std::string_view("forebay node"), std::string_view(job),
                                      std::string_view(host), std::string_view(ssd_directory)}) {
    writer.String(text);
  }
  return Checksum(writer.bytes());
}

std::string NodeIdentity::Text() const {
  // Host and directory come from other nodes when their entries are shown.
  return PrintableLine(fmt::format("{}:{} (job {})", host,
                                   ssd_directory.empty() ? "no SSD" : ssd_directory, job));
}

}  // namespace forebay::rendezvous
