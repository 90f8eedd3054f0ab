"""Rows of suite `trainer` about memory: what is saved for backward is swapped, recomputed, or both,
under a byte budget, in one process; steps of all ways are interleaved by the program."""

import statistics

from harness import processes
from harness.figures import Goal, ratios

AT_MOST = {"at_least": False}
PROGRAM = "forebay_memory_bench"
STEPS = 9
MIXED_STEPS = 7  # of four models, four ways each
QUICK_STEPS = 5

# Part of the activations' bytes that a row allows.
SWAP_BUDGET = 0.39
RECOMPUTE_BUDGET = 0.3
SWAP_TASK = ("--task", "vit")
RECOMPUTE_TASK = ("--task", "vit", "--dropout", "0.1")

# Beside a core of some 60 GFLOP/s: between what a V100 on NVLink had and an H200 on PCIe has.
LINK_GB_S = 0.1
# Micro-batches in flight, budget. What a convolution takes for itself can neither be swapped nor
# recomputed: it counts for less the more micro-batches are in flight.
MIXED = {"vit": (4, 0.4), "resnet": (8, 0.7), "unet3d": (8, 0.75), "cosmoflow": (8, 0.7)}

GOALS = {
    "swap": {
        "trainer.c8.saved": ("%", Goal(60)),
        "trainer.c8.extra_time": ("%", Goal(25, **AT_MOST)),
        "trainer.c8.gradients": ("digests", Goal(1, **AT_MOST)),
    },
    "recompute": {
        "trainer.c9.saved": ("%", Goal(70)),
        "trainer.c9.extra_time": ("%", Goal(40, **AT_MOST)),
        "trainer.c9.gradients": ("digests", Goal(1, **AT_MOST)),
    },
    "mixed": {
        **{f"trainer.c10.over_budget.{task}": ("%", Goal(2, **AT_MOST)) for task in MIXED},
        "trainer.c10.slower": ("models", Goal(0, **AT_MOST)),
        "trainer.c10.faster": ("models", Goal(2)),
        "trainer.c10.gradients": ("digests", Goal(4, **AT_MOST)),
    },
}


def percent_less(report, way):
    """Bytes of the peak that a way saves, of what keeping all takes."""
    # Against keeping everything, in the same program and run.
    peaks = {name: entry["peak_bytes"] for name, entry in report["ways"].items()}
    return 100 * (1 - peaks[way] / peaks["keep"])


def extra_percent(report, way):
    """Step by step against the step that keeps all."""
    ways = report["ways"]
    return [100 * (ratio - 1) for ratio in ratios(ways[way]["step_s"], ways["keep"]["step_s"])]


def check_fits(report, way):
    # A way that does not fit in the budget cannot be compared, and its figures are missing.
    if way in report["unfit"]:
        raise processes.RunFailed(f"{report['model']}: {way}: {report['unfit'][way]}")


def digests(report):
    # Swapping and recomputing must not change a bit, so the digests of all ways are one.
    return {(entry["gradients"], entry["digest"]) for entry in report["ways"].values()}


def gains(report):
    """How many times as fast a step of the mixture is, against the better of the two pure ways,
    by step. Exactly 1 where the mixture is that one."""
    ways = report["ways"]
    pure = [ways[name] for name in ("swap", "recompute") if name in ways]
    # The better of the two pure ways is the peer: a mixture that is only better than the worse one
    # is no gain.
    best = min(pure, key=lambda entry: statistics.median(entry["step_s"]))
    if best["plan"] == ways["mixed"]["plan"]:
        return [1.0] * len(best["step_s"])
    return ratios(best["step_s"], ways["mixed"]["step_s"])


class MemoryRows:
    """`add(row, figure id, values, note)` and `run(words)` are the suite's."""

    def __init__(self, run, add, inform, quick):
        self.launch = run
        self.add = add
        self.inform = inform
        self.quick = quick

    def rows(self):
        methods = {"swap": self.swap, "recompute": self.recompute, "mixed": self.mixed}
        return {name: (method, GOALS[name]) for name, method in methods.items()}

    def run(self, *words, steps=STEPS):
        return self.launch((*words, "--steps", str(QUICK_STEPS if self.quick else steps)))

    def one_way(self, row, figure, way, task, budget):
        report = self.run(*task, "--budget", str(budget), "--ways", f"keep,{way}")
        check_fits(report, way)
        model = f"{report['model']}, {report['micro_batches']} x {report['samples']} samples"
        self.add(row, f"trainer.{figure}.saved", [percent_less(report, way)],
                 note=f"of the peak of allocated tensors in a step, scratch included; {model}")
        self.add(row, f"trainer.{figure}.extra_time", extra_percent(report, way), note=model)
        self.add(row, f"trainer.{figure}.gradients", [len(digests(report))],
                 note="of the first step's gradients and the last weights, keeping all and not")
        self.predictions(figure, report)

    def swap(self):
        self.one_way("swap", "c8", "swap", SWAP_TASK, SWAP_BUDGET)

    def recompute(self):
        self.one_way("recompute", "c9", "recompute", RECOMPUTE_TASK, RECOMPUTE_BUDGET)

    def mixed(self):
        slower = faster = different = 0
        for task, (micro_batches, budget) in MIXED.items():
            report = self.run("--task", task, "--micro-batches", str(micro_batches),
                              "--budget", str(budget), "--link", str(LINK_GB_S),
                              steps=MIXED_STEPS)
            check_fits(report, "mixed")
            over = report["ways"]["mixed"]["peak_bytes"] / report["budget_bytes"] - 1
            note = (f"{report['model']}, {micro_batches} micro-batches: {100 * budget:g} % of what "
                    f"keeping all takes, a link of {LINK_GB_S:g} GB/s")
            for way in report["unfit"]:
                note += f"; {way} alone does not fit"
            self.add("mixed", f"trainer.c10.over_budget.{task}", [100 * over], note=note)
            gain = gains(report)
            self.inform(f"trainer.c10.gain.{task}", "x", gain,
                        note="against the better of swapping alone and recomputing alone")
            self.predictions(f"c10.{task}", report)
            slower += statistics.median(gain) < 1
            faster += statistics.median(gain) > 1
            different += len(digests(report))
        self.add("mixed", "trainer.c10.slower", [slower],
                 note="than the better of swapping alone and recomputing alone")
        self.add("mixed", "trainer.c10.faster", [faster], note=f"of {len(MIXED)}")
        self.add("mixed", "trainer.c10.gradients", [different],
                 note="one of each model, whatever is kept")

    def predictions(self, figure, report):
        """How far the simulator was off, in the worst of the ways."""
        ways = report["ways"].values()
        self.inform(f"trainer.{figure}.step_error", "%", [
            100 * max(abs(way["predicted_s"] / statistics.median(way["step_s"]) - 1)
                      for way in ways)])
        self.inform(f"trainer.{figure}.peak_error", "%", [
            100 * max(abs(way["predicted_peak_bytes"] / way["peak_bytes"] - 1) for way in ways)])
