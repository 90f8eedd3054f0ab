"""forebay-train: SIGKILL any rank at a random step, resume on another layout, over and over.

Usage: train_kill_cycles.py FOREBAY_TRAIN FOREBAYD [--cycles 3] [--seed N] [--augment]

The weights are those of a run that nobody disturbed, and nothing is left of what was killed: no
process, no socket, no shared memory, no unpublished checkpoint that a resume would take. Prints one
JSON object; exit code 1, and the logs of all runs, where any of that is not so.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

SAMPLES, BATCH, SIDE = 512, 64, 28
STEPS_OF_EPOCH = SAMPLES // BATCH
# Ranks, and the words that lay the model out over them.
LAYOUTS = ((2, ("--stages", "2")), (2, ("--replicas", "2")), (1, ()))
# Open MPI as root and with more ranks than cores; other MPIs ignore these.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            "OMPI_MCA_mpi_yield_when_idle": "1"}
GONE_AFTER_S = 20
RUN_LIMIT_S = 300


def write_idx(path, magic, shape, data):
    path.write_bytes(struct.pack(f">I{len(shape)}I", magic, *shape) + data)


def write_data(folder):
    """Bars on noise whose place is the class, as IDX files."""
    folder.mkdir()
    draw = random.Random(1)
    images, labels = bytearray(), bytearray()
    for _ in range(SAMPLES):
        label = draw.randrange(10)
        image = bytearray(draw.randrange(128) for _ in range(SIDE * SIDE))
        image[(4 + 2 * label) * SIDE:(6 + 2 * label) * SIDE] = b"\xff" * (2 * SIDE)
        images += image
        labels.append(label)
    write_idx(folder / "images.idx", 0x803, (SAMPLES, SIDE, SIDE), bytes(images))
    write_idx(folder / "labels.idx", 0x801, (SAMPLES,), bytes(labels))


def shared_memory():
    return set(os.listdir("/dev/shm"))


def nobodys(names):
    """Those of some files in /dev/shm that no process maps: jobs of others come and go, too."""
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        if not names:
            break
        try:
            text = maps.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended, or is another user's
        names = {name for name in names if f"/dev/shm/{name}" not in text}
    return names & shared_memory()


class Job:
    """Runs of forebay-train that are told apart from all else on the machine by their
    environment."""

    def __init__(self, arguments, folder):
        self.train = os.path.abspath(arguments.train)
        self.folder = folder
        self.mark = f"FOREBAY_KILL_CYCLES={folder.name}"
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        write_data(folder / "data")
        self.config = folder / "forebayd.toml"
        self.config.write_text(
            f'[[dataset]]\nname = "bars"\npath = "{folder}/data"\nformat = "idx"\n'
            'files = ["images=images.idx", "labels=labels.idx"]\n', encoding="utf-8")
        self.environment = {**os.environ, **OPEN_MPI, "OMP_WAIT_POLICY": "passive",
                            # Launchers that share a folder fail where two make it at once.
                            "OMPI_MCA_orte_tmpdir_base": str(folder),
                            "FOREBAY_JOB_ID": folder.name, "XDG_RUNTIME_DIR": str(self.runtime),
                            "PATH": os.path.dirname(os.path.abspath(arguments.forebayd))
                            + os.pathsep + os.environ["PATH"]}
        self.environment.pop("FOREBAY_ADDRESS", None)
        self.environment.update([self.mark.split("=")])
        self.words = ["--embedded-config", self.config, "--train-dataset", "bars",
                      "--validation-dataset", "bars", "--global-batch", BATCH,
                      "--micro-batch", 16, "--threads", 1, "--warmup-steps", 10,
                      "--epochs", 8 + 2 * arguments.cycles, "--evaluate-every-epochs", 4,
                      "--log-every-steps", 1, "--force-slow-blas"]
        if arguments.augment:
            self.words += ["--crop", f"{SIDE}x{SIDE}", "--padding", 2, "--flip", "w"]

    def start(self, name, layout, words=()):
        ranks, layout_words = layout
        command = [self.train, *self.words, *layout_words, *words]
        if ranks > 1:
            command = ["mpirun", "-np", ranks, *command]
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen([str(word) for word in command], env=self.environment,
                                    stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT, start_new_session=True)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def summary(self, name, layout, words=()):
        """Of a run that goes to its end."""
        path = self.folder / f"{name}.json"
        run = self.start(name, layout, (*words, "--summary-json", path))
        assert run.wait(RUN_LIMIT_S) == 0, f"{name}: exit {run.returncode}"
        return json.loads(path.read_text(encoding="utf-8"))

    def print_logs(self):
        for path in sorted(self.folder.glob("*.log"), key=lambda log: log.stat().st_mtime):
            print(f"--- {path.name}\n{self.log(path.stem)}", file=sys.stderr)

    def kill_all(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def processes(self):
        """Process id -> name, of all that carry the mark."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                pass  # it has just ended, or is another user's
        return found

    def ranks(self):
        return sorted(process for process, name in self.processes().items()
                      if name.startswith("forebay-train"))

    def leftovers(self, memory):
        """What is still there a while after a run has ended."""
        deadline = time.monotonic() + GONE_AFTER_S
        while True:
            left = [f"process {name}" for name in self.processes().values()]
            left += [f"shared memory {name}" for name in nobodys(shared_memory() - memory)]
            left += [f"socket {path}" for path in self.runtime.rglob("*.sock") if answers(path)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)


def answers(path):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def steps_done(metrics, job, run):
    """Of the run that writes `metrics`; None where it has ended."""
    if run.poll() is not None:
        return None
    try:
        lines = metrics.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    steps = 0
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # half a line, as yet
        if event["event"] == "step":
            steps = event["global_step"] + 1
    return steps


def kill_cycle(job, number, layout, draw, resume):
    """Kills a rank some steps after the run has begun to train. Returns what is left of it."""
    name = f"cycle{number}"
    memory = shared_memory()
    metrics = job.folder / f"{name}.jsonl"
    run = job.start(name, layout, (*resume, "--metrics-file", metrics))
    deadline = time.monotonic() + RUN_LIMIT_S
    first, more = None, draw.randrange(4, 2 * STEPS_OF_EPOCH)
    while True:
        steps = steps_done(metrics, job, run)
        assert steps is not None, f"{name} ended before it was killed: exit {run.returncode}"
        assert time.monotonic() < deadline, f"{name} does not train"
        if first is None and steps > 0:
            first = steps
        if first is not None and steps >= first + more:
            break
        time.sleep(0.001)
    ranks = job.ranks()
    assert len(ranks) == layout[0], (ranks, job.processes())
    os.kill(draw.choice(ranks), signal.SIGKILL)
    run.wait(GONE_AFTER_S)
    assert run.returncode != 0, f"{name} ended well without a rank"
    return job.leftovers(memory)


def run_cycles(job, arguments, seed):
    draw = random.Random(seed)
    reference = job.summary("undisturbed", LAYOUTS[2])
    resume = ("--checkpoint-dir", job.folder / "checkpoints", "--checkpoint-every-steps", 3,
              "--resume", "auto")
    left, resumed = [], 0
    for number in range(arguments.cycles):
        layout = LAYOUTS[(number + seed) % len(LAYOUTS)]
        left += kill_cycle(job, number, layout, draw, resume)
        resumed += "resuming at epoch" in job.log(f"cycle{number}")
    last = job.summary("last", LAYOUTS[(arguments.cycles + seed) % len(LAYOUTS)], resume)
    return {"cycles": arguments.cycles, "seed": seed, "resumed": resumed,
            "last_resumed_at": last["first_global_step"], "steps": reference["steps"],
            "equal": last["weights_digest"] == reference["weights_digest"],
            "digest": last["weights_digest"], "undisturbed": reference["weights_digest"],
            "left": left}


def complaints(result):
    if not result["equal"]:
        yield f"the weights are {result['digest']}, undisturbed {result['undisturbed']}"
    if result["left"]:
        yield "left behind: " + ", ".join(result["left"])
    if not result["resumed"] or not result["last_resumed_at"]:
        yield "no run was resumed from a checkpoint"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("forebayd")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--augment", action="store_true")
    arguments = parser.parse_args()
    # Ends as an exception does, so that no run is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    # A rank that was just killed may still write, which must not hide what is printed below.
    with tempfile.TemporaryDirectory(prefix="fbk.", ignore_cleanup_errors=True) as name:
        job = Job(arguments, pathlib.Path(name))
        is_good = False
        try:
            result = run_cycles(job, arguments, arguments.seed)
            print(json.dumps(result))
            found = list(complaints(result))
            is_good = not found
        except (AssertionError, subprocess.TimeoutExpired) as error:
            found = [str(error)]
        finally:
            if not is_good:
                job.print_logs()
                job.kill_all()
    for complaint in found:
        print(f"seed {arguments.seed}: {complaint}", file=sys.stderr)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
