"""Row `feed` of suite `trainer`: CosmoFlow on small cubes, fed by a daemon that runs beside it:
what a step spends on its batch, and the part of its time that it waits for data."""

import array
import json
import pathlib
import random
import statistics
import tempfile

from harness import processes
from harness.figures import Goal, from_runs

SIDE = 32
CHANNELS = 4
SAMPLES = 96
TARGETS = 4
BATCH = 8
EPOCHS = 3
WARM = 4  # steps: the first batch, and what is set up once
SETTINGS = f"CosmoFlow, {CHANNELS} x {SIDE}^3 floats, {BATCH} samples a step, one thread"

GOALS = {
    "trainer.c12.feed_overhead": ("us", Goal(5, at_least=False)),
    "trainer.c12.wait_data": ("%", Goal(1, at_least=False)),
}


def write_npy(path, shape, values):
    """Version 1.0 of the format; `values`: an array of floats."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        values.tofile(file)


def make_set(folder, side=SIDE, samples=SAMPLES):
    """Cubes of noise from one seed, and targets between -1 and 1."""
    draw = random.Random(5)
    folder.mkdir()
    noise = array.array("f", (draw.gauss(0, 1) for _ in range(CHANNELS * side ** 3)))
    cubes = array.array("f")
    for sample in range(samples):
        turn = sample * 977 % len(noise)
        cubes += noise[turn:] + noise[:turn]
    write_npy(folder / "cubes.npy", (samples, CHANNELS, side, side, side), cubes)
    targets = array.array("f", (draw.uniform(-1, 1) for _ in range(samples * TARGETS)))
    write_npy(folder / "targets.npy", (samples, TARGETS), targets)


def dataset(folder):
    """Of a daemon's configuration: what make_set left."""
    return {"name": "cubes", "path": str(folder), "format": "npy",
            "files": ["cubes=cubes.npy", "targets=targets.npy"]}


def train_words(address, metrics, side=SIDE, batch=BATCH):
    """forebay-train's, on that data set."""
    return ("--address", address, "--train-dataset", "cubes", "--input-field", "cubes",
            "--target-field", "targets", "--architecture", "cosmoflow",
            "--shape", f"{CHANNELS}x{side}x{side}x{side}", "--classes", TARGETS,
            "--input-mean", 0, "--input-stddev", 1,
            "--learning-rate", 0.001, "--epochs", EPOCHS, "--global-batch", batch,
            "--threads", 1, "--evaluate-every-epochs", 0, "--metrics-dir", metrics)


def read_steps(folder):
    """The lines of rank 0's steps, without the first ones."""
    lines = (folder / "rank-00000.jsonl").read_text("utf-8").splitlines()
    steps = [record for record in map(json.loads, lines) if record["event"] == "step"]
    if len(steps) <= WARM:
        raise processes.RunFailed(f"forebay-train wrote {len(steps)} steps")
    return steps[WARM:]


def figures_of(steps):
    """Microseconds that a step spends on its batch, and the part of its time that it waits."""
    overhead_us = statistics.median(
        (step["wait_data_ns"] + step["feed_ns"]) / 1e3 for step in steps)
    waited = sum(step["wait_data_ns"] for step in steps)
    return overhead_us, 100 * waited / sum(step["step_ns"] for step in steps)


class FeedRow:
    def __init__(self, sheet, binaries, environment, rounds):
        self.sheet = sheet
        self.binaries = binaries
        self.environment = environment
        self.rounds = rounds

    def run(self):
        with tempfile.TemporaryDirectory(prefix="fb.feed.") as name:
            folder = pathlib.Path(name)
            make_set(folder / "set")
            keys = {"tier.ram.capacity": "256MiB", "slots.capacity": "128MiB"}
            with processes.daemon(self.binaries, keys, [dataset(folder / "set")]) as daemon:
                daemon.stage("cubes")
                rounds = [self.train(daemon, folder / f"round-{number}")
                          for number in range(self.rounds)]
        self.judge(rounds)

    def train(self, daemon, metrics):
        """The steps of one run."""
        command = ["env", *(f"{key}={value}" for key, value in self.environment.items()),
                   self.binaries.find("forebay-train"), *train_words(daemon.address, metrics)]
        processes.run_text(command)
        return read_steps(metrics)

    def judge(self, rounds):
        overheads, waits = zip(*(figures_of(steps) for steps in rounds))
        steps = [step for round_steps in rounds for step in round_steps]
        step_ms = statistics.median(step["step_ns"] for step in steps) / 1e6
        self.add("trainer.c12.feed_overhead", overheads,
                 f"median step's wait for a batch and making its tensors; {SETTINGS}, "
                 f"{step_ms:.0f} ms a step")
        self.add("trainer.c12.wait_data", waits, "of all steps but the first ones")

    def add(self, figure_id, values, note):
        unit, goal = GOALS[figure_id]
        self.sheet.add(from_runs(figure_id, unit, list(values), goal=goal, note=note))
