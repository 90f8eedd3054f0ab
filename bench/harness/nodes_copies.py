"""Row `copies` of suite `nodes`: each node keeps copies of half the data set. Which share of its
reader's samples a node has itself, beside what its daemon predicts from where the bytes lie."""

from harness import nodes_job, nodes_link, spine
from harness.figures import Goal, from_runs

NODES = 4
# "rows local with half the set's bytes as copies", as a part of what the node does not own.
COPIES = 0.5
GOALS = {"nodes.copies.off_prediction": ("points", Goal(2, at_least=False))}


def run(suite):
    # Small samples, because chance moves the share of few of them by more than a point.
    records = suite.records(nodes_link.SMALL_BYTES, suite.scale.small_samples)
    copies = int(COPIES * records.stored_bytes())
    measured, predicted = [], []
    with suite.jobs.staged(NODES, spine.ram_keys(records), records,
                           table={"copies": str(copies)}) as (_, services):
        before = _nodes(services)
        for number in range(max(3, suite.scale.pairs // 3)):
            nodes_job.consume_together(services, batch=spine.BATCH * NODES,
                                       seed=spine.SEED + number, epochs=1)
            after = _nodes(services)
            measured.append(local_percents(before, after))
            predicted.append([1e-4 * node["predicted_local_millionths"] for node in after])
            before = after
    settings = (f"{NODES} nodes, mode global, each with copies of {copies / 1e6:.0f} MB of "
                f"{records.stored_bytes() / 1e6:.0f} MB; a reader on each")
    for figure_id, unit, values in figures_of(measured, predicted):
        _, goal = GOALS.get(figure_id, (unit, None))
        suite.sheet.add(from_runs(figure_id, unit, values, goal=goal, settings=settings))


def figures_of(measured, predicted):
    """Both in percent, by run and node."""
    return [
        ("nodes.copies.local", "%", [sum(run) / len(run) for run in measured]),
        ("nodes.copies.predicted", "%", [sum(run) / len(run) for run in predicted]),
        ("nodes.copies.off_prediction", "points",
         [max(abs(seen - said) for seen, said in zip(of_run, said_of_run))
          for of_run, said_of_run in zip(measured, predicted)])]


def local_percents(before, after):
    """The share of samples that did not come from other nodes, by node."""
    shares = []
    for earlier, later in zip(before, after):
        samples = later["samples"] - earlier["samples"]
        others = later["other_samples"] - earlier["other_samples"]
        shares.append(100 * (1 - others / samples))
    return shares


def _nodes(services):
    # Each daemon predicts for itself alone.
    return [next(node for node in service.cli("status", "--nodes")["nodes"] if node["is_self"])
            for service in services]
