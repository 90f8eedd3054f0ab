#!/usr/bin/env python3
"""Jobs of one to four daemons under faults that are drawn at random (chaos_faults.py): kills,
stops, damage on SSD, full disks, files that cannot be opened, links that are cut, slow or lossy,
machines in the place of which others join, restarts of the whole job with another number of nodes.
After each job, what its readers wrote down must be every sample of every epoch exactly once, at its
place in the order, with the right bytes.

    chaos.py --forebayd FILE --forebay FILE --tool FILE [--seed N...]
             [--jobs N | --minutes M | --soak] [--keep FOLDER]

Each job follows from one number, which is printed first; `--seed N --jobs 1` repeats it. How the
faults fall in time differs from run to run. The last line is a JSON object: the number of jobs, and
how often each fault was injected. Exit status 1: a job failed, and its folder is kept and named; or
no fault was injected. Faults of links and disks need root, and /dev/net/tun; without them, they are
not injected, which is an error only where the environment variable CI is set.
"""

import argparse
import collections
import contextlib
import dataclasses
import heapq
import itertools
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from chaos_faults import FAULTS, OF_LINKS, START_S, mounted_disk, switched_network, unavailable
from harness import delivered
from harness.network import SUBNET

# A job that takes longer than this stands still.
LIMIT_S = 150
NODES_MAX = 4
# Those of the nodes that a job is started with, and others that join it in their place.
MACHINES = NODES_MAX + 2
# What a disk of a node has beside its SSD tier.
DISK_SPARE_MIB = 4


class JobFailed(Exception):
    pass


@dataclasses.dataclass
class Plan:
    """What a job is, drawn from its seed."""
    seed: int
    nodes: int
    records: int
    record_bytes: int
    extent_kib: int
    ram_mib: int
    slots_mib: int
    ssd_mib: int
    mode: str
    block_samples: int
    window_runs: int
    delivery: str
    ranks_per_node: int
    global_batch: int
    epochs: int
    depth: int
    compress: bool
    encrypted: bool
    silent_node: bool  # the last node has no readers, so it may be killed
    run_s: float       # how long the readers take about, without faults
    suspicion_s: int = 5
    faults: list = dataclasses.field(default_factory=list)

    @property
    def set_mib(self):
        return self.records * self.record_bytes / 2**20


def draw(seed):
    dice = random.Random(seed)
    nodes = dice.choice([1, 1, 2, 2, 3, 4])
    record_bytes = dice.choice([1000, 4096, 20_000])
    records = dice.choice([8, 16, 24]) * 2**20 // record_bytes // 96 * 96
    extent_kib = dice.choice([64, 256, 512])
    set_mib = records * record_bytes / 2**20
    fits = dice.random() < 0.6
    # What the data set needs on each node, with some room for extents that are passing through.
    share = set_mib / nodes
    ram = share * (1.6 if fits else 0.4) + 16 * extent_kib / 1024 + 2
    # Daemons of one machine are told apart by their SSD directories.
    ssd = share * 1.5 if dice.random() < 0.5 else 2
    mode = dice.choice(["global", "block", "sequential"]) if fits else dice.choice(
        ["block", "sequential"])
    # Three windows fit in the RAM of all nodes.
    per_extent = max(1, extent_kib * 1024 // record_bytes)
    window = max(per_extent, int(ram * nodes * 2**20 / record_bytes / 4))
    block = dice.choice([per_extent, max(1, per_extent // 2)])
    ranks_per_node = dice.choice([1, 1, 2])
    global_batch = dice.choice([24, 48, 96])
    depth = dice.choice([1, 2, 4, 8])
    # For one rank that takes whole global batches, and for reads from SSD.
    slots = (depth + 2) * (global_batch * (record_bytes + 8192) / 2**20 + 1) * dice.choice([1.2, 3])
    plan = Plan(seed=seed, nodes=nodes, records=records, record_bytes=record_bytes,
                extent_kib=extent_kib, ram_mib=int(ram) + 1, slots_mib=int(slots) + 4,
                ssd_mib=int(ssd) + 1, mode=mode, block_samples=block,
                window_runs=max(1, min(32, window // block)),
                delivery=dice.choice(["contiguous", "views"]),
                ranks_per_node=ranks_per_node, global_batch=global_batch,
                epochs=dice.choice([2, 3]), depth=depth,
                compress=dice.random() < 0.25, encrypted=dice.random() < 0.5,
                silent_node=nodes > 1 and dice.random() < 0.4, run_s=dice.choice([3, 5]))
    kinds = ["stop reader", "kill reader", "stop daemon", "damage ssd", "full disk"]
    if nodes > 1:
        kinds += OF_LINKS
    # In mode global, the others may have no room for the share of a lost node, and would refuse
    # readers that come back.
    if plan.silent_node and mode != "global":
        kinds += ["kill daemon"] * 2 + ["drain node"] * 2
    if mode != "global" or nodes == 1:
        kinds += ["return daemon"] * 2
    if mode != "global" and nodes > 1:
        kinds += ["replace node"] * 2
    if dice.random() < 0.4:
        kinds += ["restart job"] * 2
    plan.faults = [(dice.uniform(0.05, 0.95) * plan.run_s, dice.choice(kinds))
                   for _ in range(dice.choice([1, 2, 4, 6]))]
    # In mode global, a job of several nodes that is started then may miss one, and refuse readers.
    if dice.random() < 0.3 and (mode != "global" or nodes == 1):
        plan.faults.append((dice.uniform(0.05, 0.95) * plan.run_s, "no files"))
    plan.faults.sort()
    if any(kind == "replace node" for _, kind in plan.faults):
        # The others are to read still when a node joins, after the one before it counts as dead.
        plan.suspicion_s = 1
        plan.run_s += 5
    return plan


class Job:
    def __init__(self, plan, programs, folder):
        self.plan = plan
        self.programs = programs
        self.folder = folder
        self.injected = collections.Counter()
        # Which targets a fault takes depends on what runs by then, so it has dice of its own.
        self.dice = random.Random(plan.seed + 1)
        self.nodes = plan.nodes
        self.generation = 0  # of the job: another one after each restart
        self.machines = []  # of each node, the number of its machine
        self.spares = []  # the machines on which this generation has run no daemon
        self.joined = set()  # nodes that have joined the job, in the place of others
        self.daemons = {}
        self.readers = {}
        self.restarts = collections.Counter()  # of readers
        self.net = None  # with faults of links, for all machines
        self.returning = set()  # nodes whose daemon was killed, and is not ready again, or no other
        self.leaving = set()  # nodes that were asked to leave the job, or may have been
        self.disks = {}  # with faults of disks: by machine, the folder of a disk of its own
        self.environment = {**os.environ, "FOREBAY_JOB_ID": f"chaos-{plan.seed}"}
        self.environment.pop("FOREBAY_ADDRESS", None)
        self.environment.pop("FOREBAY_JOB_SECRET", None)
        if plan.encrypted:
            self.environment["FOREBAY_JOB_SECRET"] = f"{plan.seed:064x}"

    # What runs.

    def make_data(self):
        (self.folder / "gfs").mkdir()
        subprocess.run([self.programs.tool, "make", "--out", self.folder / "gfs/x.bin", "--records",
                        str(self.plan.records), "--record-bytes", str(self.plan.record_bytes)],
                       check=True)
        compress = '"fast"' if self.plan.compress else '"off"'
        (self.folder / "f.toml").write_text(
            f'[tier.ram]\ncapacity = "{self.plan.ram_mib}MiB"\n'
            f'[slots]\ncapacity = "{self.plan.slots_mib}MiB"\n'
            f'[tier.ssd]\ncapacity = "{self.plan.ssd_mib}MiB"\n'
            f'[nodes]\nsuspicion_s = {self.plan.suspicion_s}\n'
            f'[[dataset]]\nname = "d"\npath = "{self.folder}/gfs"\nformat = "raw"\n'
            f'files = ["x=x.bin"]\nshape = [{self.plan.record_bytes}]\n'
            f'extent = "{self.plan.extent_kib}KiB"\npersist = true\ncompress = {compress}\n',
            encoding="utf-8")

    def home(self, node):
        """The folder that stands for the machine of the node."""
        return self.folder / f"n{self.machines[node]}"

    def address(self, node):
        return f"unix:{self.home(node)}/run/s"

    def address_for_nodes(self, node):
        """Where the daemon of the node listens for others. It is ready."""
        lines = (self.home(node) / "log").read_text(errors="replace")
        return re.findall(r"which others reach at (\S+),", lines)[-1]

    def start_daemons(self):
        (self.folder / f"meet{self.generation}").mkdir()
        self.machines = list(range(self.nodes))
        self.spares = list(range(self.nodes, MACHINES))
        self.joined.clear()
        waiting = {node: self.start_daemon(node) for node in range(self.nodes)}
        for node, ready in waiting.items():
            self.await_ready(node, ready)

    def start_daemon(self, node):
        """Returns a descriptor that says when it is ready."""
        home = self.home(node)
        words = ["--config", self.folder / "f.toml", "--socket", home / "run/s", "--set",
                 f"daemon.state_dir={home}/state", "--set", f"tier.ssd.directory={home}/disk/ssd"]
        if self.nodes > 1:
            rendezvous = f"directory:{self.folder}/meet{self.generation}"
            if node in self.joined:
                others = [other for other in range(self.nodes) if other != node]
                asked = self.dice.choice(self.staying(others) or others)
                rendezvous = f"join:{self.address_for_nodes(asked)}"
            words += ["--node-rank", node, "--node-count", self.nodes,
                      "--set", f"nodes.rendezvous={rendezvous}", "--set",
                      "peer.interface=" + (f"{SUBNET}.0/24" if self.net else "lo"),
                      "--set", f"peer.allow_plaintext={str(not self.plan.encrypted).lower()}"]
        ready, says_ready = os.pipe()
        with open(home / "log", "ab") as log:
            self.daemons[node] = subprocess.Popen(
                [str(word) for word in [
                    *(self.net.command(self.machines[node]) if self.net else ()),
                    self.programs.forebayd, *words, "--ready-fd", says_ready]],
                pass_fds=[says_ready], env=self.environment, stdout=log, stderr=log)
        os.close(says_ready)
        return ready

    def start_drain(self, asked, node, hand_over_s):
        """Asks the daemon of node `asked` that `node` leaves the job. Returns the process."""
        with open(self.folder / "drain.log", "ab") as log:
            return subprocess.Popen(
                [self.programs.forebay, "drain", "--address", self.address(asked), "--node",
                 str(node), "--hand-over-s", str(hand_over_s)],
                env=self.environment, stdout=log, stderr=log)

    def staying(self, nodes):
        """Those of the nodes whose daemon is ready, and does not leave."""
        return [node for node in self.running(self.daemons)
                if node in nodes and node not in self.returning and node not in self.leaving]

    def may_come_back(self, node):
        """Whether a daemon that was killed had not left the job before. At the end of its departure
        it removes the list of nodes by which the next daemon would join them."""
        return (self.home(node) / "run/forebayd.nodes").exists()

    @staticmethod
    def has_said(ready, wait_s=0):
        return bool(select.select([ready], [], [], wait_s)[0])

    def lose_machine(self, node):
        """The daemon and the readers of the node are killed, and another machine is its own from
        now on."""
        if node in self.daemons:
            self.kill(self.daemons.pop(node))
        self.leaving.discard(node)
        for rank in self.running(self.readers):
            if self.ranks()[rank] == node:
                self.kill(self.readers.pop(rank))
        self.machines[node] = self.dice.choice(self.spares)
        self.spares.remove(self.machines[node])
        self.joined.add(node)

    def start_lost_readers(self):
        """On the machines that their nodes have now, where they go on at their tokens."""
        for rank in range(len(self.ranks())):
            if rank not in self.readers:
                self.restarts[rank] += 1
                self.start_reader(rank)

    def await_ready(self, node, ready, wait_s=START_S):
        line = os.read(ready, 200) if self.has_said(ready, wait_s) else b""
        os.close(ready)
        if not line.startswith(b"READY"):
            raise JobFailed(f"the daemon of node {node} did not start, or not in time")

    def ranks(self):
        """The node of each rank."""
        with_readers = self.nodes - (1 if self.plan.silent_node and self.nodes > 1 else 0)
        wanted = with_readers * self.plan.ranks_per_node
        while self.plan.global_batch % wanted:
            wanted -= 1
        return [rank % with_readers for rank in range(wanted)]

    def start_reader(self, rank):
        plan = self.plan
        ranks = self.ranks()
        name = f"g{self.generation}r{rank}"
        words = ["read", "--address", self.address(ranks[rank]), "--log",
                 self.folder / f"{name}.{self.restarts[rank]}.log", "--delivery-log",
                 self.folder / f"{name}.delivered", "--token",
                 self.folder / f"{name}.token", "--record-bytes", plan.record_bytes, "--dataset",
                 "d", "--global-batch", plan.global_batch, "--ranks", len(ranks), "--rank", rank,
                 "--epochs", plan.epochs, "--seed", plan.seed, "--mode", plan.mode,
                 "--block-samples", plan.block_samples, "--window-runs", plan.window_runs,
                 "--delivery", plan.delivery, "--depth", plan.depth, "--retry-for-ms",
                 LIMIT_S * 1000, "--pause-us",
                 int(plan.run_s * 1e6 / (plan.epochs * plan.records / plan.global_batch))]
        token = self.folder / f"{name}.token"
        if not token.exists():
            token = self.folder / f"g{self.generation}.resume"
        if token.exists():
            words += ["--resume", token]
        with open(self.folder / f"{name}.err", "ab") as errors:
            self.readers[rank] = subprocess.Popen(
                [str(word) for word in [self.programs.tool, *words]], env=self.environment,
                stderr=errors)

    def start(self):
        self.start_daemons()
        for rank in range(len(self.ranks())):
            self.start_reader(rank)

    # What faults use.

    @staticmethod
    def running(processes_by_key):
        return [key for key, process in processes_by_key.items() if process.poll() is None]

    @staticmethod
    def kill(process):
        process.kill()
        process.wait()

    def restart(self):
        """As a requeued job: nothing is left but files, and the number of nodes is another one."""
        self.check_processes()
        for process in [*self.readers.values(), *self.daemons.values()]:
            self.kill(process)
        tokens = sorted(self.folder.glob(f"g{self.generation}r*.token"))
        before = self.folder / f"g{self.generation}.resume"
        complete = len(tokens) == len(self.ranks())
        self.generation += 1
        resume = self.folder / f"g{self.generation}.resume"
        # A checkpoint is of one step of all ranks: here, the slowest one's. A rank that has kept no
        # token yet is where the generation began.
        if complete:
            shutil.copy(min(tokens, key=lambda path: self.place(path.read_bytes())), resume)
        elif before.exists():
            shutil.copy(before, resume)
        self.daemons, self.readers = {}, {}
        self.leaving.clear()
        self.nodes = self.dice.choice([n for n in range(1, NODES_MAX + 1) if self.holds_on(n)])
        self.start()

    @staticmethod
    def place(token):
        """Where a token stands in the order (docs/order.md, section 8)."""
        epoch, = struct.unpack_from("<I", token, 92)
        step, = struct.unpack_from("<Q", token, 96)
        return epoch, step

    def holds_on(self, nodes):
        """Whether mode global is not refused for want of capacity."""
        plan = self.plan
        return plan.mode != "global" or nodes >= plan.nodes

    # The end.

    def run(self, not_here):
        """`not_here`: kinds of faults that cannot be injected."""
        kinds = {kind for _, kind in self.plan.faults}.difference(not_here)
        with contextlib.ExitStack() as stack:
            if kinds.intersection(OF_LINKS):
                self.net = stack.enter_context(switched_network(MACHINES))
            for machine in range(MACHINES):
                disk = self.folder / f"n{machine}/disk"
                disk.mkdir(parents=True)
                if "full disk" in kinds:
                    stack.enter_context(mounted_disk(disk, self.plan.ssd_mib + DISK_SPARE_MIB))
                    self.disks[machine] = disk
            self.make_data()
            return self.run_with(kinds)

    def run_with(self, kinds):
        begin = time.monotonic()
        try:
            self.start()
            self.inject([(begin + at, kind) for at, kind in self.plan.faults if kind in kinds])
            self.await_readers(begin + LIMIT_S)
            self.end_daemons()
        finally:
            for process in [*self.readers.values(), *self.daemons.values()]:
                if process.poll() is None:
                    self.kill(process)
        self.check()
        return time.monotonic() - begin

    def inject(self, faults):
        """`faults`: times and kinds. Those that last may overlap."""
        waiting = [(at, number, kind, None) for number, (at, kind) in enumerate(faults)]
        heapq.heapify(waiting)
        while waiting:
            at, number, kind, under_way = heapq.heappop(waiting)
            time.sleep(max(0, at - time.monotonic()))
            if under_way is None:
                under_way = FAULTS[kind](self) if self.running(self.readers) else False
            if not isinstance(under_way, bool):
                try:
                    seconds = next(under_way)
                except StopIteration as end:
                    under_way = end.value
                else:
                    heapq.heappush(waiting,
                                   (time.monotonic() + seconds, number, kind, under_way))
                    continue
            self.injected[kind] += under_way

    def check_processes(self):
        """Before they are all killed: nothing may have failed until here."""
        for rank, reader in self.readers.items():
            if reader.poll() not in (None, 0):
                self.fail_reader(rank)
        for node, daemon in self.daemons.items():
            has_left = node in self.leaving and daemon.poll() == 0
            if daemon.poll() is not None and node not in self.returning and not has_left:
                raise JobFailed(f"the daemon of node {node} has died: {daemon.returncode}")

    def fail_reader(self, rank):
        errors = (self.folder / f"g{self.generation}r{rank}.err").read_text()
        raise JobFailed(f"the reader of rank {rank} has ended with "
                        f"{self.readers[rank].returncode}: {errors}")

    def await_readers(self, deadline):
        for rank, reader in self.readers.items():
            try:
                status = reader.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.check_processes()  # a daemon that has died is the cause
                raise JobFailed(f"the reader of rank {rank} has not ended after {LIMIT_S} s"
                                ) from None
            if status != 0:
                self.fail_reader(rank)

    def end_daemons(self):
        self.check_processes()
        for daemon in self.daemons.values():
            daemon.terminate()
        for node, daemon in self.daemons.items():
            try:
                status = daemon.wait(30)
            except subprocess.TimeoutExpired:
                raise JobFailed(f"the daemon of node {node} does not end") from None
            if status != 0:
                raise JobFailed(f"the daemon of node {node} has ended with {status}")

    def check(self):
        """What all readers of all generations wrote down."""
        logs = []
        for path in sorted(self.folder.glob("g*.log")):
            generation, rank = path.name.split(".")[0][1:].split("r")
            logs.append(delivered.Log(path, int(rank), int(generation)))
        try:
            delivered.check(logs, self.plan.records, self.plan.epochs)
        except delivered.Wrong as wrong:
            raise JobFailed(str(wrong)) from wrong
        self.audit()

    def audit(self):
        """What the client library wrote down proves the same. Its log takes another way, and so
        does what is compared with it: the positions of the order, and which restart took back
        what. All clocks are the same one here, so nothing may be undecided."""
        audit = subprocess.run(
            [self.programs.forebay, "audit", "--complete",
             *sorted(map(str, self.folder.glob("g*.delivered")))],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if audit.returncode != 0:
            raise JobFailed(f"forebay audit has ended with {audit.returncode}: {audit.stdout}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--forebayd", required=True)
    parser.add_argument("--forebay", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--seed", type=int, nargs="+", default=None,
                        help="of the first job; several: of each job")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--soak", action="store_true",
                        help="for FOREBAY_SOAK_MINUTES (20), from FOREBAY_CHAOS_SEED, if it is set")
    parser.add_argument("--expect-all", action="store_true",
                        help="fails if some kind of fault was not injected")
    parser.add_argument("--keep", default=None, help="where the folder of a failed job is made")
    programs = parser.parse_args()
    # Ends as after Ctrl-C, so that nothing is left running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    programs.forebayd = os.path.abspath(programs.forebayd)
    programs.forebay = os.path.abspath(programs.forebay)
    programs.tool = os.path.abspath(programs.tool)
    if programs.soak:
        programs.minutes = float(os.environ.get("FOREBAY_SOAK_MINUTES", "20"))
        if "FOREBAY_CHAOS_SEED" in os.environ:
            programs.seed = [int(os.environ["FOREBAY_CHAOS_SEED"])]
    injected = collections.Counter()
    jobs = failed = 0
    with tempfile.TemporaryDirectory(prefix="fbc.") as folder:
        not_here = unavailable(folder)
    for reason in dict.fromkeys(not_here.values()):
        kinds = [kind for kind in not_here if not_here[kind] == reason]
        print(f"not injected here: {', '.join(kinds)}: {reason}", flush=True)
    if not_here and "CI" in os.environ:
        return 1
    for seed in seeds(programs):
        plan = draw(seed)
        jobs += 1
        print(f"job {plan.seed}: {json.dumps(dataclasses.asdict(plan))}", flush=True)
        # A short name, because a Unix socket's path may have 107 bytes.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fbc.", dir=programs.keep))
        job = Job(plan, programs, folder)
        try:
            seconds = job.run(not_here)
        except JobFailed as failure:
            failed += 1
            print(f"job {plan.seed} FAILED: {failure}; its files are in {folder}", flush=True)
            continue
        except BaseException:
            print(f"job {plan.seed} was not run to its end; its files are in {folder}", flush=True)
            raise
        finally:
            injected += job.injected
        shutil.rmtree(folder, ignore_errors=True)
        print(f"job {plan.seed} is right after {seconds:.1f} s, with {len(plan.faults)} faults: "
              + ", ".join(sorted((+job.injected).elements())), flush=True)
    print(json.dumps({"jobs": jobs, "failed": failed, "injected": dict(injected)}), flush=True)
    missing = [kind for kind in FAULTS if injected[kind] == 0 and kind not in not_here]
    if missing and (programs.expect_all or not injected):
        print(f"not injected: {', '.join(missing)}", flush=True)
        return 1
    return 0 if failed == 0 else 1


def seeds(options):
    """The number of each job."""
    if options.seed is not None and len(options.seed) > 1:
        yield from options.seed
        return
    first = options.seed[0] if options.seed else random.SystemRandom().randrange(10**9)
    end = time.monotonic() + 60 * options.minutes if options.minutes else None
    for i in itertools.count():
        if time.monotonic() >= end if end else i >= options.jobs:
            return
        yield first + i


if __name__ == "__main__":
    sys.exit(main())
