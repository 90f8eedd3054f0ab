"""Row `accuracy` of suite `trainer`: real training on Fashion-MNIST that a daemon serves, on one
process and on a pipeline: the accuracy that is due, and one digest."""

import gzip
import json
import os
import pathlib
import tempfile

from harness import processes
from harness.figures import Goal, from_runs

DEBIAN_FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")  # dataset-fashion-mnist
PARTS = {"fashion-mnist-train": "train", "fashion-mnist-test": "t10k"}
RUN_TIMEOUT_S = 3600

COMMON = ("--threads", "1", "--micro-batch", "32", "--global-batch", "64", "--log-every-steps",
          "100")
# Sizes with which each takes minutes on a core.
MODELS = {
    "resnet18": ("--architecture", "resnet18", "--settings", "small_stem=1,width=8",
                 "--epochs", "3", "--learning-rate", "0.1"),
    "vit": ("--architecture", "vit-mini", "--settings", "patch=7,depth=4", "--epochs", "4",
            "--optimiser", "adamw", "--learning-rate", "0.002", "--weight-decay", "0.05"),
}
LAYOUTS = {"single": (1, ()), "hybrid": (2, ("--stages", "2", "--switch", "epoch 1: 2x1"))}

GOALS = {
    "trainer.c13.accuracy.resnet18": ("of 1", Goal(0.90)),
    "trainer.c13.accuracy.vit": ("of 1", Goal(0.85)),
    "trainer.c13.digests.resnet18": ("digests", Goal(1, at_least=False)),
    "trainer.c13.digests.vit": ("digests", Goal(1, at_least=False)),
}


def unpack(folder):
    """Debian's files as the service reads them; returns the configuration of a private daemon."""
    tables = []
    for name, part in PARTS.items():
        files = [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]
        for file in files:
            packed = DEBIAN_FOLDER / f"{file}.gz"
            if not packed.exists():
                raise processes.Missing(f"no {packed}; apt-get install dataset-fashion-mnist")
            if not (folder / file).exists():
                (folder / file).write_bytes(gzip.decompress(packed.read_bytes()))
        tables.append(f'[[dataset]]\nname = "{name}"\npath = "{folder}"\nformat = "idx"\n'
                      f'files = ["images={files[0]}", "labels={files[1]}"]\n')
    config = folder / "forebayd.toml"
    config.write_text("\n".join(tables), encoding="utf-8")
    return config


class Accuracy:
    def __init__(self, sheet, binaries, environment):
        self.sheet = sheet
        self.binaries = binaries
        self.environment = environment

    def run(self):
        with tempfile.TemporaryDirectory(prefix="forebay-accuracy-") as name:
            folder = pathlib.Path(name)
            config = unpack(folder)
            for model, words in MODELS.items():
                reports = {layout: self.train(folder, config, ranks, (*words, *more))
                           for layout, (ranks, more) in LAYOUTS.items()}
                self.judge(model, reports)

    def train(self, folder, config, ranks, words):
        """The summary of one run."""
        summary = folder / "summary.json"
        command = [self.binaries.find("forebay-train"), *COMMON, *words, "--embedded-config",
                   config, "--summary-json", summary]
        if ranks > 1:
            command = ["mpirun", "-n", ranks, *command]
        # The private daemon is looked for on PATH.
        daemon = pathlib.Path(self.binaries.find("forebayd")).parent
        environment = {**self.environment, "PATH": f"{daemon}:{os.environ['PATH']}"}
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
        processes.run_text(command, RUN_TIMEOUT_S)
        return json.loads(summary.read_text(encoding="utf-8"))

    def judge(self, model, reports):
        alone = reports["single"]
        note = ", ".join(f"{layout} {report['loop_s']:.0f} s"
                         for layout, report in reports.items())
        self.add(f"trainer.c13.accuracy.{model}", [alone["test_accuracy"]], note)
        digests = {report["weights_digest"] for report in reports.values()}
        self.add(f"trainer.c13.digests.{model}", [len(digests)],
                 "different weights: one process; two stages, then two replicas")

    def add(self, figure_id, values, note):
        unit, goal = GOALS[figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, note=note))
