#!/usr/bin/env python3
"""`forebay doctor`: what it prints, its exit codes, and that it leaves nothing behind.

    doctor_check.py FOREBAY FOREBAYD

A folder plays the GFS, another one the SSD. Where file systems can be mounted, a full one and a
read-only one take their places.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CHECKS = {"io_uring", "memory", "huge_pages", "open_files", "socket", "state_dir", "ssd", "nodes",
          "gfs"}
VERDICTS = {"ok", "warning", "failure"}
MEMBERS = ["schema", "event", "check", "subject", "verdict", "text", "remedy", "figures"]


def fail(message):
    raise SystemExit(message)


def tree(folder):
    return sorted(os.path.join(where, name) for where, folders, files in os.walk(folder)
                  for name in folders + files)


class Site:
    """A folder with a data set, a configuration, and the program under test."""

    def __init__(self, forebay, forebayd, folder):
        self.forebay = forebay
        self.folder = folder
        # In a build tree forebayd is not beside forebay.
        self.environment = dict(os.environ, FOREBAY_CONFIG="",
                                PATH=os.path.dirname(forebayd) + os.pathsep + os.environ["PATH"])
        os.mkdir(self.path("gfs"))
        with open(self.path("gfs/a.tar"), "wb") as file:
            file.write(bytes(3 << 20))
        os.mkdir(self.path("ssd"), 0o700)
        self.config = self.path("forebay.toml")
        with open(self.config, "w", encoding="ascii") as file:
            file.write('[daemon]\nsocket = "%s"\nstate_dir = "%s"\n'
                       '[tier.ram]\ncapacity = "16MiB"\n'
                       '[tier.ssd]\ndirectory = "%s"\ncapacity = "8MiB"\n'
                       '[slots]\ncapacity = "8MiB"\n[decode]\ncapacity = "8MiB"\n'
                       '[[dataset]]\nname = "train"\npath = "%s"\n'
                       % (self.path("run/s"), self.path("state"), self.path("ssd"),
                          self.path("gfs")))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *words, code, environment=None):
        done = subprocess.run([self.forebay, "doctor", *words], capture_output=True, text=True,
                              timeout=120, check=False,
                              env=dict(self.environment, **(environment or {})))
        if done.returncode != code:
            fail("%s: exit code %d, wanted %d\n%s%s" % (words, done.returncode, code, done.stdout,
                                                         done.stderr))
        return done

    def findings(self, *words, code):
        lines = [json.loads(line) for line in
                 self.run("--config", self.config, "--json", *words, code=code).stdout.splitlines()]
        last = lines.pop()
        if list(last) != ["schema", "event", "ok", "warnings", "failures"]:
            fail("the last line is %s" % last)
        for line in lines:
            if list(line) != MEMBERS or line["schema"] != "forebay.doctor.v1":
                fail("no finding: %s" % line)
            if line["verdict"] not in VERDICTS or (line["verdict"] == "ok") != (not line["remedy"]):
                fail("verdict and remedy do not fit: %s" % line)
            if not line["text"] or not all(isinstance(v, int) for v in line["figures"].values()):
                fail("text or figures: %s" % line)
        for verdict, member in (("ok", "ok"), ("warning", "warnings"), ("failure", "failures")):
            if last[member] != sum(line["verdict"] == verdict for line in lines):
                fail("%s are miscounted: %s" % (member, last))
        if (last["failures"] > 0) != (code == 1):
            fail("exit code %d for %s" % (code, last))
        return lines

    def failure(self, check, *words):
        """The only failure of a run with these words, which must be of `check`."""
        found = [line for line in self.findings(*words, code=1) if line["verdict"] == "failure"]
        if [line["check"] for line in found] != [check]:
            fail("wanted one failure of %s: %s" % (check, found))
        return found[0]


def check_output(site):
    before = tree(site.folder)
    findings = site.findings(code=0)
    if {line["check"] for line in findings} != CHECKS:
        fail("checks: %s" % findings)
    figures = {}
    for line in findings:
        figures.update({(line["check"], name): value for name, value in line["figures"].items()})
    if figures["gfs", "read_bytes"] != 3 << 20 or figures["gfs", "read_bytes_per_s"] <= 0:
        fail("gfs: %s" % figures)
    if not 0 < figures["ssd", "written_bytes"] <= 256 << 20:
        fail("ssd: %s" % figures)
    text = site.run("--config", site.config, code=0).stdout
    if not re.search(r"(?m)^ok +gfs +data set 'train': .* read at .*/s$", text):
        fail("no line for the data set: %s" % text)
    if not re.search(r"\ndoctor: \d+ ok, \d+ with a warning, 0 failed\n\Z", text):
        fail("no last line: %s" % text)
    # The environment names the configuration as it does for programs with a private daemon.
    named = site.run("--json", code=0, environment={"FOREBAY_CONFIG": site.config}).stdout
    if "data set 'train'" not in named:
        fail("$FOREBAY_CONFIG was not used: %s" % named)
    if tree(site.folder) != before:
        fail("left behind: %s" % (set(tree(site.folder)) - set(before)))


def check_failures(site):
    os.rename(site.path("gfs"), site.path("unmounted"))
    if "mount" not in site.failure("gfs")["remedy"]:
        fail("no remedy for a path that is not there")
    os.rename(site.path("unmounted"), site.path("gfs"))
    os.chmod(site.path("ssd"), 0o777)
    if "chmod 700" not in site.failure("ssd")["remedy"]:
        fail("no remedy for a directory that others may write to")
    os.chmod(site.path("ssd"), 0o700)
    site.failure("memory", "--set", "tier.ram.capacity=2TiB")
    site.failure("socket", "--set", "daemon.socket=/tmp/" + 120 * "x")


def check_usage(site, forebayd):
    site.run("--config", site.config + ".none", code=2)
    unknown = site.run("--config", site.config, "--set", "tier.ram.capacty=1", code=2)
    if "tier.ram.capacity" not in unknown.stderr:
        fail("no word about the key: %s" % unknown.stderr)
    alone = subprocess.run([forebayd, "--json"], capture_output=True, timeout=60, check=False)
    if alone.returncode != 2:
        fail("forebayd --json without --doctor: exit code %d" % alone.returncode)
    # Copied to where forebayd is neither beside it nor in $PATH.
    os.mkdir(site.path("bin"))
    copy = shutil.copy(site.forebay, site.path("bin/forebay"))
    lonely = subprocess.run([copy, "doctor", "--json"], capture_output=True, text=True, timeout=60,
                            check=False, env=dict(os.environ, PATH=site.path("bin")))
    if lonely.returncode != 5 or "forebayd" not in json.loads(lonely.stdout)["message"]:
        fail("without forebayd: %d, %s" % (lonely.returncode, lonely.stdout))


def children_of(site):
    """Processes that have the site's configuration on their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if site.config.encode() in file.read() and int(pid) != os.getpid():
                    found.append(pid)
    return found


def check_signals(site):
    """Killed in the middle of the SSD's check: no process and no file is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        before = tree(site.folder)
        with subprocess.Popen([site.forebay, "doctor", "--config", site.config],
                              stdout=subprocess.PIPE, text=True,
                              env=site.environment) as doctor:
            # The line of the space comes right before the file is written.
            for line in doctor.stdout:
                if " ssd " in line:
                    break
            doctor.send_signal(number)
        if doctor.returncode != -number:
            fail("signal %d: exit code %s" % (number, doctor.returncode))
        end = time.monotonic() + 60
        while children_of(site):
            if time.monotonic() > end:
                fail("signal %d: processes are left: %s" % (number, children_of(site)))
        if tree(site.folder) != before:
            fail("signal %d: left behind: %s" % (number, set(tree(site.folder)) - set(before)))


@contextlib.contextmanager
def mounted(path, options):
    """A tmpfs at `path`; yields whether it could be mounted."""
    os.makedirs(path, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
                          capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", path], check=True)


def check_mounts(site):
    ssd, state = site.path("small"), site.path("fixed")
    with mounted(ssd, "size=4m,mode=0700") as is_mounted:
        if not is_mounted:
            print("a tmpfs cannot be mounted here: a full and a read-only one are not tried")
            return
        with open(os.path.join(ssd, "full"), "wb") as file, contextlib.suppress(OSError):
            file.write(bytes(8 << 20))
        full = site.failure("ssd", "--set", "tier.ssd.directory=" + ssd)
        if "free space" not in full["remedy"]:
            fail("a full file system: %s" % full)
    with mounted(state, "ro,mode=0700"):
        fixed = site.failure("state_dir", "--set", "daemon.state_dir=" + state)
        if "for writing" not in fixed["remedy"]:
            fail("a read-only file system: %s" % fixed)
        beneath = site.failure("state_dir", "--set", "daemon.state_dir=" + state + "/a/b")
        if "cannot be created" not in beneath["text"]:
            fail("beneath a read-only file system: %s" % beneath)


def main(forebay, forebayd):
    with tempfile.TemporaryDirectory(prefix="fbd") as folder:
        site = Site(forebay, forebayd, folder)
        check_output(site)
        check_failures(site)
        check_usage(site, forebayd)
        check_signals(site)
        check_mounts(site)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
