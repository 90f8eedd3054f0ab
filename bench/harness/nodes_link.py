"""Row `link` of suite `nodes`: samples that come from another node, beside what the link and gRPC
can do for the same bytes. One node has nearly all samples, and the other one has the reader."""

import json
import subprocess
import sys

from harness import datasets, machine, network, nodes_job, peers, processes, spine
from harness.figures import Goal, from_runs, interleave, ratios

SMALL_BYTES = 4096
IN_FLIGHT = 8   # requests of the bare gRPC stream at a time
PREFETCH = 16   # batches that the reader asks for ahead
SOCKET_STREAM = peers.PEERS.parent / "nodes" / "socket_stream.py"
GOALS = {
    f"nodes.link.{datasets.MEAN_SAMPLE_BYTES}_of_socket": ("x", Goal(0.6)),
    f"nodes.link.{datasets.MEAN_SAMPLE_BYTES}_cpu_of_grpc": ("x", Goal(1.3, at_least=False)),
    f"nodes.link.{SMALL_BYTES}": ("samples/s", Goal(100_000)),
    f"nodes.link.{SMALL_BYTES}_cpu_of_grpc": ("x", Goal(1.3, at_least=False)),
}


def run(suite):
    for size, samples in ((datasets.MEAN_SAMPLE_BYTES, suite.scale.samples),
                          (SMALL_BYTES, suite.scale.small_samples)):
        records = suite.records(size, samples)
        total = size * samples
        with network.network(2) as net, \
                suite.jobs.weighted_pair(net, spine.ram_keys(records), records) as services:
            results = interleave(suite.scale.pairs, {
                "forebay": warm_reader(suite, services),
                "socket": lambda _round, net=net, message=size * spine.BATCH, total=total:
                    _socket(net, message, total),
                "grpc": lambda _round, net=net, message=size * spine.BATCH, total=total:
                    _grpc(suite.binaries, net, message, total)})
        for figure in figures_of(size, results):
            suite.sheet.add(figure)


def figures_of(size, results):
    """`results`: contender -> what each of its runs reported."""
    figure = figure_maker(f"nodes.link.{size}", GOALS)
    rates, of_rates = remote_rates(figure, size, results["forebay"])
    costs, of_costs = remote_costs(figure, results["forebay"])
    sockets = [run["bytes"] / run["seconds"] for run in results["socket"]]
    grpc = [run["bytes"] / run["seconds"] for run in results["grpc"]]
    grpc_costs = [1e9 * run["cpu_per_byte"] for run in results["grpc"]]
    return [
        *of_rates,
        figure("_socket", "GB/s", [rate / 1e9 for rate in sockets],
               "one TCP stream over the same link, one core for each end"),
        figure("_grpc", "GB/s", [rate / 1e9 for rate in grpc],
               f"a bare gRPC byte stream likewise, {IN_FLIGHT} requests of a batch at a time"),
        figure("_of_socket", "x", ratios(rates, sockets)),
        figure("_of_grpc", "x", ratios(rates, grpc)),
        of_costs,
        figure("_grpc_cpu", "s/GB", grpc_costs, "both ends"),
        figure("_socket_cpu", "s/GB", [1e9 * run["cpu_per_byte"] for run in results["socket"]],
               "both ends"),
        figure("_cpu_of_grpc", "x", ratios(costs, grpc_costs)),
    ]


def remote_rates(figure, size, reports, more_settings=""):
    """Returns the bytes/s that came from the other node, by run, and the figures of them. Only
    these bytes count, in the time of all."""
    shares = [report["remote"]["other_samples"] / report["remote"]["samples"]
              for report in reports]
    rates = [peers.rate(report, 0) * share for report, share in zip(reports, shares)]
    return rates, [
        figure("", "samples/s", [rate / size for rate in rates],
               f"batch={spine.BATCH}, prefetch={PREFETCH}, {min(shares):.1%} of the samples from "
               f"the other node{more_settings}; {_cores_in_words()}"),
        figure("_rate", "GB/s", [rate / 1e9 for rate in rates])]


def _cores_in_words():
    first, second, reader = nodes_job.pair_cores()
    return ("a core for the reader and its daemon, one for the other daemon" if reader == first else
            f"a core for each daemon and one for the reader ({first}, {second}, {reader})")


def remote_costs(figure, reports):
    """Returns the CPU seconds of both daemons per GB from the other node, by run, and the figure
    of them."""
    costs = [1e9 * report["remote"]["cpu_seconds"] / report["remote"]["received_bytes"]
             for report in reports]
    return costs, figure("_cpu", "s/GB", costs,
                         "both daemons, all that they do: the reader's batches, too")


def warm_reader(suite, services):
    """Returns a function that reads on the first node and returns the report, with what came from
    the other node (`remote`). It has read once, untimed: that opens the connections and touches all
    memory."""
    ledger = peers.Ledger()
    def read(_round, check=False):
        before = counters(services)
        report = ledger.check(services[0].consume(
            "bench", batch=spine.BATCH, seed=spine.SEED, prefetch=PREFETCH,
            epochs=suite.scale.epochs, check=check))
        after = counters(services)
        report["remote"] = {key: after[key] - before[key] for key in after}
        return report
    read(0, check=True)
    return read


def figure_maker(prefix, goals):
    """Returns a function that makes figures whose ids begin with `prefix`, with their goals."""
    def figure(name, unit, values, settings=""):
        _, goal = goals.get(prefix + name, (unit, None))
        return from_runs(prefix + name, unit, values, goal=goal, settings=settings)
    return figure


def counters(services):
    """What the first node got from the second one so far, and the CPU time of both daemons."""
    seen = services[0].cli("status", "--nodes")["nodes"]
    first, second = sorted(seen, key=lambda node: node["rank"])
    return {"samples": first["samples"], "other_samples": first["other_samples"],
            "received_bytes": second["received_bytes"], "mpi_bytes": second["mpi_bytes"],
            "cpu_seconds": sum(service.cpu_seconds() for service in services)}


def _on_core(net, node):
    return [*net.command(node), "taskset", "-c", str(nodes_job.pair_cores()[node])]


def _socket(net, message_bytes, total_bytes):
    def command(node, end):
        return [*_on_core(net, node), sys.executable, str(SOCKET_STREAM), end,
                f"{net.address(0)}:{nodes_job.PORT + 1}", "--message", str(message_bytes),
                "--total", str(total_bytes)]
    with _serving(command(0, "receive")) as receiver:
        sent = processes.run_json(command(1, "send"))
        report = json.loads(receiver.stdout.read())
    report["cpu_per_byte"] = (report["cpu_seconds"] + sent["cpu_seconds"]) / report["bytes"]
    return report


def _grpc(binaries, net, message_bytes, total_bytes):
    def command(node, end, *more):
        return [*_on_core(net, node), binaries.find("grpc_stream"), end, "--host", net.address(1),
                "--port", str(nodes_job.PORT + 1), *more]
    with _serving(command(1, "serve")) as server:
        before = machine.process_cpu_seconds(server.pid)
        report = processes.run_json(command(0, "ask", "--request-bytes", message_bytes,
                                            "--in-flight", IN_FLIGHT, "--total-bytes",
                                            total_bytes))
        served = machine.process_cpu_seconds(server.pid) - before
    # The server's time is that of all bytes, of which the asking end leaves the first out.
    report["cpu_per_byte"] = (report["cpu_seconds"] / report["bytes"]
                              + served / report["moved_bytes"])
    return report


class _serving:
    """A process that prints `ready`, and is ended afterwards."""

    def __init__(self, command):
        self.command = command

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            self.__exit__()
            raise processes.RunFailed(f"{processes.program_name(self.command)} does not listen")
        return self.process

    def __exit__(self, *_):
        processes.end_process(self.process)
        self.process.stdout.close()
