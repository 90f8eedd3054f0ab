"""Row `feed` of suite `trainer`: CosmoFlow on small cubes, fed by a daemon that runs beside it:
what a step spends on its batch, and the part of its time that it waits for data. Of the same making
is what suite `gpu` feeds."""

import array
import dataclasses
import json
import pathlib
import random
import statistics
import tempfile

from harness import processes
from harness.figures import Goal, from_runs

EPOCHS = 3
WARM = 4  # steps: the first batch, and what is set up once


@dataclasses.dataclass(frozen=True)
class Cubes:
    """A data set of cubes of floats, each with so many numbers as its target, or with a volume of
    classes, and the network that learns them."""

    model: str
    channels: int
    side: int
    samples: int
    batch: int
    numbers: int = 0
    classes: int = 0  # that a voxel may have

    @property
    def shape(self):
        return self.channels, *(self.side,) * 3

    def __str__(self):
        return (f"{self.model}, {self.channels} x {self.side}^3 floats, {self.batch} samples a "
                "step")


CUBES = Cubes("cosmoflow", channels=4, side=32, samples=96, batch=8, numbers=4)

GOALS = {
    "trainer.c12.feed_overhead": ("us", Goal(5, at_least=False)),
    "trainer.c12.wait_data": ("%", Goal(1, at_least=False)),
}


def write_npy(path, kind, shape, parts):
    """Version 1.0 of the format; `parts`: arrays of that kind, "f" or "B", one behind another."""
    descr = {"f": "<f4", "B": "|u1"}[kind]
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        for part in parts:
            part.tofile(file)


def turned(values, samples):
    """Of each sample the same values, turned by another number."""
    # All samples differ, and making them costs one copy: a generator of random numbers in Python
    # would take longer than the training.
    for sample in range(samples):
        turn = sample * 977 % len(values)
        yield values[turn:] + values[:turn]


def make_set(folder, cubes=CUBES):
    """Cubes of noise from one seed; targets: numbers between -1 and 1, or classes of voxels."""
    # One seed, so that every machine trains on the same bytes.
    draw = random.Random(5)
    folder.mkdir()
    voxels = cubes.side ** 3
    noise = array.array("f", (draw.gauss(0, 1) for _ in range(cubes.channels * voxels)))
    write_npy(folder / "cubes.npy", "f", (cubes.samples, *cubes.shape),
              turned(noise, cubes.samples))
    if cubes.classes:
        classes = array.array("B", draw.choices(range(cubes.classes), k=voxels))
        write_npy(folder / "targets.npy", "B", (cubes.samples, *cubes.shape[1:]),
                  turned(classes, cubes.samples))
    else:
        numbers = array.array("f", (draw.uniform(-1, 1)
                                    for _ in range(cubes.samples * cubes.numbers)))
        write_npy(folder / "targets.npy", "f", (cubes.samples, cubes.numbers), [numbers])


def dataset(folder):
    """Of a daemon's configuration: what make_set left."""
    return {"name": "cubes", "path": str(folder), "format": "npy",
            "files": ["cubes=cubes.npy", "targets=targets.npy"]}


def train_words(address, metrics, cubes=CUBES):
    """forebay-train's, on that data set."""
    return ("--address", address, "--train-dataset", "cubes", "--input-field", "cubes",
            "--target-field", "targets", "--architecture", cubes.model,
            "--shape", "x".join(map(str, cubes.shape)),
            "--classes", cubes.classes or cubes.numbers,
            "--input-mean", 0, "--input-stddev", 1,
            "--learning-rate", 0.001, "--epochs", EPOCHS, "--global-batch", cubes.batch,
            "--threads", 1, "--evaluate-every-epochs", 0, "--metrics-dir", metrics)


def read_steps(folder):
    """The lines of rank 0's steps, without the first ones."""
    lines = (folder / "rank-00000.jsonl").read_text("utf-8").splitlines()
    steps = [record for record in map(json.loads, lines) if record["event"] == "step"]
    # A run that ended early would give figures of its first steps.
    if len(steps) <= WARM:
        raise processes.RunFailed(f"forebay-train wrote {len(steps)} steps")
    return steps[WARM:]


def figures_of(steps):
    """Microseconds that a step spends on its batch, and the part of its time that it waits."""
    # The median step, because the first batch of each epoch waits for the pipeline.
    overhead_us = statistics.median(
        (step["wait_data_ns"] + step["feed_ns"]) / 1e3 for step in steps)
    # Over all steps and not the median: a step that waits long counts, however rare it is.
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
                 f"median step's wait for a batch and making its tensors; {CUBES}, one "
                 f"thread, {step_ms:.0f} ms a step")
        self.add("trainer.c12.wait_data", waits, "of all steps but the first ones")

    def add(self, figure_id, values, note):
        unit, goal = GOALS[figure_id]
        self.sheet.add(from_runs(figure_id, unit, list(values), goal=goal, note=note))
