"""Rows of suite `trainer` about communication: the plan that is chosen at the start, and a data
parallel step beside that of Python's DistributedDataParallel."""

import functools
import pathlib
import statistics

from harness import processes
from harness.figures import Goal, from_runs, interleave, ratios

PEER = pathlib.Path(__file__).parent.parent / "trainer" / "ddp_peer.py"
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's python3-torch
# Micro-batches of a step, and samples of each: as many samples in all.
SHAPES = {"m8": ("--micro-batches", 8, "--samples", 32),
          "m2": ("--micro-batches", 2, "--samples", 128)}

GOALS = {
    "plan": {
        "trainer.c6.chosen_over_best": ("x", Goal(1.10, at_least=False)),
        "trainer.c6.worst_over_chosen": ("x", Goal(2.0)),
        "trainer.c6.message_beside_reductions": ("ms", Goal(0.2, at_least=False)),
    },
    **{f"ddp_{name}": {
        f"trainer.c5.fast_over_ddp.{name}": ("x", Goal(1.00, at_least=False)),
        f"trainer.c5.exact_over_ddp.{name}": ("x", Goal(1.15, at_least=False)),
    } for name in SHAPES},
}


def add(suite, row, figure_id, values, **fields):
    unit, goal = GOALS[row][figure_id]
    suite.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))


# Most plans are as good as each other: the best of 25 medians of few rounds is below what they all
# take, by noise alone.
PLAN_ROUNDS = 21
ONE_BY_ONE = " x1"  # ends the names of plans that reduce one bucket at a time


def communication_plan(suite):
    """Each run probes, chooses, and then times every plan there is."""
    reports = [suite.start(2, ["forebay_comm_plan_bench", "--rounds", PLAN_ROUNDS])
               for _round in range(suite.rounds)]
    # The plan that the trainer chose from a short probe, against the best of all plans in
    # hindsight. It is falsified by a machine on which the probe misleads.
    chosen = [report["phase_ms"][report["chosen"]] for report in reports]
    best = [min(report["phase_ms"].values()) for report in reports]
    best_size = [min(ms for plan, ms in report["phase_ms"].items() if not plan.endswith(ONE_BY_ONE))
                 for report in reports]
    worst = [max(report["phase_ms"].values()) for report in reports]
    names = sorted({report["chosen"] for report in reports})
    add(suite, "plan", "trainer.c6.chosen_over_best", [a / b for a, b in zip(chosen, best)],
        note=f"48 MiB reduced beside 30 round trips of 256 KiB, two ranks; chosen: "
        f"{', '.join(names)}, of {len(reports[0]['phase_ms'])} plans")
    suite.sheet.add(from_runs("trainer.c6.chosen_over_best_size", "x",
                              [a / b for a, b in zip(chosen, best_size)],
                              note="all buckets at once, as the trainer reduces them: what the "
                              "choice of their size costs"))
    add(suite, "plan", "trainer.c6.worst_over_chosen", [a / b for a, b in zip(worst, chosen)],
        note="the worst are the smallest buckets; sizes from 16 KiB to the whole, all at once and "
        "one by one")
    add(suite, "plan", "trainer.c6.message_beside_reductions",
        [report["message_ms"] for report in reports],
        note="256 KiB, half a round trip, while buckets of the chosen plan are reduced")


def peer(suite, shape):
    return processes.run_json(["env", *suite.environment(), PYTHON, PEER, *shape])


def ddp(suite, name):
    """DDP as it comes, and, for comparison, with gradients kept in its buckets."""
    shape = SHAPES[name]
    ours = ["forebay_trainer_bench", "--replicas", 2, *shape]
    # DDP as it comes is the peer of the goal; with views of buckets it is faster, and is reported
    # beside it so that nobody has to ask.
    runs = interleave(suite.rounds, {
        "ddp": lambda _round: peer(suite, shape),
        "views": lambda _round: peer(suite, (*shape, "--bucket-views")),
        "exact": lambda _round: suite.start(2, ours),
        "fast": lambda _round: suite.start(2, [*ours, "--fast"])})
    seconds = {contender: [statistics.median(report["step_s"]) for report in reports]
               for contender, reports in runs.items()}
    for mode in ("fast", "exact"):
        add(suite, f"ddp_{name}", f"trainer.c5.{mode}_over_ddp.{name}",
            ratios(seconds[mode], seconds["ddp"]),
            note=f"a step of two replicas, {shape[1]} micro-batches of {shape[3]} samples, "
            f"16.8 M parameters; Python's torch {runs['ddp'][0]['torch']} over Gloo")
    suite.sheet.add(from_runs(f"trainer.exact_over_ddp_views.{name}", "x",
                              ratios(seconds["exact"], seconds["views"]),
                              note="gradient_as_bucket_view=True"))
    suite.sheet.add(from_runs(f"trainer.exact_over_fast.{name}", "x",
                              ratios(seconds["exact"], seconds["fast"]),
                              note="what layout-independent sums cost"))


def rows(suite):
    methods = {"plan": functools.partial(communication_plan, suite),
               **{f"ddp_{name}": functools.partial(ddp, suite, name) for name in SHAPES}}
    return {name: (method, GOALS[name]) for name, method in methods.items()}
