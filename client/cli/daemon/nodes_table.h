// `forebay status --nodes`: the nodes of the job as the daemon of this node sees them.
#pragma once

#include <string>

#include "client/cli/json_value.h"

namespace forebay::v1 {
class NodesReply;
}

namespace forebay::cli {

// For people: nodes that do not answer first, then the slowest.
std::string NodesTable(const v1::NodesReply& reply);
// A line that says how the connections between nodes are protected, and which key allows it where
// they are not. `protection` is node_connections of a reply; empty, in a job of one node: no line.
std::string NodeConnectionsLine(const std::string& protection);
// For scripts: all members of NodeStatus (admin.proto), by rank.
JsonArray NodesJson(const v1::NodesReply& reply);

}  // namespace forebay::cli
