"""Suite `codec` itself: goals, figures from measurements, the picture; no program, no data."""

import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree

from harness import codec, codec_goals, codec_report, figures, processes, report

RAW_BYTES = 1_000_000


def contender(name, ratio, seconds=0.001, **more):
    return {"name": name, "settings": f"{name} as it is", "ratio": ratio,
            "coded_bytes": RAW_BYTES / ratio, "encode_s": [0.01],
            "decode_s": {"1": [seconds, 1.1 * seconds], "2": [seconds / 1.9, 1.1 * seconds / 1.9]},
            "decode_cpu_s": {"1": [seconds] * 2}, "frame_s": [0.001] * 99 + [0.004], **more}


class CannedCodec(codec.Codec):
    """Measurements from a function of (set, contender) instead of the program."""

    def __init__(self, answer):
        self.scratch = tempfile.TemporaryDirectory()
        self.asked = []
        super().__init__(figures.Sheet(echo=lambda line: None), processes.Binaries(None),
                         self.scratch.name, quick=True)
        self.answer = answer
        self.binaries.find = lambda name: name
        self.lossy_answer = []
        self.numpy_python = lambda: "python3"
        self.sz3_python = lambda: "python3"

    def prepare(self, names):
        pass

    def figure(self, figure_id):
        return next(figure for figure in self.sheet.figures if figure.id == figure_id)


class CodecSuiteTest(unittest.TestCase):
    def setUp(self):
        self.real = processes.run_json
        self.addCleanup(lambda: setattr(processes, "run_json", self.real))

    trained = {"macs_per_pixel": 1528, "held_out_planes": 3, "gain": 0.042, "model_bytes": 3094,
               "gain_with_model": 0.041, "held_out_raw_bytes": 4e9, "decode_s": 20}

    def suite(self, answer, verdict=None):
        suite = CannedCodec(answer)
        self.addCleanup(suite.scratch.cleanup)

        def run_json(command, timeout_s=0):
            words = [str(word) for word in command]
            suite.asked.append(words)
            if "forebay-compress-train" in words[0]:
                return dict(self.trained)
            name = words[words.index("--set") + 1]
            if "forebay_codec_bench" in words[0]:
                names = [words[at + 1] for at, word in enumerate(words) if word == "--peer"]
                entries = [answer(name, each) for each in names]
            elif "--check" in words:
                entries = [{"name": "forebay", "valid": 5, "worst": 0.1, **verdict}]
            else:
                entries = [contender(each, ratio, violations=0, worst=0.1)
                           for each, ratio in (("sz3_default", 10), ("sz3_interp", 12),
                                               ("zfp", 3))]
            return {"set": name, "raw_bytes": RAW_BYTES, "contenders": entries,
                    **({} if "--bound" not in words else {"bound": 0.1})}
        processes.run_json = run_json
        return suite

    def test_learned_trains_on_one_half_and_reports_the_other(self):
        suite = self.suite(None)
        suite.data.mkdir(parents=True)
        for name in ("mire2", "castelG"):
            (suite.data / f"{name}.json").write_text('{"shape": [4, 8, 16]}')
        suite.learned()
        self.assertAlmostEqual(suite.figure("codec.learned.gain.mire2").value, 4.2)
        self.assertAlmostEqual(suite.figure("codec.learned.gain_with_model.mire2").value, 4.1)
        self.assertAlmostEqual(suite.figure("codec.learned.decode.castelG").value, 0.2)
        words = suite.asked[0]
        self.assertEqual(words[words.index("--shape") + 1], "4,8,16")
        self.assertEqual(words[words.index("--macs-max") + 1], "1700")
        self.assertIn("--all-kernels", words)

    def test_without_any_program_every_goal_is_missed(self):
        sheet = figures.Sheet(echo=lambda line: None)
        binaries = processes.Binaries(None)
        binaries._search = lambda name: None
        with tempfile.TemporaryDirectory() as folder:
            suite = codec.Codec(sheet, binaries, folder, quick=True)
            suite.prepare = lambda names: None
            suite.numpy_python = suite.sz3_python = lambda: "no-such-python"
            suite.run()
        wanted = {name for goals in codec_goals.GOALS.values() for name in goals}
        self.assertEqual({figure.id for figure in sheet.figures}, wanted)
        self.assertTrue(all(figure.failed for figure in sheet.figures))

    def test_goals_from_measurements(self):
        ratio = {"forebay_dense": 12.0, "forebay_balanced": 8.0, "forebay_fast": 4.0,
                 "x264_medium": 10.0, "zstd_19": 5.0, "delta_zstd_9": 6.0, "delta_zstd_3": 5.0,
                 "blosc_lz4": 2.0}
        seconds = {"forebay_dense": 0.001, "x264_medium": 0.02}
        suite = self.suite(lambda name, each: contender(each, ratio.get(each, 1.5),
                                                        seconds.get(each, 0.001)))
        suite.run("lossless")
        self.assertAlmostEqual(suite.figure("codec.dense.vs_x264_geomean").value, 1.2)
        self.assertTrue(suite.figure("codec.dense.vs_x264_worst").met)
        self.assertAlmostEqual(suite.figure("codec.dense.vs_best_zstd_mean").value, 2.0)
        self.assertAlmostEqual(suite.figure("codec.fast.vs_blosc.mire2").value, 2.0)
        self.assertAlmostEqual(suite.figure("codec.dense.decode_vs_x264.mire2").value, 20)
        self.assertTrue(suite.figure("codec.balanced.decode_vs_delta_zstd3.simuG").met)
        self.assertFalse(suite.figure("codec.fast.decode").met)  # 1 GB/s
        self.assertAlmostEqual(suite.figure("codec.dense.encode").value, 100)
        self.assertFalse(any(figure.value is None for figure in suite.sheet.figures))

    def test_a_missing_peer_fails_the_row_by_name(self):
        def answer(name, each):
            if each == "jpeg_ls":
                return {"name": each, "settings": "", "error": "libcharls-dev"}
            return contender(each, 2.0)
        suite = self.suite(answer)
        suite.run("lossless")
        figure = suite.figure("codec.dense.vs_x264_geomean")
        self.assertTrue(figure.failed)
        self.assertIn("jpeg_ls on mire2: libcharls-dev", figure.note)

    def test_a_profile_that_fails_leaves_the_others(self):
        def answer(name, each):
            if each == "forebay_dense":
                return {"name": each, "settings": "", "error": "not yet"}
            return contender(each, 2.0)
        suite = self.suite(answer)
        suite.run("lossless")
        self.assertIn("not yet", suite.figure("codec.dense.vs_x264_geomean").note)
        self.assertAlmostEqual(suite.figure("codec.balanced.vs_delta_zstd3_mean").value, 1.0)

    def test_the_stand_in_must_give_its_ratios_again_in_both_directions(self):
        for factor, met in ((1.02, True), (1.04, False), (0.96, False)):
            suite = self.suite(lambda name, each, factor=factor: contender(
                each, factor * codec_goals.TEZIP_PUBLISHED[name]
                if each == "tezip_style" else 100.0))
            suite.run("tezip")
            self.assertIs(suite.figure("codec.tezip.deviation.mire2").met, met)
            self.assertTrue(suite.figure("codec.dense.vs_tezip.simuG").met)
            self.assertTrue(all("64" in words for words in suite.asked))

    def test_the_99th_percentile_of_frames(self):
        suite = self.suite(lambda name, each: contender(each, 2.0))
        suite.run("random_frame")
        self.assertAlmostEqual(suite.figure("codec.random_frame_p99.dense").value, 1.0)
        self.assertEqual(codec.percentile([1, 2, 3], 99), 3)

    def test_threads_are_judged_by_the_control(self):
        suite = self.suite(lambda name, each: contender(each, 2.0))
        suite.run("threads")
        self.assertAlmostEqual(suite.figure("codec.threads.balanced").value, 1.9)
        self.assertAlmostEqual(suite.figure("codec.threads.dense_of_control").value, 1.0)

    def test_a_profile_keeps_all_goals_of_a_bound_or_none(self):
        ratio = {"forebay_dense": 13.0, "forebay_balanced": 12.5}
        seconds = {"forebay_dense": 0.001, "forebay_balanced": 0.0002}
        suite = self.suite(lambda name, each: contender(each, ratio[each], seconds[each]),
                           {"violations": 0, "holes_changed": 0})
        suite.run("lossy")
        self.assertFalse(suite.figure("codec.lossy.navyU.0.1.decode_vs_sz3").met)
        self.assertTrue(suite.figure("codec.lossy.navyU.0.1.vs_sz3_best").met)
        self.assertTrue(suite.figure("codec.lossy.navyU.0.1.balanced.decode_vs_sz3").met)
        self.assertAlmostEqual(
            suite.figure("codec.lossy.navyU.0.1.balanced.vs_sz3_default").value, 1.25)
        self.assertAlmostEqual(
            suite.figure("codec.lossy.navyU.0.1.balanced.decode_vs_sz3_cpu").value, 5)
        met_by = suite.figure("codec.lossy.navyU.0.1.met_by")
        self.assertEqual((met_by.value, met_by.note), (1, "balanced"))

    def test_lossy_ratios_and_violations(self):
        suite = self.suite(lambda name, each: contender(each, 11.5),
                           {"violations": 1, "holes_changed": 2})
        suite.run("lossy")
        self.assertAlmostEqual(suite.figure("codec.lossy.levT.0.1.vs_sz3_default").value, 1.15)
        best = suite.figure("codec.lossy.levT.0.1.vs_sz3_best")
        self.assertFalse(best.met)
        self.assertEqual(best.note, "sz3_interp")
        self.assertEqual(suite.figure("codec.lossy.inia19.1.violations").value, 3)
        self.assertEqual(suite.figure("codec.lossy.inia19.1.met_by").value, 0)
        filled = [words for words in suite.asked
                  if words[words.index("--set") + 1] == "levTfilled"]
        self.assertTrue(filled and all("--mask-of" in words for words in filled))


class CodecReportTest(unittest.TestCase):
    def measurements(self):
        names = ("forebay_fast", "forebay_dense", "zstd_3", "zstd_9", "x264_medium", "png")
        return [{"set": name, "raw_bytes": RAW_BYTES, "isa": "best", "contenders": [
            contender(each, 1.5 + 0.1 * place, 0.001 * (place + 1))
            for place, each in enumerate(names)]} for name in codec_goals.SIX]

    def test_picture_and_table(self):
        charts, lines = codec_report.extras(self.measurements())
        root = xml.etree.ElementTree.fromstring(charts["ratio_speed"])
        circles = [node for node in root if node.tag.endswith("circle")]
        self.assertEqual(len(circles), 6)
        self.assertTrue(all(node.get("cx") != "nan" for node in circles))
        self.assertIn("| zstd_3 | 1.70 (317)", "\n".join(lines))

    def test_other_instruction_sets_bounds_and_failures_stay_out(self):
        measurements = self.measurements()
        measurements.append({"set": "mire2", "raw_bytes": 1, "isa": "avx2", "contenders": []})
        measurements.append({"set": "navyU", "raw_bytes": 1, "bound": 0.1, "contenders": []})
        measurements[0]["contenders"].append({"name": "broken", "error": "so it is"})
        table = codec_report.by_set(measurements)
        self.assertEqual(set(table), set(codec_goals.SIX))
        self.assertNotIn("broken", table["mire2"])

    def test_a_codec_measured_on_some_sets_has_no_mean(self):
        measurements = self.measurements()
        measurements[2]["contenders"] = measurements[2]["contenders"][:-1]
        points = codec_report.means(codec_report.by_set(measurements), codec_goals.SIX)
        self.assertNotIn("png", points)
        self.assertAlmostEqual(points["forebay_fast"][0], 1.5)

    def test_labels_keep_clear_of_each_other(self):
        taken = []
        for place in range(4):
            codec_report._place_label(400, 300 + 6 * place, "a codec", taken)
        for at, one in enumerate(taken):
            for other in taken[at + 1:]:
                self.assertFalse(codec_report._overlap(one, other))

    def test_nothing_measured_gives_nothing(self):
        self.assertEqual(codec_report.extras([]), ({}, []))

    def test_a_suite_may_bring_its_own_charts(self):
        with tempfile.TemporaryDirectory() as folder:
            stem = pathlib.Path(folder) / "out"
            machine = {"cores": 1, "processor": "p", "memory": "m", "system": "s", "kernel": "k",
                       "load_average": [0.0]}
            report.write(stem, report.to_json("s", False, machine, []), {"own": "<svg/>"},
                         ["", "a line"])
            text = stem.with_suffix(".md").read_text("utf-8")
            self.assertTrue(stem.with_name("out-own.svg").exists())
            self.assertTrue(re.search(r"a line\n\n!\[out-own.svg\]", text))


if __name__ == "__main__":
    unittest.main()
