// forebay_codec_bench: ratio and speed of codecs on one array, memory to memory, in one process and
// with one clock. Prints one line of JSON, with every time and not only a median, so that the
// harness can judge the spread. Exit status: 0 (a contender that failed has an "error" in the
// report), 1 the array cannot be read, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/codec/codec_rounds.h"
#include "bench/codec/peer_table.h"

namespace forebay::bench {
namespace {

// The defaults are those of RoundOptions and ForebayOptions, so the program and the harness cannot
// disagree about them.
struct Options {
  std::filesystem::path data;
  std::string set;
  std::vector<std::string> peers;
  std::uint32_t frames = 0;
  std::filesystem::path dump;
  bool warm = false;
  bool list = false;
  ForebayOptions forebay;
  RoundOptions rounds;
};

nlohmann::json ToJson(const Contender& contender, std::size_t raw_bytes) {
  nlohmann::json json = {{"name", contender.name}, {"settings", contender.settings}};
  if (contender.error) {
    json["error"] = contender.error->message();
    json["code"] = ErrorCodeName(contender.error->code());
    return json;
  }
  json["coded_bytes"] = contender.coded_bytes;
  // Raw bytes over all bytes that a reader needs, index and checksums included.
  json["ratio"] = static_cast<double>(raw_bytes) / static_cast<double>(contender.coded_bytes);
  json["encode_s"] = contender.encode_s;
  for (const auto& [threads, seconds] : contender.decode_s) {
    json["decode_s"][std::to_string(threads)] = seconds;
    json["decode_cpu_s"][std::to_string(threads)] = contender.decode_cpu_s.at(threads);
  }
  json["frame_s"] = contender.frame_s;
  return json;
}

// Checked by bound_check.py, which is no part of this program: the judge of a bound must not share
// code with the codec.
Status Dump(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) return Error(ErrorCode::kUnavailable, path.string() + ": cannot be written");
  return {};
}

Status Run(const Options& options) {
  FOREBAY_ASSIGN(const CodecArray array, LoadArray(options.data, options.set, options.frames));
  nlohmann::json report = {{"set", array.info.name},
                           {"dtype", array.info.dtype},
                           {"shape", array.info.shape},
                           {"raw_bytes", array.bytes.size()},
                           {"cold", options.rounds.cold},
                           {"isa", options.forebay.isa.empty() ? "best" : options.forebay.isa},
                           {"contenders", nlohmann::json::array()}};
  std::vector<std::unique_ptr<Peer>> peers;
  // A peer that cannot be made is reported and does not stop the others: the harness counts a
  // missing peer as a failure of the row.
  for (const std::string& name : options.peers) {
    auto peer = MakePeer(name, options.forebay);
    if (peer.has_value()) {
      peers.push_back(std::move(*peer));
    } else {
      Contender absent;
      absent.name = name;
      absent.error = peer.error();
      report["contenders"].push_back(ToJson(absent, array.bytes.size()));
    }
  }
  for (const Contender& contender : RunRounds(array, peers, options.rounds)) {
    report["contenders"].push_back(ToJson(contender, array.bytes.size()));
    // Only lossy contenders keep what they decoded.
    if (!options.dump.empty() && !contender.error && !contender.decoded.empty()) {
      FOREBAY_TRY(Dump(options.dump, contender.decoded));
    }
  }
  std::printf("%s\n", report.dump().c_str());
  return {};
}

int Main(int argument_count, char** arguments) {
  Options options;
  CLI::App app("Ratio and speed of codecs on one array, memory to memory");
  app.add_option("--data", options.data, "folder of prepare_sets.py");
  app.add_option("--set", options.set, "name of the array");
  app.add_option("--peer", options.peers, "contenders; --list names them");
  app.add_option("--frames", options.frames, "only the first frames; 0: all");
  app.add_option("--rounds", options.rounds.rounds, "interleaved decodes of each");
  app.add_option("--encode-rounds", options.rounds.encode_rounds, "encodes of each");
  app.add_option("--threads", options.rounds.threads, "decode with each of these thread counts");
  app.add_option("--frame-draws", options.rounds.frame_draws, "random frames decoded alone");
  app.add_option("--seed", options.rounds.seed, "of the random frames");
  app.add_flag("--warm", options.warm, "do not walk over the caches before each decode");
  app.add_option("--isa", options.forebay.isa, "scalar, avx2 or avx512 for the planes contenders");
  app.add_option("--gop", options.forebay.gop, "of Forebay's codec");
  app.add_option("--bound", options.forebay.absolute_bound,
                 "absolute error bound of Forebay's codec; 0: lossless");
  app.add_option("--dump", options.dump, "what a lossy contender decoded");
  app.add_flag("--list", options.list, "prints the names of all contenders");
  CLI11_PARSE(app, argument_count, arguments);
  if (options.list) {
    for (const std::string& name : PeerNames()) std::printf("%s\n", name.c_str());
    return 0;
  }
  // Not marked as required, because --list needs none of them.
  if (options.data.empty() || options.set.empty() || options.peers.empty() ||
      std::ranges::find(options.rounds.threads, 0U) != options.rounds.threads.end()) {
    std::fprintf(stderr, "forebay_codec_bench: needs --data, --set, --peer, threads above 0\n");
    return 2;
  }
  // Cold by default, because a decoder in a training program finds its input in memory and not in a
  // cache.
  options.rounds.cold = !options.warm;
  const Status status = Run(options);
  if (!status.has_value()) {
    std::fprintf(stderr, "forebay_codec_bench: %s\n", status.error().ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argument_count, char** arguments) {
  return forebay::bench::Main(argument_count, arguments);
}
