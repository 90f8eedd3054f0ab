// NodeFile: the format of the files in a rendezvous directory, and of the entries that nodes
// exchange by PMIx. Its bytes come from a shared directory, so Decode trusts none of them.
//
// Layout, integers little-endian, strings with a varint length before them (ByteWriter::String):
//
//   magic "FBNODES1" (8) | version (4) | kind (4) | leader nonce (8) | node count (4) |
//   refusal (string) | number of entries (4) | entries | XXH3-64 of everything before (8)
//
//   entry: place | host | SSD directory | address host (strings) | port (2)
//   place: rank (4) | nonce (8) | capacity (8) | job | host | SSD directory (strings) |
//   number of agreed values (4) | name, value (strings) of each
//
// What belongs to a place never changes. The job of a node is that of its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::rendezvous {

enum class NodeFileKind : std::uint32_t {
  kAnswer = 1,    // one node's entry, in answer to the leader of the given nonce
  kOpen = 2,      // the leader's call for answers; its only entry is the leader's
  kComplete = 3,  // the entries of all nodes, sorted by rank
  kRefused = 4,   // the leader gave up; `refusal` says why
};

inline constexpr std::uint32_t kNodeFileVersion = 2;

struct NodeFile {
  NodeFileKind kind = NodeFileKind::kAnswer;
  std::uint64_t leader_nonce = 0;
  std::uint32_t node_count = 0;  // of the job, as the writer was told
  std::string refusal = {};      // kRefused only
  std::vector<NodeEntry> nodes = {};

  bool operator==(const NodeFile&) const = default;
};

std::vector<std::byte> Encode(const NodeFile& file);

// Accepts what Encode writes, and nothing longer. kDataLoss: the checksum, a length or a field is
// wrong; kFailedPrecondition: the file has another version, which the message names.
Result<NodeFile> Decode(std::span<const std::byte> bytes);

// Writes the file under `temporary` first, and then names it `path`: others find the old file or
// the new one, and never a part of it. Both lie in the same folder of `directory`.
// kResourceExhausted: it is larger than limits::kNodeFileBytesMax.
Status WriteNodeFile(io::Directory& directory, io::IoQueue& queue, const NodeFile& file,
                     const std::string& path, const std::string& temporary);
// Nullopt: there is no such file. Errors as of Decode.
Result<std::optional<NodeFile>> ReadNodeFile(io::Directory& directory, io::IoQueue& queue,
                                             const std::string& path);

// A hash of the places of a job, sorted by rank, and not of the nodes that are in them, which may
// change. Daemons that talk to each other compare it to find out whether they belong to the same
// group.
std::uint64_t NodeListDigest(std::span<const NodeEntry> nodes);

}  // namespace forebay::rendezvous
