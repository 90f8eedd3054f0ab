// What a daemon and a client on one node agree on besides gRPC: the handshake on the Unix socket
// that passes shared memory, and the structs that name places in this memory. All integers are
// little-endian. Every struct is sent as it lies in memory, and none has padding.
//
// Handshake (layout version 1), before gRPC takes the socket over:
//   client -> daemon  ClientHello
//   daemon -> client  ServerHello; then, if status is 0 and the client asked for shared memory,
//                     region_count RegionEntry records, in messages of at most
//                     limits::kFdsPerMessageMax entries; each message carries the memfds of its
//                     entries, in the same order, by SCM_RIGHTS.
// After the last entry the daemon hands its end to the gRPC server and the client its own to a
// gRPC channel. Clients are connections, never process ids.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "proto/contract/delivery.h"
#include "proto/contract/ids.h"

namespace forebay {

static_assert(std::endian::native == std::endian::little, "Forebay runs on little-endian hosts");

// Versions that Hello exchanges. The error for a mismatch names the versions of both sides.
inline constexpr std::uint32_t kProtocolVersion = 2;      // proto/forebay/v1: data.proto
inline constexpr std::uint32_t kPeerProtocolVersion = 9;  // proto/forebay/v1: peer.proto
inline constexpr std::uint32_t kLayoutVersion = 1;        // this file
inline constexpr std::uint32_t kCatalogVersion = 1;       // docs/catalog.md

inline constexpr std::uint64_t kClientHelloMagic = 0x31494C4359424546ULL;  // "FEBYCLI1"
inline constexpr std::uint64_t kServerHelloMagic = 0x3156525359424546ULL;  // "FEBYSRV1"

struct ClientHello {
  static constexpr std::uint32_t kWantsSharedMemory = 1;
  std::uint64_t magic = kClientHelloMagic;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint32_t flags = 0;
  std::uint64_t reserved[2] = {};
};

struct ServerHello {
  // Flag: if this daemon does not answer, other nodes serve the client (RemoteDaemons of
  // data.proto).
  static constexpr std::uint32_t kOthersServe = 1;
  std::uint64_t magic = kServerHelloMagic;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint32_t status = 0;         // 0, or an ErrorCode; then the daemon closes the connection
  std::uint64_t session = 0;        // names this connection in Hello
  std::uint64_t generation = 0;     // of the daemon process; differs after every start
  std::uint32_t region_count = 0;
  std::uint32_t flags = 0;
};

enum class RegionKind : std::uint32_t { kArena = 1, kSlots = 2 };

// One region of shared memory, readable by every client of the daemon.
struct RegionEntry {
  std::uint32_t id = 0;             // RegionId
  std::uint32_t kind = 0;           // RegionKind
  std::uint64_t bytes = 0;
  std::uint64_t page_bytes = 0;
  std::uint32_t numa_node = 0;
  std::uint32_t reserved = 0;
  std::uint64_t generation = 0;     // equals ServerHello::generation
};

// The region of a span whose bytes came inline, in messages after the batch.
inline constexpr std::uint32_t kInlineRegion = 0xFFFF'FFFF;
// The region of a span whose sample lacks the field.
inline constexpr std::uint32_t kAbsentRegion = 0xFFFF'FFFE;

// A range of bytes in a region.
struct WireSpan {
  std::uint32_t region = 0;
  std::uint32_t reserved = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

static_assert(sizeof(ClientHello) == 32 && std::is_trivially_copyable_v<ClientHello>);
static_assert(sizeof(ServerHello) == 40 && std::is_trivially_copyable_v<ServerHello>);
static_assert(sizeof(RegionEntry) == 40 && std::is_trivially_copyable_v<RegionEntry>);
static_assert(sizeof(WireSpan) == 24 && std::is_trivially_copyable_v<WireSpan>);

}  // namespace forebay
