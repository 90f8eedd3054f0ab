"""Rows of suite `spine` that run one program and read what it prints."""

import json
import pathlib
import re
import subprocess
import time

from harness import processes
from harness.figures import Figure, Goal, from_runs

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent

ORDER_GOALS = {
    "spine.order.forward_worst": ("orders/s", Goal(20e6)),
    "spine.order.inverse_worst": ("orders/s", Goal(20e6)),
    "spine.order.start_up_growth": ("x", Goal(1.5, at_least=False)),
}
QUICKSTART_GOALS = {
    "spine.quickstart.first_s": ("s", Goal(900, at_least=False)),
    "spine.quickstart.again_s": ("s", Goal(60, at_least=False)),
    "spine.quickstart.accuracy": ("share", Goal(0.90)),
    "spine.quickstart.stall": ("%", Goal(2, at_least=False)),
}
ORDER_SIZE_MAX = 1 << 34


def parse_order_benchmark(report):
    """Google Benchmark's JSON -> {(function, n): (orders per second, ns per call)}, of mode
    global and n <= 2^34; medians where runs were repeated."""
    found = {}
    for entry in report["benchmarks"]:
        name = re.fullmatch(r"BM_(\w+)/n:(\d+)/block:0(?:_median)?", entry["name"])
        if name is None or (entry.get("run_type") == "aggregate"
                            and entry.get("aggregate_name") != "median"):
            continue
        size = int(name[2])
        if size <= ORDER_SIZE_MAX:
            found[name[1], size] = (entry.get("items_per_second", 0.0), entry["real_time"])
    return found


def order(sheet, binaries, runs):
    done = subprocess.run(
        [binaries.find("order_bench"), "--benchmark_format=json",
         "--benchmark_filter=BM_(Forward|Inverse|StartUp)/", "--benchmark_min_time=0.1",
         f"--benchmark_repetitions={runs}", "--benchmark_report_aggregates_only=true"],
        capture_output=True, text=True, check=False, timeout=processes.RUN_TIMEOUT_S)
    if done.returncode != 0:
        raise processes.RunFailed("order_bench: " + done.stderr.strip()[-300:])
    found = parse_order_benchmark(json.loads(done.stdout))
    for function in ("Forward", "Inverse"):
        rates = {size: value[0] for (name, size), value in found.items() if name == function}
        if not rates:
            raise processes.RunFailed(f"order_bench has no BM_{function}")
        worst = min(rates, key=rates.get)
        figure_id = f"spine.order.{function.lower()}_worst"
        unit, goal = ORDER_GOALS[figure_id]
        sheet.add(Figure(figure_id, unit, rates[worst], rates[worst], max(rates.values()), runs,
                         goal, settings=f"single calls, global; worst n={worst}",
                         note="the range is over sizes n"))
    start_up = {size: value[1] for (name, size), value in found.items() if name == "StartUp"}
    large = [size for size in start_up if size > 512]  # below: another number of rounds
    unit, goal = ORDER_GOALS["spine.order.start_up_growth"]
    sheet.add(from_runs("spine.order.start_up_growth", unit,
                        [start_up[max(large)] / start_up[min(large)]], goal=goal,
                        settings=f"n={min(large)} to n={max(large)}"))


def _last_number(pattern, text):
    found = re.findall(pattern, text, re.IGNORECASE)
    return float(found[-1]) if found else None


def quickstart(sheet):
    """Twice: as this machine finds it, and again."""
    script = REPOSITORY / "deploy" / "quickstart.sh"
    for name in ("first", "again"):
        begin = time.monotonic()
        done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False,
                              timeout=3600, stdin=subprocess.DEVNULL)
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            raise processes.RunFailed("quickstart: " + done.stderr.strip()[-300:])
        unit, goal = QUICKSTART_GOALS[f"spine.quickstart.{name}_s"]
        sheet.add(from_runs(f"spine.quickstart.{name}_s", unit, [seconds], goal=goal,
                            note="bare only on a machine without the packages"
                            if name == "first" else ""))
    for figure_id, pattern in (
            ("spine.quickstart.accuracy", r"accuracy\D{0,20}?(0\.\d+|1\.0+)"),
            ("spine.quickstart.stall", r"stall\D{0,20}?(\d+(?:\.\d+)?) ?%")):
        value = _last_number(pattern, done.stdout)
        if value is None:
            raise processes.RunFailed(f"quickstart printed nothing for {figure_id}")
        unit, goal = QUICKSTART_GOALS[figure_id]
        sheet.add(from_runs(figure_id, unit, [value], goal=goal))
