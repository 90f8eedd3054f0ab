"""Suite `gpu`: the trainer's steps on one GPU beside PyTorch's, eager and compiled, and how long
the GPU is idle in them; weights under several layouts; swap, plans of memory, feed."""

import argparse
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

from harness import processes, rows, trainer_feed
from harness.figures import Goal, from_runs, missing, ratios

TASKS = {"resnet50": 64, "vit-large": 32}  # samples of a step
GAP_TASK, GAP_SAMPLES = "vit-small", 32
PAGEABLE = "copied to the GPU from pageable memory"  # as forebay-train says it
GAP_LEAST = 0.01  # of a step of eager; below, the GPU bounds it, and there is nothing to halve
PEER = pathlib.Path(__file__).parents[1] / "gpu" / "gpu_peer.py"
SWAP_MIB = 4096
# A run that takes longer is not the one that was meant, and the time on a GPU is limited.
RUN_S = 120  # at most, of a single run
AT_MOST = {"at_least": False}

PLAN_SAMPLES = 64
PLAN_BUDGET = "24GiB"  # of some 60 that ViT-H/14 would keep
CAP_MIB = 16 << 10
CAP_BUDGET = "13GiB"  # of tensors: the rest is for what operators take for themselves
CUBE_SIDES = range(96, 289, 32)  # the U-Net halves them five times
FED = {
    "cosmoflow": trainer_feed.Cubes("cosmoflow", channels=4, side=64, samples=128, batch=16,
                                    numbers=4),
    "unet3d": trainer_feed.Cubes("unet3d", channels=1, side=128, samples=16, batch=2, classes=3),
}

GOALS = {
    "throughput": {f"gpu.over_eager.{task}": ("x", Goal(0.97)) for task in TASKS},
    "gap": {"gpu.host_gap": ("x", Goal(0.50, **AT_MOST)),
            "gpu.host_gap.ours": ("us", None),
            "gpu.host_gap.eager": ("us", None)},
    "prediction": {"gpu.prediction_error": ("of the step", Goal(0.10, **AT_MOST)),
                   "gpu.peak_error": ("of the peak", Goal(0.03, **AT_MOST))},
    "swap": {"gpu.swap_over_copy": ("x", Goal(0.85)),
             "gpu.swap_over_save_on_cpu": ("x", Goal(1.5))},
    "digest": {"gpu.digest": ("tests failed", Goal(0, **AT_MOST))},
    "plan": {"gpu.mixed_over_recompute": ("x", Goal(1.10))},
    "feed": {f"gpu.fed_over_resident.{name}": ("x", Goal(0.95)) for name in FED},
    "cube": {"gpu.cube_voxels": ("x", Goal(2)),
             "gpu.cube_slowdown": ("of a voxel's time", Goal(0.30, **AT_MOST))},
    "compiled": {f"gpu.rate.{task}.compiled": ("samples/s", None) for task in TASKS},
}


def step_words(samples, *words, steps=20, warm=5):
    return ("--samples", samples, "--precision", "bf16", "--steps", steps, "--warm", warm, *words)


def cube_words(side, policy, budget):
    return ("--model", "unet3d", "--shape", ",".join(map(str, (1, side, side, side))),
            *step_words(1, "--policy", policy, "--budget", budget, "--cap-mib", CAP_MIB,
                        steps=5, warm=2))


# Row -> label -> (who runs it, words). What is known only while a row runs has capitals.
RUNS = {
    "throughput": {
        f"{task}.{name}": run for task, samples in TASKS.items() for name, run in {
            "ours": ("ours", ("--model", task, *step_words(samples))),
            "eager": ("peer", ("--task", task, *step_words(samples))),
        }.items()},
    "gap": {
        "ours": ("ours", ("--model", GAP_TASK, *step_words(GAP_SAMPLES, "--gap"))),
        "eager": ("peer", ("--task", GAP_TASK, *step_words(GAP_SAMPLES, "--gap")))},
    "prediction": {
        "unet3d": ("ours", ("--model", "unet3d", "--shape", "1,64,64,64", *step_words(2)))},
    "swap": {
        "copies": ("ours", ("--swap-mib", SWAP_MIB)),
        "ours": ("ours", ("--model", "vit-large", "--policy", "swap",
                          *step_words(TASKS["vit-large"], steps=5, warm=2))),
        "save_on_cpu": ("peer", ("--task", "vit-large", "--save-on-cpu",
                                 *step_words(TASKS["vit-large"], steps=5, warm=2)))},
    "digest": {"layouts": ("layout_tests", ()), "bf16": ("precision_tests", ()),
               "feed": ("feed_tests", ())},
    "plan": {
        "mixed": ("ours", ("--model", "vit-huge", "--policy", "auto", "--budget", PLAN_BUDGET,
                           *step_words(PLAN_SAMPLES, steps=8, warm=2))),
        "recompute": ("ours", ("--model", "vit-huge", "--policy", "recompute",
                               *step_words(PLAN_SAMPLES, steps=8, warm=2)))},
    "feed": {
        f"{name}.{label}": run for name, cubes in FED.items() for label, run in {
            "resident": ("ours", ("--model", cubes.model, "--shape",
                                  ",".join(map(str, cubes.shape)), *step_words(cubes.batch))),
            "fed": ("train", (*trainer_feed.train_words("ADDRESS", "FOLDER", cubes),
                              "--device", "cuda", "--precision", "bf16")),
        }.items()},
    "cube": {
        "keep": ("ours", cube_words("SIDE", "keep", 0)),
        "planned": ("ours", cube_words("SIDE", "auto", CAP_BUDGET))},
    "compiled": {
        task: ("peer", ("--task", task, *step_words(samples, "--compiled")))
        for task, samples in TASKS.items()},
}


def rate(reports):
    """Samples/s of each run, from the median of its steps."""
    # The rate comes from the median step, because the first steps warm caches and choose kernels,
    # and a single slow step says nothing.
    return [report["step_samples"] / statistics.median(report["step_s"]) for report in reports]


def gap_us(report):
    """For how long the GPU is idle in a step: the time of one without the profiler, which slows the
    host down, less that for which the profiler saw the GPU busy."""
    # The two numbers come from two runs, so their difference can be slightly below 0.
    return max(0.0, statistics.median(report["step_s"]) - report["busy_s"]) * 1e6


def why_no_ratio(reports, gaps_us, steps_us):
    """Of two gaps; "" where there is one."""
    for name, report in reports.items():
        # A ratio of two gaps means something only if both were measured and neither is nearly 0.
        # What would falsify it is named here.
        if report["busy_s"] * 1e6 > (1 + GAP_LEAST) * steps_us[name]:
            return f"the profiler saw more than a step of {name}"
    if gaps_us["eager"] < GAP_LEAST * steps_us["eager"]:
        return "with eager the GPU is hardly ever idle"
    if steps_us["ours"] > (1 + GAP_LEAST) * steps_us["eager"]:
        return "our step is longer than eager's, which hides the host's work"
    return ""


def error(foreseen, measured):
    return abs(foreseen - measured) / measured


def lacks_memory(failure):
    return any(words in str(failure) for words in ("out of memory", "RESOURCE_EXHAUSTED"))


def largest(sides, run):
    """The last of `sides` that `run` has memory for, and its report: all before it are taken to
    fit, all behind it not to. RunFailed, with the reason, where not even the first does."""
    # A binary search, because each try costs a run. It relies on larger cubes needing more memory.
    low, high = 0, len(sides) - 1
    best = (sides[0], run(sides[0]))
    while low < high:
        middle = (low + high + 1) // 2
        try:
            best = (sides[middle], run(sides[middle]))
            low = middle
        except processes.RunFailed as failure:
            # Only a lack of memory means "too large"; any other failure is one of the program.
            if not lacks_memory(failure):
                raise
            high = middle - 1
    return best


class Gpu:
    def __init__(self, sheet, binaries, _data_folder, _quick):
        self.sheet = sheet
        self.binaries = binaries
        self.ends_s = float(os.environ.get("FOREBAY_GPU_ENDS", "inf"))  # since 1970

    def rows(self):
        return {name: (getattr(self, name), goals) for name, goals in GOALS.items()}

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    @staticmethod
    def program(who):
        python = os.environ.get("FOREBAY_BENCH_PYTHON", "python3")
        return {"ours": ("forebay_gpu_bench", "--device", "cuda"),
                "peer": (python, PEER, "--device", "cuda"),
                "layout_tests": ("trainer_layout_identity_test",),
                "precision_tests": ("trainer_low_precision_test",),
                "feed_tests": ("trainer_device_test",),
                "train": ("forebay-train",)}[who]

    def explain(self, only=""):
        """The rows: their figures, and the commands that they run."""
        lines = []
        for row in rows.chosen(GOALS, only):
            lines.append(row)
            lines += [f"  {figure_id}: {f'{goal} ' if goal else ''}{unit}"
                      for figure_id, (unit, goal) in GOALS[row].items()]
            lines += [f"  {label}: {shlex.join(map(str, (*self.program(who), *words)))}"
                      for label, (who, words) in RUNS[row].items()]
        return lines

    def limit_s(self, usual_s):
        """Of a run that begins now."""
        # The time on the machine is bounded, so a run that cannot end in it is not begun, and its
        # figures say so.
        left_s = self.ends_s - time.time()
        if left_s < 1:
            raise processes.RunFailed("the suite's time was over: choose rows with --only, or a "
                                      "larger FOREBAY_GPU_SECONDS")
        return min(usual_s, left_s)

    def command(self, row, label, **replaced):
        """Of one run; `replaced`: word -> what stands for it."""
        who, words = RUNS[row][label]
        program, *options = self.program(who)
        if who != "peer":
            program = self.binaries.find(program)
        command = [str(word) for word in (program, *options, *words)]
        for placeholder, value in replaced.items():
            command = [word.replace(placeholder, str(value)) for word in command]
        return command

    def report(self, row, label, **replaced):
        return processes.run_json(self.command(row, label, **replaced), self.limit_s(RUN_S))

    def tests_on_gpu(self):
        """What ended in failure, by program, where they compute on the GPU."""
        failures = []
        # The tests of the trainer, run on the GPU: every layout must give the same weights there
        # too.
        for label in RUNS["digest"]:
            command = ["env", "FOREBAY_TEST_DEVICE=cuda", *self.command("digest", label)]
            limit_s = self.limit_s(2 * RUN_S)
            try:
                processes.run_text(command, limit_s)
            except processes.RunFailed as failure:
                failures.append(str(failure))
        return failures

    def fed_steps(self, name):
        """Of forebay-train, fed by a daemon that has all samples in memory; and what it said."""
        with tempfile.TemporaryDirectory(prefix="fb.feed.") as folder_name:
            folder = pathlib.Path(folder_name)
            trainer_feed.make_set(folder / "set", FED[name])
            keys = {"tier.ram.capacity": "2GiB", "slots.capacity": "512MiB"}
            with processes.daemon(self.binaries, keys,
                                  [trainer_feed.dataset(folder / "set")]) as daemon:
                daemon.stage("cubes")
                said = processes.run_text(
                    self.command("feed", f"{name}.fed", ADDRESS=daemon.address,
                                 FOLDER=folder / "metrics"), self.limit_s(RUN_S))
            return trainer_feed.read_steps(folder / "metrics"), said

    def add(self, row, figure_id, values, note=""):
        unit, goal = GOALS[row][figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, note=note))

    def throughput(self):
        for task, samples in TASKS.items():
            # Each contender runs once, without rounds. Steps are repeated within a run, but a
            # change of the GPU's clock between the two runs is not cancelled. The peer is what a
            # user of PyTorch gets, eager and with the same precision.
            reports = {name: self.report("throughput", f"{task}.{name}")
                       for name in ("ours", "eager")}
            peer = reports["eager"]
            rates = {name: rate([report]) for name, report in reports.items()}
            self.add("throughput", f"gpu.over_eager.{task}",
                     ratios(rates["ours"], rates["eager"]),
                     f"bf16, {samples} samples a step, {peer['gpu']}, torch {peer['torch']}")
            for name, values in rates.items():
                self.sheet.add(from_runs(f"gpu.rate.{task}.{name}", "samples/s", values))

    def gap(self):
        reports = {name: self.report("gap", name) for name in RUNS["gap"]}
        gaps_us = {name: gap_us(report) for name, report in reports.items()}
        steps_us = {name: 1e6 * statistics.median(report["step_s"])
                    for name, report in reports.items()}
        for name, value in gaps_us.items():
            self.add("gap", f"gpu.host_gap.{name}", [value],
                     f"of a step of {steps_us[name]:.0f} us; {GAP_TASK}, bf16, {GAP_SAMPLES} "
                     "samples")
        why = why_no_ratio(reports, gaps_us, steps_us)
        if why:
            unit, goal = GOALS["gap"]["gpu.host_gap"]
            self.sheet.add(missing("gpu.host_gap", unit, f"no ratio: {why}", goal=goal))
            return
        self.add("gap", "gpu.host_gap", ratios([gaps_us["ours"]], [gaps_us["eager"]]))

    def prediction(self):
        report = self.report("prediction", "unet3d")
        step_s = statistics.median(report["step_s"])
        self.add("prediction", "gpu.prediction_error", [error(report["predicted_s"], step_s)],
                 f"{report['predicted_s']:.4g} s foreseen, {step_s:.4g} s measured")
        foreseen, measured = report["predicted_peak_bytes"], report["peak_bytes"]
        self.add("prediction", "gpu.peak_error", [error(foreseen, measured)],
                 f"{foreseen / 1e9:.4g} GB foreseen, {measured / 1e9:.4g} GB measured")

    def swap(self):
        report = self.report("swap", "copies")
        # A plain copy of the same bytes is the limit of the link; a figure above 1 would mean that
        # one of the two is measured wrongly.
        self.add("swap", "gpu.swap_over_copy",
                 ratios(report["swap_gb_s"], report["plain_gb_s"]),
                 f"{statistics.median(report['plain_gb_s']):.3g} GB/s plain, out and back")
        ours, peer = (self.report("swap", label) for label in ("ours", "save_on_cpu"))
        self.add("swap", "gpu.swap_over_save_on_cpu", ratios(rate([ours]), rate([peer])),
                 f"ViT-L, all saved values, {ours['swapped_bytes'] / 1e9:.3g} GB a step")

    def digest(self):
        failures = self.tests_on_gpu()
        self.add("digest", "gpu.digest", [len(failures)],
                 "; ".join(failures) or "four tiny models, seven layouts, swapped and recomputed, "
                 "by threads; a batch's way to the GPU")

    def plan(self):
        mixed, recomputed = (self.report("plan", label) for label in ("mixed", "recompute"))
        self.add("plan", "gpu.mixed_over_recompute", ratios(rate([mixed]), rate([recomputed])),
                 f"ViT-H/14, {PLAN_SAMPLES} samples, {mixed['peak_bytes'] / 1e9:.3g} GB at most, "
                 f"{recomputed['peak_bytes'] / 1e9:.3g} GB where all is recomputed")

    def cube(self):
        # Under a cap, so that the row means the same on GPUs with more memory.
        found = {label: largest(CUBE_SIDES, lambda side, label=label: self.report(
            "cube", label, SIDE=side)) for label in RUNS["cube"]}
        voxels = {label: side ** 3 for label, (side, _) in found.items()}
        voxel_s = {label: statistics.median(report["step_s"]) / voxels[label]
                   for label, (_, report) in found.items()}
        sides = ", ".join(f"{label} {side}" for label, (side, _) in found.items())
        self.add("cube", "gpu.cube_voxels", [voxels["planned"] / voxels["keep"]],
                 f"sides: {sides}; {CAP_MIB >> 10} GiB of the GPU")
        self.add("cube", "gpu.cube_slowdown", [voxel_s["planned"] / voxel_s["keep"] - 1],
                 "of the larger cube's step")

    def feed(self):
        for name, cubes in FED.items():
            # The same steps on a batch that stays on the GPU give the limit of what a feed can
            # reach.
            resident = rate([self.report("feed", f"{name}.resident")])
            steps, said = self.fed_steps(name)
            fed = cubes.batch * len(steps) / (sum(step["step_ns"] for step in steps) / 1e9)
            refused = "; not registered with CUDA" if PAGEABLE in said else ""
            _, waits = trainer_feed.figures_of(steps)
            self.add("feed", f"gpu.fed_over_resident.{name}", ratios([fed], resident),
                     f"{cubes}, bf16; {fed:.4g} samples/s, waits {waits:.2g} % of the time"
                     + refused)

    def compiled(self):
        """Last: what a compiler lacks costs only its own figures."""
        for task in TASKS:
            self.add("compiled", f"gpu.rate.{task}.compiled",
                     rate([self.report("compiled", task)]))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="bench/gpu/run.sh --dry-run",
        description="Prints the rows of suite gpu: their figures with goals, and their commands.")
    parser.add_argument("--only", default="", metavar="ROW,...",
                        help="rows whose name holds one of these")
    only = parser.parse_args(arguments).only
    lines = Gpu(None, None, None, False).explain(only)
    if not lines:
        print(f"no row holds \"{only}\"; rows: {', '.join(GOALS)}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
