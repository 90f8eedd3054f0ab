"""Rows of suite `trainer` about memory: what is saved for backward is swapped, recomputed, or both,
under a byte budget, in one process; steps of all ways are interleaved by the program."""

import statistics

from harness.figures import Goal, ratios

AT_MOST = {"at_least": False}
PROGRAM = "forebay_memory_bench"
STEPS = 9
QUICK_STEPS = 5

# Part of the activations' bytes that a row allows.
SWAP_BUDGET = 0.4
RECOMPUTE_BUDGET = 0.3
SWAP_TASK = ("--task", "unet3d")
RECOMPUTE_TASK = ("--task", "vit", "--dropout", "0.1")

LINK_GB_S = 1.0
MIXED_BUDGET = {"vit": 0.4, "resnet": 0.6, "unet3d": 0.5, "cosmoflow": 0.6}

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
        **{f"trainer.c10.over_budget.{task}": ("%", Goal(2, **AT_MOST)) for task in MIXED_BUDGET},
        "trainer.c10.slower": ("models", Goal(0, **AT_MOST)),
        "trainer.c10.faster": ("models", Goal(2)),
        "trainer.c10.gradients": ("digests", Goal(4, **AT_MOST)),
    },
}


def percent_less(report, way):
    """Bytes of the peak that a way saves, of what keeping all takes."""
    peaks = {name: entry["peak_bytes"] for name, entry in report["ways"].items()}
    return 100 * (1 - peaks[way] / peaks["keep"])


def extra_percent(report, way):
    """Step by step against the step that keeps all."""
    ways = report["ways"]
    return [100 * (ratio - 1) for ratio in ratios(ways[way]["step_s"], ways["keep"]["step_s"])]


def digests(report):
    return {(entry["gradients"], entry["digest"]) for entry in report["ways"].values()}


def gains(report):
    """How many times as fast a step of the mixture is, against the better of the two pure ways,
    by step. Exactly 1 where the mixture is one of them."""
    ways = report["ways"]
    pure = [ways[name] for name in ("swap", "recompute") if name in ways]
    best = min(pure, key=lambda entry: statistics.median(entry["step_s"]))
    if any(entry["plan"] == ways["mixed"]["plan"] for entry in pure):
        return [1.0] * len(best["step_s"])
    return ratios(best["step_s"], ways["mixed"]["step_s"])


class MemoryRows:
    """`add(row, figure id, values, note)` and `run(words)` are the suite's."""

    def __init__(self, run, add, inform, quick):
        self.launch = run
        self.add = add
        self.inform = inform
        self.steps = QUICK_STEPS if quick else STEPS

    def rows(self):
        methods = {"swap": self.swap, "recompute": self.recompute, "mixed": self.mixed}
        return {name: (method, GOALS[name]) for name, method in methods.items()}

    def run(self, *words):
        return self.launch((*words, "--steps", str(self.steps)))

    def one_way(self, row, figure, way, task, budget):
        report = self.run(*task, "--budget", str(budget), "--ways", f"keep,{way}")
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
        for task, budget in MIXED_BUDGET.items():
            report = self.run("--task", task, "--budget", str(budget), "--link", str(LINK_GB_S))
            over = report["ways"]["mixed"]["peak_bytes"] / report["budget_bytes"] - 1
            note = (f"{report['model']}: {100 * budget:g} % of what keeping all takes, a link of "
                    f"{LINK_GB_S:g} GB/s")
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
        self.add("mixed", "trainer.c10.faster", [faster], note=f"of {len(MIXED_BUDGET)}")
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
