"""The peers, with pinned versions, as callables that answer a run report."""

import json
import pathlib
import shutil
import subprocess
import sys

from harness import processes

# Pinned, so that figures of two days are of the same peer.
WEBDATASET_VERSION = "1.0.2"
PYTHONS = (sys.executable, "/usr/bin/python3", "python3", "python3.11")
PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"


class Peers:
    def __init__(self, binaries, store_folder):
        self.binaries = binaries
        self.folder = pathlib.Path(store_folder)
        self._pythons = {}
        self._webdataset_python = None

    def _python_with(self, modules, package):
        """A Python that can import `modules`, which Debian has in `package`."""
        if modules not in self._pythons:
            # The Python of the harness may be another than the one that Debian's torch belongs to.
            for candidate in PYTHONS:
                if shutil.which(candidate) and subprocess.run(
                        [candidate, "-c", f"import {modules}"], capture_output=True,
                        check=False).returncode == 0:
                    self._pythons[modules] = candidate
                    break
            else:
                raise processes.Missing(f"no Python with {modules} (Debian: {package})")
        return self._pythons[modules]

    def torch_python(self):
        return self._python_with("torch, numpy", "python3-torch")

    def numpy_python(self):
        return self._python_with("numpy", "python3-numpy")

    def webdataset_python(self):
        """A virtual environment over torch's Python with the pinned webdataset."""
        if self._webdataset_python is not None:
            return self._webdataset_python
        folder = self.folder / f"venv-webdataset-{WEBDATASET_VERSION}"
        python = folder / "bin" / "python"
        check = [str(python), "-c", "import importlib.metadata as m, torch, webdataset; "
                 f"assert m.version('webdataset') == '{WEBDATASET_VERSION}'"]
        # The environment is checked at each run, because an interrupted one may have left it half
        # made.
        if not python.exists() or subprocess.run(check, capture_output=True,
                                                 check=False).returncode != 0:
            for command in (
                    [self.torch_python(), "-m", "venv", "--clear", "--system-site-packages",
                     str(folder)],
                    [str(python), "-m", "pip", "install", "--quiet",
                     f"webdataset=={WEBDATASET_VERSION}"]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise processes.Missing("webdataset: " + done.stderr.strip()[-300:])
        self._webdataset_python = str(python)
        return self._webdataset_python

    def plain_loop(self, root, dataset, order, threads=1, batch=1, epochs=1, check=False,
                   in_memory=False, copies=False):
        return processes.run_json(
            [self.binaries.find("plain_loop"), "--root", root, "--index", dataset.index,
             "--order", order, "--threads", threads, "--batch", batch, "--epochs", epochs]
            + (["--check"] if check else []) + (["--in-memory"] if in_memory else [])
            + (["--copy"] if copies else []))

    def numpy_gather(self, rows, order, batch, in_place, epochs=1, check=False):
        """`rows`: a data set of one object in layout `records` or `rows`, whose records are whole
        64-bit words."""
        return processes.run_json(
            [self.numpy_python(), PEERS / "numpy_gather.py", "--data", rows.object_paths[0],
             "--index", rows.index, "--order", order, "--batch", batch, "--epochs", epochs]
            + (["--in-place"] if in_place else []) + (["--check"] if check else []))

    def torch_loader(self, root, dataset, order, workers, epochs=1, check=False, batch=64):
        return processes.run_json(
            [self.torch_python(), "-W", "ignore", PEERS / "torch_loader.py", "--root", root,
             "--index", dataset.index, "--order", order, "--workers", workers, "--epochs",
             epochs, "--batch", batch] + (["--check"] if check else []))

    def webdataset_loader(self, root, workers, epochs=1, check=False, batch=64):
        return processes.run_json(
            [self.webdataset_python(), "-W", "ignore", PEERS / "webdataset_loader.py", "--root",
             root, "--workers", workers, "--epochs", epochs, "--batch", batch]
            + (["--check"] if check else []))

    def fio_random_read(self, path, request_bytes, depth, seconds=4):
        """Bytes per second of O_DIRECT random reads."""
        if shutil.which("fio") is None:
            raise processes.Missing("no program fio")
        report = json.loads(processes.run_text(
            # The limit of the device: random reads without the page cache, at the depth and request
            # size that the daemon uses.
            ["fio", "--name=peer", f"--filename={path}", "--rw=randread", "--readonly",
             f"--bs={request_bytes}", f"--iodepth={depth}", "--ioengine=io_uring", "--direct=1",
             "--time_based", f"--runtime={seconds}", "--norandommap", "--output-format=json"]))
        return float(report["jobs"][0]["read"]["bw_bytes"])


def rate(report, first=0):
    """Bytes per second over the timed epochs from `first` on."""
    # All bytes over all seconds, and not a mean of rates, in which a short epoch would count as
    # much as a long one.
    epochs = report["epochs"][first:]
    return sum(epoch["bytes"] for epoch in epochs) / sum(epoch["seconds"] for epoch in epochs)


def cpu_per_byte(report, first=0):
    """CPU seconds per byte of the contender's epochs from `first` on, and of the daemon where
    there is one, whose seconds are known for the whole run only."""
    epochs = report["epochs"][first:]
    # The daemon works for the consumer, so its seconds are part of what a byte costs.
    daemon = (report.get("daemon_cpu_seconds", 0.0)
              / sum(epoch["bytes"] for epoch in report["epochs"]))
    return (sum(epoch["cpu_seconds"] for epoch in epochs)
            / sum(epoch["bytes"] for epoch in epochs)) + daemon


def switches_per_batch(report, batch, sample_bytes):
    """Context switches of consumer and daemon, by batch."""
    # Voluntary and involuntary ones together: a batch that wakes two threads shows here even if it
    # is fast.
    samples = sum(epoch["bytes"] for epoch in report["epochs"]) / sample_bytes
    switches = (sum(epoch["context_switches"] for epoch in report["epochs"])
                + report["daemon_context_switches"])
    return switches / (samples / batch)


class Ledger:
    """Holds all contenders to the same samples: every epoch of every run must have the digest
    of the first one seen, else the run does not count."""

    def __init__(self):
        self.sums = None
        self.content = None

    def check(self, report):
        name = report["contender"]
        # The sums of a run cover every byte and every sample id. So a loader that skips, repeats or
        # swaps samples is found, whatever its speed.
        for epoch in report["epochs"]:
            self.sums = self.sums or epoch["sums_digest"]
            if epoch["sums_digest"] != self.sums:
                raise processes.RunFailed(f"{name} skipped, repeated or damaged samples")
        # The content hash is taken in untimed epochs only; the sums of the timed ones tie them to
        # it.
        if report.get("check"):
            self.content = self.content or report["check"]["content_digest"]
            if report["check"]["content_digest"] != self.content:
                raise processes.RunFailed(f"{name} delivered other bytes")
        return report
