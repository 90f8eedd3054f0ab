"""The gpu suite over made-up reports: its figures, and how they are judged; what bench/gpu/run.sh
says where there is no GPU."""

import os
import pathlib
import subprocess
import unittest

from harness import figures, gpu, processes

RUN = pathlib.Path(__file__).parents[1] / "gpu" / "run.sh"
OUT_OF_MEMORY = processes.RunFailed("forebay_gpu_bench: exit 1: CUDA out of memory.")


def run_script(*words, python="false"):
    return subprocess.run(["bash", str(RUN), *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "FOREBAY_BENCH_PYTHON": python})


class GpuTest(unittest.TestCase):
    def run_suite(self, only="", failed=0, cubes=(128, 192), **reports):
        """`reports`: row_label -> what replaces fields of that run's report."""
        suite = gpu.Gpu(figures.Sheet(echo=lambda _line: None), None, None, True)
        keep, planned = cubes

        def report(row, label, SIDE=0):
            if SIDE > {"keep": keep, "planned": planned}.get(label, SIDE):
                raise OUT_OF_MEMORY
            made = {"step_s": [0.1] * 3, "step_samples": 64, "predicted_s": 0.105,
                    "peak_bytes": 100, "predicted_peak_bytes": 98, "swapped_bytes": 3e9,
                    "plain_gb_s": [50.0, 50.0], "swap_gb_s": [50.0, 50.0],
                    "gpu": "g", "torch": "2"}
            if SIDE:
                made["step_s"] = [1e-8 * SIDE ** 3]
            return {**made, **reports.get(f"{row}_{label}".replace(".", "_"), {})}
        suite.report = report
        suite.tests_on_gpu = lambda: (failed, "a layout differs" if failed else "")
        suite.fed_steps = lambda: [{"step_ns": 25e6}] * 3
        suite.run(only)
        return {figure.id: figure for figure in suite.sheet.figures}

    def test_every_row_adds_its_figures(self):
        found = self.run_suite()
        goals = {figure_id for ids in gpu.GOALS.values() for figure_id in ids}
        self.assertLessEqual(goals, set(found))
        self.assertEqual([found[name].note for name in goals if found[name].value is None], [])
        self.assertEqual(set(gpu.RUNS), set(gpu.GOALS))

    def test_rates_are_held_against_eager(self):
        found = self.run_suite("throughput")
        self.assertTrue(found["gpu.over_eager.resnet50"].met)
        self.assertEqual(found["gpu.rate.vit-large.compiled"].value, 640)
        slow = self.run_suite("throughput", **{"throughput_vit-large_ours": {"step_s": [0.2]}})
        self.assertIs(slow["gpu.over_eager.vit-large"].met, False)
        self.assertTrue(slow["gpu.over_eager.resnet50"].met)

    def test_predictions_are_judged(self):
        found = self.run_suite("prediction")
        self.assertAlmostEqual(found["gpu.prediction_error"].value, 0.05)
        self.assertTrue(found["gpu.peak_error"].met)
        far = self.run_suite("prediction", prediction_unet3d={"predicted_peak_bytes": 90})
        self.assertIs(far["gpu.peak_error"].met, False)

    def test_swap_is_held_against_copies_and_pytorch(self):
        found = self.run_suite("swap", swap_save_on_cpu={"step_s": [0.2]})
        self.assertEqual(found["gpu.swap_over_save_on_cpu"].value, 2)
        self.assertTrue(found["gpu.swap_over_copy"].met)
        found = self.run_suite("swap", swap_copies={"plain_gb_s": [50.0], "swap_gb_s": [40.0]})
        self.assertIs(found["gpu.swap_over_copy"].met, False)
        self.assertIs(found["gpu.swap_over_save_on_cpu"].met, False)

    def test_other_weights_under_a_layout_are_found(self):
        self.assertTrue(self.run_suite("digest")["gpu.digest"].met)
        figure = self.run_suite("digest", failed=1)["gpu.digest"]
        self.assertIs(figure.met, False)
        self.assertEqual(figure.note, "a layout differs")

    def test_a_mixed_plan_is_held_against_recomputation(self):
        found = self.run_suite("plan", plan_recompute={"step_s": [0.12]})
        self.assertAlmostEqual(found["gpu.mixed_over_recompute"].value, 1.2)
        self.assertIs(self.run_suite("plan")["gpu.mixed_over_recompute"].met, False)

    def test_the_largest_cube_is_found(self):
        found = self.run_suite("cube", cubes=(96, 192))
        self.assertEqual(found["gpu.cube_voxels"].value, 8)
        self.assertAlmostEqual(found["gpu.cube_slowdown"].value, 0)
        self.assertIn("keep 96, planned 192", found["gpu.cube_voxels"].note)
        self.assertIs(self.run_suite("cube", cubes=(320, 320))["gpu.cube_voxels"].met, False)
        none = self.run_suite("cube", cubes=(0, 0))["gpu.cube_voxels"]
        self.assertIn("out of memory", none.note)

    def test_only_a_lack_of_memory_ends_the_search(self):
        def fails(side):
            if side > 2:
                raise processes.RunFailed("the driver is gone")
            return side
        with self.assertRaises(processes.RunFailed):
            gpu.largest([1, 2, 3, 4], fails)

    def test_what_is_fed_is_held_against_what_lies_there(self):
        self.assertTrue(self.run_suite("feed")["gpu.fed_over_resident"].met)
        fast = self.run_suite("feed", feed_resident={"step_s": [0.05]})
        self.assertIs(fast["gpu.fed_over_resident"].met, False)

    def test_a_run_that_fails_leaves_its_figures_unmeasured(self):
        suite = gpu.Gpu(figures.Sheet(echo=lambda _line: None), None, None, True)

        def fails(*_words, **_replaced):
            raise processes.RunFailed("no GPU")
        suite.report = fails
        suite.run("swap")
        found = {figure.id: figure for figure in suite.sheet.figures}
        self.assertEqual(set(found), set(gpu.GOALS["swap"]))
        self.assertTrue(all(figure.failed and "no GPU" in figure.note
                            for figure in found.values()))


class RunScriptTest(unittest.TestCase):
    def test_a_dry_run_shows_rows_goals_and_commands(self):
        done = run_script("--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row, goals in gpu.GOALS.items():
            self.assertIn(f"{row}\n", done.stdout)
            for figure_id in goals:
                self.assertIn(f"  {figure_id}: ", done.stdout)
        self.assertIn("--model vit-huge --policy auto --budget 24GiB", done.stdout)

    def test_a_dry_run_of_some_rows(self):
        done = run_script("--dry-run", "--only", "digest,swap")
        rows = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(rows, ["swap", "digest"])
        unknown = run_script("--dry-run", "--only", "nothing")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("rows: throughput, prediction", unknown.stderr)

    def test_without_a_gpu_it_names_the_remedy_and_builds_nothing(self):
        done = run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("FOREBAY_BENCH_PYTHON", done.stderr)
        self.assertIn("--dry-run", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
