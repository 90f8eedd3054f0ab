#!/usr/bin/env python3
"""forebay-train under mpirun with a daemon per rank: the weights are those of one process that
trains from one daemon.

    train_nodes_test.py FOREBAY_TRAIN FOREBAYD FOREBAY [unittest options]

The daemons are two nodes that share the reading: on the loopback interface, and in two network
namespaces, as on two machines, each with its rank. Namespaces need the right to make them, and
iproute2. Where the environment variable CI is set, such a test fails instead of being skipped.
"""

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

from train_kill_cycles import BATCH, OPEN_MPI, SAMPLES, SIDE, write_data

# The benchmarks have networks of namespaces, which are hosts for mpirun.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from harness import network, nodes_mpi, processes  # noqa: E402

TRAIN, FOREBAYD, FOREBAY = (os.path.abspath(path) for path in sys.argv[1:4])
RANKS, EPOCHS = 2, 4
STEPS = EPOCHS * SAMPLES // BATCH
SAMPLE_BYTES = SIDE * SIDE + 1  # an image and its label
LIMIT_S = 300
# One thread and a fixed micro-batch, so that one process and two of them compute the same sums.
RUN = ["--train-dataset", "bars", "--evaluate-every-epochs", 0, "--epochs", EPOCHS,
       "--global-batch", BATCH, "--micro-batch", 16, "--threads", 1, "--warmup-steps", 10,
       "--force-slow-blas"]


class TrainNodesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fbt.", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        write_data(cls.folder / "gfs")
        cls.config = cls.folder / "forebayd.toml"
        # Small extents, so that two nodes have something to share.
        cls.config.write_text(
            '[tier.ram]\ncapacity = "32MiB"\n[slots]\ncapacity = "32MiB"\n'
            f'[[dataset]]\nname = "bars"\npath = "{cls.folder}/gfs"\nformat = "idx"\n'
            'files = ["images=images.idx", "labels=labels.idx"]\nextent = "64KiB"\n',
            encoding="utf-8")
        cls.environment = {**os.environ, **OPEN_MPI, "OMP_WAIT_POLICY": "passive",
                           # Launchers that share a folder fail where two make it at once.
                           "OMPI_MCA_orte_tmpdir_base": str(cls.folder),
                           "FOREBAY_JOB_ID": "train", "FOREBAY_JOB_SECRET": 64 * "5a",
                           "PATH": os.path.dirname(FOREBAYD) + os.pathsep + os.environ["PATH"]}
        cls.environment.pop("FOREBAY_ADDRESS", None)
        with cls.daemon("alone") as ready:
            assert os.read(ready, 200).startswith(b"READY"), cls.logs()
            cls.train("alone", [TRAIN, "--address", cls.address("alone")])
        cls.alone = cls.summary("alone")

    @classmethod
    def address(cls, name):
        return f"unix:{cls.folder}/{name}.run/s"

    @classmethod
    @contextlib.contextmanager
    def daemon(cls, name, options=(), before=()):
        """Runs a daemon and yields the end of a pipe that gets its READY line. `before`: words
        before the program."""
        ready, says_ready = os.pipe()
        with open(cls.folder / f"{name}.log", "ab") as log:
            daemon = subprocess.Popen(
                [*before, FOREBAYD, "--config", cls.config, "--socket",
                 f"{cls.folder}/{name}.run/s", "--ready-fd", str(says_ready), *options],
                pass_fds=[says_ready], env=cls.environment, stderr=log)
        os.close(says_ready)
        try:
            yield ready
        finally:
            os.close(ready)
            daemon.terminate()
            try:
                daemon.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                raise

    @classmethod
    def train(cls, name, command):
        """Runs `command`, which is or starts forebay-train, with the words of all runs."""
        words = [*command, *RUN, "--summary-json", cls.folder / f"{name}.json"]
        done = subprocess.run([str(word) for word in words], env=cls.environment, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S,
                              check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}\n{cls.logs()}"

    @classmethod
    def logs(cls):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}"
                         for path in sorted(cls.folder.glob("*.log")))

    @classmethod
    def summary(cls, name):
        return json.loads((cls.folder / f"{name}.json").read_text(encoding="utf-8"))

    def settings(self, name, rank, interface):
        """The words by which the configuration of a node differs from that of one daemon."""
        words = []
        for setting in (f"nodes.rendezvous=directory:{self.folder}/{name}.meet",
                        f"peer.interface={interface}",
                        # Tells two nodes of one host apart.
                        f"tier.ssd.directory={self.folder}/{name}{rank}.ssd",
                        "tier.ssd.capacity=64MiB"):
            words += ["--set", setting]
        return words

    @contextlib.contextmanager
    def nodes(self, name, interface, before):
        """Runs the daemons of two nodes. `before(rank)`: words before the program."""
        (self.folder / f"{name}.meet").mkdir()
        with contextlib.ExitStack() as stack:
            ready = [stack.enter_context(self.daemon(
                f"{name}{rank}", ["--node-rank", str(rank), "--node-count", str(RANKS),
                                  *self.settings(name, rank, interface)], before(rank)))
                     for rank in range(RANKS)]
            for line in ready:
                self.assertTrue(os.read(line, 200).startswith(b"READY"), self.logs())
            yield

    def network(self, stack):
        """A network of namespaces, one for each rank."""
        try:
            return stack.enter_context(network.network(RANKS))
        except processes.Missing as missing:
            if "CI" in os.environ:
                raise
            return self.skipTest(f"network namespaces cannot be made here: {missing}")

    def script(self, name):
        """What each rank runs: forebay-train on the daemon of its node, with the words behind it.
        Notes in which network it is."""
        return (f"readlink /proc/self/ns/net > {self.folder}/{name}$OMPI_COMM_WORLD_RANK.net && "
                f"exec {shlex.quote(TRAIN)} --address "
                f"unix:{self.folder}/{name}$OMPI_COMM_WORLD_RANK.run/s \"$@\"")

    def launch_script(self, name, interface):
        """What each rank runs: `forebay launch` of the node's daemon and of forebay-train, which
        takes the daemon's address from the environment. The first one notes the nodes' status."""
        rank = "$OMPI_COMM_WORLD_RANK"
        words = " ".join(self.settings(name, rank, interface))
        command = (f"{shlex.quote(TRAIN)} \"$@\" && {{ [ {rank} != 0 ] || {shlex.quote(FOREBAY)} "
                   f"status --nodes --json > {self.folder}/{name}.nodes; }}")
        return (f"exec {shlex.quote(FOREBAY)} launch --config {self.config} --address "
                f"unix:{self.folder}/{name}{rank}.run/s --log {self.folder}/{name}{rank}.log "
                f"{words} -- sh -c '{command}' sh \"$@\"")

    def networks(self, name):
        return {(self.folder / f"{name}{rank}.net").read_text() for rank in range(RANKS)}

    def status(self, name):
        done = subprocess.run([FOREBAY, "--address", self.address(f"{name}0"), "status", "--nodes",
                               "--json"], env=self.environment, capture_output=True, text=True,
                              timeout=LIMIT_S, check=True)
        return done.stdout

    def expect_equal_weights_from_both(self, name, status):
        """Looks at the summary of a run, and at what the daemons say of it (`status`). Returns the
        addresses of the nodes."""
        summary = self.summary(name)
        self.assertEqual(summary["steps"], STEPS)
        self.assertEqual(summary["weights_digest"], self.alone["weights_digest"])
        nodes = json.loads(status)["nodes"]
        self.assertEqual(len(nodes), RANKS)
        for node in nodes:
            # Each daemon has served one rank, and has got samples from the other daemon.
            self.assertEqual(int(node["samples"]), EPOCHS * SAMPLES // RANKS, nodes)
            self.assertGreater(int(node["other_samples"]), 0, nodes)
        self.assertEqual(sum(int(node["gfs_bytes"]) for node in nodes), SAMPLES * SAMPLE_BYTES,
                         "each byte is read from the GFS once for both")
        return [node["address"].partition(":")[0] for node in nodes]

    def test_two_daemons_on_the_loopback_interface(self):
        with self.nodes("lo", "lo", lambda rank: ()):
            self.train("lo", ["mpirun", "-n", RANKS, "sh", "-c", self.script("lo"), "sh"])
            self.expect_equal_weights_from_both("lo", self.status("lo"))

    def test_two_daemons_and_their_ranks_in_two_namespaces(self):
        with contextlib.ExitStack() as stack:
            net = self.network(stack)
            hosts = stack.enter_context(nodes_mpi.Hosts(net))
            stack.enter_context(self.nodes("net", f"{network.SUBNET}.0/24", net.command))
            self.train("net", [*hosts.command(RANKS, self.script("net")), "sh"])
            addresses = self.expect_equal_weights_from_both("net", self.status("net"))
        self.assertEqual(addresses, [net.address(rank) for rank in range(RANKS)])
        self.assertEqual(len(self.networks("net")), RANKS, "each rank has a network of its own")

    def test_ranks_that_forebay_launch_starts_beside_their_daemons(self):
        with contextlib.ExitStack() as stack:
            net = self.network(stack)
            hosts = stack.enter_context(nodes_mpi.Hosts(net))
            (self.folder / "launch.meet").mkdir()
            script = self.launch_script("launch", f"{network.SUBNET}.0/24")
            self.train("launch", [*hosts.command(RANKS, script), "sh"])
        addresses = self.expect_equal_weights_from_both(
            "launch", (self.folder / "launch.nodes").read_text(encoding="utf-8"))
        self.assertEqual(addresses, [net.address(rank) for rank in range(RANKS)])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
