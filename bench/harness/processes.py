"""Starts and ends what suites need: contenders, the daemon, the emulated GFS."""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile

from harness import machine

# Longer than any row takes; a contender that hangs must not hold up the suite for ever.
RUN_TIMEOUT_S = 900
START_TIMEOUT_S = 20


class Missing(Exception):
    """A contender or tool is not there: the figures that need it fail, the suite goes on."""


class RunFailed(Exception):
    """A contender was there and failed."""


class Binaries:
    """Finds programs in a build tree first, then on PATH (installed)."""

    def __init__(self, build):
        self.build = pathlib.Path(build) if build else None
        self._found = {}

    def find(self, name):
        if name not in self._found:
            self._found[name] = self._search(name)
        if self._found[name] is None:
            raise Missing(f"no program {name}" + (f" in {self.build} or" if self.build else "")
                          + " on PATH")
        return self._found[name]

    def find_test_library(self, name, target):
        """A library that only the build tree has, and is for tests."""
        try:
            return self.find(name)
        except Missing as error:
            raise Missing(f"no library {name} in {self.build or 'a build tree'}: name a build "
                          f"tree with --build, and build its target {target}") from error

    def _search(self, name):
        if self.build and self.build.is_dir():
            # Sorted, so that two files of one name give the same choice at every run.
            for path in sorted(self.build.rglob(name)):
                if path.is_file() and os.access(path, os.X_OK):
                    return str(path)
        return shutil.which(name)


def program_name(command):
    """Without its folder, and behind `env` and its variables."""
    words = [str(word) for word in command]
    if words[0] == "env":
        words = [word for word in words[1:] if "=" not in word] or words
    return pathlib.Path(words[0]).name


def failure(name, what, output):
    """A RunFailed with the end of the output, which names a file that has all of it."""
    handle, path = tempfile.mkstemp(prefix=f"forebay-bench-{name}-", suffix=".log")
    with open(handle, "w", encoding="utf-8") as log:
        log.write(output)
    return RunFailed(f"{name}: {what} (whole output: {path}): {output.strip()[-400:]}")


def end_process(process, timeout_s=30):
    """SIGTERM, then SIGKILL. Its exit status."""
    # A daemon drains at SIGTERM and takes up to 10 s for it.
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def run_text(command, timeout_s=RUN_TIMEOUT_S, environment=None):
    """Runs a contender; what it wrote to standard output."""
    command = [str(word) for word in command]
    # Output goes to files, because a process that a contender leaves running would keep a pipe
    # open.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out, \
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=environment)
        except FileNotFoundError as error:
            raise Missing(f"no program {command[0]}") from error
        what = ""
        try:
            if process.wait(timeout_s) != 0:
                what = f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            what = f"no end after {timeout_s} s"
        # Whatever was started is ended, also after an exception such as Ctrl-C.
        finally:
            end_process(process)
        out.seek(0)
        text = out.read()
        if what:
            err.seek(0)
            # Errors last, because a failure shows the end.
            raise failure(program_name(command), what, text + err.read())
        return text


def run_json(command, timeout_s=RUN_TIMEOUT_S):
    """Runs a contender; the JSON on its last line of output."""
    text = run_text(command, timeout_s)
    try:
        # The last line, because libraries print warnings before it.
        return json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise failure(program_name(command), "printed no JSON at its end", text) from error


class Gfs:
    """A mounted gfs_emu."""

    def __init__(self, mount):
        self.mount = mount

    def counters(self):
        return json.loads((self.mount / ".gfs_emu" / "counters.json").read_text("utf-8"))

    def control(self, command):
        (self.mount / ".gfs_emu" / "control").write_text(command + "\n", encoding="utf-8")

    @staticmethod
    def operations(counters):
        """Of all clients but this process: asking for the counters looks at the mount's root."""
        # This process reads the counters through the mount and would count itself.
        return sum(client[key] for process_id, client in counters["clients"].items()
                   if process_id != str(os.getpid())
                   for key in ("opens", "reads", "lookups", "getattrs", "readdirs"))


@contextlib.contextmanager
def emulated_gfs(binaries, backing, preset, **model):
    """`model`: figures of the preset to replace, as gfs_emu's flags call them."""
    program = binaries.find("gfs_emu")
    with tempfile.TemporaryDirectory(prefix="gfs.") as folder:
        mount = pathlib.Path(folder) / "mount"
        mount.mkdir()
        process = subprocess.Popen([program, str(backing), str(mount), "--preset", preset,
                                    *(f"--{key.replace('_', '-')}={value}"
                                      for key, value in model.items())],
                                   stdout=subprocess.PIPE, text=True)
        try:
            # The line "ready" comes once the mount serves requests, so no run begins too early.
            if process.stdout.readline().split()[:1] != ["ready"]:
                raise Missing("gfs_emu cannot mount here (needs /dev/fuse)")
            yield Gfs(mount)
        finally:
            end_process(process)
            process.stdout.close()
            # A mount that stays would be found by the next run, and measured.
            if os.path.ismount(mount):
                raise RunFailed(f"gfs_emu left {mount} mounted")


def toml_value(value):
    if isinstance(value, bool):
        # bool before int, because True is an int in Python.
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return json.dumps(str(value))  # a JSON string is a TOML basic string


def config_text(keys, datasets):
    """`keys`: "section.key" -> value, sections of any depth; `datasets`: list of tables."""
    sections = {}
    for name, value in keys.items():
        section, key = name.rsplit(".", 1)
        sections.setdefault(section, []).append(f"{key} = {toml_value(value)}")
    lines = []
    for section, entries in sections.items():
        lines += [f"[{section}]", *entries, ""]
    for table in datasets:
        lines.append("[[dataset]]")
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
        lines.append("")
    return "\n".join(lines)


class Daemon:
    """A forebayd. `address` is what clients take. `command`: all but the descriptor on which it
    says that it is ready."""

    def __init__(self, binaries, command, folder, consumer_prefix=()):
        self.binaries = binaries
        self.process = None
        self.folder = folder
        self._command = command
        self._ready_fd = None
        self.log_path = folder / "forebayd.log"
        self.consumer_prefix = list(consumer_prefix)  # words before the command of a consumer
        self.socket = folder / "forebayd.sock"
        self.address = f"unix:{self.socket}"
        self.was_killed = False

    def start(self):
        """It may be killed and started once more: it then finds what it has left in its folder."""
        self.close()
        self._ready_fd, child_fd = os.pipe()
        with self.log_path.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self._command, "--ready-fd", str(child_fd)], stdout=log,
                stderr=subprocess.STDOUT, pass_fds=[child_fd])
        # Otherwise the pipe would stay open if the daemon dies, and the wait would last to its
        # timeout.
        os.close(child_fd)
        self.was_killed = False

    def close(self):
        """What this program has open for it."""
        if self._ready_fd is not None:
            os.close(self._ready_fd)
            self._ready_fd = None

    def kill(self):
        """SIGKILL, as a node that is lost; its end is then no failure of the row."""
        self.was_killed = True
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self):
        return machine.process_cpu_seconds(self.process.pid)

    def cli(self, *words):
        """Runs the `forebay` CLI against this daemon; the JSON on its last line."""
        return run_json([self.binaries.find("forebay"), "--address", self.address, "--json",
                         *words])

    def stage(self, dataset):
        return self.cli("stage", dataset)

    def consume(self, dataset, **options):
        """Runs forebay_consume; adds the daemon's CPU time and context switches to its report."""
        command = [*self.consumer_prefix, self.binaries.find("forebay_consume"), "--socket",
                   self.address, "--dataset", dataset]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                command.append(flag)
            elif value is not False and value is not None:
                command += [flag, value]
        # Before and after the consumer, so that staging and other runs are not charged to it.
        before = self.cpu_seconds()
        switches_before = machine.process_context_switches(self.process.pid)
        report = run_json(command)
        report["daemon_cpu_seconds"] = self.cpu_seconds() - before
        report["daemon_context_switches"] = (
            machine.process_context_switches(self.process.pid) - switches_before)
        return report

    def wait_until_ready(self):
        """Until the daemon says that clients may connect."""
        # The daemon says so itself through a pipe. A sleep or a poll of the socket would add to the
        # times, or begin too early.
        readable, _, _ = select.select([self._ready_fd], [], [], START_TIMEOUT_S)
        if not readable or not os.read(self._ready_fd, 4096).startswith(b"READY "):
            raise failure("forebayd", "did not get ready", self.log_path.read_text("utf-8"))


@contextlib.contextmanager
def daemon(binaries, keys, datasets):
    """A fresh daemon in a folder of its own, ended and removed afterwards."""
    with starting_daemon(binaries, keys, datasets) as running:
        running.wait_until_ready()
        yield running


@contextlib.contextmanager
def starting_daemon(binaries, keys, datasets, prefix=(), arguments=(), consumer_prefix=()):
    """As `daemon`, but it may not be ready yet: the daemons of a job wait for each other.
    `prefix`: words before its command, of programs that replace themselves by it."""
    program = binaries.find("forebayd")
    # A short name: the path of a Unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fb.") as name:
        folder = pathlib.Path(name)
        all_keys = {"daemon.socket": str(folder / "forebayd.sock"), "daemon.log_level": "warn"}
        all_keys.update(keys)
        config = folder / "forebayd.toml"
        config.write_text(config_text(all_keys, datasets), encoding="utf-8")
        running = Daemon(binaries, [*prefix, program, "--config", str(config), *arguments], folder,
                         consumer_prefix)
        running.start()
        try:
            yield running
        finally:
            running.close()
            status = end_process(running.process)
        # A daemon that crashed at its end fails the row, although the figures were measured.
        if status not in (0, -signal.SIGTERM) and not running.was_killed:
            raise failure("forebayd", f"ended with {status}", running.log_path.read_text("utf-8"))
