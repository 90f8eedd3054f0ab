// A network namespace belongs to a thread. So a thread of its own makes each namespace, and another
// one enters it for each command and ends afterwards; the test's own threads stay where they are.
// The commands are those of iproute2 and iptables, run by a shell, which inherits the namespace.
#include "tests/integration/network_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::integration {
namespace {

UniqueFd NewNamespace() {
  UniqueFd made;
  int error = 0;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) == 0) {
      made = UniqueFd(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    }
    error = errno;
  }).join();
  errno = error;
  return made;
}

struct Outcome {
  int status = -1;     // of the shell
  std::string output;  // and errors
};

Outcome RunIn(const UniqueFd& space, const std::string& commands) {
  Outcome outcome;
  std::thread([&] {
    if (setns(space.get(), CLONE_NEWNET) != 0) return;
    FILE* const pipe = popen(("exec 2>&1; set -e; " + commands).c_str(), "re");
    if (pipe == nullptr) return;
    char part[256];
    while (std::fgets(part, sizeof(part), pipe) != nullptr) outcome.output += part;
    outcome.status = pclose(pipe);
  }).join();
  return outcome;
}

// For commands that work wherever the network could be made.
std::string MustRunIn(const UniqueFd& space, const std::string& commands) {
  Outcome outcome = RunIn(space, commands);
  if (outcome.status != 0) std::fprintf(stderr, "%s\n", outcome.output.c_str());
  FOREBAY_CHECK(outcome.status == 0);
  return std::move(outcome.output);
}

std::string OneLine(std::string text) {
  for (char& letter : text) letter = letter == '\n' ? ' ' : letter;
  return text;
}

}  // namespace

NetworkRig::NetworkRig(std::uint32_t node_count) { missing_ = Make(node_count); }

std::string NetworkRig::Make(std::uint32_t node_count) {
  bridge_ = NewNamespace();
  if (!bridge_.valid()) {
    return fmt::format("network namespaces cannot be made here: {}", std::strerror(errno));
  }
  std::string commands = "ip link add bridge type bridge; ip link set bridge up; ";
  for (std::uint32_t i = 0; i < node_count; ++i) {
    nodes_.push_back(NewNamespace());
    if (!nodes_.back().valid()) {
      return fmt::format("network namespaces cannot be made here: {}", std::strerror(errno));
    }
    // A path stands for a namespace without a name.
    commands += fmt::format("ip link add port{0} type veth peer name eth0 netns /proc/{1}/fd/{2}; "
                            "ip link set port{0} master bridge up; ",
                            i, getpid(), nodes_.back().get());
  }
  const Outcome made = RunIn(bridge_, commands);
  if (made.status != 0) return "no bridge (ip, of iproute2): " + OneLine(made.output);
  for (std::uint32_t i = 0; i < node_count; ++i) {
    // The last command shows that packets can be dropped here.
    const Outcome up = RunIn(nodes_[i], fmt::format("ip address add 10.77.0.{}/24 dev eth0; "
                                                    "ip link set eth0 up; ip link set lo up; "
                                                    "iptables -S",
                                                    i + 1));
    if (up.status != 0) return "no addresses, or no iptables: " + OneLine(up.output);
  }
  return "";
}

void NetworkRig::Drop(std::uint32_t node, Direction direction) {
  MustRunIn(nodes_[node], direction == Direction::kReceived ? "iptables -A INPUT -i eth0 -j DROP"
                                                            : "iptables -A OUTPUT -o eth0 -j DROP");
}

std::uint64_t NetworkRig::DroppedPackets(std::uint32_t node) const {
  return std::stoull(MustRunIn(
      nodes_[node],
      "iptables -nvxL | awk '$3 == \"DROP\" { packets += $1 } END { print packets + 0 }'"));
}

void NetworkRig::Restore(std::uint32_t node) { MustRunIn(nodes_[node], "iptables -F"); }

void NetworkRig::Limit(std::uint32_t node, std::uint32_t megabits_per_second) {
  // What the port sends is what the node receives. A packet waits for a second at most, and is
  // dropped otherwise.
  const std::string limit =
      fmt::format("root tbf rate {}mbit burst 128kb latency 1s", megabits_per_second);
  MustRunIn(nodes_[node], "tc qdisc add dev eth0 " + limit);
  MustRunIn(bridge_, fmt::format("tc qdisc add dev port{} {}", node, limit));
}

std::uint64_t NetworkRig::DelayedPackets(std::uint32_t node) const {
  return std::stoull(MustRunIn(
      nodes_[node], "tc -s qdisc show dev eth0 | sed -n 's/.*overlimits \\([0-9]*\\).*/\\1/p'"));
}

}  // namespace forebay::integration
