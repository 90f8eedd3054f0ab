"""Rows `accuracy_...` of suite `trainer`: training on Fashion-MNIST that a daemon serves, on one
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

COMMON = ("--threads", "1", "--micro-batch", "32", "--global-batch", "64", "--classes", "10",
          "--schedule", "cosine", "--warmup-steps", "200", "--log-every-steps", "100")
# Sizes with which each takes minutes on a core: ResNet-18 with an eighth of its channels.
MODELS = {
    "resnet18": ("--architecture", "resnet18", "--settings", "small_stem=1,width=8",
                 "--epochs", "2", "--learning-rate", "0.1", "--weight-decay", "0.0005"),
    "vit": ("--architecture", "vit-tiny", "--shape", "1x28x28", "--settings", "patch=14",
            "--epochs", "2", "--optimiser", "adamw", "--learning-rate", "0.0007",
            "--weight-decay", "0.05"),
}
HYBRID = ("--stages", "2", "--switch", "epoch 1: 2x1")
LAYOUTS = {"single": (1, ()), "hybrid": (2, HYBRID)}

GOALS = {model: {f"trainer.c13.accuracy.{model}": ("of 1", Goal(accuracy)),
                 f"trainer.c13.digests.{model}": ("digests", Goal(1, at_least=False))}
         for model, accuracy in (("resnet18", 0.90), ("vit", 0.85))}


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


class Trainings:
    """Runs forebay-train over the files that `unpack` has made."""

    def __init__(self, binaries, environment):
        self.binaries = binaries
        self.environment = environment

    def run(self, config, metrics, ranks, words):
        """The summary of one run, of which `metrics` has the curves."""
        command = [self.binaries.find("forebay-train"), *words, "--embedded-config", config,
                   "--metrics-dir", metrics]
        if ranks > 1:
            command = ["mpirun", "-n", ranks, *command]
        # The private daemon is looked for on PATH.
        daemon = pathlib.Path(self.binaries.find("forebayd")).parent
        environment = {**self.environment, "PATH": f"{daemon}:{os.environ['PATH']}"}
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
        processes.run_text(command, RUN_TIMEOUT_S)
        return json.loads((metrics / "summary.json").read_text(encoding="utf-8"))


class Accuracy:
    def __init__(self, sheet, binaries, environment):
        self.sheet = sheet
        self.trainings = Trainings(binaries, environment)

    def rows(self):
        return {f"accuracy_{model}": (lambda model=model: self.run(model), GOALS[model])
                for model in MODELS}

    def run(self, model):
        with tempfile.TemporaryDirectory(prefix="forebay-accuracy-") as name:
            folder = pathlib.Path(name)
            config = unpack(folder)
            # Accuracy is judged on one process, and the other layouts by their digest: if it is the
            # same, so is the accuracy.
            self.judge(model, {
                layout: self.trainings.run(config, folder / layout, ranks,
                                           (*COMMON, *MODELS[model], *more))
                for layout, (ranks, more) in LAYOUTS.items()})

    def judge(self, model, reports):
        alone = reports["single"]
        note = " ".join(MODELS[model]) + "; " + ", ".join(
            f"{layout} {report['loop_s']:.0f} s" for layout, report in reports.items())
        self.add(model, "accuracy", [alone["test_accuracy"]], note)
        # Equal weights after whole epochs with a switch of layout in between.
        digests = {report["weights_digest"] for report in reports.values()}
        self.add(model, "digests", [len(digests)],
                 "different weights: one process; two stages, then two replicas")

    def add(self, model, what, values, note):
        figure_id = f"trainer.c13.{what}.{model}"
        unit, goal = GOALS[model][figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, note=note))
