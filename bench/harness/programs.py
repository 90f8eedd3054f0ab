"""Rows of suite `spine` that run one program and read what it prints."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import time

from harness import processes
from harness.figures import Figure, Goal, from_runs
from harness.memory_group import MemoryGroup

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent

ORDER_GOALS = {
    "spine.order.forward_worst": ("orders/s", Goal(20e6)),
    "spine.order.inverse_worst": ("orders/s", Goal(20e6)),
    "spine.order.start_up_growth": ("x", Goal(1.5, at_least=False)),
    "spine.order.block_forward_worst": ("orders/s", Goal(20e6)),
    "spine.order.block_inverse_worst": ("orders/s", Goal(20e6)),
    "spine.order.block_forward_batch_worst": ("orders/s", Goal(20e6)),
    "spine.order.block_inverse_batch_worst": ("orders/s", Goal(20e6)),
}
# Figure -> unit, and the benchmark, its counter and its scale. Figures of one kind stand with the
# physical limit that they are read against, measured in the same run.
MICRO_FIGURES = {
    "spine.micro.memory_read": ("GB/s", "arena_bench", "BM_MemoryRead", "bytes_per_second", 1e-9),
    "spine.micro.memory_copy": ("GB/s", "arena_bench", "BM_MemoryCopy", "bytes_per_second", 1e-9),
    "spine.micro.checksum_4k":
        ("GB/s", "checksum_bench", "BM_Checksum/4096", "bytes_per_second", 1e-9),
    "spine.micro.checksum_114660":
        ("GB/s", "checksum_bench", "BM_Checksum/114660", "bytes_per_second", 1e-9),
    "spine.micro.checksum_extent":
        ("GB/s", "checksum_bench", "BM_Checksum/33554432", "bytes_per_second", 1e-9),
    "spine.micro.arena_reserve_release":
        ("M/s", "arena_bench", "BM_ArenaReserveRelease", "items_per_second", 1e-6),
    "spine.micro.cache_publish_evict":
        ("M/s", "arena_bench", "BM_ReservePublishEvict", "items_per_second", 1e-6),
    "spine.micro.cache_find_release":
        ("M/s", "arena_bench", "BM_FindRelease", "items_per_second", 1e-6),
    "spine.micro.cache_find_64":
        ("M/s", "arena_bench", "BM_FindBatch/64", "items_per_second", 1e-6),
    "spine.micro.ring_uring_4k":
        ("M reads/s", "ring_bench", "BM_QueueReads/threads:0/bytes:4096/real_time",
         "items_per_second", 1e-6),
    "spine.micro.ring_threads_4k":
        ("M reads/s", "ring_bench", "BM_QueueReads/threads:1/bytes:4096/real_time",
         "items_per_second", 1e-6),
    "spine.micro.ring_limit_4k":
        ("M reads/s", "ring_bench", "BM_PlainReads/bytes:4096/real_time", "items_per_second",
         1e-6),
    "spine.micro.ring_uring_1m":
        ("GB/s", "ring_bench", "BM_QueueReads/threads:0/bytes:1048576/real_time",
         "bytes_per_second", 1e-9),
    "spine.micro.ring_threads_1m":
        ("GB/s", "ring_bench", "BM_QueueReads/threads:1/bytes:1048576/real_time",
         "bytes_per_second", 1e-9),
    "spine.micro.ring_limit_1m":
        ("GB/s", "ring_bench", "BM_PlainReads/bytes:1048576/real_time", "bytes_per_second", 1e-9),
}
MICRO_LIMITS = {
    "spine.micro.checksum_extent": "memory_read",  # the shorter ones lie in caches
    "spine.micro.ring_uring_4k": "ring_limit_4k", "spine.micro.ring_threads_4k": "ring_limit_4k",
    "spine.micro.ring_uring_1m": "ring_limit_1m", "spine.micro.ring_threads_1m": "ring_limit_1m",
}
# No goals: they say where time goes when a figure with a goal is missed.
MICRO_GOALS = {figure_id: (row[0], None) for figure_id, row in MICRO_FIGURES.items()}
QUICKSTART_GOALS = {
    "spine.quickstart.first_s": ("s", Goal(900, at_least=False)),
    "spine.quickstart.again_s": ("s", Goal(60, at_least=False)),
    "spine.quickstart.accuracy": ("share", Goal(0.90)),
    "spine.quickstart.stall": ("%", Goal(2, at_least=False)),
    "spine.quickstart.memory_over_limits": ("MB", Goal(100, at_least=False)),
}
ORDER_SIZE_MAX = 1 << 34


def parse_order_benchmark(report, block=False):
    """Google Benchmark's JSON -> {(function, n): (orders per second, ns per call)}, of mode
    global or block and n <= 2^34; medians where runs were repeated."""
    found = {}
    for entry in report["benchmarks"]:
        name = re.fullmatch(rf"BM_(\w+)/n:(\d+)/block:{int(block)}(?:_median)?", entry["name"])
        # Aggregates other than the median would overwrite it under the same key.
        if name is None or (entry.get("run_type") == "aggregate"
                            and entry.get("aggregate_name") != "median"):
            continue
        size = int(name[2])
        if size <= ORDER_SIZE_MAX:
            # Both numbers of a size are kept: the rate for calls, the time for the start-up.
            found[name[1], size] = (entry.get("items_per_second", 0.0), entry["real_time"])
    return found


def order(sheet, binaries, runs):
    report = json.loads(processes.run_text(
        [binaries.find("order_bench"), "--benchmark_format=json",
         "--benchmark_filter=BM_(Forward|Inverse|StartUp)(Batch)?/", "--benchmark_min_time=0.1",
         f"--benchmark_repetitions={runs}", "--benchmark_report_aggregates_only=true"]))
    found = parse_order_benchmark(report)
    found_in_blocks = parse_order_benchmark(report, block=True)
    for function in ("Forward", "Inverse"):
        name = function.lower()
        _add_worst_order(sheet, found, function, f"spine.order.{name}_worst",
                         ("single calls, global", runs))
        _add_worst_order(sheet, found_in_blocks, function, f"spine.order.block_{name}_worst",
                         ("single calls, block(256, 64)", runs))
        _add_worst_order(sheet, found_in_blocks, function + "Batch",
                         f"spine.order.block_{name}_batch_worst",
                         ("4,096 at once, block(256, 64)", runs))
    # To make an order must cost the same for any n, else a large data set would start late. The
    # ratio of the largest to the smallest n shows a cost that grows.
    start_up = {size: value[1] for (name, size), value in found.items() if name == "StartUp"}
    large = [size for size in start_up if size > 512]  # below: another number of rounds
    unit, goal = ORDER_GOALS["spine.order.start_up_growth"]
    sheet.add(from_runs("spine.order.start_up_growth", unit,
                        [start_up[max(large)] / start_up[min(large)]], goal=goal,
                        settings=f"n={min(large)} to n={max(large)}"))


def _add_worst_order(sheet, found, function, figure_id, how):
    """`found` of parse_order_benchmark; `how`: (settings, runs)."""
    rates = {size: value[0] for (name, size), value in found.items() if name == function}
    if not rates:
        raise processes.RunFailed(f"order_bench has no BM_{function} for {figure_id}")
    # The goal is for the worst size, because a user cannot choose the size of a data set.
    worst = min(rates, key=rates.get)
    settings, runs = how
    unit, goal = ORDER_GOALS[figure_id]
    sheet.add(Figure(figure_id, unit, rates[worst], rates[worst], max(rates.values()), runs, goal,
                     settings=f"{settings}; worst n={worst}", note="the range is over sizes n"))


def parse_benchmark(report):
    """Google Benchmark's JSON of repeated runs -> {name: [entry of each run]}."""
    found = {}
    for entry in report["benchmarks"]:
        # Single runs and not Google Benchmark's own medians, so that the range is known.
        if entry.get("run_type") == "iteration" and not entry.get("error_occurred"):
            name = entry.get("run_name", entry["name"])
            found.setdefault(name, []).append(entry)
    return found


def micro(sheet, binaries, runs):
    """Single functions, each beside the physical limit that it is read against."""
    found = {}
    for program in ("arena_bench", "checksum_bench", "ring_bench"):
        found[program] = parse_benchmark(json.loads(processes.run_text(
            [binaries.find(program), "--benchmark_format=json", "--benchmark_min_time=0.1",
             f"--benchmark_repetitions={runs}"])))
    for figure_id, (unit, program, name, counter, scale) in MICRO_FIGURES.items():
        values = [entry[counter] * scale for entry in found[program].get(name, [])]
        if not values:
            continue  # reported as not measured: no io_uring on this machine, say
        sheet.add(from_runs(figure_id, unit, values, settings=f"{program} {name}",
                            note=_limit_note(figure_id, values, found)))


def _limit_note(figure_id, values, found):
    """How a figure stands to its physical limit in this run."""
    limit = MICRO_LIMITS.get(figure_id)
    if limit is None:
        return ""
    _, program, name, counter, scale = MICRO_FIGURES["spine.micro." + limit]
    limits = [entry[counter] * scale for entry in found[program].get(name, [])]
    if not limits:
        return f"{limit} was not measured"
    # The limit was measured in the same run as the figure, because on another day the machine may
    # have another speed.
    return f"{statistics.median(values) / statistics.median(limits):.2f} of {limit}"


def _last_number(pattern, text):
    found = re.findall(pattern, text, re.IGNORECASE)
    return float(found[-1]) if found else None


def _run_quickstart(script, group):
    """Seconds, and what it printed."""
    environment = dict(os.environ)
    if group is not None:
        environment["FOREBAY_DAEMON_CGROUP"] = str(group.folder)
    # The whole script is timed, as a user waits for it.
    begin = time.monotonic()
    text = processes.run_text(["bash", script], timeout_s=3600, environment=environment)
    return time.monotonic() - begin, text


def daemon_limits(log_text):
    """Bytes of memory that a daemon was configured to take, from what it logs at its start."""
    # The limits come from the log and not from the configuration, because the daemon computes
    # shares of the machine's memory.
    found = re.search(r"\(ram (\d+) MiB, slots (\d+) MiB", log_text)
    if found is None:
        raise processes.RunFailed("the daemon's log does not say what it was configured to take")
    return (int(found[1]) + int(found[2])) << 20


def _memory_figure(sheet, group, log):
    """The peak of the daemon's cgroup over both runs."""
    limit_bytes = daemon_limits(log.read_text(encoding="utf-8"))
    # The cgroup counts shared memory and page cache too, which the process's own numbers do not.
    peak_bytes = group.peak_bytes()
    if peak_bytes == 0:
        raise processes.RunFailed("the daemon was not in its cgroup")
    unit, goal = QUICKSTART_GOALS["spine.quickstart.memory_over_limits"]
    sheet.add(from_runs("spine.quickstart.memory_over_limits", unit,
                        [max(0, peak_bytes - limit_bytes) / 1e6], goal=goal,
                        settings=f"limits={limit_bytes / 1e6:.0f} MB; peak of the daemon's "
                        f"cgroup={peak_bytes / 1e6:.0f} MB, shared memory included"))


def quickstart(sheet, repository=REPOSITORY, make_group=MemoryGroup):
    """Twice: as this machine finds it, and again. The daemon runs in a cgroup of its own where
    one can be made; else only the figure of its memory is missing."""
    script = repository / "deploy" / "quickstart.sh"
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(make_group())
        except processes.Missing as reason:
            group, no_group = None, str(reason)
        for name in ("first", "again"):
            seconds, output = _run_quickstart(script, group)
            unit, goal = QUICKSTART_GOALS[f"spine.quickstart.{name}_s"]
            sheet.add(from_runs(f"spine.quickstart.{name}_s", unit, [seconds], goal=goal,
                                note="bare only on a machine without the packages"
                                if name == "first" else ""))
        for figure_id, pattern in (
                ("spine.quickstart.accuracy", r"accuracy\D{0,20}?(0\.\d+|1\.0+)"),
                ("spine.quickstart.stall", r"stall\D{0,20}?(\d+(?:\.\d+)?) ?%")):
            value = _last_number(pattern, output)
            if value is None:
                raise processes.RunFailed(f"quickstart printed nothing for {figure_id}")
            unit, goal = QUICKSTART_GOALS[figure_id]
            sheet.add(from_runs(figure_id, unit, [value], goal=goal))
        if group is None:
            raise processes.Missing(no_group)
        place = (os.environ.get("FOREBAY_QUICKSTART_DIR")
                 or repository / "build" / "quickstart")
        _memory_figure(sheet, group, pathlib.Path(place) / "log" / "forebayd.log")
