"""Suite `versus`: two builds of Forebay in one run, in turn, on the rows of suite `spine` that a
change to the way of a byte would show in. A ratio is new over base, taken within a pair."""

import contextlib
import dataclasses
import pathlib
import statistics
import tempfile

from harness import datasets, machine, peers, processes, rows, spine
from harness.figures import Goal, from_runs, interleave, ratios

# These goals say how much a change may cost before somebody has to look. Smaller losses are below
# what pairs on a shared machine can show.
RATE = Goal(0.97)
CPU = Goal(1.03, at_least=False)
# Row -> what it compares.
ROWS = {"stream": ("stream.contiguous", "stream.views"),
        "small": ("small.contiguous", "small.views"),
        "ssd": ("ssd",), "cold_tar": ("cold_tar",), "first_batch": ("first_batch",)}


@dataclasses.dataclass
class Run:
    """Of one build, once: what it reached, and what that cost."""

    rate: float            # more is better
    cpu_s_per_byte: float


class Versus:
    def __init__(self, sheet, binaries, data_folder, quick, base):
        self.sheet = sheet
        # Data sets and the emulated GFS come from the new build for both, so that only daemon and
        # client differ.
        self.sides = {"base": base, "new": binaries}
        self.scale = spine.QUICK if quick else spine.FULL
        self.data_folder = pathlib.Path(data_folder)
        self.store = datasets.Store(self.data_folder, binaries.find("make_dataset"),
                                    binaries.find("write_order"))
        self.ledger = peers.Ledger()

    def rows(self):
        """A row that does not get so far misses both figures; else one of them has a goal."""
        return {row: (getattr(self, row), {
            f"versus.{name}.{figure}": ("x", goal)
            for name in names for figure, goal in (("rate", RATE), ("cpu", CPU))})
            for row, names in ROWS.items()}

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    def stream(self):
        # Both daemons run during all rounds, so memory and its layout are the same for both; the
        # idle one costs nothing but its scrubber.
        files = self._data("files", self.scale.samples)
        with self._daemons(spine.ram_keys(files), files, {"format": "image-folder"}) as services:
            for delivery in ("contiguous", "views"):
                self._compare(f"stream.{delivery}", lambda side: self._consume(
                    services[side], delivery=delivery, batch=spine.BATCH,
                    epochs=self.scale.epochs))

    def small(self):
        records = self._data("records", self.scale.small_samples, 4096)
        with self._daemons(spine.ram_keys(records), records, spine.raw_keys(records)) as services:
            for delivery in ("contiguous", "views"):
                self._compare(f"small.{delivery}", lambda side: self._consume(
                    services[side], delivery=delivery, batch=spine.BATCH,
                    epochs=self.scale.epochs, prefetch=16))

    def ssd(self):
        """Each run has a daemon and segments of its own: where they lie on the disk counts."""
        records = self._data("records", self.scale.samples)
        def cold(side):
            with tempfile.TemporaryDirectory(prefix="ssd.", dir=self.data_folder) as folder:
                keys = {"tier.ram.capacity": "64MiB", "tier.ssd.directory": folder,
                        "tier.ssd.capacity": str(2 * records.stored_bytes() + (256 << 20))}
                table = {"name": "bench", "path": records.data, **spine.raw_keys(records)}
                with processes.daemon(self.sides[side], keys, [table]) as service:
                    try:
                        service.stage("bench")
                    except processes.RunFailed:
                        service.stage("bench")  # older builds evict on the way what has a home
                    machine.drop_caches()
                    return self._consume(service, batch=spine.BATCH, prefetch=8, warm=0)
        self._compare("ssd", cold)

    def cold_tar(self):
        """Three epochs of a daemon that begins with nothing, its whole life's CPU time."""
        tar = self._data("tar", self.scale.samples)
        def cold(side):
            with processes.emulated_gfs(self.sides["new"], tar.data, spine.GFS_PRESET) as gfs:
                spine.cold_for_clients(tar)
                table = {"name": "bench", "path": gfs.mount, "format": "tar",
                         "stage_at_start": False}
                with processes.daemon(self.sides[side], spine.ram_keys(tar), [table]) as service:
                    # Both builds must deliver the same bytes, else the comparison says nothing.
                    report = self.ledger.check(service.consume(
                        "bench", batch=spine.BATCH, seed=spine.SEED, epochs=3))
                    client_s = sum(epoch["cpu_seconds"] for epoch in report["epochs"])
                    read = sum(epoch["bytes"] for epoch in report["epochs"])
                    return Run(peers.rate(report), (client_s + service.cpu_seconds()) / read)
        self._compare("cold_tar", cold, rounds=self.scale.gfs_rounds)

    def first_batch(self):
        files = self._data("files", self.scale.samples)
        with self._daemons(spine.ram_keys(files), files, {"format": "image-folder"}) as services:
            def connect(side):
                report = services[side].consume("bench", batch=spine.BATCH,
                                                connects=self.scale.connects)
                # CPU seconds for each connect, in the place of those for each byte.
                return Run(1 / statistics.median(report["connects_ms"]),
                           report["daemon_cpu_seconds"] / self.scale.connects)
            self._compare("first_batch", connect)

    def _data(self, layout, samples, sample_bytes=datasets.MEAN_SAMPLE_BYTES):
        objects = 1 if layout == "records" else 16
        self.ledger = peers.Ledger()
        return self.store.dataset(datasets.Spec(layout, samples, sample_bytes, objects=objects))

    @contextlib.contextmanager
    def _daemons(self, keys, dataset, table):
        """One of each build over the same data set, staged."""
        with contextlib.ExitStack() as stack:
            services = {}
            for side, binaries in self.sides.items():
                service = stack.enter_context(processes.daemon(
                    binaries, keys, [{"name": "bench", "path": dataset.data, **table}]))
                service.stage("bench")
                self.ledger.check(service.consume("bench", batch=spine.BATCH, seed=spine.SEED,
                                                  check=True))
                services[side] = service
            yield services

    def _consume(self, service, warm=spine.WARM, **options):
        report = self.ledger.check(service.consume("bench", seed=spine.SEED, **options))
        first = warm if len(report["epochs"]) > warm else 0
        return Run(peers.rate(report, first), peers.cpu_per_byte(report, first))

    def _compare(self, name, run, rounds=None):
        # Pairs and not two series: a change of the machine between the series would look like one
        # of the code.
        results = interleave(rounds or self.scale.pairs, {
            side: lambda _round, side=side: run(side) for side in self.sides})
        rates = ratios(*([run.rate for run in results[side]] for side in ("new", "base")))
        costs = ratios(*([run.cpu_s_per_byte for run in results[side]]
                         for side in ("new", "base")))
        # On a machine whose pairs differ by more than what is looked for, the time that processors
        # worked decides, which others on the machine disturb less.
        low, high = middle_half(rates)
        is_steady = high - low <= 1 - RATE.bound
        spread = f"middle half of the pairs {low:.3f} .. {high:.3f}"
        self.sheet.add(from_runs(f"versus.{name}.rate", "x", rates, settings=spread,
                                 goal=RATE if is_steady else None))
        self.sheet.add(from_runs(f"versus.{name}.cpu", "x", costs,
                                 goal=None if is_steady else CPU, note=spread))


def middle_half(values):
    """The bounds that a quarter of the values lie below and above."""
    # The middle half and not the whole range, because a single pair may be disturbed by anything.
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return quarters[0], quarters[2]
