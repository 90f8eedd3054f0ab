"""Suite `codec`: Forebay's codec against the codecs a user would reach for, memory to memory."""

import json
import math
import pathlib
import shutil
import statistics
import subprocess
import tempfile

from harness import codec_goals, codec_report, codec_service, processes, rows
from harness.codec_goals import BEST_ZSTD, CAMERA, SIX, TEZIP_PUBLISHED
from harness.figures import from_runs, ratios

CODEC_FOLDER = pathlib.Path(__file__).resolve().parent.parent / "codec"
PYSZ_VERSION = "1.1.0"
PYTHON_CANDIDATES = ("python3", "/usr/bin/python3")
PROFILES = ("fast", "balanced", "dense")
PEERS = ("zstd_3", "zstd_9", "zstd_19", "delta_zstd_3", "delta_zstd_9", "blosc_lz4", "libaec",
         "jpeg_ls", "x264_medium", "x264_ultrafast", "ffv1_golomb", "ffv1_range", "png",
         "tezip_style")
EIGHT_BIT_ONLY = ("x264_medium", "x264_ultrafast", "png", "tezip_style",
                  "ffv1_golomb")
# 16 bits and holes: the kind of array for which general codecs are worst, so it has a goal of its
# own.
DEPTH = "castelD"
GENERATED = ("movingMnist", "cosmoLike", "randomBytes", "labelsAal", "labelsInia")
TEZIP_FRAMES = 64
FRAME_SET = "mbtcube"  # 640 x 480
RUN_TIMEOUT_S = 3600
LOSSY_ROUNDS_MIN = 31  # fields decode in a millisecond, which anything on the machine can double


class Codec:
    """One method a row; each asks for what it needs and adds its figures to the sheet."""

    def __init__(self, sheet, binaries, data_folder, quick):
        self.sheet = sheet
        self.binaries = binaries
        self.data = pathlib.Path(data_folder) / "codec"
        self.venvs = pathlib.Path(data_folder)
        self.quick = quick
        # Nine interleaved rounds: the median and the range of each contender are of the same
        # stretch of time.
        self.rounds = 3 if quick else 9
        self.frames = 32 if quick else 0
        self.draws = 60 if quick else 500
        self.measurements = []
        self._prepared = set()
        self._numpy_python = None

    def rows(self):
        """Row name -> (method, the ids of its figures with unit and goal)."""
        methods = {"lossless": self.lossless, "tezip": self.tezip, "isa": self.isa,
                   "generated": self.generated, "learned": self.learned,
                   "random_frame": self.random_frame, "threads": self.threads,
                   "lossy": self.lossy, "end_to_end": self.end_to_end}
        return {name: (method, codec_goals.GOALS[name]) for name, method in methods.items()}

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    def extras(self):
        """(file suffix -> SVG, Markdown lines) beside the figures."""
        return codec_report.extras(self.measurements)

    # Data and programs.

    def numpy_python(self):
        if self._numpy_python is None:
            # The harness needs the standard library only; the sets need more, so another Python may
            # make them.
            for candidate in PYTHON_CANDIDATES:
                if shutil.which(candidate) and subprocess.run(
                        [candidate, "-c", "import numpy, netCDF4, zfpy"], capture_output=True,
                        check=False).returncode == 0:
                    self._numpy_python = shutil.which(candidate)
                    break
            else:
                raise processes.Missing("no Python with numpy, netCDF4 and zfpy (Debian: "
                                        "python3-numpy python3-netcdf4 python3-zfpy)")
        return self._numpy_python

    def sz3_python(self):
        """A virtual environment over that Python, with the pinned SZ3."""
        python = self.venvs / f"venv-pysz-{PYSZ_VERSION}" / "bin" / "python"
        check = [str(python), "-c", "import importlib.metadata as m, pysz, zfpy; "
                 f"assert m.version('pysz') == '{PYSZ_VERSION}'"]
        if python.exists() and subprocess.run(check, capture_output=True,
                                              check=False).returncode == 0:
            return str(python)
        for command in ([self.numpy_python(), "-m", "venv", "--clear", "--system-site-packages",
                         str(python.parent.parent)],
                        # --no-deps, because numpy comes from the system, to which zfpy belongs too.
                        [str(python), "-m", "pip", "install", "--quiet", "--no-deps",
                         f"pysz=={PYSZ_VERSION}"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise processes.Missing("SZ3 (PyPI: pysz): " + done.stderr.strip()[-300:])
        return str(python)

    def prepare(self, names):
        wanted = [name for name in names if name not in self._prepared]
        if not wanted:
            return
        done = subprocess.run([self.numpy_python(), str(CODEC_FOLDER / "prepare_sets.py"), "--out",
                               str(self.data), *wanted], capture_output=True, text=True,
                              check=False)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            raise processes.failure("prepare_sets.py", f"exit {done.returncode}",
                                    done.stdout + done.stderr) from None
        # Made once per suite, whatever number of rows needs it.
        self._prepared.update(name for name in wanted if report[name] in ("made", "kept"))
        for name in wanted:
            if name not in self._prepared:
                raise processes.Missing(f"data set {name}: {report[name]}")

    def bench(self, name, contenders, **options):
        """Runs forebay_codec_bench on a set: contender -> its measurements. A contender that
        failed has "error" in them; a peer among those fails the row."""
        self.prepare([name])
        command = [self.binaries.find("forebay_codec_bench"), "--data", self.data, "--set", name]
        for contender in contenders:
            command += ["--peer", contender]
        for key, value in {"rounds": self.rounds, "frames": self.frames, **options}.items():
            for each in value if isinstance(value, (list, tuple)) else [value]:
                command += ["--" + key.replace("_", "-"), each]
        report = processes.run_json(command, RUN_TIMEOUT_S)
        # Every report is kept for the table and the picture, also of rows without goals.
        self.measurements.append(report)
        results = {entry["name"]: entry for entry in report["contenders"]}
        for entry in results.values():
            # A peer that fails would make its comparison pass by default, so it fails the row. Our
            # own failure is judged by each figure.
            if "error" in entry and not entry["name"].startswith("forebay_"):
                raise processes.Missing(f"{entry['name']} on {name}: {entry['error']}")
        return results

    # What figures are made of.

    def add(self, row, figure_id, values, **fields):
        unit, goal = codec_goals.GOALS[row][figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))

    def add_ratio(self, row, figure_id, value, **fields):
        """A figure that does not vary between runs: a ratio of sizes."""
        self.add(row, figure_id, [value], **fields)

    def inform(self, figure_id, unit, values, **fields):
        self.sheet.add(from_runs(figure_id, unit, values, **fields))

    def ours(self, results, profile):
        """The measurements of a profile; RunFailed with its own words where it failed."""
        entry = results[f"forebay_{profile}"]
        if "error" in entry:
            raise processes.RunFailed(entry["error"])
        return entry

    # Rows.

    def lossless(self):
        results = {}
        ours = [f"forebay_{profile}" for profile in PROFILES]
        for name in (*SIX, DEPTH):
            # Codecs of 8 bits have no form for depth; to convert it for them would measure our
            # conversion.
            peers = [peer for peer in PEERS if name != DEPTH or peer not in EIGHT_BIT_ONLY]
            results[name] = self.bench(name, [*ours, *peers])
            for peer in peers:
                self._peer_figures(name, peer, results[name][peer])
        # A profile that fails must not hide the figures of the others, so its error is raised at
        # the end.
        failure = None
        for profile, judge in (("dense", self._dense), ("balanced", self._balanced),
                               ("fast", self._fast)):
            try:
                for entries in results.values():
                    self.ours(entries, profile)
                judge(results)
            except processes.RunFailed as error:
                failure = error
        if failure is not None:
            raise failure
        self._encode_speed()

    def _peer_figures(self, name, peer, entry):
        self.inform(f"codec.peer.{peer}.{name}.ratio", "x", [entry["ratio"]],
                    settings=entry["settings"])
        self.inform(f"codec.peer.{peer}.{name}.decode", "GB/s", rates(entry, name_bytes(entry)))

    def _against(self, row, results, profile, label, peer_ratio, names):
        """Ratio of ratios on each set, and their geometric mean; ids end in the set's name."""
        values = {}
        for name in names:
            # Both ratios are of the same array and count the same index and checksums.
            value = results[name][f"forebay_{profile}"]["ratio"] / peer_ratio(results[name])
            values[name] = value
            self.add_ratio(row, f"codec.{profile}.{label}.{name}", value)
        # A geometric mean, because ratios multiply: the mean of 2 and 1/2 must be 1.
        self.add_ratio(row, f"codec.{profile}.{label}_mean", geometric_mean(values.values()))
        return values

    def _speed(self, row, results, profile):
        """Decode of each set, and the slowest as the figure that has the goal."""
        slowest = None
        for name, entries in results.items():
            values = rates(entries[f"forebay_{profile}"], name_bytes(entries))
            self.inform(f"codec.{profile}.decode.{name}", "GB/s", values)
            # The goal is for the slowest set: a user cannot choose the contents.
            if slowest is None or statistics.median(values) < statistics.median(slowest[1]):
                slowest = name, values
        self.add(row, f"codec.{profile}.decode", slowest[1], note=f"slowest set: {slowest[0]}")

    def _dense(self, results):
        # At least as good as x264 on average, and not much worse on any set. A set made for the
        # purpose could falsify the mean, so the sets are fixed and come from Debian.
        x264 = {name: results[name]["forebay_dense"]["ratio"]
                / results[name]["x264_medium"]["ratio"] for name in SIX}
        for name, value in x264.items():
            self.inform(f"codec.dense.vs_x264.{name}", "x", [value])
        self.add_ratio("lossless", "codec.dense.vs_x264_geomean", geometric_mean(x264.values()))
        self.add_ratio("lossless", "codec.dense.vs_x264_worst", min(x264.values()),
                       note=f"on {min(x264, key=x264.get)}")
        self._against("lossless", results, "dense", "vs_best_zstd",
                      lambda entries: max(entries[peer]["ratio"] for peer in BEST_ZSTD), SIX)
        self.add_ratio("lossless", f"codec.dense.ratio.{DEPTH}",
                       results[DEPTH]["forebay_dense"]["ratio"])
        self._speed("lossless", results, "dense")
        for name in CAMERA:
            self.add("lossless", f"codec.dense.decode_vs_x264.{name}",
                     speedups(results[name], "forebay_dense", "x264_medium"))

    def _balanced(self, results):
        self._against("lossless", results, "balanced", "vs_delta_zstd3",
                      lambda entries: entries["delta_zstd_3"]["ratio"], SIX)
        self._speed("lossless", results, "balanced")
        for name in SIX:
            self.add("lossless", f"codec.balanced.decode_vs_delta_zstd3.{name}",
                     speedups(results[name], "forebay_balanced", "delta_zstd_3"))

    def _fast(self, results):
        self._against("lossless", results, "fast", "vs_blosc",
                      lambda entries: entries["blosc_lz4"]["ratio"], SIX)
        self._speed("lossless", results, "fast")

    def _encode_speed(self):
        """Of the two slowest kinds of content: noise from a camera, and 16 bits."""
        for profile in ("balanced", "dense"):
            slowest = None
            for name in ("mire2", DEPTH):
                entry = self.ours(self.bench(name, [f"forebay_{profile}"], frames=48,
                                             encode_rounds=self.rounds, rounds=1), profile)
                size = entry["ratio"] * entry["coded_bytes"] / 1e6
                values = [size / seconds for seconds in entry["encode_s"]]
                if slowest is None or statistics.median(values) < statistics.median(slowest[1]):
                    slowest = name, values
            self.add("lossless", f"codec.{profile}.encode", slowest[1],
                     note=f"slowest set: {slowest[0]}, 48 frames")

    def tezip(self):
        """The stand-in must be what it stands for before it is beaten."""
        # The stand-in's own ratio is a figure with a goal: a weak stand-in would be easy to beat.
        failure, values = None, {}
        for name, published in TEZIP_PUBLISHED.items():
            results = self.bench(name, ["tezip_style", "forebay_dense"], frames=TEZIP_FRAMES)
            measured = results["tezip_style"]["ratio"]
            self.add_ratio("tezip", f"codec.tezip.deviation.{name}",
                           100 * abs(measured / published - 1),
                           note=f"{measured:.3f} for {published}")
            try:
                values[name] = self.ours(results, "dense")["ratio"] / measured
                self.add_ratio("tezip", f"codec.dense.vs_tezip.{name}", values[name])
            except processes.RunFailed as error:
                failure = error
        if failure is not None:
            raise failure
        self.add_ratio("tezip", "codec.dense.vs_tezip_mean", geometric_mean(values.values()))

    def isa(self):
        """The plane codec, where vectors matter, with smaller ones: informs."""
        for name in ("mire2", DEPTH):
            for isa in ("avx512", "avx2", "scalar"):
                # Planes are measured without chunks, because only the plane codec's kernels differ
                # between vector sets.
                results = self.bench(name, [f"planes_{profile}" for profile in PROFILES], isa=isa)
                for profile in PROFILES:
                    self.inform(f"codec.isa.{isa}.{profile}.decode.{name}", "GB/s",
                                rates(results[f"planes_{profile}"], name_bytes(results)))

    def generated(self):
        failure = None
        for name in GENERATED:
            try:
                entry = self.ours(self.bench(name, ["forebay_auto", "zstd_3"]), "auto")
            except processes.RunFailed as error:
                failure = error
                continue
            self.inform(f"codec.auto.ratio.{name}", "x", [entry["ratio"]])
            # Data that cannot be compressed must not grow, because the daemon compresses what it is
            # told to.
            if name == "randomBytes":
                self.add_ratio("generated", "codec.auto.expansion",
                               100 * max(0, 1 / entry["ratio"] - 1))
        if failure is not None:
            raise failure

    def learned(self):
        """Trained on the first half of a camera set's chunks, measured on the second half, which
        every kernel decodes. Training is part of the row; the seed is fixed."""
        for name in ("mire2", "castelG"):
            self.prepare([name])
            shape = json.loads((self.data / f"{name}.json").read_text())["shape"]
            with tempfile.TemporaryDirectory() as folder:
                done = processes.run_json(
                    [self.binaries.find("forebay-compress-train"), "--raw",
                     self.data / f"{name}.raw", "--shape", ",".join(map(str, shape)), "--out",
                     # The network is trained on one half and measured on the other. Measured on
                     # what it was trained on, the gain would show memory and not prediction.
                     pathlib.Path(folder) / "model.net", "--held-out", 0.5, "--macs-max", 1700,
                     "--epochs", 4 if self.quick else 12, "--seed", 1, "--threads", 1,
                     "--all-kernels", "--json"], RUN_TIMEOUT_S)
            note = (f"{done['macs_per_pixel']} MAC/px; {done['held_out_planes']} chunks held out, "
                    "scalar = AVX2 = AVX-512 on all of them")
            self.add_ratio("learned", f"codec.learned.gain.{name}", 100 * done["gain"], note=note)
            self.inform(f"codec.learned.gain_with_model.{name}", "%",
                        [100 * done["gain_with_model"]],
                        note=f"the model's {done['model_bytes']} bytes counted")
            self.inform(f"codec.learned.decode.{name}", "GB/s",
                        [done["held_out_raw_bytes"] / done["decode_s"] / 1e9])

    def random_frame(self):
        contenders = ["forebay_balanced", "forebay_dense", "x264_medium", "delta_zstd_3"]
        # One round is enough: the draws are many, and their 99th percentile is the figure.
        results = self.bench(FRAME_SET, contenders, rounds=1, frame_draws=self.draws)
        for peer in contenders[2:]:
            self.inform(f"codec.random_frame_p99.{peer}", "ms",
                        [1e3 * percentile(results[peer]["frame_s"], 99)])
        for profile in ("balanced", "dense"):
            times = self.ours(results, profile)["frame_s"]
            self.add("random_frame", f"codec.random_frame_p99.{profile}",
                     [1e3 * percentile(times, 99)],
                     note=f"{len(times)} draws, median {1e3 * statistics.median(times):.2f} ms")

    def threads(self):
        """Two threads against one, over what the control gains in the same rounds."""
        # Each is held against a control of its own pace: at 4 GB/s two threads share the memory.
        controls = {"balanced": "control_fast", "dense": "control"}
        # The controls run in the same rounds as our codec, so that a core that the host takes away
        # costs both.
        contenders = ["control", "control_fast", "forebay_balanced", "forebay_dense"]
        # A decoding lasts 15 ms, and a shared host takes a core away for as long: many rounds.
        results = self.bench("mbtcube", contenders, threads=(1, 2), rounds=10 * self.rounds)
        for control in controls.values():
            self.inform(f"codec.threads.{control}", "x", scaling(results[control]))
        for profile, control in controls.items():
            gains = scaling(self.ours(results, profile))
            self.inform(f"codec.threads.{profile}", "x", gains)
            self.add("threads", f"codec.threads.{profile}_of_control",
                     ratios(gains, scaling(results[control])), settings=control)
        self.inform("codec.threads.balanced_of_slow_control", "x",
                    ratios(scaling(self.ours(results, "balanced")), scaling(results["control"])))

    def lossy(self):
        failure = None
        for name, bounds in codec_goals.LOSSY_BOUNDS.items():
            for bound in bounds:
                try:
                    self._lossy_field(name, bound)
                except processes.RunFailed as error:
                    failure = error
        if failure is not None:
            raise failure

    def _lossy_field(self, name, bound):
        """SZ3 and zfp on one field; ours on the field with its holes in every case."""
        # Peers that know no holes get the filled field and pay for the mask; ours gets the holes
        # themselves.
        field = codec_goals.FILLED_OF.get(name, name)
        self.prepare([name, field])
        report = self.run_lossy_peers(name, bound)
        self.measurements.append(report)
        peers = {entry["name"]: entry for entry in report["contenders"]}
        label = f"{name}.{bound:g}"
        for peer, entry in peers.items():
            if "error" in entry:
                raise processes.Missing(f"{peer} on {name}: {entry['error']}")
            self.inform(f"codec.lossy.{label}.{peer}.ratio", "x", [entry["ratio"]],
                        settings=entry["settings"])
            self.inform(f"codec.lossy.{label}.{peer}.violations", "values",
                        [entry["violations"]], note=f"worst error {entry['worst']:.3g}")
        keep_all = [profile for profile in codec_goals.LOSSY_PROFILES
                    if self._lossy_profile(profile, label, field, bound, peers)]
        self.inform(f"codec.lossy.{label}.met_by", "profiles", [len(keep_all)],
                    note=", ".join(keep_all) or "none keeps all four")

    def _lossy_profile(self, profile, label, field, bound, peers):
        """Measures a profile; True where it keeps all goals together."""
        with tempfile.TemporaryDirectory(prefix="lossy.", dir=self.venvs) as scratch:
            dump = pathlib.Path(scratch) / "decoded.raw"
            results = self.bench(field, [f"forebay_{profile}"], bound=bound, dump=dump,
                                 rounds=max(self.rounds, LOSSY_ROUNDS_MIN))
            # The same checker judges what ours decoded and what the peers decoded.
            entry = self.ours(results, profile)
            verdict = self.run_lossy_peers(field, bound, check=dump)["contenders"][-1]
        prefix = codec_goals.lossy_prefix(label, profile)
        self._lossy_goals(prefix, entry, verdict, peers)
        return all(figure.met for figure in self.sheet.figures
                   if figure.id in {f"{prefix}.{part}" for part in codec_goals.LOSSY_GOALS})

    def _lossy_goals(self, prefix, entry, verdict, peers):
        # The best of SZ3's algorithms on this field, so that no choice of settings favours us.
        best = max((peers[peer] for peer in peers if peer.startswith("sz3_")),
                   key=lambda peer: peer["ratio"])
        default = peers["sz3_default"]
        self.add_ratio("lossy", f"{prefix}.vs_sz3_default", entry["ratio"] / default["ratio"])
        self.add_ratio("lossy", f"{prefix}.vs_sz3_best", entry["ratio"] / best["ratio"],
                       note=best["name"])
        # Ours and SZ3 ran in two programs one after the other, so this is no ratio within a round.
        # The CPU times beside it are disturbed less by that.
        faster = {clock: statistics.median(default[clock]["1"]) /
                  statistics.median(entry[clock]["1"]) for clock in ("decode_s", "decode_cpu_s")}
        self.add_ratio("lossy", f"{prefix}.decode_vs_sz3", faster["decode_s"])
        self.inform(f"{prefix}.decode_vs_sz3_cpu", "x", [faster["decode_cpu_s"]],
                    note="by CPU time, which others on the machine disturb less")
        self.add_ratio("lossy", f"{prefix}.violations",
                       verdict["violations"] + verdict["holes_changed"],
                       note=f"{verdict['valid']} valid values, worst error {verdict['worst']:.3g}")

    def run_lossy_peers(self, name, bound, check=None):
        command = [self.sz3_python(), CODEC_FOLDER / "lossy_peers.py", "--data", self.data,
                   "--set", name, "--bound", bound, "--rounds",
                   0 if check else max(self.rounds, LOSSY_ROUNDS_MIN)]
        if name in codec_goals.FILLED_OF:
            command += ["--mask-of", codec_goals.FILLED_OF[name]]
        if check:
            command += ["--check", f"forebay={check}"]
        return processes.run_json(command)

    def end_to_end(self):
        codec_service.ServiceRow(self).run()


def name_bytes(results):
    """Raw bytes of the set that a result or its entries come from."""
    entry = results if "ratio" in results else next(
        entry for entry in results.values() if "ratio" in entry)
    return entry["ratio"] * entry["coded_bytes"]


def rates(entry, raw_bytes, threads=1):
    """GB/s of every round."""
    return [raw_bytes / seconds / 1e9 for seconds in entry["decode_s"][str(threads)]]


def speedups(results, ours, peer):
    """How many times faster, round by round."""
    return ratios(results[peer]["decode_s"]["1"], results[ours]["decode_s"]["1"])


def scaling(entry):
    """What two threads gain over one, round by round."""
    return ratios(entry["decode_s"]["1"], entry["decode_s"]["2"])


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(math.log(value) for value in values) / len(values))


def percentile(values, share):
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]
