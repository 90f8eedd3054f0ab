// All contenders by name, in one table, so that the harness, --list and the error for a wrong name
// agree. The video codecs and the delta peers get the group of pictures that Forebay's chunks have:
// with another one, the comparison would be between lengths of groups and not between codecs.
#include "bench/codec/peer_table.h"

#include <utility>

namespace forebay::bench {
namespace {

constexpr std::uint32_t kGop = 8;
constexpr std::string_view kForebay = "forebay_";
constexpr std::string_view kPlanes = "planes_";

// Functions and not objects: a peer is made only when it is asked for, so a library that is not
// used is not started.
struct Entry {
  std::string_view name;
  std::unique_ptr<Peer> (*make)();
};

constexpr Entry kEntries[] = {
    {"zstd_3", [] { return MakeZstdPeer(3); }},
    {"zstd_9", [] { return MakeZstdPeer(9); }},
    {"zstd_19", [] { return MakeZstdPeer(19); }},
    {"delta_zstd_3", [] { return MakeDeltaZstdPeer(3, kGop); }},
    {"delta_zstd_9", [] { return MakeDeltaZstdPeer(9, kGop); }},
    {"delta_zstd_3_2mib", [] { return MakeDeltaZstdPeer(3, 0); }},
    {"blosc_lz4", [] { return MakeBloscPeer(); }},
    {"libaec", [] { return MakeAecPeer(); }},
    {"jpeg_ls", [] { return MakeJpegLsPeer(); }},
    {"x264_medium", [] { return MakeX264Peer("medium", kGop); }},
    {"x264_ultrafast", [] { return MakeX264Peer("ultrafast", kGop); }},
    {"ffv1_golomb", [] { return MakeFfv1Peer(false, kGop); }},
    {"ffv1_range", [] { return MakeFfv1Peer(true, kGop); }},
    {"png", [] { return MakePngPeer(); }},
    {"tezip_style", [] { return MakeTezipPeer(kGop); }},
    {"control", [] { return MakeControlPeer(); }},
    {"control_fast", [] { return MakeFastControlPeer(); }},
};

}  // namespace

std::vector<std::string> PeerNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  // Ours are made by name and not listed, because they also take options of the command line.
  for (const char* const profile : {"fast", "balanced", "dense", "learned", "auto"}) {
    names.push_back(std::string(kForebay) + profile);
    names.push_back(std::string(kPlanes) + profile);
  }
  return names;
}

// A peer whose library refuses the options is an error of its own in the report; the others still
// run.
Result<std::unique_ptr<Peer>> MakePeer(std::string_view name, const ForebayOptions& options) {
  if (name.starts_with(kForebay)) {
    ForebayOptions named = options;
    named.profile = name.substr(kForebay.size());
    return MakeForebayPeer(named);
  }
  if (name.starts_with(kPlanes)) {
    ForebayOptions named = options;
    named.profile = name.substr(kPlanes.size());
    return MakePlanesPeer(named);
  }
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.make();
  }
  std::string known;
  for (const std::string& each : PeerNames()) known += " " + each;
  return Error(ErrorCode::kNotFound, "no peer " + std::string(name) + "; there are:" + known);
}

}  // namespace forebay::bench
