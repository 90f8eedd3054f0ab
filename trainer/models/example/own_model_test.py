"""Trains own_model.cc's model on samples from forebayd, as a user would.

Usage: own_model_test.py PROGRAM FOREBAYD [--mpirun MPIRUN]

After four epochs the loss is below a third of that of the best constant guess. A run of two
epochs, resumed for two more, ends in the same weights, and so does a run in two pipeline stages,
where there is MPI. The checkpoint is then evaluated, and the loss curve is there. Exit code 1, with
the program's output, where any of that is not so.
"""

import argparse
import array
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

TRAIN, TEST, EPOCHS = 4096, 512, 4
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            "OMPI_MCA_mpi_yield_when_idle": "1"}


def write_npy(path, columns, numbers):
    """Floats as rows of a .npy file, version 1.0."""
    shape = (len(numbers) // columns, columns)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    values = array.array("f", numbers)
    if sys.byteorder == "big":
        values.byteswap()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
                     + values.tobytes())


def write_points(folder, count, seed):
    """y = sin(3 a) + b^2 + noise. Returns the y."""
    folder.mkdir()
    draw = random.Random(seed)
    points, values = [], []
    for _ in range(count):
        a, b = draw.uniform(-1, 1), draw.uniform(-1, 1)
        points += [a, b]
        values.append(math.sin(3 * a) + b * b + draw.gauss(0, 0.05))
    write_npy(folder / "points.npy", 2, points)
    write_npy(folder / "values.npy", 1, values)
    return values


class Trainer:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        sets = ""
        for name, count in (("train", TRAIN), ("test", TEST)):
            self.values = write_points(folder / name, count, seed=count)
            sets += (f'[[dataset]]\nname = "points-{name}"\npath = "{folder}/{name}"\n'
                     'format = "npy"\nfiles = ["points=points.npy", "values=values.npy"]\n')
        self.config = folder / "forebayd.toml"
        self.config.write_text(sets, encoding="utf-8")
        runtime = folder / "run"
        runtime.mkdir(mode=0o700)
        search = os.path.dirname(os.path.abspath(arguments.forebayd))
        self.environment = {**os.environ, **OPEN_MPI, "FOREBAY_JOB_ID": folder.name,
                            # Launchers that share a folder fail where two make it at once.
                            "OMPI_MCA_orte_tmpdir_base": str(folder),
                            "XDG_RUNTIME_DIR": str(runtime),
                            "PATH": search + os.pathsep + os.environ["PATH"]}
        self.environment.pop("FOREBAY_ADDRESS", None)

    def loss_of_constant(self):
        """The loss of the best guess that does not look at the point, on the test set."""
        guess = statistics.median(self.values)
        return 0.5 * statistics.fmean(abs(value - guess) for value in self.values)

    def call(self, *words, ranks=1):
        """Returns what a command of the program prints."""
        command = [os.path.abspath(self.arguments.program), *words]
        if ranks > 1:
            command = [self.arguments.mpirun, "-np", ranks, *command]
        done = subprocess.run([str(word) for word in command], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                              check=False)
        assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def train(self, name, epochs, *words, ranks=1):
        """Returns the summary of a run."""
        summary = self.folder / f"{name}.json"
        output = self.call("--embedded-config", self.config, "--epochs", epochs,
                           "--schedule", "constant", "--micro-batch", 16, "--threads", 1,
                           "--force-slow-blas", "--summary-json", summary, *words, ranks=ranks)
        assert "model quantile" in output, output
        return json.loads(summary.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("forebayd")
    parser.add_argument("--mpirun")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-own-model-") as name:
        trainer = Trainer(arguments, pathlib.Path(name))
        assert "quantile" in trainer.call("--list-models")

        curve = trainer.folder / "curve.jsonl"
        whole = trainer.train("whole", EPOCHS, "--metrics-file", curve)
        losses = [evaluation["loss"] for evaluation in whole["evaluations"]]
        assert len(losses) == EPOCHS and losses[-1] < trainer.loss_of_constant() / 3, losses
        assert curve.read_text(encoding="utf-8").count("\n") >= EPOCHS

        checkpoints = ("--checkpoint-dir", trainer.folder / "checkpoints", "--resume", "auto")
        trainer.train("first", EPOCHS // 2, *checkpoints)
        resumed = trainer.train("resumed", EPOCHS, *checkpoints)
        assert resumed["weights_digest"] == whole["weights_digest"], (resumed, whole)
        assert len(resumed["evaluations"]) == EPOCHS // 2, resumed

        evaluated = trainer.folder / "evaluated.json"
        trainer.call("evaluate", checkpoints[1], "--embedded-config", trainer.config,
                     "--force-slow-blas", "--summary-json", evaluated)
        loss = json.loads(evaluated.read_text(encoding="utf-8"))["loss"]
        assert math.isclose(loss, losses[-1], rel_tol=1e-6), (loss, losses)

        if arguments.mpirun:
            staged = trainer.train("staged", EPOCHS, "--stages", 2, ranks=2)
            assert staged["weights_digest"] == whole["weights_digest"], (staged, whole)
    print(f"loss {losses}")


if __name__ == "__main__":
    main()
