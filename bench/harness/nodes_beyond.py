"""Row `beyond` of suite `nodes`: a data set of twice the tiers of all nodes together, read in mode
`block`. It measures how much the nodes read from the GFS, beside the least that is possible with
these tiers, and beside caches that evict what was used longest ago (LRU)."""

import array
import collections
import tempfile

from harness import datasets, nodes_job, peers, processes, spine
from harness.figures import Goal, from_runs

NODES = 4
SET = datasets.Spec("records", samples=65_536, sample_bytes=4096, objects=1)
EXTENT_BYTES = 512 << 10
EXTENT_SAMPLES = EXTENT_BYTES // SET.sample_bytes
BATCH = 128         # of all ranks together
SHAPE = {"block_samples": EXTENT_SAMPLES, "window_runs": 16}
STEP_MS = 40        # slow enough for ranks that begin at different times to stay in a window
EPOCHS = 3
TIER_BYTES = 16 << 20  # of RAM, and of SSD
KEYS = {"tier.ram.capacity": str(TIER_BYTES), "tier.ssd.capacity": str(TIER_BYTES),
        "slots.capacity": str(32 << 20)}
GOALS = {"nodes.beyond.later_epochs_of_bound": ("x", Goal(1.05, at_least=False))}


def lru_misses(accesses, capacity):
    """Returns how many of the accesses miss an LRU cache of `capacity` entries."""
    cache, misses = collections.OrderedDict(), 0
    for key in accesses:
        if key in cache:
            cache.move_to_end(key)
            continue
        misses += 1
        cache[key] = None
        if len(cache) > capacity:
            cache.popitem(last=False)
    return misses


def extents_by_rank(samples, ranks):
    """Returns, for each rank, the extents of its samples in reading order; and the extents of all
    samples in that order."""
    share = BATCH // ranks
    own = [[] for _ in range(ranks)]
    for i, sample in enumerate(samples):
        own[i % BATCH // share].append(sample // EXTENT_SAMPLES)
    return own, [sample // EXTENT_SAMPLES for sample in samples]


def run(suite):
    records = suite.store.dataset(SET)
    total = records.stored_bytes()
    runs = [_run_once(suite, records) for _ in range(max(1, suite.scale.pairs // 3))]
    resident = [total - job["on_no_tier"] for job in runs]
    settings = (f"{NODES} nodes, set={total / 1e6:.0f} MB, tiers of all nodes="
                f"{NODES * 2 * TIER_BYTES / 1e6:.0f} MB (half RAM, half SSD), mode block, runs of "
                f"{SHAPE['block_samples']} samples (an extent), windows of {SHAPE['window_runs']} "
                f"runs, steps of {STEP_MS} ms")
    def add(name, values, unit="x", note=""):
        figure_id = f"nodes.beyond.{name}"
        _, goal = GOALS.get(figure_id, (unit, None))
        suite.sheet.add(from_runs(figure_id, unit, values, goal=goal, settings=note))
    later = EPOCHS - 1
    add("later_epochs_of_bound", [job["later"] / (later * job["on_no_tier"]) for job in runs],
        note=f"GFS bytes of epochs 1 to {later} over what is on no tier; " + settings)
    add("first_epoch_of_set", [job["first"] / total for job in runs],
        note="GFS bytes of epoch 0, from cold tiers, over the set")
    add("resident", [100 * value / total for value in resident], "%",
        "of the set, on tiers after epoch 0")
    # The caches get the same order, and have as many bytes as the tiers. All extents have one size
    # here.
    capacity = NODES * 2 * TIER_BYTES // EXTENT_BYTES
    samples = array.array("Q")
    order = suite.store.order(SET.samples, EPOCHS, spine.SEED, "block", **SHAPE)
    samples.frombytes(order.read_bytes())
    own, together = extents_by_rank(samples, NODES)
    set_bytes = EPOCHS * SET.samples / EXTENT_SAMPLES
    for name, misses, note in (
            ("lru_together", lru_misses(together, capacity),
             "replayed: one LRU cache as large as all tiers, which all nodes share"),
            ("lru_alone", sum(lru_misses(accesses, capacity // NODES) for accesses in own),
             "replayed: an LRU cache on each node, as large as its tiers, for its reader alone")):
        add(name, [misses / set_bytes], "sets per epoch", note)
    add("forebay", [(job["first"] + job["later"]) / (EPOCHS * total) for job in runs],
        "sets per epoch", f"all {EPOCHS} epochs")


def _run_once(suite, records):
    """Returns the GFS bytes of epoch 0 and of the later ones, and the bytes that are on no tier."""
    common = {"batch": BATCH, "seed": spine.SEED, "mode": "block", "step_ms": STEP_MS, **SHAPE}
    ledger = peers.Ledger()
    with tempfile.TemporaryDirectory(prefix="tokens.") as folder, \
            suite.jobs.staged(NODES, KEYS, records, extent_bytes=EXTENT_BYTES,
                              stages=False) as (_, services):
        token = nodes_job.token_paths(folder, "first")
        ledger.check(nodes_job.together(
            nodes_job.consume_together(
                services, epochs=EPOCHS, stop_after=SET.samples // BATCH, token=token, **common)))
        first = _gfs_bytes(services)
        on_no_tier = sum(service.cli("status")["datasets"][0]["unstaged_bytes"]
                         for service in services)
        reports = nodes_job.consume_together(services, epochs=EPOCHS, resume=token(0), **common)
        ledger.check(nodes_job.together(reports))
        samples = sum(epoch["samples"] for report in reports for epoch in report["epochs"])
        if samples != (EPOCHS - 1) * SET.samples:
            raise processes.RunFailed(f"the later epochs have {samples} samples")
        return {"first": first, "later": _gfs_bytes(services) - first, "on_no_tier": on_no_tier}


def _gfs_bytes(services):
    return sum(node["gfs_bytes"] for node in services[0].cli("status", "--nodes")["nodes"])
