"""Jobs of several daemons on one machine, each daemon as a node in a network namespace of its own;
and what their ranks report, put together."""

import concurrent.futures
import contextlib
import pathlib
import secrets
import tempfile

from harness import machine, network, processes, spine

EXTENT_BYTES = 8 << 20
PORT = 7300


def together(reports):
    """One report of the ranks of a job: sums of counts and digests, epoch by epoch."""
    def joined(epochs, digests):
        # The digests are sums over samples, modulo 2^64, so those of the ranks add up.
        return {"bytes": sum(epoch["bytes"] for epoch in epochs),
                **{digest: added(epoch[digest] for epoch in epochs) for digest in digests}}
    report = {"contender": "the ranks of all nodes",
              "epochs": [joined(epochs, ["sums_digest"])
                         for epochs in zip(*(report["epochs"] for report in reports))]}
    if all(report.get("check") for report in reports):
        report["check"] = joined([report["check"] for report in reports], ["content_digest"])
    return report


def added(digests):
    """The digest of all parts, of which each has one of `digests`."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 64):016x}"


def pair_cores():
    """The processors of the two nodes of a pair, and that of the reader on the first node. Where
    there are only two, the reader shares the one of its daemon."""
    cores = machine.separate_cores(3)
    if len(cores) < 2:
        raise processes.Missing("a pair of nodes needs two processors")
    return cores if len(cores) == 3 else [*cores, cores[0]]


@contextlib.contextmanager
def secret():
    """The path of a file with a new secret, which only this user can read."""
    with tempfile.NamedTemporaryFile("w", prefix="secret.") as file:
        file.write(secrets.token_hex(32))
        file.flush()
        yield file.name


def check_encryption(services, is_encrypted):
    seen = services[0].cli("status", "--nodes")["is_encrypted"]
    if seen != is_encrypted:
        raise processes.RunFailed(
            f"status --nodes says is_encrypted {seen}, not {is_encrypted}")


class Jobs:
    """Starts jobs. `records`: a data set of record files, or of small files, which every job serves
    as `bench`."""

    def __init__(self, binaries):
        self.binaries = binaries

    @contextlib.contextmanager
    def staged(self, node_count, keys, records, path=None, extent_bytes=EXTENT_BYTES, stages=True,
               table=None):
        """Yields the network and the daemons of a job when all daemons have staged their shares,
        or, without `stages`, when they have begun to. They read from `path` if it is given.
        `table`: further keys of the data set."""
        with contextlib.ExitStack() as stack:
            net = stack.enter_context(network.network(node_count))
            services = stack.enter_context(
                self.started(net, node_count, keys, records, path, extent_bytes, table))
            for service in services if stages else ():
                service.stage("bench")
            yield net, services

    @contextlib.contextmanager
    def started(self, net, node_count, keys, records, path=None, extent_bytes=EXTENT_BYTES,
                table=None, launchers=None):
        """The daemons of a job in `net`, when all are ready. They meet in a directory.
        `launchers`: by node, words before the command of its daemon."""
        with tempfile.TemporaryDirectory(prefix="meeting.") as meeting, \
                self._ready(net, [[] for _ in range(node_count)],
                            {**keys, "nodes.rendezvous": f"directory:{meeting}"},
                            {**self._table(records, path, extent_bytes),
                             **(table or {})}, launchers) as services:
            yield services

    @contextlib.contextmanager
    def weighted_pair(self, net, keys, records, launchers=((), ()), port=PORT):
        """Two nodes with a core each, of which the second one has 64 times the weight of the first,
        and so owns nearly all samples. Both have staged their shares. `launchers`: words before
        the command of each daemon, which give it its place in a launch of mpirun."""
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
            hosts.write(f"{net.address(0)}:{port} 1\n{net.address(1)}:{port} 64\n")
            hosts.flush()
            pins = [["taskset", "-c", str(core)] for core in pair_cores()]
            with self._ready(net, pins[:2], {**keys, "nodes.rendezvous": f"hosts:{hosts.name}"},
                             self._table(records, None, EXTENT_BYTES), launchers) as services:
                services[0].consumer_prefix = pins[2]
                for service in services:
                    service.stage("bench")
                yield services

    @staticmethod
    def _table(dataset, path, extent_bytes):
        layout = ({"format": "image-folder"} if dataset.spec.layout == "files"
                  else spine.raw_keys(dataset))
        return {"name": "bench", "path": path or dataset.data, "extent": str(extent_bytes),
                **layout}

    @contextlib.contextmanager
    def _ready(self, net, pins, keys, table, launchers=None):
        """`pins`: by node, the words that bind its daemon and its consumer to a core."""
        keys = {**keys, "daemon.job_id": "bench", "peer.interface": f"{network.SUBNET}.0/24",
                "peer.allow_plaintext": True}
        with contextlib.ExitStack() as stack:
            # Daemons that have a capacity on SSD use this folder.
            ssd = stack.enter_context(tempfile.TemporaryDirectory(prefix="ssd."))
            services = [
                stack.enter_context(processes.starting_daemon(
                    self.binaries, keys, [table],
                    prefix=net.command(node) + pin + list(launchers[node] if launchers else []),
                    arguments=["--node-rank", str(node), "--node-count", str(len(pins)),
                               "--set", f"tier.ssd.directory={ssd}/{node}"],
                    consumer_prefix=pin))
                for node, pin in enumerate(pins)]
            # All are started before the first is waited for, because each waits for the others.
            for service in services:
                service.wait_until_ready()
            yield services
            # Daemons end at the same time, as in a job: one after the other takes the sum.
            for service in services:
                service.process.terminate()


def consume_together(services, **options):
    """The reports of a reader on each node, which are the ranks of one stream. An option that is
    callable gets the rank."""
    def of_rank(rank):
        own = {name: value(rank) if callable(value) else value for name, value in options.items()}
        return services[rank].consume("bench", ranks=len(services), rank=rank, **own)
    with concurrent.futures.ThreadPoolExecutor(len(services)) as pool:
        return list(pool.map(of_rank, range(len(services))))


def token_paths(folder, name):
    """Where each rank of one run writes its token."""
    return lambda rank: pathlib.Path(folder) / f"{name}.{rank}"
