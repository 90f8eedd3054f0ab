"""Row `losses` of suite `nodes`: nodes of a running job are killed, stopped, cut off or slow, or
their clocks jump. For each kind: whether every epoch is right, how much the job reads from the GFS,
how long a reader waits, and how much longer the job takes. The links are those of switch.py. The
readers are forebay_cluster_tool, which shares no code with the daemons and knows the bytes of each
sample."""

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import typing

from harness import datasets, delivered, nodes_job, processes, rows, spine, switch, wrong_clock
from harness.figures import Goal, worst

NODES = 4
LOST = 2  # the node that is lost first: it has no reader
SET = datasets.Spec("proof", samples=16_128, sample_bytes=4096, objects=1)
BATCH = 96  # of all ranks: divides the set, among two, three or four ranks
EPOCHS = 2
EXTENT_BYTES = 512 << 10
PAUSE_MS = 20  # of a reader after each batch: an epoch lasts some seconds
EPOCH_S_MIN = SET.samples / BATCH * PAUSE_MS * 1e-3  # they pause for so long
PREFETCH = 8
GFS_MB_PER_S = 32
SLOW_GFS_MB_PER_S = 0.8
STAGING_S = SET.payload_bytes / (GFS_MB_PER_S * 1e6)
RAM_OF_SET = 0.6  # three nodes hold the set
TIERS_OF_SET = 0.3  # each of RAM and SSD: three nodes hold the set, but not all in RAM
STOP_S = 20
READ_TIMEOUT_S = 300
LINK_BITS_PER_S = 200e6
# It takes some 4 s to find the slow node. Then it rests for 32 s, and is tried again.
SLOW_EPOCHS = 60
# Nodes whose clocks jump, and by how much: farther than that, certificates would not be valid.
AHEAD, AHEAD_HOURS = 0, 40 * 24
BEHIND, BEHIND_HOURS = 1, -20
RETURN_EPOCHS = 6  # a daemon that is started again is back before the last one
# More than a row of the suite should take, so that the recorded figures ask for it.
INSTANTS = int(os.environ.get("FOREBAY_LOSSES_INSTANTS", "5"))
# Faults whose name holds one of these parts between commas; empty: all.
ONLY = os.environ.get("FOREBAY_LOSSES_ONLY", "")
STALL_GOAL = Goal(5, at_least=False)
SLOWER_GOAL = Goal(1.3, at_least=False)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What happens, and what it may cost. `fault(run)` injects it for as long as its context lasts:
    `lasts_s`, or until the readers have ended."""
    name: str
    what: str
    fault: typing.Callable
    said: tuple = ()          # nodes that each reader's daemon must name as lost
    shares: float = 1         # of the set's quarters that may be read a second time
    readers: tuple = (0, 1, 3)
    is_warm: bool = True      # the set is staged before the readers begin
    evicts: bool = False      # RAM is full, and extents leave it for those of a lost share
    lasts_s: float = 0
    epochs: int = EPOCHS
    wrong_clocks: tuple = ()  # nodes whose clocks may jump; with any, connections are encrypted
    gfs_mb_per_s: float = GFS_MB_PER_S
    window_s: typing.Optional[float] = None  # of the instants; None: while the readers read
    times: int = 1
    stall_goal: typing.Optional[Goal] = None


class Run(typing.NamedTuple):
    """What a fault may touch."""
    net: switch.Switched
    services: list
    gfs: processes.Gfs
    clocks: wrong_clock.Clocks


@contextlib.contextmanager
def _nothing(_run):
    yield


def _kill(*nodes):
    @contextlib.contextmanager
    def fault(run):
        for node in nodes:
            run.services[node].kill()
        yield
    return fault


@contextlib.contextmanager
def _stop(run):
    run.services[LOST].process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        run.services[LOST].process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def _hang_gfs(run):
    """Of one node, as a mount that hangs."""
    run.gfs.control(f"fault hang * ops=read count=0 client={run.services[LOST].process.pid}")
    try:
        yield
        if run.gfs.counters()["faults"][0]["injected"] == 0:
            raise processes.RunFailed("the node had read all that it reads before its GFS hung")
    finally:
        run.gfs.control("clear")


def _links(pairs, **of_fault):
    @contextlib.contextmanager
    def fault(run):
        injected = switch.Fault(**of_fault)
        run.net.set(pairs, injected)
        yield
        run.net.mend(injected)
        if injected.count == 0:
            raise processes.RunFailed("no packet met the fault of the link")
    return fault


@contextlib.contextmanager
def _jump(run):
    run.clocks.set(AHEAD, run.services[AHEAD].process, AHEAD_HOURS)
    run.clocks.set(BEHIND, run.services[BEHIND].process, BEHIND_HOURS)
    yield
    nodes_job.check_encryption(run.services, True)


@contextlib.contextmanager
def _jump_and_return(run):
    """The daemon that is killed and started again has the right clock, and connects to those whose
    clocks are wrong."""
    with _jump(run):
        returning = run.services[LOST]
        returning.kill()
        returning.start()
        returning.wait_until_ready()
        yield
        for service in run.services:
            silent = [node["rank"] for node in service.cli("status", "--nodes")["nodes"]
                      if not node["answers"]]
            if silent:
                raise processes.RunFailed(f"nodes {silent} do not answer a node of the job after "
                                          f"clocks have jumped and node {LOST} has come back")


def _slow(run):
    return contextlib.nullcontext(run.net.limit(LOST, LINK_BITS_PER_S / 10))


OTHERS = [node for node in range(NODES) if node != LOST]
SENT = switch.between([LOST], OTHERS)
RECEIVED = switch.between(OTHERS, [LOST])
HALVES = switch.between([0, 1], [2, 3]) + switch.between([2, 3], [0, 1])
SCENARIOS = (
    Scenario("kill_staging", "SIGKILL while the set is staged", _kill(LOST), is_warm=False,
             times=INSTANTS, stall_goal=STALL_GOAL),
    Scenario("kill_warm", "SIGKILL of one of four nodes, all data on tiers", _kill(LOST),
             times=INSTANTS, stall_goal=STALL_GOAL),
    Scenario("kill_eviction", "SIGKILL, RAM full, so that extents leave it for the lost share",
             _kill(LOST), evicts=True, times=INSTANTS, stall_goal=STALL_GOAL),
    Scenario("stopped", f"SIGSTOP for {STOP_S} s", _stop, lasts_s=STOP_S),
    Scenario("link_down", "link of a node down, both directions", _links(SENT + RECEIVED, lost=1)),
    Scenario("link_down_sent", "what a node sends is lost", _links(SENT, lost=1)),
    Scenario("link_down_received", "what is sent to a node is lost", _links(RECEIVED, lost=1)),
    # Each half reads the two quarters that it lacks.
    Scenario("halves", "two nodes cannot reach the other two; readers on all four",
             _links(HALVES, lost=1), shares=4, readers=(0, 1, 2, 3)),
    Scenario("packet_loss", "1 % of the packets of a node lost, both directions",
             _links(SENT + RECEIVED, lost=0.01)),
    Scenario("packet_delay", "what a node sends comes 200 ms later", _links(SENT, delay_s=0.2)),
    Scenario("two_lost", "SIGKILL of two of four nodes at once", _kill(2, 3), said=(2, 3),
             shares=2, readers=(0, 1)),
    Scenario("peers_gone", "SIGKILL of three of four nodes at once", _kill(1, 2, 3),
             said=(1, 2, 3), shares=3, readers=(0,)),
    Scenario("clocks_jump", f"TLS; clock of a node jumps {AHEAD_HOURS} h ahead, and of another one "
             f"{-BEHIND_HOURS} h back", _jump, shares=0, wrong_clocks=(AHEAD, BEHIND)),
    Scenario("clocks_jump_staging", "the same while the set is staged", _jump, shares=0,
             is_warm=False, wrong_clocks=(AHEAD, BEHIND)),
    # Others read of the lost share what they need until the node is back, and it reads its share.
    Scenario("clocks_jump_return", "the same, and SIGKILL of a third one, which starts again at "
             "once", _jump_and_return, shares=2, wrong_clocks=(AHEAD, BEHIND),
             epochs=RETURN_EPOCHS),
    # In the first half of staging, so that the node has not read its whole share.
    Scenario("gfs_hung", "the GFS answers no reads of one node; readers on all four", _hang_gfs,
             readers=(0, 1, 2, 3), is_warm=False, window_s=STAGING_S / 2),
    # A first reading of more than 30 s.
    Scenario("gfs_slow", f"a GFS of {SLOW_GFS_MB_PER_S} MB/s for all; readers on all four",
             _nothing, shares=0, readers=(0, 1, 2, 3), is_warm=False,
             gfs_mb_per_s=SLOW_GFS_MB_PER_S),
)


UNITS = {"exact": "runs", "gfs_of_bound": "x", "stall": "s", "time": "x", "said": "runs",
         "evictions": "extents"}


def goals_of(scenario):
    """By figure of the scenario, for those that have a goal."""
    goals = {"exact": Goal(scenario.times), "gfs_of_bound": Goal(1, at_least=False)}
    if scenario.stall_goal:
        goals["stall"] = scenario.stall_goal
    if scenario.said:
        goals["said"] = Goal(scenario.times)
    if scenario.evicts:
        goals["evictions"] = Goal(1)
    return goals


NAMES = [scenario.name for scenario in SCENARIOS] + ["slow"]


def goals_of_row(names):
    """Of the faults of these names."""
    goals = {f"nodes.losses.{scenario.name}_{name}": (UNITS[name], goal)
             for scenario in SCENARIOS if scenario.name in names
             for name, goal in goals_of(scenario).items()}
    if "slow" in names:
        goals["nodes.losses.slow_exact"] = ("runs", Goal(1))
        goals["nodes.losses.slow_time"] = ("x", SLOWER_GOAL)
    return goals


CHOSEN = rows.chosen(NAMES, ONLY)
# A part of a name that no fault has is a typing error: then all figures are missing.
GOALS = goals_of_row(CHOSEN or NAMES)


@dataclasses.dataclass
class Outcome:
    gfs_bytes: int
    stall_s: float
    seconds: float
    evictions: int
    has_said: bool    # each reader's daemon has named each lost node in its log
    problem: str = ""  # empty: every epoch is right


def gfs_bound(set_bytes, shares):
    """Bytes that a job may read: the set, the shares that were lost once more, and 2 %. A node has
    at most 1/32 more than its share, and a group (docs/nodes_design.md)."""
    share = set_bytes / NODES * (1 + 1 / 32) + EXTENT_BYTES
    return 1.02 * (set_bytes + shares * share)


def run(suite):
    if not CHOSEN:
        raise processes.Missing(f"no fault holds \"{ONLY}\" ($FOREBAY_LOSSES_ONLY); faults: "
                                f"{', '.join(NAMES)}")
    tool = suite.binaries.find("forebay_cluster_tool")
    library = None
    if any(scenario.wrong_clocks for scenario in SCENARIOS if scenario.name in CHOSEN):
        library = suite.binaries.find_test_library(wrong_clock.LIBRARY, "forebay_wrong_clock")
    with tempfile.TemporaryDirectory(prefix="losses.") as folder, \
            switch.switched_network(NODES) as net:
        records = datasets.Dataset(SET, pathlib.Path(folder))
        records.data.mkdir()
        processes.run_text([tool, "make", "--out", records.data / "x.bin", "--records",
                            SET.samples, "--record-bytes", SET.sample_bytes])
        losses = Losses(suite, records, net, tool, library)
        for scenario in SCENARIOS:
            if scenario.name in CHOSEN:
                losses.measure(scenario)
        if "slow" in CHOSEN:
            losses.measure_slow()


class Losses:
    def __init__(self, suite, records, net, tool, library):
        self.suite = suite
        self.records = records
        self.net = net
        self.tool = tool
        self.library = library
        self._undisturbed = {}

    def _add(self, scenario, name, values, settings, note=""):
        figure_id = f"nodes.losses.{scenario.name}_{name}"
        _, goal = GOALS.get(figure_id, (None, None))
        self.suite.sheet.add(worst(figure_id, UNITS[name], values, goal=goal, settings=settings,
                                   note=note))

    def measure(self, scenario):
        # Not in the last epochs of those that have more than others.
        window_s = scenario.window_s or (0.9 * EPOCHS * EPOCH_S_MIN if scenario.is_warm
                                         else STAGING_S)
        dice = random.Random(f"{spine.SEED} {scenario.name}")
        runs = [self._once(scenario, dice.uniform(0, window_s)) for _ in range(scenario.times)]
        problems = [outcome.problem for outcome in runs if outcome.problem]
        bound = gfs_bound(self.records.stored_bytes(), scenario.shares)
        settings = (f"{scenario.what}; {scenario.times} instants in the first {window_s:.1f} s; "
                    f"readers on nodes {', '.join(map(str, scenario.readers))}")
        self._add(scenario, "exact", [len(runs) - len(problems)], settings,
                  note="; ".join(problems)[:300])
        self._add(scenario, "gfs_of_bound", [run.gfs_bytes / bound for run in runs],
                  f"bound: the set, {scenario.shares} x the share of a node, and 2 %, "
                  f"{bound / 1e6:.1f} MB")
        self._add(scenario, "stall", [run.stall_s for run in runs],
                  "longest wait of any reader between two batches")
        if scenario.fault is not _nothing:
            base = self._base(scenario)
            self._add(scenario, "time", [run.seconds / base.seconds for run in runs],
                      f"of an undisturbed job of {base.seconds:.1f} s")
        if scenario.said:
            self._add(scenario, "said", [sum(run.has_said for run in runs)],
                      "each survivor with a reader names each lost node in its log")
        if scenario.evicts:
            self._add(scenario, "evictions", [sum(run.evictions for run in runs)],
                      "while the readers read, on their nodes, in all runs")

    def measure_slow(self):
        """Readers that wait for nothing but samples, so that the links are what limits them."""
        readers = (0, 1, 3)
        scenario = Scenario("slow", "", _slow, readers=readers, epochs=SLOW_EPOCHS)
        options = {"pause_ms": 0, "link_bits_per_s": LINK_BITS_PER_S}
        # With three nodes, the readers are on all of them.
        three = self._once(dataclasses.replace(scenario, fault=_nothing, readers=(0, 1, 2)), 0,
                           node_count=NODES - 1, **options)
        slow = self._once(scenario, 0, **options)
        problems = [run.problem for run in (three, slow) if run.problem]
        self._add(scenario, "exact", [0 if problems else 1],
                  f"links of {LINK_BITS_PER_S / 1e6:.0f} Mbit/s, and a tenth of it for one of four "
                  f"nodes, which has no reader; {SLOW_EPOCHS} epochs", note="; ".join(problems))
        self._add(scenario, "time", [slow.seconds / three.seconds],
                  f"of a job of three nodes with such links, {three.seconds:.1f} s")

    def _base(self, scenario):
        """The job of the scenario, undisturbed."""
        key = (scenario.readers, scenario.is_warm, scenario.evicts, scenario.epochs,
               scenario.wrong_clocks)
        if key not in self._undisturbed:
            base = self._once(dataclasses.replace(scenario, fault=_nothing, said=(), lasts_s=0), 0)
            if base.problem:
                raise processes.RunFailed(f"without any fault: {base.problem}")
            self._undisturbed[key] = base
        return self._undisturbed[key]

    @contextlib.contextmanager
    def _job(self, scenario, node_count, folder):
        keys = {"tier.ram.capacity": str(int(RAM_OF_SET * SET.payload_bytes)),
                "slots.capacity": str(64 << 20)}
        if scenario.evicts:
            keys.update(dict.fromkeys(("tier.ram.capacity", "tier.ssd.capacity"),
                                      str(int(TIERS_OF_SET * SET.payload_bytes))))
        clocks = wrong_clock.Clocks(self.library, folder, scenario.wrong_clocks)
        with contextlib.ExitStack() as stack:
            if scenario.wrong_clocks:
                keys["peer.secret"] = f"file:{stack.enter_context(nodes_job.secret())}"
            gfs = stack.enter_context(processes.emulated_gfs(
                self.suite.binaries, self.records.data, "unlimited",
                bandwidth_mb_per_s=scenario.gfs_mb_per_s))
            services = stack.enter_context(self.suite.jobs.started(
                self.net, node_count, keys, self.records, gfs.mount, EXTENT_BYTES,
                launchers=[clocks.command(node) for node in range(node_count)]))
            yield Run(self.net, services, gfs, clocks)

    def _once(self, scenario, instant_s, node_count=NODES, pause_ms=PAUSE_MS,
              link_bits_per_s=None):
        for node in range(NODES):
            self.net.limit(node, link_bits_per_s)
        with tempfile.TemporaryDirectory(prefix="read.") as name, \
                self._job(scenario, node_count, pathlib.Path(name)) as job:
            for service in job.services if scenario.is_warm else ():
                service.stage("bench")
            of_readers = [job.services[node] for node in scenario.readers]
            evicted = _evictions(of_readers)
            readers = Readers(self.tool, of_readers, pathlib.Path(name), scenario.epochs, pause_ms)
            with readers:
                time.sleep(instant_s)
                with scenario.fault(job):
                    readers.wait(scenario.lasts_s or READ_TIMEOUT_S)
                readers.wait(READ_TIMEOUT_S)
                problem = readers.problem(scenario.epochs)
            return Outcome(
                gfs_bytes=job.gfs.counters()["total"]["bytes"], stall_s=readers.stall_s(),
                seconds=readers.seconds, problem=problem,
                evictions=_evictions(of_readers) - evicted,
                has_said=all(_has_said(service, node)
                             for service in of_readers for node in scenario.said))


def _evictions(services):
    return sum(tier["evictions"] for service in services
               for tier in service.cli("status")["tiers"])


def _has_said(survivor, lost):
    text = survivor.log_path.read_text("utf-8")
    return re.search(rf"(node {lost}|\(rank {lost}\)) does not answer", text) is not None


class Readers:
    """A rank on each of some daemons. Ends them with its context."""

    def __init__(self, tool, services, folder, epochs, pause_ms):
        self.seconds = 0.0
        self._folder = folder
        self._begin = time.monotonic()
        self._logs = [delivered.Log(folder / f"{rank}.log", rank) for rank in range(len(services))]
        self._processes = []
        for log, service in zip(self._logs, services):
            with open(folder / f"{log.rank}.err", "w", encoding="utf-8") as errors:
                self._processes.append(subprocess.Popen(
                    [str(word) for word in [
                        tool, "read", "--address", service.address, "--log", log.path, "--token",
                        folder / f"{log.rank}.token", "--record-bytes", SET.sample_bytes,
                        "--dataset", "bench", "--global-batch", BATCH, "--ranks", len(services),
                        "--rank", log.rank, "--epochs", epochs, "--seed", spine.SEED, "--depth",
                        PREFETCH, "--pause-us", pause_ms * 1000]], stderr=errors))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._processes:
            processes.end_process(process)

    def wait(self, limit_s):
        """At most for that time."""
        end = time.monotonic() + limit_s
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return
        self.seconds = self.seconds or time.monotonic() - self._begin

    def problem(self, epochs):
        """What was wrong with what they got; empty: nothing."""
        for log, process in zip(self._logs, self._processes):
            if process.returncode is None:
                return f"rank {log.rank} still read after {READ_TIMEOUT_S} s"
            if process.returncode != 0:
                return (self._folder / f"{log.rank}.err").read_text("utf-8")
        try:
            delivered.check(self._logs, SET.samples, epochs)
        except delivered.Wrong as wrong:
            return str(wrong)
        return ""

    def stall_s(self):
        return max(delivered.longest_stall_s(log.path) for log in self._logs)
