"""A network for several daemons on one machine: each node has a network namespace and a host name
of its own, and a bridge connects them. Links can be slowed down. Needs root and iproute2."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

from harness import processes

NAMES = pathlib.Path("/run/netns")
PREFIX = "fbbench"
SUBNET = "10.78.0"


class Network:
    """`command(i)`: what to put before the words of a program that runs on node i."""

    def __init__(self, name):
        self.name = name

    def namespace(self, node):
        return f"{self.name}-{node}"

    def command(self, node):
        # Daemons tell nodes apart by their host names. Every program here replaces itself by the
        # next one, so a signal reaches the last.
        return ["nsenter", f"--net={NAMES / self.namespace(node)}", "unshare", "--uts", "sh", "-c",
                'hostname "$0" && exec "$@"', f"node{node}"]

    def limit(self, node, bits_per_second):
        """Slows the link of the node down, in both directions: what a port of the bridge sends is
        what the node receives."""
        ends = [(self.namespace(node), "eth0"), (self.bridge(), f"port{node}")]
        for space, device in ends:
            # A packet waits for 0.2 s at most, and is dropped otherwise, as in a switch.
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                 f"{int(bits_per_second)}bit", "burst", "128kb", "latency", "200ms")

    def received_bytes(self, node):
        """What the link of the node has brought so far, with headers."""
        # /proc/net is that of the process that reads it.
        done = subprocess.run(["nsenter", f"--net={NAMES / self.namespace(node)}", "cat",
                               "/proc/net/dev"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise processes.RunFailed(f"read the counters of node {node}: {done.stderr.strip()}")
        return received_bytes(done.stdout)

    def bridge(self):
        return f"{self.name}-bridge"

    def configure(self, node):
        """Once the namespace of the node has its interface."""
        space = self.namespace(node)
        run_ip("-n", space, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
        run_ip("-n", space, "link", "set", "eth0", "up")
        run_ip("-n", space, "link", "set", "lo", "up")

    @staticmethod
    def address(node):
        return f"{SUBNET}.{node + 1}"


def _run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise processes.Missing(f"{' '.join(words)}: {done.stderr.strip()}")


def run_ip(*words):
    _run("ip", *words)


def _remove(names):
    # With a namespace go the interfaces in it, and so the other ends of its links.
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def received_bytes(text):
    """Of eth0, in the format of /proc/net/dev."""
    return int(re.search(r"^\s*eth0:\s*(\d+)", text, re.MULTILINE)[1])


def stale_names(names, is_alive):
    """Of runs that were killed: the names hold the process id of the harness."""
    found = [(name, re.fullmatch(rf"{PREFIX}(\d+)-\w+", name)) for name in names]
    return [name for name, match in found if match and not is_alive(int(match[1]))]


@contextlib.contextmanager
def namespaces(kind, node_count):
    """Yields a network of class `kind` when its namespaces are there, empty. Needs root, or the
    right to make namespaces. The bridge has a namespace of its own, so that nothing appears in the
    network of the machine."""
    for program in ("ip", "tc", "nsenter", "unshare", "hostname"):
        if shutil.which(program) is None:
            raise processes.Missing(f"no program {program} (Debian: iproute2, util-linux, "
                                    "hostname)")
    if NAMES.is_dir():
        _remove(stale_names(os.listdir(NAMES), lambda process: os.path.exists(f"/proc/{process}")))
    made = kind(f"{PREFIX}{os.getpid()}")
    names = [made.bridge()] + [made.namespace(node) for node in range(node_count)]
    try:
        for name in names:
            run_ip("netns", "add", name)
        yield made
    finally:
        _remove(names)


@contextlib.contextmanager
def network(node_count):
    with namespaces(Network, node_count) as made:
        bridge = made.bridge()
        run_ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        run_ip("-n", bridge, "link", "set", "bridge", "up")
        for node in range(node_count):
            run_ip("-n", bridge, "link", "add", f"port{node}", "type", "veth", "peer", "name",
                   "eth0", "netns", made.namespace(node))
            run_ip("-n", bridge, "link", "set", f"port{node}", "master", "bridge", "up")
            made.configure(node)
        yield made
