"""What the figures were measured on."""

import os
import pathlib
import platform


def _first_line(path, key):
    try:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def describe():
    return {
        "processor": _first_line("/proc/cpuinfo", "model name"),
        # A figure means nothing without the machine, so every report begins with this. The load
        # average at the start tells a reader whether others were working.
        "cores": os.cpu_count(),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "system": _first_line_of_os_release(),
        "load_average": list(os.getloadavg()),
    }


def _first_line_of_os_release():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def separate_cores(count, topology="/sys/devices/system/cpu"):
    """`count` processors for programs that must not slow each other down, fewer where this process
    may not use as many. Processors of one physical core share its units, so the first processor of
    each core comes before the second one of any."""
    turns = []
    for processor in sorted(os.sched_getaffinity(0)):
        path = pathlib.Path(topology) / f"cpu{processor}" / "topology" / "thread_siblings_list"
        try:
            siblings = path.read_text(encoding="ascii").strip()
        except OSError:
            siblings = str(processor)  # not known: a core of its own
        seen = sum(siblings == other for _, _, other in turns)
        turns.append((seen, processor, siblings))
    return [processor for _, processor, _ in sorted(turns)[:count]]


def drop_caches():
    """Writes back and empties the page cache. False where this user may not."""
    # Dirty pages cannot be dropped, so they are written back first.
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError:
        return False
    return True


def fill_cache(paths):
    """Reads files into the page cache."""
    # A read and not a readahead hint, which the kernel may ignore: the caller relies on the pages
    # being there.
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def process_cpu_seconds(process_id):
    """User and system time of another process, all its threads, dead ones too; from its CPU
    clock, whose id Linux derives from the process id."""
    import time
    # The clock of a process and not /proc/PID/stat, whose ticks of 10 ms are as long as what is
    # measured.
    return time.clock_gettime(((~process_id) << 3) | 2)


def process_context_switches(process_id):
    """Of all threads that live, voluntary or not."""
    total = 0
    # Threads that end take their counts with them, so a figure of a process whose threads come and
    # go is too small.
    for status in pathlib.Path(f"/proc/{process_id}/task").glob("*/status"):
        for key in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            value = _first_line(status, key)  # "unknown": the thread has ended meanwhile
            total += int(value) if value.isdigit() else 0
    return total


def process_peak_bytes(process_id):
    # The peak and not the value now: memory that was taken for a moment counts too.
    value = _first_line(f"/proc/{process_id}/status", "VmHWM")
    return int(value.split()[0]) * 1024 if value != "unknown" else None
