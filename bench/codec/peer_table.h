// All peers of the codec suite, by name.
#pragma once

#include <string_view>

#include "bench/codec/piecewise_peer.h"

namespace forebay::bench {

std::unique_ptr<Peer> MakeZstdPeer(int level);
// Pieces of one GOP, or of the frames that 2 MiB hold where `gop` is 0.
std::unique_ptr<Peer> MakeDeltaZstdPeer(int level, std::uint32_t gop);
std::unique_ptr<Peer> MakeBloscPeer();      // LZ4, byte shuffle
std::unique_ptr<Peer> MakeAecPeer();        // CCSDS 121
std::unique_ptr<Peer> MakeJpegLsPeer();     // CharLS
std::unique_ptr<Peer> MakeX264Peer(const std::string& preset, std::uint32_t gop);
std::unique_ptr<Peer> MakeFfv1Peer(bool range_coder, std::uint32_t gop);
std::unique_ptr<Peer> MakePngPeer();
std::unique_ptr<Peer> MakeTezipPeer(std::uint32_t window);
// Arithmetic and copies, for the scaling row: in the proportions of a codec of 1 GB/s, or of 4.
std::unique_ptr<Peer> MakeControlPeer();
std::unique_ptr<Peer> MakeFastControlPeer();

// How Forebay's codec is to be run.
struct ForebayOptions {
  std::string profile = "dense";  // fast, balanced, dense, learned, auto
  std::string isa;                // empty: what the machine has; or scalar, avx2, avx512
  std::uint32_t gop = 8;
  double absolute_bound = 0;      // > 0: lossy
};
Result<std::unique_ptr<Peer>> MakeForebayPeer(const ForebayOptions& options);
// The plane codecs alone: no stages, no container, no checksums of their own.
Result<std::unique_ptr<Peer>> MakePlanesPeer(const ForebayOptions& options);

std::vector<std::string> PeerNames();
// `forebay_PROFILE`, `planes_PROFILE` or one of the names above. NOT_FOUND names all there are.
Result<std::unique_ptr<Peer>> MakePeer(std::string_view name, const ForebayOptions& options);

}  // namespace forebay::bench
