"""Row `reproduction` of suite `trainer`: what pipelines cost in accuracy where micro-batches follow
the layout and normalisation the worker, and what switching layouts in the course of the run gives
back; beside it the same layouts in the exact mode, in which there is nothing to give back."""

import pathlib
import tempfile

from harness import processes
from harness.figures import Goal
from harness.trainer_accuracy import Trainings, unpack

COMMON = ("--architecture", "resnet18", "--settings", "small_stem=1,width=8", "--epochs", "4",
          "--global-batch", "32", "--micro-batch", "2", "--learning-rate", "0.1",
          "--threads", "1", "--set", "data.train_selection=range:0:4000",
          "--set", "data.validation_selection=range:0:1000", "--log-every-steps", "1000")
AS_COMMON = ("--micro-batches", "per_layout", "--normalisation", "per_worker")
PIPELINE = ("--stages", "2")
# Half of the run as a pipeline, then replicas.
SWITCHED = (*PIPELINE, "--switch", "epoch 2: 2x1")
RUNS = {
    "replicas": AS_COMMON,
    "pipeline": (*PIPELINE, *AS_COMMON),
    "switched": (*SWITCHED, *AS_COMMON),
    "exact_replicas": (),
    "exact_switched": SWITCHED,
}
EXACT = ("exact_replicas", "exact_switched")


GOALS = {"trainer.reproduction.exact_digests": ("digests", Goal(1, at_least=False))}


class Reproduction:
    """`add(figure_id, values, **fields)` judges a figure, `inform(figure_id, unit, values,
    **fields)` notes one."""

    def __init__(self, add, inform, binaries, environment):
        self.add = add
        self.inform = inform
        self.binaries = binaries
        self.trainings = Trainings(binaries, environment)
        self.curves = ""  # SVG

    def run(self):
        with tempfile.TemporaryDirectory(prefix="forebay-reproduction-") as name:
            folder = pathlib.Path(name)
            config = unpack(folder)
            summaries = {run: self.trainings.run(config, folder / run, 2, (*COMMON, *words))
                         for run, words in RUNS.items()}
            plot = folder / "curves.svg"
            processes.run_text([self.binaries.find("forebay-train"), "report",
                                *(folder / run for run in RUNS), "-o", plot])
            self.curves = plot.read_text(encoding="utf-8")
        self.judge(summaries)

    def judge(self, summaries):
        # Accuracies inform and have no goal: one run of each says little about a difference of a
        # percent.
        for run, summary in summaries.items():
            by_epoch = [evaluation["accuracy"] for evaluation in summary["evaluations"]]
            self.inform(f"trainer.reproduction.accuracy.{run}", "of 1",
                        [summary["test_accuracy"]],
                        note="by epoch: " + " ".join(f"{value:.3f}" for value in by_epoch))
        # In the exact mode there is nothing to give back: a switch of the layout leaves the weights
        # as they are.
        digests = {summaries[run]["weights_digest"] for run in EXACT}
        self.add("trainer.reproduction.exact_digests", [len(digests)],
                 note="different weights: replicas throughout; a pipeline, then replicas")
