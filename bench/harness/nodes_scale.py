"""Row `scale` of suite `nodes`: jobs that are too large to run, planned with the functions of the
daemons; and what the model says of 2, 4 and 8 daemons with slow links, beside what they do."""

import json

from harness import datasets, nodes_job, peers, processes, spine
from harness.figures import Goal, from_runs

NODES = (16, 256, 4096, 16384)
FORMS = ("pack", "records", "shards")  # all sizes of jobs are reported for the first one
MACHINE = "tsubame"  # whose figures the report has; the program prints all
# Links that are so slow that two cores keep up with eight daemons.
CALIBRATED_NODES = (2, 4, 8)
CALIBRATED_SAMPLES = 2048
CALIBRATED_BATCH = 16  # of each rank
CALIBRATED_BITS_PER_S = 60e6
CALIBRATED_EXTENT_BYTES = 1 << 20
CALIBRATED_EPOCHS = 6
PREFETCH = 16
OFF = ("%", Goal(15, at_least=False))
GOALS = {
    "nodes.scale.start_s": ("s", Goal(10, at_least=False)),
    "nodes.scale.state": ("GB", Goal(1, at_least=False)),
    "nodes.scale.epoch_off": OFF,
    "nodes.scale.bytes_off": OFF,
}


def run(suite):
    _plan(suite)
    _calibrate(suite)


def plans(binaries, *arguments):
    """What scale_bench prints with these arguments."""
    text = processes.run_text([binaries.find("scale_bench"), *arguments])
    return [json.loads(line) for line in text.splitlines()]


def _plan(suite):
    quick = suite.scale is spine.QUICK
    lines = plans(suite.binaries, "--nodes", *map(str, (16, NODES[-1]) if quick else NODES),
                  "--forms", *FORMS, "--windows", "1" if quick else "3")
    for figure_id, unit, value, settings in figures_of_plans(lines):
        _, goal = GOALS.get(figure_id, (unit, None))
        suite.sheet.add(from_runs(figure_id, unit, [value], goal=goal, settings=settings))


def figures_of_plans(lines):
    """Ids, units, values and settings. `lines` as scale_bench prints them."""
    def of(kind):
        return [line for line in lines if line["kind"] == kind]
    figures = []
    largest = max(line["nodes"] for line in of("start"))
    starts = [line for line in of("start") if line["nodes"] == largest]
    slowest = max(starts, key=lambda line: line["cpu_s"])
    fattest = max(starts, key=lambda line: line["peak_bytes"])
    figures.append(("nodes.scale.start_s", "s", slowest["cpu_s"],
                    f"{slowest['form']}, {largest} nodes, {slowest['extents']} extents; CPU time "
                    "of one core, from a saved catalog"))
    figures.append(("nodes.scale.state", "GB", fattest["peak_bytes"] / 1e9,
                    f"{fattest['form']}, {largest} nodes: the most during the start; "
                    f"{fattest['kept_bytes'] / 1e9:.3f} GB are kept"))
    figures += figures_of_service(lines)
    lines = [line for line in lines if "form" in line]
    # All sizes of jobs for one form, and the largest job for the others.
    lines = [line for line in lines
             if line["kind"] != "form" and (line["form"] == FORMS[0] or line["nodes"] == largest)]
    for line in of("start"):
        name = f"nodes.scale.{line['form']}.{line['nodes']}"
        figures.append((f"{name}.start", "s", line["cpu_s"],
                        f"{line['catalog_s']:.2f} s to open the catalog, {line['shares_s']:.2f} s "
                        "for shares"))
        figures.append((f"{name}.kept", "MB", line["kept_bytes"] / 1e6,
                        f"a catalog of {line['image_bytes'] / 1e6:.0f} MB, "
                        f"{line['extents']} extents"))
    for line in of("prefetch"):
        name = (f"nodes.scale.{line['form']}.{line['nodes']}."
                f"{line['mode'].replace(' ', '_')}")
        figures.append((f"{name}.look_ahead", "s", line["begin_s"],
                        f"CPU time at the begin of an epoch, and {line['window_s']:.4f} s for the "
                        f"{line['extents']} extents of a node in the first window"))
    for line in of("shares"):
        figures.append((f"nodes.scale.{line['form']}.{line['nodes']}.largest_share", "x",
                        line["largest_of_share"],
                        f"{line['groups']:.0f} groups; over the mean of "
                        f"{line['share_bytes'] / 1e9:.2f} GB; {MACHINE}: "
                        f"{line['machines'][MACHINE]['cold_s']:.0f} s to read the set"))
    for line in of("traffic"):
        name = (f"nodes.scale.{line['form']}.{line['nodes']}."
                f"{line['mode'].replace(' ', '_')}")
        on = line["machines"][MACHINE]
        figures.append((f"{name}.askers_max", "nodes", line["askers_max"],
                        f"{line['askers']:.1f} in the mean; {MACHINE}: "
                        f"{on['link_bytes_per_s'] / 1e6:.1f} MB/s on the busiest link, stall "
                        f"{100 * on['stall']:.2f} %; {line['counted_steps']} of "
                        f"{line['steps']} steps counted"))
    for line in of("recovery"):
        figures.append((f"nodes.scale.{line['form']}.{line['nodes']}.lost_{line['lost']}", "GB",
                        line["bytes"] / 1e9,
                        f"read again by {line['substitutes']} nodes, at most "
                        f"{line['largest_bytes'] / 1e9:.2f} GB by one, which is "
                        f"{100 * line['largest_of_share']:.0f} % of a share and "
                        f"{line['largest_of_mean']:.1f} x the mean of those that live; {MACHINE}: "
                        f"{line['machines'][MACHINE]:.1f} s"))
    return figures


def figures_of_service(lines):
    """What nodes do whatever the data are: they have links to all others, probe each other, and
    share the caps."""
    figures = []
    for line in (line for line in lines if line["kind"] == "links"):
        figures.append((f"nodes.scale.links.{line['nodes']}", "MB", line["kept_bytes"] / 1e6,
                        f"links to all nodes, before the first call; {line['create_s']:.3f} s to "
                        f"make them, {1e3 * line['look_s']:.2f} ms to look at all once"))
    for line in (line for line in lines if line["kind"] == "connections"):
        figures.append(("nodes.scale.connection", "kB", line["kept_bytes"] / 1e3,
                        f"both ends of an encrypted connection, the mean of "
                        f"{line['connections']}; {1e3 * line['open_s']:.1f} ms of CPU time to "
                        "open it"))
    for line in (line for line in lines if line["kind"] == "probing"):
        name = f"nodes.scale.probing.{line['nodes']}"
        figures.append((f"{name}.messages", "1/s", line["messages"],
                        f"of a node, {line['bytes']:.0f} bytes/s without headers"))
        figures.append((f"{name}.known", "s", line["known_s"],
                        f"until all know of {line['lost']} nodes that were lost at once; "
                        f"{line['wrong_verdicts']} nodes that live were taken for dead"))
    for line in (line for line in lines if line["kind"] == "caps"):
        name = f"nodes.scale.caps.{line['nodes']}"
        figures.append((f"{name}.most", "x", line["most_of_cap"],
                        "rates of all nodes together at most, over the cap"))
        figures.append((f"{name}.used", "x", line["used_of_cap"],
                        f"of the cap, where a quarter of the nodes read; {line['asks']:.1f} "
                        f"requests/s of a node; {line['after_of_cap']:.2f} x from 10 s after "
                        f"{line['lost']} nodes were lost at once"))
    return figures


# The model beside daemons: one epoch from warm tiers, over links that are the limit.

def _calibrate(suite):
    records = suite.records(datasets.MEAN_SAMPLE_BYTES, CALIBRATED_SAMPLES)
    epochs_off, bytes_off = [], []
    for node_count in CALIBRATED_NODES:
        planned = _planned(suite.binaries, records, node_count)
        measured = _measured(suite, records, node_count)
        name = f"nodes.scale.daemons_{node_count}"
        settings = (f"{node_count} daemons, {CALIBRATED_SAMPLES} samples of "
                    f"{records.spec.sample_bytes} bytes, links of "
                    f"{CALIBRATED_BITS_PER_S / 1e6:.0f} Mbit/s each way, warm tiers, mode global")
        for what, unit, key in (("epoch", "s", "epoch_s"), ("received", "MB", "received_mb")):
            suite.sheet.add(from_runs(f"{name}.{what}", unit, [measured[key]], settings=settings))
            suite.sheet.add(from_runs(f"{name}.{what}_model", unit, [planned[key]]))
        suite.sheet.add(from_runs(f"{name}.epoch_longest", "s", [measured["longest_s"]], settings=(
            "of the rank that takes longest, the mean with the first and the last epoch")))
        epochs_off.append(off_percent(planned["epoch_s"], measured["epoch_s"]))
        bytes_off.append(off_percent(planned["received_mb"], measured["received_mb"]))
    for figure_id, values in (("nodes.scale.epoch_off", epochs_off),
                              ("nodes.scale.bytes_off", bytes_off)):
        unit, goal = GOALS[figure_id]
        by_nodes = ", ".join(f"{count}: {value:.1f} %"
                             for count, value in zip(CALIBRATED_NODES, values))
        suite.sheet.add(from_runs(figure_id, unit, [max(values)], goal=goal, settings=(
            f"the model off what daemons do, where it is farthest off; by daemons: {by_nodes}")))


def off_percent(said, measured):
    """How far the model is off."""
    return 100 * abs(said / measured - 1)


def _planned(binaries, records, node_count):
    """The model of one epoch. As many steps overlap as the readers ask for ahead; all of them are
    counted."""
    steps = CALIBRATED_SAMPLES // (CALIBRATED_BATCH * node_count)
    lines = plans(binaries, "--no-start", "--no-service", "--forms", "records",
                  "--nodes", node_count,
                  "--samples", CALIBRATED_SAMPLES, "--sample-bytes", records.spec.sample_bytes,
                  "--extent-bytes", CALIBRATED_EXTENT_BYTES, "--batch", CALIBRATED_BATCH,
                  "--prefetch", PREFETCH, "--windows", steps, "--step-ms", "0", "--lost", "1",
                  "--link-bytes-per-s", CALIBRATED_BITS_PER_S / 8, "--seed", spine.SEED)
    traffic = next(line for line in lines
                   if line["kind"] == "traffic" and line["mode"] == "global")
    return {"epoch_s": traffic["machines"]["given"]["epoch_s"],
            "received_mb": traffic["received_bytes"] * steps / 1e6}


def steady_epoch_s(reports):
    """The time of an epoch, without the first one, in which the queues of requests fill, and the
    last one, in which nothing more is asked for: the mean of the others, and of all ranks."""
    times = [epoch["seconds"] for report in reports for epoch in report["epochs"][1:-1]]
    return sum(times) / len(times)


def _measured(suite, records, node_count):
    """The time of an epoch; that of the rank that takes longest, with the first and the last one;
    and what a node received in an epoch, the mean of all nodes."""
    ledger = peers.Ledger()
    with suite.jobs.staged(node_count, spine.ram_keys(records), records,
                           extent_bytes=CALIBRATED_EXTENT_BYTES) as (net, services):
        def read(**options):
            reports = nodes_job.consume_together(
                services, batch=CALIBRATED_BATCH * node_count, seed=spine.SEED,
                prefetch=PREFETCH, **options)
            ledger.check(nodes_job.together(reports))
            return reports
        # Opens the connections and touches all memory, with fast links.
        read(epochs=1, check=True)
        for node in range(node_count):
            net.limit(node, CALIBRATED_BITS_PER_S)
        before = [net.received_bytes(node) for node in range(node_count)]
        reports = read(epochs=CALIBRATED_EPOCHS)
        received = sum(net.received_bytes(node) for node in range(node_count)) - sum(before)
    longest = max(sum(epoch["seconds"] for epoch in report["epochs"]) for report in reports)
    return {"epoch_s": steady_epoch_s(reports), "longest_s": longest / CALIBRATED_EPOCHS,
            "received_mb": received / node_count / CALIBRATED_EPOCHS / 1e6}
