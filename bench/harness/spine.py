"""Suite `spine`: one node, streaming and staging, against plain loops, torch, WebDataset, fio."""

import concurrent.futures
import dataclasses
import math
import pathlib
import statistics
import tempfile
import time

from harness import (datasets, machine, peers, processes, programs, rows, spine_ahead,
                     spine_crowded, spine_numpy)
from harness.figures import Figure, Goal, from_runs, interleave, missing, ratios

GIGA = 1e9
BATCH = 64
SEED = 20_177
EXTENT_BYTES = 32 * 1024 * 1024  # the daemon's default
SLOT_BYTES = 512 * 1024 * 1024
# The first pass over new mappings pays a page fault for each page, in every contender. It has a
# figure of its own, and later epochs are compared.
WARM = 1                         # epochs before mappings count as warm
GFS_PRESET = "tsubame3"
GFS_BANDWIDTH = 600e6            # of that preset, as are the opens
GFS_OPENS_PER_S = 2000


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much of everything. `FULL` is what figures in results/ are made with."""

    pairs: int
    samples: int            # of 114,660 bytes
    small_samples: int      # of 4 KiB
    small_files: int
    epochs: int
    peer_epochs: int
    gfs_rounds: int
    gfs_peer_samples: int   # torch reads the GFS at 36 MB/s: a part of the set will do
    connects: int
    accelerator: tuple      # (name, batch per rank, step ms, samples)


# 1.07 GB of large samples: far more than the caches, and all contenders fit in memory together. 9
# pairs give a median that one slow run does not move.
FULL = Scale(pairs=9, samples=9_365, small_samples=262_144, small_files=16_384, epochs=6,
             peer_epochs=2, gfs_rounds=9, gfs_peer_samples=2_048, connects=100,
             accelerator=("A100", 400, 435.0, 40_032))
QUICK = Scale(pairs=3, samples=2_048, small_samples=65_536, small_files=2_048, epochs=3,
              peer_epochs=1, gfs_rounds=2, gfs_peer_samples=256, connects=30,
              accelerator=("V100", 64, 195.0, 4_096))


def ram_keys(dataset):
    """Of a daemon whose RAM tier holds all of it."""
    # A quarter more than the data, because staging works in a part of the tier (plan::RamPlan).
    return {"tier.ram.capacity": f"{int(dataset.stored_bytes() * 1.25) + (256 << 20)}",
            "slots.capacity": str(SLOT_BYTES)}


def raw_keys(dataset):
    """How a daemon reads record files."""
    return {"format": "raw", "dtype": "u8", "shape": [dataset.spec.sample_bytes],
            # One file is one field: the catalog wants each named.
            "files": [f"x={path.name}" for path in sorted(dataset.data.iterdir())]}


def cold_for_clients(dataset):
    """What the emulated GFS costs is its model's to say, not the disk's that it lies on, which may
    be slower. No kernel cache is between the GFS and its clients."""
    # Dropped first, so that nothing of an earlier run is counted on; then the backing files are
    # read in, and the model alone decides what a read costs.
    machine.drop_caches()
    machine.fill_cache(dataset.object_paths)


class Spine:
    def __init__(self, sheet, binaries, data_folder, quick):
        self.sheet = sheet
        self.binaries = binaries
        self.quick = quick
        self.scale = QUICK if quick else FULL
        self.data_folder = pathlib.Path(data_folder)
        self.peers = peers.Peers(binaries, data_folder)
        self._store = None

    @property
    def store(self):
        # Made at the first use: a row that needs no data set runs without the makers.
        if self._store is None:
            self._store = datasets.Store(self.data_folder, self.binaries.find("make_dataset"),
                                         self.binaries.find("write_order"))
        return self._store

    def rows(self):
        """Row name -> (method, the ids of its figures with unit and goal)."""
        rows = {
            "order": (lambda: programs.order(self.sheet, self.binaries, self.scale.pairs),
                      programs.ORDER_GOALS),
            "micro": (lambda: programs.micro(self.sheet, self.binaries, self.scale.pairs),
                      programs.MICRO_GOALS),
            "stream": (self.stream, STREAM_GOALS),
            "small": (self.small_samples, SMALL_GOALS),
            "numpy": (lambda: spine_numpy.run(self), spine_numpy.GOALS),
            "crowded": (lambda: spine_crowded.run(self), spine_crowded.GOALS),
            "ahead": (lambda: spine_ahead.run(self), spine_ahead.GOALS),
            "ssd": (self.ssd, SSD_GOALS),
            "cold_tar": (self.cold_tar, COLD_TAR_GOALS),
            "cold_files": (self.cold_files, COLD_FILES_GOALS),
            "accelerator": (self.accelerator, ACCELERATOR_GOALS),
            "first_batch": (self.first_batch, FIRST_BATCH_GOALS),
        }
        if not self.quick:
            rows["quickstart"] = (lambda: programs.quickstart(self.sheet),
                                  programs.QUICKSTART_GOALS)
        return rows

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    def add_goal(self, goals, figure_id, values, **fields):
        unit, goal = goals[figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))

    # Warm RAM, 114,660-byte files.

    def stream(self):
        scale = self.scale
        files = self.store.dataset(datasets.Spec("files", scale.samples))
        tar = self.store.dataset(datasets.Spec("tar", scale.samples))
        order = self.store.order(scale.samples, scale.epochs, SEED)
        # One ledger for all contenders of the row: they are compared only if they delivered the
        # same samples.
        ledger = peers.Ledger()
        plain = self._plain_contenders(files, order)
        for contender in plain.values():
            ledger.check(contender(0, check=True))
        # Each peer with its best number of workers, found here on this machine. A fixed number
        # would be unfair on another one.
        best_torch = self._best("spine.stream.torch", (0, 1, 2), lambda workers, check: (
            self.peers.torch_loader(files.data, files, order, workers, scale.peer_epochs,
                                    check, BATCH)), ledger)
        best_webdataset = self._best("spine.stream.webdataset", (0, 1, 2), lambda workers, check: (
            self.peers.webdataset_loader(tar.data, workers, scale.peer_epochs, check, BATCH)),
            ledger)
        with processes.daemon(self.binaries, ram_keys(files),
                              [{"name": "bench", "path": files.data,
                                "format": "image-folder"}]) as service:
            # Staged before the timing: this row is about a warm tier, and cold starts have rows of
            # their own.
            service.stage("bench")
            def forebay(delivery):
                return lambda _round, check=False: service.consume(
                    "bench", delivery=delivery, batch=BATCH, seed=SEED, epochs=scale.epochs,
                    check=check)
            contenders = {**plain, "contiguous": forebay("contiguous"), "views": forebay("views")}
            for name in ("contiguous", "views"):
                ledger.check(contenders[name](0, check=True))
            if best_torch:
                contenders["torch"] = best_torch
            if best_webdataset:
                contenders["webdataset"] = best_webdataset
            # The daemon stays for all rounds and is idle while others run; its scrubber reads 8
            # MiB/s, which is part of the product.
            results = interleave(scale.pairs, contenders)
            peak_bytes = machine.process_peak_bytes(service.process.pid)
        for reports in results.values():
            for report in reports:
                ledger.check(report)
        self._stream_figures(results)
        # The memory that the configuration allows is subtracted, so the figure is the memory that
        # the user did not ask for.
        limit_bytes = int(ram_keys(files)["tier.ram.capacity"]) + SLOT_BYTES
        self.add_goal(STREAM_GOALS, "spine.memory.over_limits",
                      [max(0, peak_bytes - limit_bytes) / 1e6],
                      settings=f"limits={limit_bytes / 1e6:.0f} MB; peak resident size, shared "
                      "memory included")

    def _plain_contenders(self, files, order):
        def plain(threads, batch, **options):
            return lambda _round, check=False: self.peers.plain_loop(
                files.data, files, order, threads, batch, self.scale.epochs, check, **options)
        return {"plain": plain(1, 1), "plain_batch": plain(1, BATCH), "plain_two": plain(2, 1),
                "memory": plain(1, 1, in_memory=True),
                "memory_copy": plain(1, BATCH, in_memory=True, copies=True)}

    def _best(self, prefix, settings, run, ledger):
        """Tries every setting, reports each; the best as a contender, or None where the peer
        is missing."""
        rates = {}
        for setting in settings:
            try:
                ledger.check(run(setting, True))
                # Two runs to choose a setting; the comparison itself has all rounds.
                values = [peers.rate(run(setting, False)) for _ in range(2)]
            except (processes.Missing, processes.RunFailed) as error:
                self.sheet.add(missing(f"{prefix}.workers_{setting}", "GB/s", str(error)))
                continue
            rates[setting] = statistics.median(values)
            self.sheet.add(from_runs(f"{prefix}.workers_{setting}", "GB/s",
                                     [value / GIGA for value in values]))
        if not rates:
            return None
        best = max(rates, key=rates.get)
        return lambda _round: run(best, False)

    def _stream_figures(self, results):
        # The tier is warm, and so are the mappings of every contender: the first pass of each
        # over its memory (page faults) is reported by itself.
        rates = {name: [peers.rate(report, WARM if len(report["epochs"]) > WARM else 0)
                        for report in reports] for name, reports in results.items()}
        for name, values in rates.items():
            self.sheet.add(from_runs(f"spine.stream.{name}", "GB/s",
                                     [value / GIGA for value in values],
                                     settings=results[name][0]["settings"]))
        for name in ("plain", "contiguous", "views"):
            self.sheet.add(from_runs(f"spine.stream.{name}_first_pass", "GB/s",
                                     [report["epochs"][0]["bytes"] / GIGA
                                      / report["epochs"][0]["seconds"]
                                      for report in results[name]]))
        # What no reader can pass: one thread summing the same samples in its own memory; for a
        # batch that one thread has to gather first, that thread's copying too.
        # Gathering takes at least the slower of reading the samples and writing the batch. A figure
        # above 1 would mean that limit or loader is measured wrongly.
        limits = [min(pair) for pair in zip(rates["memory"], rates["memory_copy"])]
        self.add_goal(STREAM_GOALS, "spine.stream.views_of_memory",
                      ratios(rates["views"], rates["memory"]))
        self.add_goal(STREAM_GOALS, "spine.stream.contiguous_of_limit",
                      ratios(rates["contiguous"], limits),
                      note="the slower of memory and memory_copy is the limit")
        for other in ("torch", "webdataset"):
            if other in rates:
                self.add_goal(STREAM_GOALS, f"spine.stream.contiguous_vs_{other}",
                              ratios(rates["contiguous"], rates[other]))
        # CPU time beside speed: a loader that is fast because it takes two cores costs the training
        # something.
        costs = {name: [peers.cpu_per_byte(report, WARM) for report in results[name]]
                 for name in ("plain", "contiguous", "views")}
        self.sheet.add(from_runs("spine.cpu.plain", "s/GB",
                                 [value * GIGA for value in costs["plain"]]))
        for delivery in ("contiguous", "views"):
            self.add_goal(STREAM_GOALS, f"spine.cpu.{delivery}_vs_plain",
                          ratios(costs[delivery], costs["plain"]))

    # Warm RAM, 4 KiB records.

    def small_samples(self):
        scale = self.scale
        # 4 KiB: what a sample costs besides its bytes dominates here.
        records = self.store.dataset(datasets.Spec("records", scale.small_samples, 4096, objects=1))
        ledger = peers.Ledger()
        with processes.daemon(self.binaries, ram_keys(records),
                              [self.raw_table("bench", records)]) as service:
            service.stage("bench")
            def forebay(delivery, batch):
                # Batches of 256 KiB: four of them ahead hide no more than a wake-up.
                return lambda _round, check=False: service.consume(
                    "bench", delivery=delivery, batch=batch, seed=SEED, epochs=scale.epochs,
                    check=check, prefetch=16)
            contenders = {f"{delivery}_batch_{batch}": forebay(delivery, batch)
                          for delivery in ("contiguous", "views") for batch in (BATCH, 1024)}
            for contender in contenders.values():
                ledger.check(contender(0, check=True))
            results = interleave(scale.pairs, contenders)
        for name, reports in results.items():
            values = [peers.rate(ledger.check(report)) / 4096 for report in reports]
            if name.endswith(f"_batch_{BATCH}"):
                delivery = name.split("_", maxsplit=1)[0]
                self.add_goal(SMALL_GOALS, f"spine.small.{delivery}", values,
                              settings=reports[0]["settings"])
            else:
                self.sheet.add(from_runs(f"spine.small.{name}", "samples/s", values,
                                         settings=reports[0]["settings"]))

    def raw_table(self, name, dataset, **more):
        """A table of the daemon's configuration, for record files."""
        return {"name": name, "path": dataset.data, **raw_keys(dataset), **more}

    # Warm SSD, page cache dropped before every run.

    def ssd(self):
        scale = self.scale
        records = self.store.dataset(datasets.Spec("records", scale.samples, objects=1))
        order_bytes = scale.samples * datasets.MEAN_SAMPLE_BYTES
        # Reads start and end on pages: a sample of 114,660 bytes at any offset touches 29.
        # fio reads as many bytes per request as the daemon has to, so the ratio shows what the
        # daemon loses and not what alignment costs both.
        request_bytes = 29 * 4096
        depth = 16
        with tempfile.TemporaryDirectory(prefix="ssd.", dir=self.data_folder) as ssd:
            # Too small to hold anything for long, so that every batch comes from the SSD.
            keys = {"tier.ram.capacity": "64MiB", "tier.ssd.directory": ssd,
                    "tier.ssd.capacity": str(2 * order_bytes + (256 << 20))}
            with processes.daemon(self.binaries, keys,
                                  [self.raw_table("bench", records)]) as service:
                service.stage("bench")
                segment = max((path for path in pathlib.Path(ssd).rglob("*") if path.is_file()),
                              key=lambda path: path.stat().st_size, default=None)
                if segment is None or segment.stat().st_size < request_bytes:
                    raise processes.RunFailed("nothing was staged to the SSD tier")
                ledger = peers.Ledger()
                ledger.check(service.consume("bench", batch=BATCH, seed=SEED, check=True))
                def forebay(_round):
                    # Reads are direct, but metadata of the file system may be cached.
                    machine.drop_caches()
                    return peers.rate(ledger.check(service.consume(
                        "bench", batch=BATCH, seed=SEED, prefetch=8)))
                def fio(_round):
                    # Caches are dropped as for the daemon, although fio, too, reads with direct
                    # I/O.
                    machine.drop_caches()
                    return self.peers.fio_random_read(segment, request_bytes, depth)
                results = interleave(scale.pairs, {"fio": fio, "forebay": forebay})
        for name, values in results.items():
            self.sheet.add(from_runs(f"spine.ssd.{name}", "GB/s",
                                     [value / GIGA for value in values],
                                     settings=f"request={request_bytes} depth={depth}"))
        self.add_goal(SSD_GOALS, "spine.ssd.useful_vs_fio",
                      ratios(results["forebay"], results["fio"]))

    # Cold starts from the emulated GFS.

    def _cold_start(self, dataset, table):
        """One daemon, from nothing: epoch 1 and its GFS work, then two epochs and theirs."""
        with processes.emulated_gfs(self.binaries, dataset.data, GFS_PRESET) as gfs:
            cold_for_clients(dataset)
            # The operations of mounting do not count.
            gfs.control("reset")
            table = {**table, "name": "bench", "path": gfs.mount, "stage_at_start": False}
            with processes.daemon(self.binaries, ram_keys(dataset), [table]) as service:
                first = service.consume("bench", batch=BATCH, seed=SEED, epochs=1)
                after_first = gfs.counters()
                # The later epochs are a second run on the same daemon. Promise P3 says that the
                # daemon reads nothing from the GFS after the first epoch.
                later = service.consume("bench", batch=BATCH, seed=SEED, epochs=2)
                after_all = gfs.counters()
        return {
            "reports": (first, later),
            "first_s": first["epochs"][0]["seconds"],
            "total_s": sum(epoch["seconds"] for report in (first, later)
                           for epoch in report["epochs"]),
            "later_operations": (processes.Gfs.operations(after_all)
                                 - processes.Gfs.operations(after_first)),
            "bytes": after_first["total"]["bytes"],
            "opens": after_first["total"]["opens"],
            "opens_max": after_first["objects"]["opens_max"],
        }

    def _torch_on_gfs(self, dataset, prefix):
        """The seconds per byte of the best DataLoader on a cold GFS; each setting a figure."""
        order = self.store.order(self.scale.gfs_peer_samples, 1, SEED)
        costs = []
        # 8 is beyond the cores: a loader that waits for a GFS may gain from more workers than
        # cores.
        for workers in (0, 1, 2, 8):
            try:
                with processes.emulated_gfs(self.binaries, dataset.data, GFS_PRESET) as gfs:
                    cold_for_clients(dataset)
                    report = self.peers.torch_loader(gfs.mount, dataset, order, workers)
            except (processes.Missing, processes.RunFailed) as error:
                self.sheet.add(missing(f"{prefix}.torch.workers_{workers}", "MB/s", str(error)))
                continue
            costs.append(1 / peers.rate(report))
            self.sheet.add(from_runs(f"{prefix}.torch.workers_{workers}", "MB/s",
                                     [peers.rate(report) / 1e6], settings=report["settings"]))
        if not costs:
            raise processes.Missing("no DataLoader ran")
        return min(costs)

    def cold_tar(self):
        tar = self.store.dataset(datasets.Spec("tar", self.scale.samples))
        stored = tar.stored_bytes()
        # Nothing of a GFS is cached between torch's epochs, so three cost three times one. It reads
        # a part of the set, because it is slow there.
        torch_s = 3 * tar.spec.payload_bytes * self._torch_on_gfs(tar, "spine.cold_tar")
        runs = [self._cold_start(tar, {"format": "tar"}) for _ in range(self.scale.gfs_rounds)]
        self._check_all(runs)
        # Bytes over bandwidth, or opens over their rate: no loader can be faster on this model. A
        # figure above 1 would falsify the model.
        roofline_s = max(stored / GFS_BANDWIDTH, tar.spec.objects / GFS_OPENS_PER_S)
        self._cold_figures("spine.cold_tar", COLD_TAR_GOALS, runs, roofline_s, stored)
        self.add_goal(COLD_TAR_GOALS, "spine.cold_tar.later_gfs_operations",
                      [run["later_operations"] for run in runs])
        self.add_goal(COLD_TAR_GOALS, "spine.cold_tar.vs_torch",
                      [torch_s / run["total_s"] for run in runs],
                      note="torch's three epochs are computed from one over part of the set")

    def cold_files(self):
        files = self.store.dataset(datasets.Spec("files", self.scale.small_files))
        stored = files.stored_bytes()
        torch_s = stored * self._torch_on_gfs(files, "spine.cold_files")
        runs = [self._cold_start(files, {"format": "image-folder"})
                # Fewer rounds, because each takes as long as its opens.
                for _ in range(max(1, self.scale.gfs_rounds // 3))]
        self._check_all(runs)
        roofline_s = max(stored / GFS_BANDWIDTH, self.scale.small_files / GFS_OPENS_PER_S)
        self._cold_figures("spine.cold_files", COLD_FILES_GOALS, runs, roofline_s, stored)
        self.add_goal(COLD_FILES_GOALS, "spine.cold_files.opens_per_file",
                      [max(run["opens"] / self.scale.small_files, run["opens_max"])
                       for run in runs])
        self.sheet.add(from_runs("spine.cold_files.vs_torch_epoch1", "x",
                                 [torch_s / run["first_s"] for run in runs]))

    def _check_all(self, runs):
        ledger = peers.Ledger()
        for run in runs:
            for report in run["reports"]:
                ledger.check(report)

    def _cold_figures(self, prefix, goals, runs, roofline_s, stored):
        settings = f"preset={GFS_PRESET} roofline={roofline_s:.2f}s bytes={stored}"
        self.sheet.add(from_runs(f"{prefix}.epoch1_s", "s", [run["first_s"] for run in runs]))
        self.add_goal(goals, f"{prefix}.epoch1_of_roofline",
                      [roofline_s / run["first_s"] for run in runs], settings=settings)
        self.add_goal(goals, f"{prefix}.gfs_bytes_excess",
                      # Both directions: too many bytes break the promise, too few mean that
                      # something was not read.
                      [abs(run["bytes"] / stored - 1) for run in runs], settings=settings)

    # An emulated accelerator fed cold, training and validation together.

    def accelerator(self):
        name, batch, step_ms, samples = self.scale.accelerator
        spec = datasets.Spec("records", samples, objects=1)
        records = self.store.dataset(spec)
        ranks = 4
        # As a job does that must stream in at the GFS's speed: runs as long as an extent, so that
        # each extent brought serves one run, and validation on samples that lie together.
        extent_samples = EXTENT_BYTES // spec.sample_bytes
        # As in MLPerf Storage, the accelerator is a sleep of a measured step, so the row shows
        # whether data arrives in time and not how fast a GPU is.
        train_samples = int(0.95 * samples)
        train = {"selection": f"range:0:{train_samples}", "stream": "train", "batch": ranks * batch,
                 "ranks": ranks, "step_ms": step_ms, "epochs": 3, "seed": SEED,
                 "epoch0_mode": "block", "block_samples": extent_samples, "window_runs": 8}
        validation = {"selection": f"range:{train_samples}:{samples - train_samples}",
                      "stream": "validation", "batch": batch,
                      "step_ms": step_ms, "epochs": 3, "seed": SEED, "epoch0_mode": "block"}
        with processes.emulated_gfs(self.binaries, records.data, GFS_PRESET) as gfs:
            cold_for_clients(records)
            table = self.raw_table("bench", records, stage_at_start=False)
            table["path"] = gfs.mount
            # Every rank, and validation, holds its prefetched batches and the one it works on.
            slot_bytes = (ranks + 1) * 6 * batch * spec.sample_bytes
            keys = {**ram_keys(records), "slots.capacity": str(slot_bytes)}
            with processes.daemon(self.binaries, keys, [table]) as service, \
                    concurrent.futures.ThreadPoolExecutor(ranks + 1) as pool:
                jobs = [pool.submit(service.consume, "bench", rank=rank, **train)
                        for rank in range(ranks)]
                validating = pool.submit(service.consume, "bench", **validation)
                # All ranks at the same time, as in a job; a rank that fails raises its error here.
                reports = [job.result() for job in jobs]
                validating.result()
        settings = f"{name}: batch={batch} step={step_ms}ms ranks={ranks} preset={GFS_PRESET}"
        self.add_goal(ACCELERATOR_GOALS, "spine.accelerator.au_epoch0",
                      [100 * report["au"][0] for report in reports], settings=settings)
        self.add_goal(ACCELERATOR_GOALS, "spine.accelerator.au_later",
                      [100 * value for report in reports for value in report["au"][1:]],
                      settings=settings)

    # Time to the first batch.

    def first_batch(self):
        files = self.store.dataset(datasets.Spec("files", self.scale.samples))
        with processes.daemon(self.binaries, ram_keys(files),
                              [{"name": "bench", "path": files.data,
                                "format": "image-folder"}]) as service:
            service.stage("bench")
            connects = sorted(service.consume("bench", batch=BATCH,
                                              connects=self.scale.connects)["connects_ms"])
        # The percentile is taken over all connections and not over means, because a job starts as
        # late as its slowest rank.
        p99 = connects[math.ceil(0.99 * len(connects)) - 1]  # nearest rank
        unit, goal = FIRST_BATCH_GOALS["spine.first_batch.staged_p99"]
        self.sheet.add(Figure("spine.first_batch.staged_p99", unit, p99, connects[0],
                              connects[-1], len(connects), goal))
        # A batch of the first window waits for every run of that window, and a run may straddle two
        # extents: with windows of one run the bound is two extents, with w runs it is 2w.
        records = self.store.dataset(datasets.Spec("records", self.scale.samples, objects=1))
        # This is the time that the GFS alone takes for two extents, opens included.
        two_extents_ms = 2e3 * (EXTENT_BYTES / GFS_BANDWIDTH + 1 / GFS_OPENS_PER_S)
        settings = f"two extents: {two_extents_ms:.0f} ms"
        colds = self._cold_block_ms(records, window_runs=1)
        self.add_goal(FIRST_BATCH_GOALS, "spine.first_batch.cold_block_vs_two_extents",
                      [value / two_extents_ms for value in colds],
                      settings=f"{settings}; windows of one run")
        self.sheet.add(from_runs("spine.first_batch.cold_block_window_4", "x",
                                 [value / two_extents_ms for value in
                                  self._cold_block_ms(records, window_runs=4)],
                                 settings=f"{settings}; windows of four runs"))

    def _cold_block_ms(self, records, window_runs):
        colds = []
        for _ in range(self.scale.pairs):
            # A new daemon and a new mount each time, because only the first batch of a daemon is
            # cold.
            with processes.emulated_gfs(self.binaries, records.data, GFS_PRESET) as gfs:
                table = self.raw_table("bench", records, stage_at_start=False)
                table["path"] = gfs.mount
                with processes.daemon(self.binaries, ram_keys(records),
                                      [table]) as service:
                    colds += service.consume("bench", batch=BATCH, mode="block", connects=1,
                                             block_samples=64,
                                             window_runs=window_runs)["connects_ms"]
        return colds


STREAM_GOALS = {
    "spine.stream.views_of_memory": ("x", Goal(0.9)),
    "spine.stream.contiguous_of_limit": ("x", Goal(0.9)),
    "spine.stream.contiguous_vs_torch": ("x", Goal(4)),
    "spine.stream.contiguous_vs_webdataset": ("x", Goal(8)),
    "spine.cpu.contiguous_vs_plain": ("x", Goal(2.0, at_least=False)),
    "spine.cpu.views_vs_plain": ("x", Goal(0.8, at_least=False)),
    "spine.memory.over_limits": ("MB", Goal(100, at_least=False)),
}
SMALL_GOALS = {
    "spine.small.contiguous": ("samples/s", Goal(500_000)),
    "spine.small.views": ("samples/s", Goal(1_000_000)),
}
SSD_GOALS = {"spine.ssd.useful_vs_fio": ("x", Goal(0.9))}
COLD_TAR_GOALS = {
    "spine.cold_tar.vs_torch": ("x", Goal(10)),
    "spine.cold_tar.epoch1_of_roofline": ("x", Goal(0.85)),
    "spine.cold_tar.later_gfs_operations": ("operations", Goal(0, at_least=False)),
    "spine.cold_tar.gfs_bytes_excess": ("share", Goal(0, at_least=False)),
}
COLD_FILES_GOALS = {
    "spine.cold_files.epoch1_of_roofline": ("x", Goal(0.85)),
    "spine.cold_files.opens_per_file": ("opens", Goal(1, at_least=False)),
    "spine.cold_files.gfs_bytes_excess": ("share", Goal(0, at_least=False)),
}
ACCELERATOR_GOALS = {
    "spine.accelerator.au_epoch0": ("%", Goal(90)),
    "spine.accelerator.au_later": ("%", Goal(99)),
}
FIRST_BATCH_GOALS = {
    "spine.first_batch.staged_p99": ("ms", Goal(20, at_least=False)),
    "spine.first_batch.cold_block_vs_two_extents": ("x", Goal(1, at_least=False)),
}
