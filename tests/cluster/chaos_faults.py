"""The faults of chaos.py: what happens to the processes, disks and links of a running job. FAULTS
names them. Each is a function of the job that returns whether it was injected; one that lasts is a
generator, which yields the seconds until it goes on, and returns that at its end."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from harness import processes  # noqa: E402
from harness.switch import Fault, between, switched_network  # noqa: E402

# Longer than a fault that keeps a daemon from hearing the others.
START_S = 30
# A node that joins waits, besides, until the one before it counts as dead.
JOIN_S = 60
# A job with a slow link has links of this rate otherwise.
LINK_BITS_PER_S = 400e6
FILL_STEP_BYTES = 1 << 18


def _pause(job, by_key, seconds_max):
    running = job.running(by_key)
    if not running:
        return False
    process = by_key[job.dice.choice(running)]
    process.send_signal(signal.SIGSTOP)
    yield job.dice.uniform(0.2, seconds_max)
    process.send_signal(signal.SIGCONT)  # ignored where it was killed meanwhile
    return True


def stop_reader(job):
    return _pause(job, job.readers, 3)


def stop_daemon(job):
    return _pause(job, job.daemons, 4)


def kill_reader(job):
    readers = job.running(job.readers)
    if not readers:
        return False
    rank = job.dice.choice(readers)
    job.kill(job.readers[rank])
    job.restarts[rank] += 1
    job.start_reader(rank)
    return True


def kill_daemon(job):
    """Of the node without readers, which does not come back. Not while another one does, which
    needs one that runs."""
    last = job.nodes - 1
    if last == 0 or last not in job.running(job.daemons) or job.returning:
        return False
    job.kill(job.daemons.pop(last))
    return True


def drain_node(job):
    """The node without readers leaves (`forebay drain --node`), and hands over what it has while
    the others read. A daemon that runs is asked, which may be that of the node itself."""
    last = job.nodes - 1
    daemons = job.running(job.daemons)
    if last == 0 or last not in daemons or job.returning or last in job.leaving:
        return False
    leaving = job.daemons[last]
    # Before it is asked: it may leave also if the answer is lost.
    job.leaving.add(last)
    asked = job.start_drain(job.dice.choice(daemons), last, job.dice.choice([2, 300]))
    while asked.poll() is None and job.running(job.readers):
        yield 0.1
    if asked.poll() is None:
        job.kill(asked)
    while job.daemons.get(last) is leaving and leaving.poll() is None and job.running(job.readers):
        yield 0.1
    has_left = job.daemons.get(last) is leaving and leaving.poll() == 0
    if has_left:
        del job.daemons[last]
    return asked.returncode == 0 or has_left


def return_daemon(job):
    """Alone: the other daemons, and the readers of all nodes, go on meanwhile. One of the others
    has to run, or it would wait for all of them as at the first start."""
    daemons = [node for node in job.running(job.daemons) if node not in job.returning]
    if not daemons or job.nodes > 1 and len(daemons) < 2:
        return False
    node = job.dice.choice(daemons)
    job.returning.add(node)
    job.kill(job.daemons[node])
    yield job.dice.choice([0, 1])
    if node in job.leaving and not job.may_come_back(node):
        job.returning.discard(node)
        job.daemons.pop(node, None)
        return True
    if job.daemons.get(node) is None or job.daemons[node].poll() is None:
        job.returning.discard(node)  # killed for good, or the job was started again
        return True
    yield from _start_daemon(job, node, START_S)
    return True


def _start_daemon(job, node, wait_s):
    """Of a node that returns, while others do something else. Returns whether it is ready; it is
    not if the job was started again meanwhile."""
    ready = job.start_daemon(node)
    started = job.daemons[node]
    begin = time.monotonic()
    while not job.has_said(ready) and time.monotonic() - begin < wait_s:
        yield 0.1
    job.returning.discard(node)
    if job.daemons.get(node) is not started:
        os.close(ready)
        return False
    job.await_ready(node, ready, 0)
    return True


def replace_node(job):
    """The machine of a node is lost, with its daemon and readers, unless the node was killed for
    good before, or has left. A daemon on another machine joins the job in its place, as soon as it
    counts as dead, and the readers of the node go on there. Another daemon has to run and stay."""
    gone = [node for node in range(job.nodes) if node not in job.daemons]
    node = job.dice.choice(gone or range(job.nodes))
    others = [other for other in range(job.nodes) if other != node]
    if job.returning or not job.spares or not job.staying(others):
        return False
    job.returning.add(node)
    job.lose_machine(node)
    generation = job.generation
    yield job.dice.choice([0, 1])
    if job.generation != generation:
        job.returning.discard(node)
        return False
    is_ready = yield from _start_daemon(job, node, JOIN_S)
    if is_ready:
        job.start_lost_readers()
    return is_ready


def damage_ssd(job):
    segments = sorted(job.folder.glob("n*/disk/ssd/*.seg"))
    if not segments:
        return False
    path = job.dice.choice(segments)
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        place = job.dice.randrange(max(1, path.stat().st_size))
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        return bool(byte) and file.write(bytes([byte[0] ^ 0x10])) == 1
    return False


@contextlib.contextmanager
def mounted_disk(path, size_mib):
    """Has a file system of this size in the folder `path`."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0700", "tmpfs",
                           str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise processes.Missing(done.stderr.splitlines()[0])
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


def fill_disk(job):
    """Another program takes what the disk of a node has left, for some seconds."""
    machine = job.dice.choice(job.machines)
    if machine not in job.disks:
        return False
    path = job.disks[machine] / "other_program"
    filled = 0
    # Not buffered, so that the error comes here and not when the file is closed.
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            filled += file.write(bytes(FILL_STEP_BYTES))
    yield job.dice.uniform(0.5, 4)
    path.unlink(missing_ok=True)
    return filled > 0


def no_files(job):
    """A daemon can open no further file for some seconds: none of the GFS, and no connection."""
    running = job.running(job.daemons)
    if not running:
        return False
    pid = job.daemons[job.dice.choice(running)].pid
    with contextlib.suppress(OSError):  # killed meanwhile
        _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        # With fewer, it could not wait for its sockets any more, and would end.
        opened = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened, most))
        yield job.dice.uniform(0.5, 4)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        return True
    return False


def restart_job(job):
    job.restart()
    return True


# Links. The network has all machines, and the job has some of them.

def _with_fault(job, pairs, fault, seconds):
    if job.nodes == 1 or job.net is None:
        return False
    job.net.set(pairs, fault)
    yield seconds
    job.net.mend(fault)
    return fault.count > 0


def _halves(job):
    machines = job.dice.sample(job.machines, job.nodes)
    first = job.dice.randint(1, max(1, job.nodes - 1))
    return machines[:first], machines[first:]


def _cut(job, pairs):
    # Some last until the halves take each other for dead.
    seconds = job.dice.uniform(9, 12) if job.dice.random() < 0.25 else job.dice.uniform(0.5, 4)
    return _with_fault(job, pairs, Fault(lost=1), seconds)


def partition(job):
    one, other = _halves(job)
    return _cut(job, between(one, other) + between(other, one))


def partition_one_way(job):
    """What one half sends to the other one is lost. The other direction works."""
    return _cut(job, between(*_halves(job)))


def _some_node_sends(job):
    return between([job.dice.choice(job.machines)], job.machines)


def lose_packets(job):
    return _with_fault(job, between(job.machines, job.machines), Fault(lost=0.01),
                       job.dice.uniform(1, 4))


def delay_packets(job):
    return _with_fault(job, _some_node_sends(job), Fault(delay_s=0.2), job.dice.uniform(1, 4))


def alter_packets(job):
    """A node answers the others with wrong bytes: one in ten of the large packets that it sends has
    a bit inverted. With encryption the connections break instead."""
    return _with_fault(job, _some_node_sends(job), Fault(altered=0.1), job.dice.uniform(0.5, 3))


def slow_link(job):
    """One node has a tenth of the rate of the others, for some seconds or to the end of the job."""
    if job.nodes == 1 or job.net is None:
        return False
    machines = list(job.machines)
    slow = job.dice.choice(machines)
    for machine in machines:
        job.net.limit(machine, LINK_BITS_PER_S)
    slow_rates = job.net.limit(slow, LINK_BITS_PER_S / 10)
    yield job.dice.uniform(1, 4)
    if job.dice.random() < 0.5:
        for machine in machines:
            job.net.limit(machine, None)
    return any(rate.waited for rate in slow_rates)


def unavailable(folder):
    """The faults that this machine or user does not allow, with the reason."""
    found = {}
    try:
        with switched_network(1):
            pass
    except processes.Missing as reason:
        found.update(dict.fromkeys(OF_LINKS, str(reason)))
    try:
        with mounted_disk(folder, 1):
            pass
    except processes.Missing as reason:
        found["full disk"] = str(reason)
    return found


FAULTS = {
    "stop reader": stop_reader,
    "kill reader": kill_reader,
    "stop daemon": stop_daemon,
    "kill daemon": kill_daemon,
    "return daemon": return_daemon,
    "replace node": replace_node,
    "drain node": drain_node,
    "damage ssd": damage_ssd,
    "full disk": fill_disk,
    "no files": no_files,
    "restart job": restart_job,
    "partition": partition,
    "one-way partition": partition_one_way,
    "slow link": slow_link,
    "packet loss": lose_packets,
    "packet delay": delay_packets,
    "wrong bytes": alter_packets,
}
OF_LINKS = ("partition", "one-way partition", "slow link", "packet loss", "packet delay",
            "wrong bytes")
