"""What the tests of `forebay launch` share: a data set, launches, a look for what is left behind.

A test is called with FOREBAY FOREBAYD [further programs] [unittest options].
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOREBAY, FOREBAYD = (os.path.abspath(path) for path in sys.argv[1:3])
RECORDS, RECORD_BYTES = 4096, 4096
# Waits, and says by a file that it does; TERM makes it end with code 9.
WAITING = 'trap "echo TERM > {0}.got; exit 9" TERM; echo > {0}; while :; do sleep 0.05; done'


def eventually(condition, what):
    """Looks until it is true, a minute at most."""
    end = time.monotonic() + 60
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("not within 60 s: " + what)
        time.sleep(0.01)


def processes(word):
    """The processes with `word` in their command lines: pid -> arguments."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            arguments = []
            if entry.name.isdigit():
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        arguments = [argument.decode(errors="replace") for argument in arguments]
        if any(word in argument for argument in arguments):
            found[int(entry.name)] = arguments
    return found


class LaunchRig(unittest.TestCase):
    """Looks after every test for processes, directories of sockets and rendezvous files left
    behind."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fbl"))
        self.data = random.Random(1).randbytes(RECORDS * RECORD_BYTES)
        for name in ("set", "rendezvous"):
            (self.folder / name).mkdir()
        (self.folder / "set" / "records.bin").write_bytes(self.data)
        self.config = self.folder / "forebay.toml"
        self.config.write_text(
            '[tier.ram]\ncapacity = "32MiB"\n[slots]\ncapacity = "32MiB"\n'
            '[[dataset]]\nname = "records"\npath = "%s/set"\nformat = "raw"\n'
            'files = ["value=records.bin"]\nshape = [%d]\nextent = "1MiB"\n'
            % (self.folder, RECORD_BYTES), encoding="ascii")
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder),
                            "FOREBAY_JOB_ID": "launch",
                            "PATH": os.path.dirname(FOREBAYD) + os.pathsep + os.environ["PATH"]}
        for name in ("FOREBAY_ADDRESS", "FOREBAY_CONFIG"):
            self.environment.pop(name, None)
        self.started = []

    def tearDown(self):
        for launch in self.started:
            if launch.poll() is None:
                launch.kill()
                launch.wait()
        try:
            eventually(lambda: not processes(str(self.folder)),
                       "the end of %s" % processes(str(self.folder)))
            # Sockets and locks, also those of daemons that were killed, with their directories.
            left = [*self.folder.glob("forebay-*"), *self.folder.glob("run[0-9]")]
            self.assertEqual(left, [])
            self.assertEqual(list((self.folder / "rendezvous").iterdir()), [])
        finally:
            shutil.rmtree(self.folder)

    def words(self, command, options=()):
        return [FOREBAY, "launch", "--config", str(self.config), *options, "--", *command]

    def run_launch(self, command, options=(), **more):
        return subprocess.run(self.words(command, options), capture_output=True, text=True,
                              timeout=120, check=False, **{"env": self.environment, **more})

    def start(self, command, options=(), **more):
        """Standard error goes to a file, which `errors` reads. `more` is for Popen."""
        with open(self.folder / ("errors%d" % len(self.started)), "wb") as errors:
            launch = subprocess.Popen(self.words(command, options), env=self.environment,
                                      stderr=errors, **more)
        self.started.append(launch)
        return launch

    def errors(self, number=0):
        return (self.folder / ("errors%d" % number)).read_text()

    def start_waiting(self, options=()):
        """A launch whose command waits for TERM."""
        mark = self.folder / ("waits%d" % len(self.started))
        launch = self.start(["sh", "-c", WAITING.format(mark)], options)
        eventually(mark.exists, "the command")
        return launch

    def daemon_pids(self):
        return [pid for pid, words in processes(str(self.folder)).items()
                if os.path.basename(words[0]) == "forebayd"]

    def node(self, rank, rendezvous=""):
        """Options of one of two nodes, on the loopback interface."""
        rendezvous = rendezvous or "directory:%s/rendezvous" % self.folder
        return ["--node-rank", str(rank), "--node-count", "2",
                "--set", "nodes.rendezvous=" + rendezvous, *self.own_options(rank)]

    def start_with_secret(self, command, options, secret, more=""):
        """A launch that gets the secret, and `more` behind it, from its standard input."""
        reads, writes = os.pipe()
        os.write(writes, (secret + more).encode())
        os.close(writes)
        launch = self.start(command, [*options, "--secret-fd", "0"], stdin=reads)
        os.close(reads)
        return launch

    def status(self, rank):
        """What the daemon of a node says of itself."""
        done = subprocess.run([FOREBAY, "--address", "unix:%s/run%d/d.sock" % (self.folder, rank),
                               "status", "--json"], env=self.environment, capture_output=True,
                              text=True, timeout=60, check=True)
        return json.loads(done.stdout)

    def own_options(self, name):
        """What tells the nodes on this host apart."""
        return ["--address", "unix:%s/run%s/d.sock" % (self.folder, name),
                "--log", "%s/log%s" % (self.folder, name),
                "--set", "peer.interface=lo",
                "--set", "tier.ssd.directory=%s/ssd%s" % (self.folder, name),
                "--set", "tier.ssd.capacity=64MiB"]

    def log(self, rank):
        path = self.folder / ("log%d" % rank)
        return path.read_text() if path.exists() else ""


def run_tests(programs=2):
    """Runs the tests of the main module, which is called with so many programs."""
    # Who starts this test in the background may have it ignore SIGINT, and its children, too.
    for handled in (signal.SIGINT, signal.SIGHUP):
        signal.signal(handled, signal.SIG_DFL)
    unittest.main(argv=[sys.argv[0], *sys.argv[1 + programs:]])
