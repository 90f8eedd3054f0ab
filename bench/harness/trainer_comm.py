"""Rows of suite `trainer` about communication: the plan that is chosen at the start."""

from harness.figures import Goal, from_runs

GOALS = {
    "plan": {
        "trainer.c6.chosen_over_best": ("x", Goal(1.10, at_least=False)),
        "trainer.c6.worst_over_chosen": ("x", Goal(2.0)),
        "trainer.c6.message_beside_reductions": ("ms", Goal(0.2, at_least=False)),
    },
}


def add(suite, row, figure_id, values, **fields):
    unit, goal = GOALS[row][figure_id]
    suite.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))


def communication_plan(suite):
    """Each run probes, chooses, and then times every plan there is."""
    reports = [suite.start(2, ["forebay_comm_plan_bench", "--rounds", 3])
               for _round in range(suite.rounds)]
    chosen = [report["phase_ms"][report["chosen"]] for report in reports]
    best = [min(report["phase_ms"].values()) for report in reports]
    worst = [max(report["phase_ms"].values()) for report in reports]
    names = sorted({report["chosen"] for report in reports})
    add(suite, "plan", "trainer.c6.chosen_over_best", [a / b for a, b in zip(chosen, best)],
        note=f"48 MiB reduced beside 30 round trips of 256 KiB, two ranks; chosen: "
        f"{', '.join(names)}, of {len(reports[0]['phase_ms'])} plans")
    add(suite, "plan", "trainer.c6.worst_over_chosen", [a / b for a, b in zip(worst, chosen)],
        note="the worst are the smallest buckets; sizes from 16 KiB to the whole, all at once and "
        "one by one")
    add(suite, "plan", "trainer.c6.message_beside_reductions",
        [report["message_ms"] for report in reports],
        note="256 KiB, half a round trip, while buckets of the chosen plan are reduced")


METHODS = {"plan": communication_plan}


def rows(suite):
    return {name: (lambda method=method: method(suite), GOALS[name])
            for name, method in METHODS.items()}
