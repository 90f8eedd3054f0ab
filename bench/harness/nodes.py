"""Suite `nodes`: several daemons of one job: how much they read from the GFS together, how fast
samples travel between them, whether runs continue on another number of nodes, how long a launch
takes, and whether a step waits for a slow link."""

import json
import math
import os
import pathlib
import random
import tempfile
import time

from harness import (datasets, network, nodes_beyond, nodes_caps, nodes_copies, nodes_job,
                     nodes_link, nodes_losses, nodes_mpi, nodes_scale, nodes_tls, peers,
                     processes, programs, rows, spine)
from harness.figures import Goal, from_runs

NODES = 4
EPOCHS = 5
AT_MOST = {"at_least": False}
# A data set of many small groups, so that each of four nodes has some.
SMALL_SET = datasets.Spec("records", samples=4096, sample_bytes=4096, objects=1)
SMALL_EXTENT_BYTES = 1 << 20
SMALL_KEYS = {"tier.ram.capacity": str(64 << 20), "slots.capacity": str(32 << 20)}
RESUME_BATCH = 48  # for one to four ranks
RESUME_POINTS = 40
RESUME_CHANGES = ((4, 3), (4, 2), (2, 4), (1, 4))  # nodes before and after
LAUNCH_MANY = 32
STALL_STEP_MS = 200
STALL_BATCH = 64  # of each rank
STALL_EPOCHS = 3
STALL_HEADROOM = 1.2
START_BITS_PER_S = 400e6
START_PREFETCH = 16
START_BATCHES = 4
SHARES_RUNS = 3   # a run takes some ten seconds
ONCE_GOALS = {
    "nodes.once.gfs_bytes": ("x the set", Goal(1.0, **AT_MOST)),
    "nodes.once.gfs_opens": ("per group", Goal(1.05, **AT_MOST)),
}
RESUME_GOALS = {"nodes.resume.points": ("points", Goal(RESUME_POINTS))}
LAUNCH_GOALS = {
    "nodes.launch.mpirun_2": ("s", Goal(1, **AT_MOST)),
    f"nodes.launch.namespaces_{LAUNCH_MANY}": ("s", Goal(5, **AT_MOST)),
}
START_GOALS = {"nodes.start.first_batch_of_link": ("x", Goal(3, **AT_MOST))}
STALL_GOALS = {"nodes.stall.of_step": ("%", Goal(2, **AT_MOST))}
PROBING_NODES = (16, 128, 1024, 16384)
# How much more a node of the largest job sends than one of the smallest while no node is lost.
PROBING_GOALS = {f"nodes.probing.{what}_growth": ("x", Goal(1.05, **AT_MOST))
                 for what in ("messages", "bytes")}
SHARES_GOALS = {
    "nodes.shares.own_share": ("s", Goal(10, **AT_MOST)),
    "nodes.shares.owner_of": ("us", Goal(2, **AT_MOST)),
}


def group_count(spec):
    """Of a large object: a group is an extent of it, and holds whole samples."""
    return math.ceil(spec.samples / (nodes_job.EXTENT_BYTES // spec.sample_bytes))


def resume_points(steps):
    """Steps inside an epoch before which a run ends: the first and the last one, and others."""
    others = random.Random(spine.SEED).sample(range(2, steps - 1), RESUME_POINTS - 2)
    return sorted([1, *others, steps - 1])


def stall_percent(reports, compute_s):
    """Of the rank that waited longest: its waits after the first batch, over the time of its steps
    and those waits. `compute_s`: of the steps of one rank."""
    waits = [(report["waits"]["total_ms"] - report["waits"]["first_ms"]) * 1e-3
             for report in reports]
    return 100 * max(waits) / (max(waits) + compute_s)


class Nodes:
    def __init__(self, sheet, binaries, data_folder, quick):
        self.sheet = sheet
        self.binaries = binaries
        self.scale = spine.QUICK if quick else spine.FULL
        self.data_folder = pathlib.Path(data_folder)
        self.peers = peers.Peers(binaries, data_folder)
        self.jobs = nodes_job.Jobs(binaries)
        self._store = None

    @property
    def store(self):
        # Made at the first use: a row that needs no data set runs without the makers.
        if self._store is None:
            self._store = datasets.Store(self.data_folder, self.binaries.find("make_dataset"),
                                         self.binaries.find("write_order"))
        return self._store

    def rows(self):
        return {
            "once": (self.once, ONCE_GOALS),
            "link": (lambda: nodes_link.run(self), nodes_link.GOALS),
            "mpi": (lambda: nodes_mpi.run(self), nodes_mpi.GOALS),
            "tls": (lambda: nodes_tls.run(self), nodes_tls.GOALS),
            "stall": (self.stall, STALL_GOALS),
            "start": (self.start, START_GOALS),
            "beyond": (lambda: nodes_beyond.run(self), nodes_beyond.GOALS),
            "copies": (lambda: nodes_copies.run(self), nodes_copies.GOALS),
            "caps": (lambda: nodes_caps.run(self), nodes_caps.GOALS),
            "resume": (self.resume, RESUME_GOALS),
            "losses": (lambda: nodes_losses.run(self), nodes_losses.GOALS),
            "launch": (self.launch, LAUNCH_GOALS),
            "shares": (self.shares, SHARES_GOALS),
            "probing": (self.probing, PROBING_GOALS),
            "scale": (lambda: nodes_scale.run(self), nodes_scale.GOALS),
        }

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    def records(self, size, samples):
        return self.store.dataset(datasets.Spec("records", samples, size, objects=1))

    def _add(self, goals, figure_id, values, unit=None, **fields):
        unit, goal = goals.get(figure_id, (unit, None))
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))

    # The set fits all tiers together, but not those of one node.

    def once(self):
        records = self.records(datasets.MEAN_SAMPLE_BYTES, self.scale.samples)
        stored = records.stored_bytes()
        capacity = int(0.6 * stored)
        keys = {"tier.ram.capacity": str(capacity), "slots.capacity": str(256 << 20)}
        ledger = peers.Ledger()
        # What a plain read of the files delivers: the job has to deliver the same.
        order = self.store.order(records.spec.samples, 1, spine.SEED)
        ledger.check(self.peers.plain_loop(records.data, records, order, check=True))
        counts = [self._once(records, keys, ledger) for _ in range(self.scale.gfs_rounds)]
        groups = group_count(records.spec)
        settings = (f"{NODES} nodes, {EPOCHS} epochs, set={stored / 1e6:.0f} MB, RAM of a "
                    f"node={capacity / 1e6:.0f} MB, no SSD, {groups} groups of one object")
        self._add(ONCE_GOALS, "nodes.once.gfs_bytes",
                  [run["gfs_bytes"] / stored for run in counts], settings=settings)
        self._add(ONCE_GOALS, "nodes.once.gfs_opens",
                  [run["gfs_opens"] / groups for run in counts], settings=settings)
        self._add({}, "nodes.once.local_samples",
                  [100 * (1 - run["other_samples"] / run["samples"]) for run in counts], "%",
                  settings="samples that the reader's own node owns")

    def _once(self, records, keys, ledger):
        """One job, from cold tiers. What its daemons have counted."""
        with processes.emulated_gfs(self.binaries, records.data, "unlimited") as gfs:
            spine.cold_for_clients(records)
            with self.jobs.staged(NODES, keys, records, gfs.mount) as (_, services):
                # The untimed epoch of `check` is one of the five.
                ledger.check(nodes_job.together(nodes_job.consume_together(
                    services, batch=spine.BATCH * NODES, seed=spine.SEED, epochs=EPOCHS - 1,
                    check=True)))
                seen = services[0].cli("status", "--nodes")["nodes"]
            counts = {key: sum(node[key] for node in seen)
                      for key in ("gfs_bytes", "gfs_opens", "samples", "other_samples")}
            # What the file system saw, beside what the daemons say of themselves.
            served = gfs.counters()["total"]["bytes"]
            if served != counts["gfs_bytes"]:
                raise processes.RunFailed(f"the daemons say that they read {counts['gfs_bytes']} "
                                          f"bytes, and the GFS served {served}")
            return counts

    # A trainer's steps, for which a slow link is just fast enough.

    def stall(self):
        records = self.records(datasets.MEAN_SAMPLE_BYTES, self.scale.samples)
        steps = STALL_EPOCHS * math.ceil(records.spec.samples / (STALL_BATCH * NODES))
        compute_s = steps * STALL_STEP_MS * 1e-3
        step_bits_per_s = 8e3 * STALL_BATCH * records.spec.sample_bytes / STALL_STEP_MS
        # A step's bytes come from all nodes, and a quarter of them from the node itself.
        limits = {"nodes.stall.of_step": STALL_HEADROOM * step_bits_per_s,
                  "nodes.stall.of_remote": STALL_HEADROOM * step_bits_per_s * (1 - 1 / NODES)}
        ledger = peers.Ledger()
        with self.jobs.staged(NODES, spine.ram_keys(records), records) as (net, services):
            for figure_id, limit in limits.items():
                for node in range(NODES):
                    net.limit(node, limit)
                stalls = []
                for _ in range(max(3, self.scale.pairs // 2)):
                    reports = nodes_job.consume_together(
                        services, batch=STALL_BATCH * NODES, seed=spine.SEED,
                        epochs=STALL_EPOCHS, step_ms=STALL_STEP_MS)
                    ledger.check(nodes_job.together(reports))
                    stalls.append(stall_percent(reports, compute_s))
                self._add(STALL_GOALS, figure_id, stalls, "%", settings=(
                    f"{NODES} nodes, steps of {STALL_STEP_MS} ms with {STALL_BATCH} samples on "
                    f"each, links of {limit / 1e6:.0f} Mbit/s each way, {STALL_HEADROOM} x what a "
                    f"step consumes" + (" from other nodes" if "remote" in figure_id else "")
                    + "; warm tiers; the rank that waits longest"))

    # A reader asks for many batches at once over a slow link, and waits for the first one.

    def start(self):
        records = self.records(datasets.MEAN_SAMPLE_BYTES, self.scale.samples)
        # What the link needs for a rank's part of a batch that other nodes have.
        batch_s = (8 * STALL_BATCH * records.spec.sample_bytes * (1 - 1 / NODES)
                   / START_BITS_PER_S)
        firsts = []
        with self.jobs.staged(NODES, spine.ram_keys(records), records) as (net, services):
            for node in range(NODES):
                net.limit(node, START_BITS_PER_S)
            for _ in range(self.scale.pairs):
                reports = nodes_job.consume_together(
                    services, batch=STALL_BATCH * NODES, seed=spine.SEED, epochs=1,
                    prefetch=START_PREFETCH, stop_after=START_BATCHES)
                firsts.append([report["waits"]["first_ms"] * 1e-3 for report in reports])
        settings = (f"{NODES} nodes, links of {START_BITS_PER_S / 1e6:.0f} Mbit/s each way, "
                    f"prefetch={START_PREFETCH}, {STALL_BATCH} samples a batch on each node; mean "
                    "of the ranks")
        means = [sum(values) / len(values) for values in firsts]
        self._add({}, "nodes.start.first_batch", means, "s", settings=settings)
        self._add(START_GOALS, "nodes.start.first_batch_of_link",
                  [mean / batch_s for mean in means],
                  settings="over the time in which the link moves what such a batch needs of "
                  "other nodes, if it moves nothing else")

    # A job ends in the middle of an epoch and continues on another number of nodes.

    def resume(self):
        records = self.store.dataset(SMALL_SET)
        points = resume_points(math.ceil(SMALL_SET.samples / RESUME_BATCH))
        with tempfile.TemporaryDirectory(prefix="tokens.") as folder:
            whole, before = self._parts(records, 1, {None: {}})[None], {}
            ledger = peers.Ledger()
            order = self.store.order(SMALL_SET.samples, 1, spine.SEED)
            ledger.content = self.peers.plain_loop(records.data, records, order,
                                                   check=True)["check"]["content_digest"]
            ledger.check({"contender": "one node", "epochs": [], "check": whole})
            for count in {nodes for nodes, _ in RESUME_CHANGES}:
                before[count] = self._parts(records, count, {
                    point: {"stop_after": point,
                            "token": nodes_job.token_paths(folder, f"{count}.{point}")}
                    for point in points})
            agreeing = {point: True for point in points}
            for first, second in RESUME_CHANGES:
                after = self._parts(records, second, {
                    point: {"resume": nodes_job.token_paths(folder, f"{first}.{point}")(0)}
                    for point in points})
                for point in points:
                    agreeing[point] &= is_whole(whole, before[first][point], after[point])
        self._add(RESUME_GOALS, "nodes.resume.points", [sum(agreeing.values())], settings=(
            f"one epoch of {SMALL_SET.samples} samples, global batch {RESUME_BATCH}, ended before "
            f"{RESUME_POINTS} of its steps and continued: nodes "
            + ", ".join(f"{first} -> {second}" for first, second in RESUME_CHANGES)
            + "; XXH3 of each sample by position, added over ranks and both parts, against one "
            "node's epoch"))

    def _parts(self, records, node_count, parts):
        """Reads parts of an epoch with a fresh job. `parts`: name -> options of the readers. For
        each, samples and digests of all ranks."""
        with self.jobs.staged(node_count, SMALL_KEYS, records,
                              extent_bytes=SMALL_EXTENT_BYTES) as (_, services):
            found = {}
            for name, options in parts.items():
                reports = nodes_job.consume_together(services, batch=RESUME_BATCH,
                                                     seed=spine.SEED, content=True, **options)
                epochs = [epoch for report in reports for epoch in report["epochs"]]
                found[name] = {
                    "samples": sum(epoch["samples"] for epoch in epochs),
                    **{key: nodes_job.added(epoch[key] for epoch in epochs)
                       for key in ("content_digest", "places_digest")}}
            return found

    # From the start of the launch to the last daemon that serves.

    def launch(self):
        records = self.store.dataset(SMALL_SET)
        runs = self.scale.pairs
        for figure_id, kind in (("nodes.launch.mpirun_2", "pmix"),
                                ("nodes.launch.mpirun_2_directory", "directory")):
            self._add(LAUNCH_GOALS, figure_id,
                      [self._launch_by_mpirun(records, kind) for _ in range(runs)], "s",
                      settings=f"mpirun -n 2 forebay launch, rendezvous by {kind}; until both "
                      "commands run")
        self._add({}, "nodes.launch.mpirun_alone",
                  [_last_stamp_s("exec date +%s.%N") for _ in range(runs)], "s",
                  settings="mpirun -n 2 date: what of that is mpirun's own")
        times = []
        for _ in range(max(3, runs // 3)):
            with network.network(LAUNCH_MANY) as net:
                begin = time.monotonic()
                with self.jobs.started(net, LAUNCH_MANY, SMALL_KEYS, records,
                                       extent_bytes=SMALL_EXTENT_BYTES):
                    times.append(time.monotonic() - begin)
        self._add(LAUNCH_GOALS, f"nodes.launch.namespaces_{LAUNCH_MANY}", times, settings=(
            f"{LAUNCH_MANY} daemons on this machine's {os.cpu_count()} cores, each in a network "
            "namespace; rendezvous by a directory"))

    def _launch_by_mpirun(self, records, kind):
        with tempfile.TemporaryDirectory(prefix="fb.") as name:
            folder = pathlib.Path(name)
            (folder / "meeting").mkdir()
            config = folder / "forebay.toml"
            config.write_text(processes.config_text(
                {**SMALL_KEYS, "daemon.job_id": "bench", "daemon.log_level": "warn",
                 "peer.interface": "lo", "tier.ssd.capacity": str(64 << 20),
                 "nodes.rendezvous": kind if kind == "pmix" else f"directory:{folder}/meeting"},
                [{"name": "bench", "path": records.data, "extent": str(SMALL_EXTENT_BYTES),
                  **spine.raw_keys(records)}]), encoding="utf-8")
            # Two tasks of one machine stand for two nodes. Their SSD directories tell them apart.
            node = f"{folder}/$OMPI_COMM_WORLD_RANK"
            return _last_stamp_s(
                f"exec {self.binaries.find('forebay')} launch --config {config} "
                f"--node-rank $OMPI_COMM_WORLD_RANK --node-count 2 --address unix:{node}/d.sock "
                f"--set tier.ssd.directory={node}.ssd "
                "-- date +%s.%N",
                path=pathlib.Path(self.binaries.find("forebayd")).parent)

    # Pure functions, on one core.

    def shares(self):
        def measure(name, runs):
            found = programs.parse_benchmark(json.loads(processes.run_text(
                [self.binaries.find("shares_bench"), "--benchmark_format=json",
                 f"--benchmark_filter={name}", f"--benchmark_repetitions={runs}"])))
            scales = {"s": 1, "ns": 1e-9}
            return [entry["cpu_time"] * scales[entry["time_unit"]] for entry in found[name]]
        self._add(SHARES_GOALS, "nodes.shares.own_share",
                  measure("BM_OwnShare/nodes:16384/groups:16777216", SHARES_RUNS),
                  settings="2^24 groups among 16,384 nodes, none of which keeps its key; CPU time")
        self._add(SHARES_GOALS, "nodes.shares.owner_of",
                  [1e6 * value for value in measure("BM_OwnerOf/nodes:16384", self.scale.pairs)],
                  settings="16,384 nodes, each call needs the result of the one before; CPU time")

    def probing(self):
        # Simulated time: a second run would be the same.
        def measure(killed):
            return [json.loads(line) for line in processes.run_text(
                [self.binaries.find("probing_bench"), "--killed", str(killed), "--nodes",
                 *map(str, PROBING_NODES)]).splitlines()]
        quiet = measure(0)
        for run, lost in zip(quiet, measure(1)):
            name = f"nodes.probing.{run['nodes']}"
            settings = f"{run['nodes']} nodes in a simulated network, without headers"
            self._add(PROBING_GOALS, f"{name}_messages", [run["messages"]], unit="/s",
                      settings=settings)
            self._add(PROBING_GOALS, f"{name}_bytes", [run["bytes"]], unit="B/s",
                      settings=settings)
            self._add(PROBING_GOALS, f"{name}_lost_bytes", [lost["bytes"]], unit="B/s",
                      settings="in the minute in which a node is killed")
            self._add(PROBING_GOALS, f"{name}_known", [lost["known_s"]], unit="s",
                      settings="until all others count it as dead")
        for what in ("messages", "bytes"):
            self._add(PROBING_GOALS, f"nodes.probing.{what}_growth",
                      [quiet[-1][what] / quiet[0][what]],
                      settings=f"{PROBING_NODES[-1]} nodes over {PROBING_NODES[0]}")


def is_whole(whole, *parts):
    """Whether the parts of an epoch are together what one node delivered, position by position."""
    return (sum(part["samples"] for part in parts) == whole["samples"]
            and nodes_job.added(part["places_digest"] for part in parts)
            == whole["places_digest"])


def _last_stamp_s(script, path=None):
    """Runs `script` as two tasks of mpirun. Each prints a time of the wall clock: the seconds until
    the later one."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    begin = time.time()
    text = processes.run_text(["mpirun", "-n", "2", "--oversubscribe", "sh", "-c", script],
                              environment=environment)
    stamps = [float(line) for line in text.split()]
    if len(stamps) != 2:
        raise processes.RunFailed(f"two tasks printed {len(stamps)} times")
    return max(stamps) - begin
