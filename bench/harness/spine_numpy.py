"""Row `numpy` of suite `spine`: Forebay beside the best that one process can do without it, NumPy
gathering batches from a memory-mapped file; and what a batch costs besides its bytes."""

import statistics

from harness import datasets, machine, peers, processes
from harness.figures import Goal, from_runs, interleave, ratios

SEED = 20_177
BATCHES = (64, 256, 1024)
SMALL_BYTES = 4096
# Larger than 1, because the daemon gathers beside the consumer: two processes share the work that
# NumPy does alone. A machine with one core would falsify that.
GOAL_RATIOS = {datasets.MEAN_SAMPLE_BYTES: {"contiguous": 1.3, "views": 1.6},
               SMALL_BYTES: {"contiguous": 1.5, "views": 2.0}}
SINGLE_SAMPLES = 16_384  # of 4 KiB, in batches of one
SINGLE_EPOCHS = 4
WARM = 1                 # epochs before mappings count as warm
SLOT_BYTES = 512 * 1024 * 1024
FIXED_US = Goal(25, at_least=False)

GOALS = {
    **{f"spine.numpy.{size}x{batch}.{delivery}_vs_numpy": ("x", Goal(bound))
       for size, bounds in GOAL_RATIOS.items() for batch in BATCHES
       for delivery, bound in bounds.items()},
    **{f"spine.batch.{delivery}_fixed": ("us", FIXED_US) for delivery in ("contiguous", "views")},
}


def prefetch_depth(batch_bytes):
    """Batches ahead: as many as hide a wake-up, as few as stay in caches and fit in the slots."""
    # 32 MiB ahead at most: what lies longer than that has left the caches when it is read.
    return max(2, min(16, (32 << 20) // batch_bytes, SLOT_BYTES * 3 // 4 // batch_bytes - 1))


def run(suite):
    """`suite`: the Spine that the row belongs to."""
    seconds = {}  # (delivery, batch) -> of a batch of small samples, round by round
    for size, samples in ((datasets.MEAN_SAMPLE_BYTES, suite.scale.samples),
                          (SMALL_BYTES, suite.scale.small_samples)):
        records = suite.store.dataset(datasets.Spec("records", samples, size, objects=1))
        single = suite.store.dataset(datasets.Spec("records", SINGLE_SAMPLES, SMALL_BYTES,
                                                   objects=1))
        stored = records.stored_bytes() + single.stored_bytes()
        keys = {"tier.ram.capacity": f"{int(stored * 1.25) + (256 << 20)}",
                "slots.capacity": str(SLOT_BYTES)}
        tables = [suite.raw_table("bench", records)]
        if size == SMALL_BYTES:
            tables.append(suite.raw_table("single", single))
        with processes.daemon(suite.binaries, keys, tables) as service:
            service.stage("bench")
            for batch in BATCHES:
                _compare(suite, service, records, batch, seconds)
            if size == SMALL_BYTES:
                service.stage("single")
                _single(suite, service)
    for delivery in ("contiguous", "views"):
        # Time by batch over samples by batch is a straight line: it begins at what a batch costs.
        # The intercept is taken from two batch sizes of the same round. It is what a batch costs if
        # it has no samples.
        few, many = BATCHES[0], BATCHES[-1]
        suite.sheet.add(from_runs(
            f"spine.batch.{delivery}_intercept", "us",
            [1e6 * (a - few * (b - a) / (many - few))
             for a, b in zip(seconds[delivery, few], seconds[delivery, many])],
            note=f"of a line through batches of {few} and {many} samples of {SMALL_BYTES} bytes"))


def busier_side(report):
    """CPU seconds per byte of the daemon or of the consumer, which work side by side."""
    size = sum(epoch["bytes"] for epoch in report["epochs"])
    # The two work side by side, so the busier one bounds the rate on a machine where nothing else
    # runs.
    return max(report["daemon_cpu_seconds"],
               sum(epoch["cpu_seconds"] for epoch in report["epochs"])) / size


def _rows(suite, records):
    """The same samples as NumPy maps them best: rows of whole 64-bit words."""
    if records.spec.sample_bytes % 8 == 0:
        return records
    spec = records.spec
    return suite.store.dataset(datasets.Spec("rows", spec.samples, spec.sample_bytes, objects=1))


def _numpy(suite, records, batch, ledger):
    """The peer with the better of its two ways to gather, found now; its page cache is warm."""
    rows = _rows(suite, records)
    epochs = suite.scale.epochs
    order = suite.store.order(records.spec.samples, epochs, SEED)
    # NumPy's file is in the page cache, as the daemon's samples are in its tier.
    machine.fill_cache(rows.object_paths)
    def gather(in_place, **options):
        return suite.peers.numpy_gather(rows, order, batch, in_place, **options)
    ledger.check(gather(False, epochs=1, check=True))
    # Which way is faster depends on the size of a batch, so it is found for each.
    tries = {in_place: statistics.median(
        peers.rate(ledger.check(gather(in_place, epochs=2)), WARM) for _ in range(3))
        for in_place in (False, True)}
    best = max(tries, key=tries.get)
    return lambda _round: gather(best, epochs=epochs)


def _compare(suite, service, records, batch, seconds):
    size = records.spec.sample_bytes
    ledger = peers.Ledger()
    contenders = {"numpy": _numpy(suite, records, batch, ledger)}
    depth = prefetch_depth(batch * size)
    def forebay(delivery, **options):
        return service.consume("bench", delivery=delivery, batch=batch, seed=SEED,
                               prefetch=depth, **options)
    for delivery in ("contiguous", "views"):
        ledger.check(forebay(delivery, epochs=1, check=True))
        contenders[delivery] = lambda _round, delivery=delivery: forebay(
            delivery, epochs=suite.scale.epochs)
    results = interleave(suite.scale.pairs, contenders)
    prefix = f"spine.numpy.{size}x{batch}"
    rates = {}
    for name, reports in results.items():
        rates[name] = [peers.rate(ledger.check(report), WARM) for report in reports]
        unit, scale = ("samples/s", size) if size == SMALL_BYTES else ("GB/s", 1e9)
        suite.sheet.add(from_runs(f"{prefix}.{name}", unit,
                                  [value / scale for value in rates[name]],
                                  settings=reports[0]["settings"]))
        suite.sheet.add(from_runs(f"{prefix}.{name}_cpu", "s/GB",
                                  [1e9 * peers.cpu_per_byte(report, WARM) for report in reports]))
    for delivery in ("contiguous", "views"):
        suite.sheet.add(from_runs(
            f"{prefix}.{delivery}_switches", "per batch",
            [peers.switches_per_batch(report, batch, size) for report in results[delivery]]))
        figure_id = f"{prefix}.{delivery}_vs_numpy"
        unit, goal = GOALS[figure_id]
        suite.sheet.add(from_runs(figure_id, unit, ratios(rates[delivery], rates["numpy"]),
                                  goal=goal))
        suite.sheet.add(from_runs(
            f"{figure_id}_cpu", "x",
            ratios([peers.cpu_per_byte(report, WARM) for report in results["numpy"]],
                   [busier_side(report) for report in results[delivery]]),
            note="NumPy's CPU time over that of the busier of daemon and consumer: the ratio where "
            "nothing else runs"))
        if size == SMALL_BYTES:
            # Kept for the intercept, by round.
            seconds[delivery, batch] = [batch * size / rate for rate in rates[delivery]]


def _single(suite, service):
    """Batches of one sample of 4 KiB: nearly nothing but what each batch costs."""
    # A ledger of its own: this data set is another one.
    ledger = peers.Ledger()
    results = interleave(suite.scale.pairs, {
        delivery: lambda _round, delivery=delivery: ledger.check(service.consume(
            "single", delivery=delivery, batch=1, seed=SEED, epochs=SINGLE_EPOCHS, prefetch=16))
        for delivery in ("contiguous", "views")})
    for delivery, reports in results.items():
        figure_id = f"spine.batch.{delivery}_fixed"
        unit, goal = GOALS[figure_id]
        suite.sheet.add(from_runs(
            figure_id, unit,
            [1e6 * SMALL_BYTES / peers.rate(report, WARM) for report in reports], goal=goal,
            settings=reports[0]["settings"]))
        suite.sheet.add(from_runs(
            f"spine.batch.{delivery}_cpu", "us",
            [1e6 * SMALL_BYTES * peers.cpu_per_byte(report, WARM) for report in reports]))
        suite.sheet.add(from_runs(
            f"spine.batch.{delivery}_switches", "per batch",
            [peers.switches_per_batch(report, 1, SMALL_BYTES) for report in reports]))
