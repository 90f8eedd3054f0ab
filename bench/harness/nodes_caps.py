"""Row `caps` of suite `nodes`: jobs with caps on bytes/s and opens/s read the emulated GFS from
cold tiers, and one daemon is killed in the middle. What the GFS has served is looked at ten times
a second: in no second, and over the whole job, may it be more than the caps allow."""

import concurrent.futures
import math
import threading
import time

from harness import datasets, nodes_job, peers, processes, spine
from harness.figures import Goal, from_runs

NODES = 4
CAPS = {"bytes": 50e6, "opens": 100}  # per second
KEYS = {"stage.job_bytes_per_second": f"{CAPS['bytes']:.0f}",
        "stage.job_opens_per_second": CAPS["opens"], "slots.capacity": str(64 << 20)}
BATCH = 16    # of each rank
SECONDS = 16  # that the larger part of a data set takes at its cap
LOOK_S = 0.1
WINDOW_S = 1.0
# The sizes of small files are asked for before they are opened, and count as opens, too.
SETS = {
    "bytes": datasets.Spec(
        "records", samples=int(SECONDS * CAPS["bytes"] / datasets.MEAN_SAMPLE_BYTES), objects=1),
    "opens": datasets.Spec("files", samples=SECONDS * CAPS["opens"] // 2, sample_bytes=4096),
}
GOALS = {f"nodes.caps.{cap}_{figure}": ("of the cap", Goal(1.05, at_least=False))
         for cap in CAPS for figure in ("second", "overall", "recovery_second",
                                        "recovery_overall")}


class Meter:
    """Looks at the counters of a GFS until it ends."""

    def __init__(self, gfs, counter):
        self._gfs = gfs
        self._counter = counter
        self._looks = [self._look()]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _look(self):
        return time.monotonic(), self._gfs.counters()["total"][self._counter]

    def _run(self):
        while not self._end.wait(LOOK_S):
            self._looks.append(self._look())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def wait_for(self, count):
        """Until the GFS has served that many. Returns when that was."""
        end = time.monotonic() + processes.RUN_TIMEOUT_S
        while self._looks[-1][1] < count:
            if time.monotonic() > end:
                raise processes.RunFailed(f"the GFS has served fewer than {count} "
                                          f"{self._counter} in {processes.RUN_TIMEOUT_S} s")
            self._end.wait(LOOK_S)
        return self._looks[-1][0]

    def rates(self, begin=-math.inf, end=math.inf):
        """As rates_of, between two times."""
        return rates_of([look for look in self._looks if begin <= look[0] <= end])


def rates_of(looks):
    """`looks`: (time, count), in rising order. The most in WINDOW_S, and what was served from the
    first rise to the last one; per second."""
    def rate(first, last):
        return (last[1] - first[1]) / (last[0] - first[0])
    most, last = 0.0, 0
    for first in looks:
        while last < len(looks) and looks[last][0] < first[0] + WINDOW_S:
            last += 1
        if last == len(looks):
            break
        most = max(most, rate(first, looks[last]))
    begin = max((look for look in looks if look[1] == looks[0][1]), default=None)
    end = min((look for look in looks if look[1] == looks[-1][1]), default=None)
    return most, rate(begin, end) if begin and end and end[0] > begin[0] else 0.0


def run(suite):
    for cap, spec in SETS.items():
        runs = [_run_once(suite, cap, suite.store.dataset(spec))
                for _ in range(max(1, suite.scale.pairs // 3))]
        settings = (f"{NODES} daemons from cold tiers, caps of {CAPS['bytes'] / 1e6:.0f} MB/s and "
                    f"{CAPS['opens']} opens/s, {spec.name}")
        notes = {"second": f"the most in any {WINDOW_S:.0f} s; {settings}",
                 "overall": "from the first byte until a daemon was killed",
                 "recovery_second": f"the most in any {WINDOW_S:.0f} s after that",
                 "recovery_overall": "from then on; the share of the lost node is not used"}
        for figure, note in notes.items():
            figure_id = f"nodes.caps.{cap}_{figure}"
            unit, goal = GOALS[figure_id]
            suite.sheet.add(from_runs(figure_id, unit, [one[figure] for one in runs], goal=goal,
                                      settings=note))


def _run_once(suite, cap, data):
    """The rates over the cap. The epoch of the three ranks whose node lives must be right."""
    ledger = peers.Ledger()
    order = suite.store.order(data.spec.samples, 1, spine.SEED)
    ledger.check(suite.peers.plain_loop(data.data, data, order, check=True))
    keys = {**KEYS, "tier.ram.capacity": str(int(1.25 * data.stored_bytes()) + (64 << 20))}
    total = data.stored_bytes() if cap == "bytes" else data.spec.samples
    spine.cold_for_clients(data)
    with processes.emulated_gfs(suite.binaries, data.data, "unlimited") as gfs, \
            Meter(gfs, cap) as meter, \
            suite.jobs.staged(NODES, keys, data, gfs.mount, stages=False) as (_, services), \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        epoch = pool.submit(nodes_job.consume_together, services[:-1],
                            batch=BATCH * (NODES - 1), seed=spine.SEED, epochs=1, check=True)
        killed = meter.wait_for(total / 3)
        services[-1].kill()
        ledger.check(nodes_job.together(epoch.result()))
    second, _ = meter.rates()
    _, overall = meter.rates(end=killed)
    recovery_second, recovery_overall = meter.rates(begin=killed)
    return {name: rate / CAPS[cap] for name, rate in {
        "second": second, "overall": overall, "recovery_second": recovery_second,
        "recovery_overall": recovery_overall}.items()}
