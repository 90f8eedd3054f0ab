"""The trainer suite over made-up reports: its figures, and how they are judged."""

import functools
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from harness import (figures, processes, rows, trainer, trainer_accuracy, trainer_comm,
                     trainer_feed, trainer_memory, trainer_reproduction, trainer_shuffle)


def report(step_s, digest="1234", predicted_s=None, message_ns=50_000, peaks=((10, 10), (4, 4))):
    return {"step_s": [step_s] * 3, "digest": digest, "gradients": digest, "model": "tiny",
            "predicted_s": [step_s if predicted_s is None else predicted_s] * 3,
            "peak_bytes": [measured for measured, _ in peaks],
            "predicted_peak_bytes": [predicted for _, predicted in peaks],
            "message_ns": {"262144": message_ns}}


def way(step_s, peak=100, predicted=100, digest="1", plan=""):
    return {"step_s": [step_s] * 3, "predicted_s": step_s, "peak_bytes": peak,
            "predicted_peak_bytes": predicted, "gradients": digest, "digest": digest,
            "plan": plan or str(step_s)}


def memory_report(budget=50, **ways):
    return {"model": "tiny", "samples": 2, "micro_batches": 2, "budget_bytes": budget,
            "unfit": {name: "too small" for name in ("swap", "recompute", "mixed")
                      if name not in ways},
            "ways": {"keep": way(1.0), **ways}}


class SuiteTest(unittest.TestCase):
    def run_suite(self, reports, only=""):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)

        def launch(ranks, words):
            known = {**trainer.LAYOUTS, **trainer.ONLY_CORRECT,
                     **{f"predicted_{name}": case for name, case in trainer.PREDICTED.items()},
                     **{f"skips_{name}": case for name, case in trainer.SKIP_LAYOUTS.items()}}
            name = next(name for name, case in known.items() if case == (ranks, words))
            return reports.get(name, report(1.0))
        suite.launch = launch
        suite.run(only)
        return {figure.id: figure for figure in suite.sheet.figures}

    def test_one_digest_is_asked_for(self):
        self.assertTrue(self.run_suite({}, "digest")["trainer.c1.digest"].met)
        other = self.run_suite({"dp2_pp2": report(1.0, digest="5678")}, "digest")
        self.assertIs(other["trainer.c1.digest"].met, False)
        self.assertEqual(other["trainer.c1.digest"].value, 2)

    def test_a_pipeline_is_held_against_one_process(self):
        sheet = self.run_suite({"single": report(1.7), "pp2_1f1b": report(1.0)}, "pipeline")
        self.assertAlmostEqual(sheet["trainer.c3.pp2_speedup"].value, 1.7)
        self.assertTrue(sheet["trainer.c3.pp2_speedup"].met)
        self.assertAlmostEqual(sheet["trainer.speedup.dp2"].value, 1.7)
        self.assertAlmostEqual(sheet["trainer.speedup.pp2_of_dp2"].value, 1.0)
        slow = self.run_suite({"single": report(1.5), "pp2_1f1b": report(1.0)}, "pipeline")
        self.assertIs(slow["trainer.c3.pp2_speedup"].met, False)

    def test_predictions_may_err_by_a_tenth(self):
        sheet = self.run_suite({"predicted_pp2_1f1b": report(1.0, predicted_s=1.09),
                                "predicted_dp2": report(1.0, predicted_s=0.8)}, "simulator")
        self.assertTrue(sheet["trainer.c4.step_error.pp2_1f1b"].met)
        self.assertIs(sheet["trainer.c4.step_error.dp2"].met, False)

    def test_the_fullest_rank_s_bytes_may_be_off_by_a_twentieth(self):
        sheet = self.run_suite({"predicted_dp2": report(1.0, peaks=((100, 96), (10, 20))),
                                "predicted_pp2_gpipe": report(
                                    1.0, peaks=((10, 10), (100, 106)))},
                               "simulator")
        self.assertTrue(sheet["trainer.c4.peak_error.dp2"].met)
        self.assertIs(sheet["trainer.c4.peak_error.pp2_gpipe"].met, False)

    def test_gradients_are_those_of_one_rank(self):
        self.assertTrue(self.run_suite({}, "skips")["trainer.c2.gradients"].met)
        other = self.run_suite({"skips_gpipe": report(1.0, digest="5678")}, "skips")
        self.assertIs(other["trainer.c2.gradients"].met, False)

    def test_messages_are_judged_in_milliseconds(self):
        sheet = self.run_suite({"pp2_1f1b": report(1.0, message_ns=250_000)}, "messages")
        self.assertIs(sheet["trainer.c6.message_p50"].met, False)

    def run_plans(self, times):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)
        suite.start = lambda _ranks, _words: {"chosen": "512K", "phase_ms": times,
                                              "message_ms": 0.1}
        suite.run("plan")
        return {figure.id: figure for figure in suite.sheet.figures}

    def test_the_chosen_plan_is_held_against_the_sweep(self):
        sheet = self.run_plans({"256K": 40.0, "512K": 43.0, "16K": 120.0})
        self.assertAlmostEqual(sheet["trainer.c6.chosen_over_best"].value, 43 / 40)
        self.assertTrue(sheet["trainer.c6.chosen_over_best"].met)
        self.assertAlmostEqual(sheet["trainer.c6.worst_over_chosen"].value, 120 / 43)
        bad = self.run_plans({"256K": 30.0, "512K": 43.0, "16K": 80.0})
        self.assertIs(bad["trainer.c6.chosen_over_best"].met, False)
        self.assertIs(bad["trainer.c6.worst_over_chosen"].met, False)

    def test_the_chosen_size_is_also_held_against_sizes_alone(self):
        sheet = self.run_plans({"256K": 40.0, "512K": 43.0, "1024K x1": 30.0})
        self.assertAlmostEqual(sheet["trainer.c6.chosen_over_best"].value, 43 / 30)
        self.assertAlmostEqual(sheet["trainer.c6.chosen_over_best_size"].value, 43 / 40)
        self.assertIsNone(sheet["trainer.c6.chosen_over_best_size"].met)

    def test_all_kills_that_are_asked_for_are_survived(self):
        for quick, cycles in ((False, 50), (True, 3)):
            for lost in (0, 1):
                suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, quick)
                suite.kill_cycles = lambda asked, lost=lost: {"cycles": asked - lost,
                                                              "digest": "12", "seed": 1}
                suite.run("kills")
                figure = suite.sheet.figures[0]
                self.assertEqual(figure.value, cycles - lost)
                self.assertIs(figure.met, lost == 0)

    def run_checker(self, **counts):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)
        suite.start = lambda _ranks, _words: {"bad": 30, "refused": 30, "kinds": {"a": [30, 30]},
                                              "valid": 1000, "ran": 1000, **counts}
        suite.run("checker")
        return {figure.id: figure for figure in suite.sheet.figures}

    def test_no_bad_plan_may_pass_and_no_good_one_hang(self):
        self.assertFalse([figure for figure in self.run_checker().values() if figure.failed])
        passed = self.run_checker(refused=29)["trainer.c7.passed_bad_plans"]
        self.assertEqual(passed.value, 1)
        self.assertIs(passed.met, False)
        self.assertIs(self.run_checker(ran=999)["trainer.c7.plans_run"].met, False)

    def test_a_data_parallel_step_is_held_against_ddp(self):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)
        suite.start = lambda _ranks, words: report(0.99 if "--fast" in words else 1.2)
        with mock.patch.object(trainer_comm, "peer",
                               lambda _suite, _shape: {"step_s": [1.0], "torch": "1.13"}):
            suite.run("ddp")
        sheet = {figure.id: figure for figure in suite.sheet.figures}
        self.assertTrue(sheet["trainer.c5.fast_over_ddp.m8"].met)
        self.assertIs(sheet["trainer.c5.exact_over_ddp.m2"].met, False)

    def test_some_rows_are_chosen(self):
        known = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True).rows()
        self.assertEqual(rows.chosen(known, ""), list(known))
        self.assertEqual(rows.chosen(known, "digest,ddp"), ["digest", "ddp_m8", "ddp_m2"])
        self.assertEqual(rows.chosen(known, "no such row"), [])

    def test_a_row_that_fails_fails_its_figures(self):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)

        def launch(_ranks, _words):
            raise processes.RunFailed("mpirun: exit 1")
        suite.launch = launch
        suite.run("pipeline")
        self.assertIn("exit 1", suite.sheet.figures[0].note)
        self.assertEqual(len(suite.sheet.failed), 1)


class AccuracyTest(unittest.TestCase):
    def judge(self, accuracy, digests=("12", "12")):
        sheet = figures.Sheet(echo=lambda _line: None)
        row = trainer_accuracy.Accuracy(sheet, None, {})
        row.judge("vit", {layout: {"test_accuracy": accuracy, "weights_digest": digest,
                                   "loop_s": 60.0}
                          for layout, digest in zip(trainer_accuracy.LAYOUTS, digests)})
        return {figure.id: figure for figure in sheet.figures}

    def test_accuracy_and_digest_are_judged(self):
        figure = self.judge(0.86)["trainer.c13.accuracy.vit"]
        self.assertTrue(figure.met)
        self.assertIn("hybrid 60 s", figure.note)
        self.assertIs(self.judge(0.84)["trainer.c13.accuracy.vit"].met, False)
        other = self.judge(0.86, ("12", "13"))["trainer.c13.digests.vit"]
        self.assertIs(other.met, False)

    def test_every_model_has_a_row(self):
        known = trainer_accuracy.Accuracy(figures.Sheet(echo=lambda _line: None), None, {}).rows()
        self.assertEqual(set(known), {f"accuracy_{name}" for name in trainer_accuracy.MODELS})
        for row, (_, goals) in known.items():
            self.assertEqual({name.rsplit(".", 1)[1] for name in goals}, {row.split("_")[1]})


class FeedTest(unittest.TestCase):
    def judge(self, *rounds):
        sheet = figures.Sheet(echo=lambda _line: None)
        trainer_feed.FeedRow(sheet, None, {}, len(rounds)).judge(rounds)
        return {figure.id: figure for figure in sheet.figures}

    def test_the_feed_is_judged_by_its_steps(self):
        step = {"event": "step", "step_ns": 10_000_000, "wait_data_ns": 3000, "feed_ns": 1000}
        waits = {**step, "wait_data_ns": 900_000}
        sheet = self.judge([step, step, step, waits])
        self.assertAlmostEqual(sheet["trainer.c12.feed_overhead"].value, 4)
        self.assertTrue(sheet["trainer.c12.feed_overhead"].met)
        self.assertAlmostEqual(sheet["trainer.c12.wait_data"].value, 100 * 909_000 / 40_000_000)
        self.assertIs(sheet["trainer.c12.wait_data"].met, False)

    def test_the_first_steps_of_a_feed_do_not_count(self):
        with tempfile.TemporaryDirectory() as name:
            lines = [{"event": "layout"}] + [{"event": "step", "step_ns": at} for at in range(7)]
            path = pathlib.Path(name) / "rank-00000.jsonl"
            path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
            self.assertEqual([step["step_ns"] for step in trainer_feed.read_steps(path.parent)],
                             [4, 5, 6])
            path.write_text("\n".join(map(json.dumps, lines[:4])), encoding="utf-8")
            with self.assertRaises(processes.RunFailed):
                trainer_feed.read_steps(path.parent)


class ReproductionTest(unittest.TestCase):
    def test_curves_are_noted_and_exact_digests_judged(self):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)
        row = trainer_reproduction.Reproduction(functools.partial(suite.add, "reproduction"),
                                                suite.inform, None, {})
        row.judge({run: {"test_accuracy": 0.8, "weights_digest": run[:5],
                         "evaluations": [{"accuracy": 0.7}, {"accuracy": 0.8}]}
                   for run in trainer_reproduction.RUNS})
        found = {figure.id: figure for figure in suite.sheet.figures}
        self.assertIn("0.700 0.800", found["trainer.reproduction.accuracy.switched"].note)
        self.assertTrue(found["trainer.reproduction.exact_digests"].met)
        self.assertEqual(suite.extras(), ({}, []))
        suite.curves["reproduction"] = "<svg/>"
        self.assertEqual(suite.extras()[0]["reproduction"], "<svg/>")


class ShuffleTest(unittest.TestCase):
    def test_a_part_of_each_class_is_stored_class_by_class(self):
        count = trainer_shuffle.PER_CLASS + 1
        labels = bytes(label for _ in range(count) for label in range(9, -1, -1))
        images = b"".join(bytes([label]) * trainer_shuffle.IMAGE_BYTES for label in labels)
        pixels, classes = trainer_shuffle.sort_by_class(b"i" * 16 + images, b"l" * 8 + labels)
        self.assertEqual(classes[8:], bytes(label for label in range(10)
                                            for _ in range(trainer_shuffle.PER_CLASS)))
        self.assertEqual(pixels[16::trainer_shuffle.IMAGE_BYTES], classes[8:])
        for header in (pixels, classes):
            self.assertEqual(int.from_bytes(header[4:8], "big"), trainer_shuffle.SAMPLES)

    def test_each_mode_has_a_figure_with_its_prediction_and_a_place_in_the_plot(self):
        suite = trainer.Trainer(figures.Sheet(echo=lambda _line: None), None, None, True)
        row = trainer_shuffle.Shuffle(suite.inform, None, {}, False)
        said = {"batch_entropy_loss": 0.137, "part_entropy_loss": 0.5, "link_bytes": 2e6}
        row.judge({mode: [0.5, 0.7] for mode in trainer_shuffle.MODES},
                  {mode: said for mode in trainer_shuffle.MODES})
        found = {figure.id: figure for figure in suite.sheet.figures}
        self.assertEqual(len(found), len(trainer_shuffle.MODES))
        self.assertIn("loses 13.7 %", found["trainer.shuffle.block_500_4"].note)
        shown = sum(trainer_shuffle.x_of(mode) is not None for mode in trainer_shuffle.MODES)
        # Each is in its own panel and in that of predictions, with a dot for each of two seeds.
        self.assertEqual(row.curves.count("<circle"), shown * 2 * 2)


class MemoryTest(unittest.TestCase):
    def run_row(self, row, reports):
        sheet = figures.Sheet(echo=lambda _line: None)
        suite = trainer.Trainer(sheet, None, None, True)
        suite.memory.launch = lambda words: reports[words[1]]
        suite.run(row)
        return {figure.id: figure for figure in sheet.figures}

    def test_a_swap_is_held_against_keeping_all(self):
        task = trainer_memory.SWAP_TASK[1]
        sheet = self.run_row("swap", {task: memory_report(swap=way(1.2, peak=39))})
        self.assertAlmostEqual(sheet["trainer.c8.saved"].value, 61)
        self.assertAlmostEqual(sheet["trainer.c8.extra_time"].value, 20)
        self.assertFalse([figure.id for figure in sheet.values() if figure.failed])
        worse = self.run_row("swap", {task: memory_report(
            swap=way(1.3, peak=50, digest="2"))})
        self.assertEqual(sum(figure.failed for figure in worse.values()), 3)

    def mixed(self, **ways):
        return self.run_row("mixed", {task: memory_report(**ways)
                                      for task in trainer_memory.MIXED})

    def test_a_mixture_beats_both(self):
        sheet = self.mixed(swap=way(1.4), recompute=way(1.3), mixed=way(1.1, peak=50.5))
        self.assertTrue(sheet["trainer.c10.over_budget.vit"].met)
        self.assertEqual(sheet["trainer.c10.faster"].value, 4)
        self.assertEqual(sheet["trainer.c10.slower"].value, 0)
        self.assertAlmostEqual(sheet["trainer.c10.gain.vit"].value, 1.3 / 1.1)

    def test_a_mixture_that_is_a_pure_way_is_neither_slower_nor_faster(self):
        sheet = self.mixed(swap=way(1.4), recompute=way(1.3, plan="a"),
                           mixed=way(1.31, peak=60, plan="a"))
        self.assertEqual(sheet["trainer.c10.slower"].value, 0)
        self.assertIs(sheet["trainer.c10.faster"].met, False)
        self.assertIs(sheet["trainer.c10.over_budget.vit"].met, False)

    def test_a_way_that_no_plan_fits_is_left_out(self):
        sheet = self.mixed(recompute=way(1.3), mixed=way(1.35))
        self.assertEqual(sheet["trainer.c10.slower"].value, 4)
        self.assertIn("swap alone does not fit", sheet["trainer.c10.over_budget.vit"].note)

    def test_a_budget_that_nothing_fits_fails_the_row(self):
        task = trainer_memory.SWAP_TASK[1]
        sheet = self.run_row("swap", {task: memory_report()})
        self.assertIn("too small", sheet["trainer.c8.saved"].note)
        self.assertTrue(all(figure.failed for figure in sheet.values()))


if __name__ == "__main__":
    unittest.main()
