// The rate of a node is what this daemon has received from it, divided by the time during which
// requests to it were under way. So it says how fast the node supplies, and not how much was
// wanted.
#include "client/cli/daemon/nodes_table.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "forebay/v1/admin.pb.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

double BytesPerSecond(const v1::NodeStatus& node) {
  if (node.busy_ns() == 0) return 0;
  return static_cast<double>(node.received_bytes()) / (static_cast<double>(node.busy_ns()) / 1e9);
}

// A place in the table. Of a node that was asked for nothing, and of this node itself, no rate is
// known, so they come last.
auto PlaceOf(const v1::NodeStatus& node) {
  const bool has_rate = node.received_bytes() > 0;
  const int group = node.is_free() ? 3 : !node.answers() ? 0 : has_rate ? 1 : 2;
  return std::tuple(group, BytesPerSecond(node), node.rank());
}

// The millionths of the samples of a node's readers that other nodes have not supplied.
std::uint64_t LocalMillionths(const v1::NodeStatus& node) {
  // Both come from another daemon, so nothing is taken for granted.
  if (node.samples() == 0 || node.other_samples() > node.samples()) return 0;
  const std::uint64_t local = node.samples() - node.other_samples();
  return static_cast<std::uint64_t>(1e6 * static_cast<double>(local) /
                                    static_cast<double>(node.samples()));
}

double Percent(std::uint64_t millionths) { return static_cast<double>(millionths) / 1e4; }

// Returns the lines below the table: what is seldom there, or too long for a column.
std::string LinesOf(const v1::NodeStatus& node) {
  if (node.is_free()) {
    return fmt::format("place {} is free: a node can join the job there (docs/nodes.md)\n",
                       node.rank());
  }
  std::string text;
  if (node.is_unasked()) {
    text += fmt::format("node {} was not asked: {}\n", node.rank(), PrintableLine(node.error()));
  } else if (!node.answers()) {
    text += fmt::format("node {} does not answer: {}\n", node.rank(), PrintableLine(node.error()));
  }
  if (node.wrong_answers() > 0) {
    text += fmt::format("node {} has sent wrong bytes in {} answers: look at its memory and SSD\n",
                        node.rank(), HumanCount(node.wrong_answers()));
  }
  if (node.late_calls() > 0) {
    text += fmt::format("node {}: {} requests were late and went to other nodes (nodes.late_ms)\n",
                        node.rank(), HumanCount(node.late_calls()));
  }
  if (node.is_left_out()) {
    text += fmt::format("node {} is asked for nothing at present: the log says why\n",
                        node.rank());
  }
  if (node.is_leaving()) {
    text += fmt::format("node {} leaves the job: the others take over what it has\n", node.rank());
  }
  if (node.is_joining()) {
    text += fmt::format("node {} has joined the job, and takes over the part of its place\n",
                        node.rank());
  }
  if (node.is_yielding()) {
    text += fmt::format("node {}: its GFS is slow, so other nodes read in its place\n",
                        node.rank());
  }
  if (node.is_self() && node.samples() > 0) {
    text += fmt::format("samples that this node has not got from others: {:.2f} %; predicted for a "
                        "random order: {:.2f} %\n",
                        Percent(LocalMillionths(node)),
                        Percent(node.predicted_local_millionths()));
  }
  return text;
}

struct Protection {
  std::string_view value;  // of node_connections in admin.proto
  const char* text;
};

constexpr std::array<Protection, 4> kProtections = {{
    {"encrypted", "encrypted"},
    {"encrypted_but_mpi",
     "encrypted, except for bytes of samples, which go over MPI (peer.transport = \"mpi\")"},
    {"plaintext_on_loopback", "in plaintext, on loopback (no peer.secret)"},
    {"plaintext_allowed", "in plaintext (peer.allow_plaintext = true)"},
}};

}  // namespace

std::string NodeConnectionsLine(const std::string& protection) {
  if (protection.empty()) return {};
  const auto* const known = std::ranges::find(kProtections, protection, &Protection::value);
  // A newer daemon may have another value; its word is better than none.
  return fmt::format("connections between nodes: {}\n",
                     known == kProtections.end() ? PrintableLine(protection) : known->text);
}

std::string NodesTable(const v1::NodesReply& reply) {
  if (reply.nodes().empty()) {
    return "this daemon serves its node alone (key nodes.rendezvous)\n";
  }
  // Pointers, because the order of the reply is that of the JSON.
  std::vector<const v1::NodeStatus*> nodes;
  double weights = 0;
  for (const v1::NodeStatus& node : reply.nodes()) {
    nodes.push_back(&node);
    weights += node.weight();
  }
  // The slowest first: it is the one that holds a job up.
  std::ranges::stable_sort(nodes, {}, [](const v1::NodeStatus* node) { return PlaceOf(*node); });
  TextTable table({"RANK", "NODE", "ADDRESS", "SHARE", "TIERS USED", "OF", "GFS READ", "SAMPLES",
                   "OF OTHERS", "GFS WAITS", "RECEIVED", "BY MPI", "RATE", "FAILED", "ANSWER"});
  for (const v1::NodeStatus* node : nodes) {
    table.Add({fmt::format("{}{}", node->rank(), node->is_self() ? " (here)" : ""),
               node->is_free() ? "(free)" : PrintableLine(node->name()),
               node->is_free() ? "-" : node->address(),
               fmt::format("{:.2f} %", weights > 0 ? 100.0 * node->weight() / weights : 0.0),
               HumanBytes(node->used_bytes()), HumanBytes(node->capacity_bytes()),
               HumanBytes(node->gfs_bytes()), HumanCount(node->samples()),
               HumanCount(node->other_samples()), HumanCount(node->waited_samples()),
               HumanBytes(node->received_bytes()),
               node->mpi_bytes() > 0 ? HumanBytes(node->mpi_bytes()) : "-",
               node->received_bytes() > 0 ? HumanRate(BytesPerSecond(*node)) : "-",
               HumanCount(node->failed_calls()),
               node->is_self() ? "-"
               : node->answers()
                   ? fmt::format("{:.1f} ms", static_cast<double>(node->answer_us()) / 1e3)
                   : "none"});
  }
  std::string text = table.ToString();
  text += NodeConnectionsLine(reply.node_connections());
  for (const v1::NodeStatus* node : nodes) text += LinesOf(*node);
  return text;
}

JsonArray NodesJson(const v1::NodesReply& reply) {
  JsonArray nodes;
  for (const v1::NodeStatus& node : reply.nodes()) {
    nodes.Add(JsonObject({{"rank", node.rank()},
                          {"name", node.name()},
                          {"address", node.address()},
                          {"is_self", node.is_self()},
                          {"weight", node.weight()},
                          {"answers", node.answers()},
                          {"is_unasked", node.is_unasked()},
                          {"error", node.error()},
                          {"answer_us", node.answer_us()},
                          {"capacity_bytes", node.capacity_bytes()},
                          {"used_bytes", node.used_bytes()},
                          {"gfs_bytes", node.gfs_bytes()},
                          {"gfs_opens", node.gfs_opens()},
                          {"samples", node.samples()},
                          {"other_samples", node.other_samples()},
                          {"waited_samples", node.waited_samples()},
                          {"received_bytes", node.received_bytes()},
                          {"busy_ns", node.busy_ns()},
                          {"calls", node.calls()},
                          {"failed_calls", node.failed_calls()},
                          {"mpi_bytes", node.mpi_bytes()},
                          {"connection_bytes", node.connection_bytes()},
                          {"wrong_answers", node.wrong_answers()},
                          {"late_calls", node.late_calls()},
                          {"is_left_out", node.is_left_out()},
                          {"is_leaving", node.is_leaving()},
                          {"is_yielding", node.is_yielding()},
                          {"is_joining", node.is_joining()},
                          {"is_free", node.is_free()},
                          {"local_millionths", LocalMillionths(node)},
                          {"predicted_local_millionths", node.predicted_local_millionths()}}));
  }
  return nodes;
}

}  // namespace forebay::cli
