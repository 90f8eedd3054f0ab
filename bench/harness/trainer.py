"""Suite `trainer`: forebay-train's layouts on two CPU cores, one intra-op thread a rank."""

import functools
import pathlib
import statistics

from harness import (processes, report, rows, trainer_accuracy, trainer_comm, trainer_feed,
                     trainer_memory, trainer_reproduction, trainer_shuffle)
from harness.figures import Goal, from_runs, interleave, ratios

ALONE = ()
PIPE = ("--stages", "2")
LAYOUTS = {
    "single": (1, ALONE),
    "pp2_1f1b": (2, PIPE),
    "pp2_gpipe": (2, (*PIPE, "--schedule", "gpipe")),
    "dp2": (2, ("--replicas", "2")),
}
ONLY_CORRECT = {"dp2_pp2": (4, ("--replicas", "2", *PIPE))}  # four ranks on two cores: not timed
# A U-Net of 15 parts: the skip of the first level, from part 1 to part 12, bypasses the middle.
SKIPS = ("--task", "unet3d", "--micro-batches", "4", "--steps", "2")
SKIP_LAYOUTS = {"single": (1, SKIPS)}
for _schedule in ("1f1b", "gpipe"):
    SKIP_LAYOUTS[_schedule] = (3, (*SKIPS, "--stages", "3", "--split", "0,2,12",
                                   "--schedule", _schedule))
PREDICTED = {name: (ranks, (*words, "--profiles", "3"))
             for name, (ranks, words) in LAYOUTS.items() if ranks > 1}
# Open MPI as root, and with more ranks than cores; other MPIs ignore these.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
           "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
AT_MOST = {"at_least": False}
KILL_CYCLES = 50
QUICK_KILL_CYCLES = 3
# Each run of train_kill_cycles.py, two more than cycles, has a limit of its own (RUN_LIMIT_S) and
# is named where it reaches it, so the limit of the whole lies beyond all of them.
KILL_RUN_LIMIT_S = 330

# Row -> figure id -> (unit, goal).
GOALS = {
    "digest": {"trainer.c1.digest": ("digests", Goal(1, **AT_MOST))},
    "pipeline": {"trainer.c3.pp2_speedup": ("x", Goal(1.60))},
    "skips": {"trainer.c2.gradients": ("digests", Goal(1, **AT_MOST))},
    "simulator": {f"trainer.c4.{what}_error.{name}": ("%", Goal(bound, **AT_MOST))
                  for what, bound in (("step", 10), ("peak", 5)) for name in PREDICTED},
    "checker": {
        "trainer.c7.passed_bad_plans": ("plans", Goal(0, **AT_MOST)),
        "trainer.c7.plans_run": ("plans", Goal(1000)),
    },
    "messages": {"trainer.c6.message_p50": ("ms", Goal(0.2, **AT_MOST))},
    "feed": trainer_feed.GOALS,
    "reproduction": trainer_reproduction.GOALS,
}


def step_error(report):
    """Of the medians, in %: positive where the step is shorter than foreseen."""
    measured = statistics.median(report["step_s"])
    return 100 * (statistics.median(report["predicted_s"]) / measured - 1)


def peak_error(report):
    """Of the rank with the most bytes, in %."""
    # The fullest rank decides whether a plan fits.
    measured, predicted = max(zip(report["peak_bytes"], report["predicted_peak_bytes"]))
    return 100 * abs(predicted / measured - 1)


class Trainer:
    def __init__(self, sheet, binaries, _data_folder, quick):
        self.sheet = sheet
        self.binaries = binaries
        self.quick = quick
        # Odd, so that the median is a run.
        self.rounds = 3 if quick else 7
        self.cycles = QUICK_KILL_CYCLES if quick else KILL_CYCLES
        self._runs = None
        self.curves = {}  # row -> SVG, of reproduction and shuffle
        self.memory = trainer_memory.MemoryRows(self.launch_memory, self.add, self.inform, quick)

    def rows(self):
        methods = {"digest": self.digest, "skips": self.skips, "pipeline": self.pipeline,
                   "simulator": self.simulator, "messages": self.messages,
                   "checker": self.checker, "kills": self.kills, "feed": self.feed,
                   "reproduction": self.reproduction}
        # All cycles that are asked for must be survived, and a quick run asks for fewer.
        goals = {**GOALS, "kills": {"trainer.c11.kills_survived": ("cycles", Goal(self.cycles))}}
        own = {name: (method, goals[name]) for name, method in methods.items()}
        accuracy = trainer_accuracy.Accuracy(self.sheet, self.binaries, THREADS)
        own["shuffle"] = (self.shuffle, {})
        return {**own, **trainer_comm.rows(self), **self.memory.rows(), **accuracy.rows()}

    def run(self, only=""):
        rows.run_rows(self.rows(), self.sheet, only)

    def launch_memory(self, words):
        return self.start(1, [trainer_memory.PROGRAM, *words])

    def launch(self, ranks, words):
        return self.start(ranks, ["forebay_trainer_bench", *words])

    def start(self, ranks, words):
        """Runs a program of ours, its name first, below mpirun where there are several ranks."""
        command = [self.binaries.find(words[0]), *words[1:]]
        if ranks > 1:
            command = ["mpirun", "-np", ranks, *command]
        return processes.run_json(["env", *self.environment(), *command])

    @staticmethod
    def environment():
        return [f"{key}={value}" for key, value in THREADS.items()]

    @property
    def runs(self):
        """Layout -> reports of interleaved runs."""
        # Several rows judge the same runs, which therefore are made once.
        if self._runs is None:
            self._runs = self.interleaved(LAYOUTS)
        return self._runs

    def interleaved(self, layouts):
        return interleave(self.rounds, {
            name: lambda _round, ranks=ranks, words=words: self.launch(ranks, words)
            for name, (ranks, words) in layouts.items()})

    def seconds(self, name):
        return [statistics.median(report["step_s"]) for report in self.runs[name]]

    def add(self, row, figure_id, values, **fields):
        unit, goal = self.rows()[row][1][figure_id]
        self.sheet.add(from_runs(figure_id, unit, values, goal=goal, **fields))

    def inform(self, figure_id, unit, values, **fields):
        self.sheet.add(from_runs(figure_id, unit, values, **fields))

    def digest(self):
        # One digest over all layouts and all runs: a single weight that differs in one bit gives
        # two. This is what the trainer promises, so nothing is averaged or compared within a
        # tolerance.
        digests = {report["digest"] for reports in self.runs.values() for report in reports}
        for ranks, words in ONLY_CORRECT.values():
            digests.add(self.launch(ranks, words)["digest"])
        self.add("digest", "trainer.c1.digest", [len(digests)],
                 note=f"different weights after 10 steps of {len(self.runs) + 1} layouts over "
                 "MPI; layout_identity_test has switches, recomputation and four models")

    def skips(self):
        runs = {name: self.launch(*case) for name, case in SKIP_LAYOUTS.items()}
        found = {(report["gradients"], report["digest"]) for report in runs.values()}
        self.add("skips", "trainer.c2.gradients", [len(found)],
                 note=f"of the first step's gradients and the last weights: {len(runs) - 1} "
                 f"schedules on three stages, and one rank; {runs['1f1b']['model']}")

    def checker(self):
        report = self.start(1, ["forebay_plan_bench"])
        # Plans that were damaged on purpose: the checker must refuse all of them, and run the
        # others.
        self.add("checker", "trainer.c7.passed_bad_plans", [report["bad"] - report["refused"]],
                 note=f"of {report['bad']} with {len(report['kinds'])} kinds of damage")
        self.add("checker", "trainer.c7.plans_run", [report["ran"]],
                 note=f"of {report['valid']} random ones, with the sums of one process")

    def pipeline(self):
        # Ratios within a round, because two ranks on a shared host lose time together.
        single = self.seconds("single")
        self.add("pipeline", "trainer.c3.pp2_speedup", ratios(single, self.seconds("pp2_1f1b")),
                 note="8 micro-batches, two equal stages, 1F1B; ideal 1.78")
        for name in ("pp2_gpipe", "dp2"):
            self.sheet.add(from_runs(f"trainer.speedup.{name}", "x",
                                     ratios(single, self.seconds(name))))
        # What the host takes from any two processes is in both.
        self.sheet.add(from_runs("trainer.speedup.pp2_of_dp2", "x",
                                 ratios(self.seconds("dp2"), self.seconds("pp2_1f1b")),
                                 note="two stages against two replicas, which have no bubble; "
                                 "ideal 0.89"))

    def simulator(self):
        for name, reports in self.interleaved(PREDICTED).items():
            # Predicted before the step and from profiles of single parts, so the simulator cannot
            # have seen what it predicts.
            errors = [step_error(report) for report in reports]
            self.add("simulator", f"trainer.c4.step_error.{name}",
                     [abs(error) for error in errors],
                     note="from three profiles of single parts in the same process; "
                     f"{statistics.median(errors):+.1f} % with its sign")
            self.add("simulator", f"trainer.c4.peak_error.{name}",
                     [peak_error(report) for report in reports],
                     note="of the fullest rank, beside what is resident")

    def messages(self):
        times = [report["message_ns"]["262144"] / 1e6 for report in self.runs["pp2_1f1b"]]
        self.add("messages", "trainer.c6.message_p50", times,
                 note="256 KiB between two ranks, half a round trip, nothing else under way")

    def kill_cycles(self, cycles):
        program = (pathlib.Path(__file__).parents[2] / "tests" / "integration"
                   / "train_kill_cycles.py")
        return processes.run_json(["python3", program, self.binaries.find("forebay-train"),
                                   self.binaries.find("forebayd"), "--cycles", cycles,
                                   "--augment"],
                                  timeout_s=KILL_RUN_LIMIT_S * (cycles + 2))

    def kills(self):
        """Fails where the digest is another one, or anything is left of what was killed."""
        report = self.kill_cycles(self.cycles)
        self.add("kills", "trainer.c11.kills_survived", [report["cycles"]],
                 note=f"SIGKILL of any rank at a random step, resumed on another layout; digest "
                 f"{report['digest']} as undisturbed, nothing left; seed {report['seed']}")

    def feed(self):
        trainer_feed.FeedRow(self.sheet, self.binaries, THREADS, self.rounds).run()

    def reproduction(self):
        row = trainer_reproduction.Reproduction(functools.partial(self.add, "reproduction"),
                                                self.inform, self.binaries, THREADS)
        row.run()
        self.curves["reproduction"] = row.curves

    def shuffle(self):
        row = trainer_shuffle.Shuffle(self.inform, self.binaries, THREADS, self.quick)
        row.run()
        self.curves["shuffle"] = row.curves

    def extras(self):
        """The bars that every suite has, and curves where their row has run."""
        if not self.curves:
            return {}, []
        bars = report.charts({"figures": [figure.to_json() for figure in self.sheet.figures]})
        return {**bars, **self.curves}, []
