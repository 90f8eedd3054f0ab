"""Row `crowded` of suite `spine`: several readers whose batches need more extents at the same time
than the RAM tier has. Batches take turns. The row shows that all readers get on, and at what cost.
"""

import concurrent.futures
import time

from harness import datasets, peers, processes
from harness.figures import Goal, from_runs, interleave, ratios

SEED = 20_177
SAMPLES = 16_384
SAMPLE_BYTES = 4096
EXTENT_BYTES = 1 << 20
RAM_EXTENTS = 6
READERS = 4
# A batch needs up to 4 extents, and its reader asks for 8 batches ahead.
STREAM = {"mode": "block", "batch": 64, "block_samples": 64, "window_runs": 4, "prefetch": 8,
          "epochs": 1}

GOALS = {
    # Readers of views keep extents until they release their batches. If other readers would have
    # to wait because of that, views are copied. So they may not be much slower than contiguous
    # batches.
    "spine.crowded.views_vs_contiguous": ("x", Goal(0.7)),
}


def run(suite):
    """`suite`: the Spine that the row belongs to."""
    records = suite.store.dataset(datasets.Spec("records", SAMPLES, SAMPLE_BYTES, objects=1))
    keys = {"tier.ram.capacity": str(RAM_EXTENTS * EXTENT_BYTES), "slots.capacity": str(64 << 20)}
    table = suite.raw_table("bench", records, extent=str(EXTENT_BYTES))
    gfs_bytes = []
    with processes.daemon(suite.binaries, keys, [table]) as service, \
            concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        # A reader's order is its own, so each has a ledger of its own.
        ledgers = [peers.Ledger() for _ in range(READERS)]

        def all_readers(delivery):
            begin, before = time.monotonic(), _gfs_bytes(service)
            jobs = [pool.submit(service.consume, "bench", delivery=delivery, stream=f"reader{i}",
                                seed=SEED + i, **STREAM)
                    for i in range(READERS)]
            for ledger, job in zip(ledgers, jobs):
                ledger.check(job.result())
            seconds = time.monotonic() - begin
            gfs_bytes.append(_gfs_bytes(service) - before)
            return READERS * SAMPLES / seconds

        rates = interleave(suite.scale.pairs, {
            delivery: lambda _round, delivery=delivery: all_readers(delivery)
            for delivery in ("contiguous", "views")})
    settings = (f"{READERS} readers of {SAMPLES} samples of {SAMPLE_BYTES} bytes, RAM tier of "
                f"{RAM_EXTENTS} extents of {EXTENT_BYTES} bytes; " +
                " ".join(f"{key}={value}" for key, value in STREAM.items()))
    for delivery, values in rates.items():
        suite.sheet.add(from_runs(f"spine.crowded.{delivery}", "samples/s", values,
                                  settings=settings))
    suite.add_goal(GOALS, "spine.crowded.views_vs_contiguous",
                   ratios(rates["views"], rates["contiguous"]), settings=settings)
    suite.sheet.add(from_runs("spine.crowded.gfs_bytes", "x delivered",
                              [read / (READERS * SAMPLES * SAMPLE_BYTES) for read in gfs_bytes],
                              settings=settings))


def _gfs_bytes(service):
    return service.cli("status")["datasets"][0]["gfs_bytes"]
