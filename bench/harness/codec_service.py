"""Row `end_to_end` of suite `codec`: a pack against the same samples raw, through the service."""

import contextlib
import json
import shutil
import statistics

from harness import machine, peers, processes
from harness.figures import interleave, ratios

SET = "mire2"             # camera frames: real, and not so compressible that the GFS is idle
RAW_BYTES_MIN = 400 << 20
BATCH = 64
SEED = 7
BLOCK = 8                 # samples of a run: a chunk's
WINDOW = 16               # runs
GFS_MB_PER_S = 150        # a node's share of a busy GFS; slower than one core decodes
EXTENT = "4MiB"
PROFILE = "balanced"
WARM = 1                  # epochs before those that are timed


def _every_other_two(runs):
    return [run for number, run in enumerate(runs) if number % 4 < 2]


class ServiceRow:
    """Borrows the suite: its sheet, programs, data folder and number of rounds."""

    def __init__(self, suite):
        self.suite = suite
        self.binaries = suite.binaries
        self.folder = suite.data.parent / "end_to_end" / f"{SET}-{RAW_BYTES_MIN}"
        self.rounds = suite.rounds

    def run(self):
        self._make_sets()
        self._orders()
        self._other_profiles()
        self._warm()
        self._cold()

    # The set: frames over and over, which chunks that decode alone do not notice.

    def _make_sets(self):
        self.suite.prepare([SET])
        facts = json.loads((self.suite.data / f"{SET}.json").read_text("utf-8"))
        frames, *frame_shape = facts["shape"]
        frame_bytes = (self.suite.data / f"{SET}.raw").stat().st_size // frames
        # Rounded up. The set must be larger than the cache of decoded chunks, or every order would
        # be served from it.
        copies = -(-RAW_BYTES_MIN // (frames * frame_bytes))
        self.frame_bytes = frame_bytes
        self.raw = self.folder / "raw"
        self.pack = self.folder / "pack"
        self.samples = frames * copies
        self.raw_bytes = self.samples * frame_bytes
        # Made once; the file is written last, so a set that was cut short is made again.
        if not (self.folder / "complete").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.raw.mkdir(parents=True)
            self.pack.mkdir()
            self._write_npy([self.samples, *frame_shape], copies)
            self._pack(self.pack, PROFILE)
            (self.folder / "complete").touch()
        self.ratio = self._ratio_of(self.pack)
        self.suite.inform("codec.service.ratio", "x", [self.ratio],
                          settings=f"{SET} x {copies}, {self.raw_bytes / 1e6:.0f} MB raw, "
                          f"{PROFILE}")

    def _ratio_of(self, folder):
        return self.raw_bytes / sum(path.stat().st_size for path in folder.iterdir())

    def _pack(self, folder, profile):
        with self._daemon(self.raw, "npy") as service:
            service.stage("bench")
            service.cli("pack", "bench", str(folder / "frames.fbp"), "--profile", profile)

    def _write_npy(self, shape, copies):
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
        # numpy pads the header to a multiple of 64 bytes.
        header += " " * (-(10 + len(header) + 1) % 64) + "\n"
        frames = (self.suite.data / f"{SET}.raw").read_bytes()
        with (self.raw / "frames.npy").open("wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little"))
            file.write(header.encode())
            for _ in range(copies):
                file.write(frames)

    def _daemon(self, path, layout, decode_bytes=1 << 20, **table):
        # The daemon gets one worker, so that rates show what one core decodes.
        keys = {"tier.ram.capacity": str(int(self.raw_bytes * 1.25) + (256 << 20)),
                "slots.capacity": "512MiB", "decode.capacity": str(decode_bytes),
                "daemon.workers": 1}
        return processes.daemon(self.binaries, keys, [
            {"name": "bench", "path": path, "format": layout, **table}])

    def _consume(self, service, mode, epochs):
        return service.consume("bench", batch=BATCH, seed=SEED, epochs=epochs, mode=mode,
                               block_samples=BLOCK, window_runs=WINDOW)

    # Orders, while the decoded data does not fit: two windows do.

    def _orders(self):
        modes = ("sequential", "block", "global")
        orders, rates, settings = self._run_orders(self.pack, modes)
        for mode, values in rates.items():
            self.suite.inform(f"codec.service.{mode}", "GB/s", [value / 1e9 for value in values],
                              settings=settings)
        amplification = {mode: [report["amplification"] for report in reports]
                         for mode, reports in orders.items()}
        # Bytes decoded over bytes delivered: 1 if each chunk is decoded once. It is what order
        # `block` is for; `global` decodes a chunk for nearly each of its samples.
        self.suite.add("end_to_end", "codec.block.decode_amplification", amplification["block"],
                       settings=settings)
        self.suite.inform("codec.global.decode_amplification", "x", amplification["global"],
                          settings=settings)
        self.suite.add("end_to_end", "codec.block.of_sequential",
                       ratios(rates["block"], rates["sequential"]))
        self._inform_cpu("codec.block.of_sequential_cpu", orders)
        self.block = {PROFILE: (self.ratio, orders["block"])}

    def _inform_cpu(self, figure, orders):
        """Bytes delivered by a second of the daemon's processor time, block by sequential."""
        seconds = {mode: [report["daemon_cpu_seconds"] for report in orders[mode]]
                   for mode in ("sequential", "block")}
        self.suite.inform(figure, "x", ratios(seconds["sequential"], seconds["block"]),
                          note="by the daemon's CPU time, the first epoch's too, which others on "
                          "the machine disturb less")

    def _other_profiles(self):
        """The same for a decoder that is slower than memory, which hides the copy to the slot, and
        for the fastest there is, which hides least."""
        for profile in ("dense", "fast"):
            folder = self.folder / profile
            if not (folder / "frames.fbp").exists():
                folder.mkdir(exist_ok=True)
                self._pack(folder, profile)
            orders, rates, settings = self._run_orders(folder, ("sequential", "block"))
            for mode, values in rates.items():
                self.suite.inform(f"codec.service.{profile}.{mode}", "GB/s",
                                  [value / 1e9 for value in values], settings=settings)
            self.suite.inform(f"codec.block.of_sequential.{profile}", "x",
                              ratios(rates["block"], rates["sequential"]))
            self._inform_cpu(f"codec.block.of_sequential_cpu.{profile}", orders)
            self.block[profile] = (self._ratio_of(folder), orders["block"])

    def _run_orders(self, folder, modes):
        window_bytes = BLOCK * WINDOW * self.frame_bytes
        with self._daemon(folder, "pack", 2 * window_bytes) as service:
            service.stage("bench")

            def consume(mode):
                def run(_round):
                    # The daemon's own counters, read before and after each run, because clients do
                    # not see what is decoded.
                    before = service.cli("status")["decode"]
                    report = self._consume(service, mode, WARM + 1)
                    after = service.cli("status")["decode"]
                    delivered = sum(epoch["bytes"] for epoch in report["epochs"])
                    report["amplification"] = (
                        after["decoded_bytes"] - before["decoded_bytes"]) / delivered
                    report["decode_s_per_byte"] = (
                        after["decode_ns"] - before["decode_ns"]) / 1e9 / delivered
                    return report
                return run
            orders = interleave(self.rounds, {mode: consume(mode) for mode in modes})
        rates = {mode: [peers.rate(report, WARM) for report in reports]
                 for mode, reports in orders.items()}
        settings = (f"batch={BATCH} block={BLOCK}x{WINDOW} decode.capacity="
                    f"{2 * window_bytes / 1e6:.0f} MB")
        return orders, rates, settings

    # Warm in RAM: where the decoded data fits, and where it does not.

    def _warm(self):
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(self._daemon(self.raw, "npy"))
            # Raw and packed data in two daemons at the same time, so that both are measured in the
            # same rounds.
            fits = stack.enter_context(
                self._daemon(self.pack, "pack", int(self.raw_bytes * 1.1)))
            for service in (raw, fits):
                service.stage("bench")
            results = interleave(self.rounds, {
                "raw": lambda _round: self._consume(raw, "block", WARM + 2),
                "fits": lambda _round: self._consume(fits, "block", WARM + 2)})
        rates = {name: [peers.rate(report, WARM) for report in reports]
                 for name, reports in results.items()}
        for name, values in rates.items():
            self.suite.inform(f"codec.ram.{name}", "GB/s", [value / 1e9 for value in values])
        self.suite.add("end_to_end", "codec.ram.fits_of_raw", ratios(rates["fits"], rates["raw"]),
                       note="decode.capacity holds all of it; epochs after the first")
        # Where the decoded data does not fit, a byte is checked in memory, packed, and decoded.
        raw_s = 1 / statistics.median(peers.rate(report) for report in results["raw"])
        for profile, (ratio, reports) in self.block.items():
            self._predict(profile, raw_s / ratio, reports)

    def _predict(self, profile, checking_s, reports):
        """What plan::AdvisePacking predicts for one worker, from the decode time that half of the
        rounds measured, against the rates of the other half."""
        # The prediction comes from one half of the rounds and is judged by the other half. A
        # prediction that is judged by its own rounds would always look right.
        decoding_s = statistics.median(
            report["decode_s_per_byte"] for report in _every_other_two(reports))
        predicted = 1 / (checking_s + decoding_s)
        measured = [peers.rate(report) for report in _every_other_two(reports[2:])]
        error = 100 * abs(predicted / statistics.median(measured) - 1)
        note = (f"predicted {predicted / 1e9:.3f} GB/s, measured {min(measured) / 1e9:.3f} .. "
                f"{max(measured) / 1e9:.3f}; without decoding "
                f"{100 * checking_s / (checking_s + decoding_s):.0f} % of the time")
        if profile == PROFILE:
            self.suite.add("end_to_end", "codec.ram.loss_prediction_error", [error], note=note)
        else:
            self.suite.inform(f"codec.ram.loss_prediction_error.{profile}", "%", [error],
                              note=note)

    # Cold, from a GFS that is slower than the decoder.

    def _cold(self):
        results = interleave(self.rounds, {
            "raw": lambda _round: self._cold_epoch(self.raw, "npy"),
            "pack": lambda _round: self._cold_epoch(self.pack, "pack")})
        seconds = {name: [report["epochs"][0]["seconds"] for report in reports]
                   for name, reports in results.items()}
        settings = f"GFS {GFS_MB_PER_S} MB/s, extents of {EXTENT}, first epoch, order block"
        for name, values in seconds.items():
            self.suite.inform(f"codec.gfs.{name}_epoch1", "s", values, settings=settings)
        # The gain should be the pack's ratio, because the GFS is slower than the decoder. A goal of
        # 0.8 leaves a fifth for what does not scale.
        gains = ratios(seconds["raw"], seconds["pack"])
        self.suite.inform("codec.gfs.gain", "x", gains, settings=settings)
        self.suite.add("end_to_end", "codec.gfs.gain_of_ratio",
                       [gain / self.ratio for gain in gains], settings=settings)

    def _cold_epoch(self, path, layout):
        with processes.emulated_gfs(self.binaries, path, "tsubame3-fast",
                                    bandwidth_mb_per_s=GFS_MB_PER_S) as gfs:
            # The files are put in page cache, so that the GFS model decides the cost of a read and
            # not the disk beneath it (as in suite spine).
            machine.drop_caches()
            machine.fill_cache(sorted(path.iterdir()))
            # As many extents as a large data set has: a window of the order needs few of them.
            with self._daemon(gfs.mount, layout, stage_at_start=False,
                              extent=EXTENT) as service:
                return self._consume(service, "block", 1)
