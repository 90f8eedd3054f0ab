"""The gpu suite over made-up reports: its figures, and how they are judged; what bench/gpu/run.sh
says where there is no GPU."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

from harness import figures, gpu, processes, trainer_feed

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu"))
import gpu_busy  # pylint: disable=wrong-import-position

RUN = pathlib.Path(__file__).parents[1] / "gpu" / "run.sh"
OUT_OF_MEMORY = processes.RunFailed("forebay_gpu_bench: exit 1: CUDA out of memory.")


def run_script(*words, python="false"):
    return subprocess.run(["bash", str(RUN), *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "FOREBAY_BENCH_PYTHON": python})


class GpuTest(unittest.TestCase):
    def run_suite(self, only="", failed=0, cubes=(128, 192), said="", **reports):
        """`reports`: row_label -> what replaces fields of that run's report."""
        suite = gpu.Gpu(figures.Sheet(echo=lambda _line: None), None, None, True)
        keep, planned = cubes

        def report(row, label, SIDE=0):
            if SIDE > {"keep": keep, "planned": planned}.get(label, SIDE):
                raise OUT_OF_MEMORY
            made = {"step_s": [0.1] * 3, "step_samples": 64, "predicted_s": 0.105,
                    "peak_bytes": 100, "predicted_peak_bytes": 98, "swapped_bytes": 3e9,
                    "busy_s": 0.08, "plain_gb_s": [50.0, 50.0], "swap_gb_s": [50.0, 50.0],
                    "gpu": "g", "torch": "2"}
            if SIDE:
                made["step_s"] = [1e-8 * SIDE ** 3]
            return {**made, **reports.get(f"{row}_{label}".replace(".", "_"), {})}
        suite.report = report
        suite.tests_on_gpu = lambda: ["a layout differs"] * failed
        suite.fed_steps = lambda name: ([{"step_ns": gpu.FED[name].batch / 640 * 1e9,
                                          "wait_data_ns": 1000, "feed_ns": 500}] * 3, said)
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
        self.assertEqual(found["gpu.rate.vit-large.eager"].value, 640)
        slow = self.run_suite("throughput", **{"throughput_vit-large_ours": {"step_s": [0.2]}})
        self.assertIs(slow["gpu.over_eager.vit-large"].met, False)
        self.assertTrue(slow["gpu.over_eager.resnet50"].met)

    def test_a_compiler_that_is_missing_costs_its_own_row_only(self):
        self.assertEqual(list(gpu.GOALS)[-1], "compiled")
        found = self.run_suite("compiled")
        self.assertEqual(found["gpu.rate.vit-large.compiled"].value, 640)
        self.assertIsNone(found["gpu.rate.vit-large.compiled"].met)

    def test_the_gap_is_the_step_without_what_the_profiler_saw_of_the_gpu(self):
        found = self.run_suite("gap", gap_ours={"busy_s": 0.092})
        self.assertAlmostEqual(found["gpu.host_gap.ours"].value, 8_000)
        self.assertAlmostEqual(found["gpu.host_gap.eager"].value, 20_000)
        self.assertAlmostEqual(found["gpu.host_gap"].value, 0.4)
        self.assertTrue(found["gpu.host_gap"].met)
        self.assertIn("a step of 100000 us", found["gpu.host_gap.ours"].note)
        self.assertIs(self.run_suite("gap")["gpu.host_gap"].met, False)

    def test_a_gap_that_only_seems_short_gives_no_ratio(self):
        for changed, word in (({"busy_s": 0.102}, "more than a step of ours"),
                              ({"busy_s": 0.104, "step_s": [0.105]}, "longer than eager's")):
            figure = self.run_suite("gap", gap_ours=changed)["gpu.host_gap"]
            self.assertIsNone(figure.value)
            self.assertTrue(figure.failed)
            self.assertIn(word, figure.note)

    def test_where_eager_leaves_no_gap_there_is_no_ratio(self):
        for busy_s in (0.0995, 0.1, 0.1005):
            found = self.run_suite("gap", gap_eager={"busy_s": busy_s})
            self.assertIsNone(found["gpu.host_gap"].value)
            self.assertTrue(found["gpu.host_gap"].failed)
            self.assertIn("hardly ever idle", found["gpu.host_gap"].note)
            self.assertLess(found["gpu.host_gap.eager"].value, 1000)

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
        def resident(name, **changed):
            step_s = gpu.FED[name].batch / 640
            report = {"step_s": [step_s], "step_samples": gpu.FED[name].batch, **changed}
            return {f"feed_{name}_resident": report}
        alike = {**resident("cosmoflow"), **resident("unet3d")}
        found = self.run_suite("feed", **alike)
        self.assertEqual([found[figure_id].value for figure_id in gpu.GOALS["feed"]], [1, 1])
        self.assertIn("unet3d, 1 x 128^3 floats, 2 samples a step, bf16; 640 samples/s",
                      found["gpu.fed_over_resident.unet3d"].note)
        fast = self.run_suite("feed", **{**alike, **resident("unet3d", step_s=[1e-3])})
        self.assertIs(fast["gpu.fed_over_resident.unet3d"].met, False)
        self.assertTrue(fast["gpu.fed_over_resident.cosmoflow"].met)
        refused = self.run_suite("feed", said=f"batches are {gpu.PAGEABLE}: no", **alike)
        self.assertIn("not registered", refused["gpu.fed_over_resident.unet3d"].note)

    def test_fed_and_resident_samples_have_the_same_sizes(self):
        for name, cubes in gpu.FED.items():
            resident = list(map(str, gpu.RUNS["feed"][f"{name}.resident"][1]))
            fed = list(map(str, gpu.RUNS["feed"][f"{name}.fed"][1]))
            for words, flag, shape in ((resident, "--shape", ","), (fed, "--shape", "x")):
                self.assertEqual(words[words.index(flag) + 1], shape.join(map(str, cubes.shape)))
            self.assertEqual(resident[resident.index("--samples") + 1], str(cubes.batch))
            self.assertEqual(fed[fed.index("--global-batch") + 1], str(cubes.batch))
            steps = trainer_feed.EPOCHS * (cubes.samples // cubes.batch)
            self.assertGreaterEqual(steps - trainer_feed.WARM, 20)
            self.assertEqual(cubes.samples % cubes.batch, 0)

    def test_sides_of_cubes_can_be_halved_five_times(self):
        self.assertEqual([side for side in gpu.CUBE_SIDES if side % 32], [])

    def test_no_run_begins_when_the_time_is_over(self):
        suite = gpu.Gpu(figures.Sheet(echo=lambda _line: None), None, None, True)
        self.assertEqual(suite.limit_s(100), 100)
        suite.ends_s = time.time() + 10
        self.assertLessEqual(suite.limit_s(100), 10)
        suite.ends_s = time.time()
        suite.command = lambda *_words, **_replaced: ["true"]
        suite.run("swap,digest")
        notes = [figure.note for figure in suite.sheet.figures]
        self.assertEqual(len(notes), 3)
        self.assertTrue(all("FOREBAY_GPU_SECONDS" in note for note in notes), notes)

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


class BusyTest(unittest.TestCase):
    def test_what_overlaps_counts_once(self):
        self.assertEqual(gpu_busy.union([]), 0)
        self.assertEqual(gpu_busy.union([(30, 35), (10, 20), (18, 32)]), 25)
        self.assertEqual(gpu_busy.union([(0, 100), (10, 20), (99, 101)]), 101)
        self.assertEqual(gpu_busy.union([(10, 20), (20, 30), (40, 40)]), 20)

    def test_marks_and_waits_are_no_work(self):
        def seen(device, name, is_mark=False):
            return types.SimpleNamespace(device_type=types.SimpleNamespace(name=device),
                                         name=name, is_user_annotation=is_mark)
        events = [seen("CUDA", "sgemm"), seen("CUDA", "Memcpy HtoD"), seen("CPU", "aten::mm"),
                  seen("CUDA", "Optimizer.step#SGD.step", True), seen("CUDA", "Context Sync")]
        found = [event.name for event in events if gpu_busy.is_work(event, on_gpu=True)]
        self.assertEqual(found, ["sgemm", "Memcpy HtoD"])
        found = [event.name for event in events if gpu_busy.is_work(event, on_gpu=False)]
        self.assertEqual(found, ["aten::mm"])


class CubesTest(unittest.TestCase):
    def test_volumes_of_classes_are_bytes_behind_a_header(self):
        cubes = trainer_feed.Cubes("unet3d", channels=1, side=4, samples=3, batch=1, classes=3)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "set"
            trainer_feed.make_set(folder, cubes)
            header, data = (folder / "targets.npy").read_bytes().split(b"\n", 1)
            self.assertIn(b"'descr': '|u1', 'fortran_order': False, 'shape': (3, 4, 4, 4), }",
                          header)
            self.assertEqual((len(header) + 1) % 64, 0)
            self.assertEqual(len(data), 3 * 4 ** 3)
            self.assertEqual(set(data), {0, 1, 2})
            self.assertNotEqual(data[:64], data[64:128])
            header, data = (folder / "cubes.npy").read_bytes().split(b"\n", 1)
            self.assertIn(b"'<f4', 'fortran_order': False, 'shape': (3, 1, 4, 4, 4), }", header)
            self.assertEqual(len(data), 4 * 3 * 4 ** 3)

    def test_words_name_shape_and_classes(self):
        words = list(map(str, trainer_feed.train_words("a", "f", gpu.FED["unet3d"])))
        self.assertEqual(words[words.index("--shape") + 1], "1x128x128x128")
        self.assertEqual(words[words.index("--classes") + 1], "3")
        words = list(map(str, trainer_feed.train_words("a", "f")))
        self.assertEqual(words[words.index("--shape") + 1], "4x32x32x32")
        self.assertEqual(words[words.index("--classes") + 1], "4")


class RunScriptTest(unittest.TestCase):
    def test_a_dry_run_shows_rows_goals_and_commands(self):
        done = run_script("--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        for row, goals in gpu.GOALS.items():
            self.assertIn(f"{row}\n", done.stdout)
            for figure_id in goals:
                self.assertIn(f"  {figure_id}: ", done.stdout)
        self.assertIn("--model vit-huge --policy auto --budget 24GiB", done.stdout)
        self.assertIn("--architecture unet3d --shape 1x128x128x128 --classes 3", done.stdout)
        self.assertIn("--task vit-small --samples 32 --precision bf16", done.stdout)

    def test_a_dry_run_of_some_rows(self):
        done = run_script("--dry-run", "--only", "digest,swap")
        rows = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(rows, ["swap", "digest"])
        unknown = run_script("--dry-run", "--only", "nothing")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("rows: throughput, gap, prediction", unknown.stderr)

    def test_refuses_a_limit_that_is_no_number(self):
        done = subprocess.run(["bash", str(RUN)], capture_output=True, text=True, check=False,
                              env={**os.environ, "FOREBAY_GPU_SECONDS": "ten"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("FOREBAY_GPU_SECONDS", done.stderr)

    def test_without_a_gpu_it_names_the_remedy_and_builds_nothing(self):
        done = run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("FOREBAY_BENCH_PYTHON", done.stderr)
        self.assertIn("--dry-run", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
