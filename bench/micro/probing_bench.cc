// Measures the failure detector of a job (server/probe) for jobs of several sizes: the messages
// that a node sends and their bytes, and how long it takes until all nodes know that some of them
// are gone. All nodes run in one process, with the code of the daemons, in a simulated network; the
// bytes are those of the messages that daemons send to each other, without headers of HTTP/2 and
// TCP. Prints a line of JSON for each size.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "server/peer/member_requests.h"
#include "server/probe/testing/simulated_nodes.h"

namespace forebay::probe {
namespace {

struct Options {
  std::vector<std::size_t> nodes = {16, 128, 1024, 16384};
  std::size_t killed = 1;
  std::int64_t seconds = 60;
  double loss = 0;
};

// Returns the bytes of a probe with this gossip. An answer has a few bytes less.
std::size_t BytesOf(const Gossip& gossip) {
  return peer::WriteRequest(
             peer::ProbeAsked{.identity = ~std::uint64_t{0}, .from = NodeRank(1), .gossip = gossip})
      .Length();
}

nlohmann::json Measure(const Options& options, std::size_t count) {
  const auto began = std::chrono::steady_clock::now();
  SimulatedNodes nodes({.nodes = count, .loss = options.loss});
  nodes.SetSize(BytesOf);
  nodes.RunFor(5'000);
  const std::size_t killed = std::min(options.killed, count / 2);
  for (std::size_t rank = 1; rank <= killed; ++rank) nodes.Stop(rank);
  // The last node to know of the last one that is gone.
  std::int64_t known_ms = -1;
  const auto is_known = [&] {
    for (std::size_t rank = 1; rank <= killed; ++rank) {
      if (nodes.TakenForDeadBy(rank) < count - killed) return false;
    }
    return true;
  };
  while (nodes.now_ms() < options.seconds * 1'000) {
    nodes.RunFor(500);
    if (known_ms < 0 && is_known()) known_ms = nodes.now_ms() - 5'000;
  }
  const double node_seconds =
      static_cast<double>(count - killed) * static_cast<double>(nodes.now_ms()) / 1e3;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return {{"nodes", count},
          {"killed", killed},
          {"messages", static_cast<double>(nodes.messages()) / node_seconds},
          {"bytes", static_cast<double>(nodes.bytes()) / node_seconds},
          {"known_s", known_ms < 0 ? -1.0 : static_cast<double>(known_ms) / 1e3},
          {"wrong_verdicts", nodes.wrong_verdicts().size()},
          {"seconds", took.count()}};
}

}  // namespace
}  // namespace forebay::probe

int main(int argc, char** argv) {
  forebay::probe::Options options;
  CLI::App app("probing_bench: the failure detector of jobs of several sizes");
  app.add_option("--nodes", options.nodes, "sizes of the jobs")->capture_default_str();
  app.add_option("--killed", options.killed, "nodes that are killed at once, after 5 s")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "simulated time")->capture_default_str();
  app.add_option("--loss", options.loss, "share of the messages that get lost")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const std::size_t count : options.nodes) {
    std::printf("%s\n", forebay::probe::Measure(options, count).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}
