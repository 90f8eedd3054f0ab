"""Row `ahead` of suite `spine`: a data set that does not fit on the tiers, read in mode `block`
from a slow GFS. It shows how much of the waiting for the GFS goes away when the next window is read
ahead of need, and how many more bytes that reads."""

from harness import datasets, peers, processes, spine
from harness.figures import Goal, from_runs, interleave, ratios

SEED = 20_177
SAMPLES = 65_536
SAMPLE_BYTES = 4096
EXTENT_BYTES = 512 << 10
RAM_BYTES = 96 << 20    # for 37 % of the set
STEP_MS = 10
EPOCHS = 3
# A window is a third of the tier: large, so that its extents take long to come.
STREAM = {"mode": "block", "batch": 128, "block_samples": EXTENT_BYTES // SAMPLE_BYTES,
          "window_runs": 64, "step_ms": STEP_MS, "epochs": EPOCHS, "seed": SEED}
GFS_MB_PER_S = 60       # an epoch needs 32 MB/s from it

GOALS = {"spine.ahead.later_epochs_of_warm": ("x", Goal(1.05, at_least=False))}


def run(suite):
    """`suite`: the Spine that the row belongs to."""
    records = suite.store.dataset(datasets.Spec("records", SAMPLES, SAMPLE_BYTES, objects=1))
    ledger = peers.Ledger()

    def read(ram_bytes, reads_ahead, staged=False):
        """Seconds of the first epoch and of a later one, and GFS bytes over those of the set."""
        with processes.emulated_gfs(suite.binaries, records.data, "unlimited",
                                    bandwidth_mb_per_s=GFS_MB_PER_S) as gfs:
            spine.cold_for_clients(records)
            table = suite.raw_table("bench", records, extent=str(EXTENT_BYTES),
                                    stage_at_start=False)
            table["path"] = gfs.mount
            keys = {"tier.ram.capacity": str(ram_bytes), "slots.capacity": str(64 << 20),
                    "stage.read_ahead": reads_ahead}
            with processes.daemon(suite.binaries, keys, [table]) as service:
                if staged:
                    service.stage("bench")
                report = ledger.check(service.consume("bench", **STREAM))
                read_bytes = service.cli("status")["datasets"][0]["gfs_bytes"]
        seconds = [epoch["seconds"] for epoch in report["epochs"]]
        return {"first": seconds[0], "later": sum(seconds[1:]) / (EPOCHS - 1),
                "gfs": read_bytes / records.stored_bytes()}

    whole = 2 * records.stored_bytes()
    results = interleave(max(1, suite.scale.pairs // 3), {
        "warm": lambda _round: read(whole, True, staged=True),
        "ahead": lambda _round: read(RAM_BYTES, True),
        "on_demand": lambda _round: read(RAM_BYTES, False)})
    settings = (f"set={records.stored_bytes() / 1e6:.0f} MB, RAM tier={RAM_BYTES / 1e6:.0f} MB, "
                f"GFS={GFS_MB_PER_S} MB/s, steps of {STEP_MS} ms, windows of "
                f"{STREAM['window_runs']} extents of {EXTENT_BYTES} bytes")

    def of_warm(name, epoch):
        return ratios([run[epoch] for run in results[name]],
                      [run["later"] for run in results["warm"]])
    suite.add_goal(GOALS, "spine.ahead.later_epochs_of_warm", of_warm("ahead", "later"),
                   settings="an epoch after the first one, over one with all data on a tier; " +
                   settings)
    for name, values, note in (
            ("first_epoch_of_warm", of_warm("ahead", "first"), "from cold tiers"),
            ("on_demand.later_epochs_of_warm", of_warm("on_demand", "later"),
             "stage.read_ahead = false"),
            ("on_demand.first_epoch_of_warm", of_warm("on_demand", "first"), "likewise"),
            ("gfs_bytes_of_on_demand", ratios([run["gfs"] for run in results["ahead"]],
                                              [run["gfs"] for run in results["on_demand"]]),
             f"all {EPOCHS} epochs, over stage.read_ahead = false")):
        suite.sheet.add(from_runs(f"spine.ahead.{name}", "x", values, settings=note))
