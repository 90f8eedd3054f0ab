"""Row `mpi` of suite `nodes`: samples that come from another node over MPI, beside rows of the same
sizes between two ranks of MPI alone. The nodes are those of row `link`; mpirun sees them as hosts.

The harness starts the daemons itself, as it does without MPI: mpirun starts a process on each node
that writes its environment to a file and waits, and the daemon of the node gets that environment.
So it is the rank of that process.
"""

import contextlib
import pathlib
import shlex
import subprocess
import tempfile
import time

from harness import datasets, network, nodes_job, nodes_link, processes, spine
from harness.figures import Goal, interleave, ratios

SIZES = (datasets.MEAN_SAMPLE_BYTES, nodes_link.SMALL_BYTES)
GOALS = {f"nodes.mpi.{datasets.MEAN_SAMPLE_BYTES}_of_ping": ("x", Goal(0.9))}
# How the ranks of the ping wait: which is faster depends on what else runs on the machine.
WAITS = ("poll", "sleep")
# What the ranks do with the bytes: nothing, or what the daemons and the reader have to do.
WORKS = ("ping", "working_ping")
RANKS_TIMEOUT_S = 60
# The environment variables of a launcher begin with these words. They name a process's rank and
# have the settings of --mca.
OF_LAUNCHER = ("OMPI_", "PMIX_", "PRTE_", "ORTE_")


def run(suite):
    for size in SIZES:
        samples = (suite.scale.samples if size == datasets.MEAN_SAMPLE_BYTES
                   else suite.scale.small_samples)
        _run_size(suite, size, suite.records(size, samples), size * samples)


def _run_size(suite, size, records, total_bytes):
    keys = {**spine.ram_keys(records), "peer.transport": "mpi",
            "peer.module": suite.binaries.find("libforebay_mpi.so")}
    with network.network(2) as net, Hosts(net) as hosts, hosts.ranks(2) as ranks, \
            suite.jobs.weighted_pair(net, keys, records, launchers=ranks) as services:
        results = interleave(suite.scale.pairs, {
            "forebay": nodes_link.warm_reader(suite, services),
            **{(work, wait): lambda _round, work=work, wait=wait: _ping(
                suite.binaries, hosts, size, total_bytes, work, wait)
               for work in WORKS for wait in WAITS}})
    for figure in figures_of(size, results):
        suite.sheet.add(figure)


def figures_of(size, results):
    """`results`: contender -> what each of its runs reported."""
    figure = nodes_link.figure_maker(f"nodes.mpi.{size}", GOALS)
    carried = [report["remote"]["mpi_bytes"] / report["remote"]["received_bytes"]
               for report in results["forebay"]]
    rates, of_rates = nodes_link.remote_rates(
        figure, size, results["forebay"], f", {min(carried):.1%} of their bytes over MPI")
    _, of_costs = nodes_link.remote_costs(figure, results["forebay"])
    return [*of_rates, of_costs,
            *_of_ping(figure, rates, results, "ping",
                      "rows of the same size between two ranks over the same link, one core for "
                      "each; the faster of polling and sleeping"),
            *_of_ping(figure, rates, results, "working_ping",
                      "the same; both ranks take a checksum of each row, and the one that asks "
                      "sums its bytes, as daemons and reader do")]


def _of_ping(figure, rates, results, work, note):
    # The faster ping of each round counts.
    rounds = list(zip(*(results[work, wait] for wait in WAITS)))
    ping_rates = [max(run["bytes"] / run["seconds"] for run in runs) for runs in rounds]
    return [
        figure(f"_{work}", "GB/s", [rate / 1e9 for rate in ping_rates], note),
        figure(f"_of_{work}", "x", ratios(rates, ping_rates)),
        figure(f"_{work}_cpu", "s/GB",
               [1e9 * min(run["cpu_per_byte"] for run in runs) for runs in rounds],
               "both ranks; the lower of polling and sleeping"),
    ]


def _ping(binaries, hosts, row_bytes, total_bytes, work, wait):
    words = [binaries.find("mpi_ping"), "--row-bytes", str(row_bytes), "--request-rows",
             str(spine.BATCH), "--in-flight", str(nodes_link.IN_FLIGHT), "--total-bytes",
             str(total_bytes), "--wait", wait, *(["--work"] if work == "working_ping" else [])]
    first, second, _ = nodes_job.pair_cores()
    return processes.run_json(hosts.command(
        2, f"set {first} {second}; shift $OMPI_COMM_WORLD_RANK; "
           f"exec taskset -c $1 {shlex.join(words)}"))


class Hosts:
    """The nodes of a network as hosts of mpirun."""

    def __init__(self, net):
        self.net = net

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mpi.")
        # The agent takes the place of ssh: mpirun gives it the host's name and a line for its
        # shell.
        self.agent = pathlib.Path(self.folder.name) / "agent"
        self.agent.write_text(
            "#!/bin/sh\nhost=$1\nshift\n"
            f"exec nsenter --net={network.NAMES / self.net.name}-${{host#node}} unshare --uts sh "
            "-c 'hostname \"$0\" && exec sh -c \"$1\"' \"$host\" \"$*\"\n", encoding="ascii")
        self.agent.chmod(0o700)
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def command(self, ranks, script):
        """Returns the command of an mpirun that runs `script` on that many nodes."""
        # On one machine, MPI would take shared memory instead of the link.
        settings = {"plm_rsh_agent": self.agent, "oob_tcp_if_include": f"{network.SUBNET}.0/24",
                    "btl_tcp_if_include": f"{network.SUBNET}.0/24", "btl": "tcp,self",
                    # Otherwise Linux schedules the ranks of node 1 as a group of their own, with a
                    # share of the cores.
                    "orte_leave_session_attached": 1}
        words = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", ranks, "--host",
                 ",".join(f"node{node}" for node in range(ranks))]
        for name, value in settings.items():
            words += ["--mca", name, value]
        return [*self.net.command(0), *map(str, words), "sh", "-c", script]

    @contextlib.contextmanager
    def ranks(self, count):
        """Yields, by rank, the words before a program that make it that rank of a launch."""
        files = [pathlib.Path(self.folder.name) / f"environment{rank}" for rank in range(count)]
        path = f"{self.folder.name}/environment$OMPI_COMM_WORLD_RANK"
        command = self.command(count, f"env -0 > {path}.new && mv {path}.new {path}; "
                                      "exec sleep infinity")
        with subprocess.Popen(command, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as launcher:
            try:
                end = time.monotonic() + RANKS_TIMEOUT_S
                while not all(file.exists() for file in files):
                    if launcher.poll() is not None or time.monotonic() > end:
                        raise processes.Missing("mpirun does not start processes in namespaces")
                    time.sleep(0.05)
                yield [["env", *(entry for entry in file.read_text("utf-8").split("\0")
                                 if entry.startswith(OF_LAUNCHER))] for file in files]
            finally:
                processes.end_process(launcher)
