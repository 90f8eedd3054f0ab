"""The harness itself: goals, pairs, reports, configuration; no daemon, no peer."""

import json
import os
import pathlib
import signal
import tempfile
import tomllib
import unittest
import unittest.mock
import xml.etree.ElementTree

from harness import (datasets, figures, machine, memory_group, network, nodes,
                     nodes_beyond, nodes_caps, nodes_copies, nodes_job, nodes_link, nodes_mpi,
                     nodes_scale, nodes_tls, peers, processes, programs, report, spine,
                     spine_numpy, versus)


def run_report(sums="aa", content=None, seconds=2.0, size=100):
    check = None if content is None else {"content_digest": content}
    return {"contender": "test", "check": check, "daemon_cpu_seconds": 1.0,
            "epochs": [{"seconds": seconds, "cpu_seconds": 3.0, "bytes": size,
                        "sums_digest": sums}] * 2}


class VersusTest(unittest.TestCase):
    def compare(self, rates):
        """Rates of the new build; the base has 100, and both need the same CPU time."""
        sheet = figures.Sheet(echo=lambda line: None)
        with tempfile.TemporaryDirectory() as folder:
            suite = versus.Versus(sheet, unittest.mock.Mock(), folder, quick=True,
                                  base=unittest.mock.Mock())
            of_new = iter(rates)
            suite._compare("row", lambda side: versus.Run(
                next(of_new) if side == "new" else 100, 1e-9), rounds=len(rates))
        return {figure.id: figure for figure in sheet.figures}

    def test_where_pairs_agree_the_rate_has_the_goal(self):
        found = self.compare([96, 95, 97, 96, 200])
        self.assertAlmostEqual(found["versus.row.rate"].value, 0.96)
        self.assertIs(found["versus.row.rate"].met, False)
        self.assertIsNone(found["versus.row.cpu"].met)

    def test_where_pairs_differ_the_cpu_time_has_it(self):
        found = self.compare([70, 80, 90, 120, 130])
        self.assertIsNone(found["versus.row.rate"].met)
        self.assertIs(found["versus.row.cpu"].met, True)

    def test_every_row_exists_and_fails_its_figures_where_it_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            suite = versus.Versus(None, unittest.mock.Mock(), folder, quick=True,
                                  base=unittest.mock.Mock())
            rows = suite.rows()
        self.assertEqual(list(rows), ["stream", "small", "ssd", "cold_tar", "first_batch"])
        self.assertIn("versus.stream.views.cpu", rows["stream"][1])


class NodesTest(unittest.TestCase):
    @staticmethod
    def of_rank(sums, content):
        return {"epochs": [{"bytes": 10, "sums_digest": value} for value in sums],
                "check": {"bytes": 10, "content_digest": content}}

    def test_digests_of_ranks_add_up_whatever_rank_has_a_sample(self):
        first = nodes_job.together([self.of_rank(["ffffffffffffffff", "5"], "a"),
                                    self.of_rank(["7", "1"], "b")])
        self.assertEqual([epoch["sums_digest"] for epoch in first["epochs"]], ["0" * 15 + "6"] * 2)
        self.assertEqual(first["epochs"][0]["bytes"], 20)
        self.assertEqual(first["check"]["content_digest"], "0" * 14 + "15")
        ledger = peers.Ledger()
        ledger.check(first)
        repeated = nodes_job.together([self.of_rank(["5", "5"], "a"),
                                       self.of_rank(["5", "1"], "b")])
        with self.assertRaises(processes.RunFailed):
            ledger.check(repeated)

    def test_a_group_holds_whole_samples(self):
        spec = datasets.Spec("records", samples=6, sample_bytes=3 << 20, objects=1)
        self.assertEqual(nodes.group_count(spec), 3)  # two in each 8 MiB

    def test_runs_end_inside_the_epoch(self):
        points = nodes.resume_points(86)
        self.assertEqual(len(set(points)), nodes.RESUME_POINTS)
        self.assertEqual((points[0], points[-1]), (1, 85))

    def test_parts_of_an_epoch_agree_only_if_every_position_does(self):
        whole = {"samples": 10, "places_digest": "0000000000000003"}
        first = {"samples": 4, "places_digest": "ffffffffffffffff"}
        self.assertTrue(nodes.is_whole(whole, first, {"samples": 6, "places_digest": "4"}))
        self.assertFalse(nodes.is_whole(whole, first, {"samples": 6, "places_digest": "5"}))
        self.assertFalse(nodes.is_whole(whole, first, {"samples": 5, "places_digest": "4"}))

    def test_a_stall_is_that_of_the_rank_that_waits_longest_without_its_first_batch(self):
        waits = [{"waits": {"total_ms": 600.0, "first_ms": 500.0}},
                 {"waits": {"total_ms": 700.0, "first_ms": 200.0}}]
        self.assertAlmostEqual(nodes.stall_percent(waits, compute_s=9.5), 5.0)

    def test_the_node_that_is_farthest_from_its_prediction_counts(self):
        before = [{"samples": 100, "other_samples": 50}, {"samples": 0, "other_samples": 0}]
        after = [{"samples": 300, "other_samples": 100}, {"samples": 50, "other_samples": 25}]
        measured = nodes_copies.local_percents(before, after)
        self.assertEqual(measured, [75.0, 50.0])
        found = {figure_id: values
                 for figure_id, _, values in nodes_copies.figures_of([measured], [[74.0, 53.0]])}
        self.assertEqual(found["nodes.copies.off_prediction"], [3.0])
        self.assertEqual(found["nodes.copies.local"], [62.5])
        self.assertEqual(found["nodes.copies.predicted"], [63.5])

    def test_a_steady_epoch_is_neither_the_first_nor_the_last(self):
        def of_rank(*seconds):
            return {"epochs": [{"seconds": value} for value in seconds]}
        self.assertAlmostEqual(
            nodes_scale.steady_epoch_s([of_rank(9, 3, 4, 1), of_rank(8, 5, 6, 0)]), 4.5)

    def test_a_model_that_says_too_much_or_too_little_is_off(self):
        self.assertAlmostEqual(nodes_scale.off_percent(11.0, 10.0), 10.0)
        self.assertAlmostEqual(nodes_scale.off_percent(9.0, 10.0), 10.0)

    def test_the_slowest_start_and_the_largest_state_of_the_largest_job_count(self):
        machine = {nodes_scale.MACHINE: {}}
        def start(form, node_count, cpu_s, peak_bytes):
            return {"kind": "start", "form": form, "nodes": node_count, "cpu_s": cpu_s,
                    "peak_bytes": peak_bytes, "kept_bytes": 1e6, "catalog_s": 0, "shares_s": 0,
                    "image_bytes": 0, "extents": 7, "machines": machine}
        found = {figure_id: (value, settings)
                 for figure_id, _, value, settings in nodes_scale.figures_of_plans([
                     start("pack", 16, 99, 99e9), start("pack", 1024, 2.0, 1e9),
                     start("records", 1024, 1.0, 3e9),
                     {"kind": "probing", "nodes": 16, "lost": 1, "messages": 2.0, "bytes": 22,
                      "known_s": 9.5, "wrong_verdicts": 0},
                     {"kind": "links", "nodes": 16, "create_s": 0.1, "kept_bytes": 2e6,
                      "look_s": 0.001},
                     {"kind": "connections", "connections": 4, "open_s": 0.006,
                      "kept_bytes": 300e3},
                     {"kind": "caps", "nodes": 16, "lost": 1, "asks": 3, "most_of_cap": 1.0,
                      "used_of_cap": 0.9, "after_of_cap": 0.8}])}
        self.assertEqual(found["nodes.scale.start_s"][0], 2.0)
        self.assertTrue(found["nodes.scale.start_s"][1].startswith("pack, 1024 nodes"))
        self.assertEqual(found["nodes.scale.state"][0], 3.0)
        self.assertEqual(found["nodes.scale.pack.16.start"][0], 99)
        self.assertEqual(found["nodes.scale.probing.16.known"][0], 9.5)
        self.assertEqual(found["nodes.scale.caps.16.used"][0], 0.9)
        self.assertEqual(found["nodes.scale.links.16"][0], 2.0)
        self.assertEqual(found["nodes.scale.connection"][0], 300.0)

    def test_every_row_has_figures_with_goals(self):
        for name, (_, goals) in nodes.Nodes(None, None, "/", quick=True).rows().items():
            self.assertTrue(goals, name)
            for figure_id, (_, goal) in goals.items():
                self.assertTrue(figure_id.startswith(f"nodes.{name}."), figure_id)
                self.assertIsNotNone(goal)

    def test_an_lru_cache_is_replayed(self):
        self.assertEqual(nodes_beyond.lru_misses([1, 2, 1, 3, 1, 2], capacity=2), 4)
        self.assertEqual(nodes_beyond.lru_misses([1, 2, 3] * 5, capacity=3), 3)
        self.assertEqual(nodes_beyond.lru_misses([1, 2, 3] * 5, capacity=2), 15)

    def test_each_rank_reads_its_part_of_a_batch(self):
        extent, batch = nodes_beyond.EXTENT_SAMPLES, nodes_beyond.BATCH
        samples = [extent * (i // (batch // 2)) for i in range(2 * batch)]
        own, together = nodes_beyond.extents_by_rank(samples, 2)
        self.assertEqual([sorted(set(extents)) for extents in own], [[0, 2], [1, 3]])
        self.assertEqual(len(together), 2 * batch)

    def test_rates_of_the_link_count_only_what_came_over_it(self):
        size = nodes_link.SMALL_BYTES
        forebay = {"epochs": [{"bytes": 800 * size, "seconds": 1.0}] * 2,
                   "remote": {"samples": 1600, "other_samples": 1200, "cpu_seconds": 3.0,
                              "received_bytes": 1_500_000_000}}
        figures_by_id = {figure.id: figure for figure in nodes_link.figures_of(size, {
            "forebay": [forebay],
            "socket": [{"bytes": 1200 * size, "seconds": 1.0, "cpu_per_byte": 1e-9}],
            "grpc": [{"bytes": 100, "seconds": 1.0, "cpu_per_byte": 1e-9}]})}
        self.assertAlmostEqual(figures_by_id[f"nodes.link.{size}"].value, 600)
        self.assertIs(figures_by_id[f"nodes.link.{size}"].met, False)
        self.assertAlmostEqual(figures_by_id[f"nodes.link.{size}_of_socket"].value, 0.5)
        self.assertAlmostEqual(figures_by_id[f"nodes.link.{size}_cpu_of_grpc"].value, 2.0)
        self.assertIs(figures_by_id[f"nodes.link.{size}_cpu_of_grpc"].met, False)

    def test_samples_over_mpi_are_compared_with_the_faster_ping(self):
        size = nodes_link.SMALL_BYTES
        forebay = {"epochs": [{"bytes": 800 * size, "seconds": 1.0}] * 2,
                   "remote": {"samples": 1600, "other_samples": 1200, "cpu_seconds": 3.0,
                              "received_bytes": 1_500_000_000, "mpi_bytes": 1_500_000_000}}
        def ping(rows):
            return {"bytes": rows * size, "seconds": 1.0, "cpu_per_byte": 1e-9}
        figures_by_id = {figure.id: figure for figure in nodes_mpi.figures_of(size, {
            "forebay": [forebay] * 2,
            ("ping", "poll"): [ping(100), ping(1200)], ("ping", "sleep"): [ping(600), ping(50)],
            ("working_ping", "poll"): [ping(400), ping(50)],
            ("working_ping", "sleep"): [ping(300), ping(500)]})}
        self.assertAlmostEqual(figures_by_id[f"nodes.mpi.{size}"].value, 600)
        of_ping = figures_by_id[f"nodes.mpi.{size}_of_ping"]
        self.assertEqual((of_ping.low, of_ping.high), (0.5, 1.0))
        of_ping = figures_by_id[f"nodes.mpi.{size}_of_working_ping"]
        self.assertEqual((of_ping.low, of_ping.high), (1.2, 1.5))

    def test_encrypted_samples_are_compared_with_those_in_plaintext(self):
        size = nodes_link.SMALL_BYTES
        def report(samples, cpu):
            return {"epochs": [{"bytes": samples * size, "seconds": 1.0}] * 2,
                    "remote": {"samples": 1600, "other_samples": 1200, "cpu_seconds": cpu,
                               "received_bytes": 1_500_000_000, "mpi_bytes": 0}}
        figures_by_id = {figure.id: figure for figure in nodes_tls.figures_of(size, {
            "tls": [report(600, 6.0)], "plaintext": [report(800, 3.0)]})}
        self.assertAlmostEqual(figures_by_id[f"nodes.tls.{size}"].value, 450)
        self.assertAlmostEqual(figures_by_id[f"nodes.tls.{size}_of_plaintext"].value, 0.75)
        self.assertAlmostEqual(figures_by_id[f"nodes.tls.{size}_cpu_of_plaintext"].value, 2.0)

    def test_rates_are_those_of_the_busiest_second_and_from_first_to_last_rise(self):
        # 100 a second for four seconds, at twice that rate in the last of them, with idle times
        # around.
        steps = [0] * 10 + [10] * 30 + [20] * 10 + [0] * 10
        looks = [(0.1 * i, sum(steps[:i])) for i in range(len(steps) + 1)]
        most, overall = nodes_caps.rates_of(looks)
        self.assertAlmostEqual(most, 200)
        self.assertAlmostEqual(overall, 125)
        self.assertEqual(nodes_caps.rates_of([(0, 5), (9, 5)]), (0.0, 0.0))
        self.assertEqual(nodes_caps.rates_of([]), (0.0, 0.0))

    def test_an_option_of_consumers_may_depend_on_the_rank(self):
        services = [unittest.mock.Mock() for _ in range(2)]
        nodes_job.consume_together(services, batch=4, token=nodes_job.token_paths("/t", "a"))
        for rank, service in enumerate(services):
            service.consume.assert_called_once_with("bench", ranks=2, rank=rank, batch=4,
                                                    token=pathlib.Path(f"/t/a.{rank}"))

    def test_only_namespaces_of_dead_runs_are_removed(self):
        names = ["fbbench17-0", "fbbench18-bridge", "fbbenchx-0", "other-17"]
        self.assertEqual(network.stale_names(names, lambda process: process == 18),
                         ["fbbench17-0"])

    def test_the_bytes_of_a_link_are_those_of_its_node(self):
        text = ("Inter-|   Receive                |  Transmit\n"
                " face |bytes    packets errs drop|bytes    packets\n"
                "    lo:     100      1    0    0      100        1\n"
                "  eth0: 123456     99    0    0     7890       12\n")
        self.assertEqual(network.received_bytes(text), 123456)

    def test_a_link_is_limited_at_both_ends(self):
        with unittest.mock.patch.object(network, "_run") as run:
            network.Network("n").limit(2, 1.5e6)
        self.assertEqual([call.args[2] for call in run.call_args_list], ["n-2", "n-bridge"])
        self.assertEqual([call.args[6] for call in run.call_args_list], ["eth0", "port2"])
        self.assertTrue(all("1500000bit" in call.args for call in run.call_args_list))


class BinariesTest(unittest.TestCase):
    def test_a_library_for_tests_that_is_not_built_is_named_with_its_target(self):
        with tempfile.TemporaryDirectory() as build:
            binaries = processes.Binaries(build)
            with self.assertRaises(processes.Missing) as raised:
                binaries.find_test_library("lib.so", "target_of_lib")
            self.assertEqual(str(raised.exception),
                             f"no library lib.so in {build}: name a build tree with --build, and "
                             "build its target target_of_lib")


class DaemonTest(unittest.TestCase):
    def test_one_that_was_killed_starts_again_in_its_folder(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            script = "echo begun; echo READY now >&$1; exec sleep 100"
            daemon = processes.Daemon(None, ["bash", "-c", script], folder)
            self.addCleanup(daemon.close)
            for starts in (1, 2):
                daemon.start()
                self.addCleanup(processes.end_process, daemon.process)
                daemon.wait_until_ready()
                self.assertFalse(daemon.was_killed)
                self.assertEqual(daemon.log_path.read_text("utf-8"), "begun\n" * starts)
                daemon.kill()
                self.assertTrue(daemon.was_killed)


class RunTest(unittest.TestCase):
    """Programs that fail, with their output in files of a folder of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        temporary = unittest.mock.patch.object(tempfile, "tempdir", folder.name)
        temporary.start()
        self.addCleanup(temporary.stop)

    def failure(self, script, run=processes.run_text, **options):
        with self.assertRaises(processes.RunFailed) as raised:
            run(["env", "X=1", "bash", "-c", script], **options)
        logs = list(self.folder.glob("*.log"))
        self.assertEqual(len(logs), 1)
        self.assertIn(str(logs[0]), str(raised.exception))
        return str(raised.exception), logs[0].read_text("utf-8")

    def test_a_program_that_ends_well_leaves_no_file(self):
        self.assertEqual(processes.run_text(["bash", "-c", "echo 1; echo 2 >&2"]), "1\n")
        self.assertEqual(processes.run_json(["bash", "-c", "echo text; echo '[1]'"]), [1])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_whole_output_of_one_that_fails_is_kept(self):
        text, log = self.failure("seq 1000; echo why >&2; exit 7")
        self.assertIn("bash: exit 7", text)
        self.assertTrue(text.endswith("why"))
        self.assertEqual(log.splitlines(), [str(i) for i in range(1, 1001)] + ["why"])

    def test_one_that_does_not_end_is_ended_and_what_it_said_is_kept(self):
        text, log = self.failure("echo begun; sleep 1000", timeout_s=5)
        self.assertIn("no end after 5 s", text)
        self.assertEqual(log, "begun\n")

    def test_what_a_program_leaves_running_is_not_waited_for(self):
        text, _ = self.failure("sleep 20 & echo $!; exit 3")
        os.kill(int(text.split()[-1]), signal.SIGKILL)
        self.assertIn("exit 3", text)

    def test_output_that_is_no_json_is_kept(self):
        for script in ("echo text", "true"):
            text, _ = self.failure(script, processes.run_json)
            self.assertIn("bash: printed no JSON", text)
            next(self.folder.glob("*.log")).unlink()


class FiguresTest(unittest.TestCase):
    def test_goals_look_in_both_directions(self):
        self.assertTrue(figures.Goal(1.2).met(1.2))
        self.assertFalse(figures.Goal(1.2).met(1.19))
        self.assertTrue(figures.Goal(0, at_least=False).met(0))
        self.assertFalse(figures.Goal(0, at_least=False).met(1))

    def test_median_and_range(self):
        figure = figures.from_runs("a.b", "x", [3.0, 1.0, 2.0], goal=figures.Goal(2))
        self.assertEqual((figure.value, figure.low, figure.high, figure.runs), (2.0, 1.0, 3.0, 3))
        self.assertTrue(figure.met)
        self.assertIn("MET", figure.line())

    def test_a_missing_peer_fails_even_without_a_goal(self):
        self.assertTrue(figures.missing("a.b", "x", "no peer").failed)
        figure = figures.missing("a.c", "x", "no peer", goal=figures.Goal(1))
        self.assertIs(figure.met, False)
        self.assertTrue(figure.failed)

    def test_an_informing_figure_never_fails(self):
        self.assertFalse(figures.from_runs("a.b", "x", [1.0]).failed)

    def test_ids_are_unique(self):
        sheet = figures.Sheet(echo=lambda line: None)
        sheet.add(figures.from_runs("a.b", "x", [1.0]))
        with self.assertRaises(ValueError):
            sheet.add(figures.from_runs("a.b", "x", [1.0]))

    def test_rounds_are_interleaved_and_turned(self):
        seen = []
        results = figures.interleave(3, {
            "a": lambda number: seen.append(("a", number)) or number,
            "b": lambda number: seen.append(("b", number)) or -number})
        self.assertEqual(seen, [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)])
        self.assertEqual(results, {"a": [0, 1, 2], "b": [0, -1, -2]})

    def test_ratios_are_taken_round_by_round(self):
        self.assertEqual(figures.ratios([2, 9], [1, 3]), [2, 3])
        with self.assertRaises(ValueError):
            figures.ratios([1], [1, 2])


class LedgerTest(unittest.TestCase):
    def test_accepts_equal_digests(self):
        ledger = peers.Ledger()
        ledger.check(run_report("aa", "cc"))
        ledger.check(run_report("aa"))
        ledger.check(run_report("aa", "cc"))

    def test_refuses_other_samples(self):
        ledger = peers.Ledger()
        ledger.check(run_report("aa"))
        with self.assertRaises(processes.RunFailed):
            ledger.check(run_report("ab"))

    def test_refuses_other_content(self):
        ledger = peers.Ledger()
        ledger.check(run_report("aa", "cc"))
        with self.assertRaises(processes.RunFailed):
            ledger.check(run_report("aa", "cd"))

    def test_the_busier_side_of_two(self):
        report = run_report(size=100)  # 2 epochs of 3 CPU seconds; the daemon's: 1
        self.assertAlmostEqual(spine_numpy.busier_side(report), 6 / 200)
        self.assertAlmostEqual(spine_numpy.busier_side({**report, "daemon_cpu_seconds": 8}),
                               8 / 200)

    def test_switches_of_both_processes_count(self):
        report = {"daemon_context_switches": 30,
                  "epochs": [{"bytes": 100, "context_switches": 10}] * 2}
        self.assertAlmostEqual(peers.switches_per_batch(report, batch=5, sample_bytes=4), 5)

    def test_batches_ahead_fit_in_the_slots(self):
        self.assertEqual(spine_numpy.prefetch_depth(4096), 16)
        self.assertEqual(spine_numpy.prefetch_depth(8 << 20), 4)
        self.assertEqual(spine_numpy.prefetch_depth(117 << 20), 2)

    def test_rates_and_costs(self):
        self.assertEqual(peers.rate(run_report(seconds=2.0, size=100)), 50)
        self.assertAlmostEqual(peers.cpu_per_byte(run_report(size=100)), 7.0 / 200)


class ConfigTest(unittest.TestCase):
    def test_is_toml(self):
        text = processes.config_text(
            {"daemon.socket": 'a "quoted" path', "tier.ram.capacity": "2GiB",
             "stage.readers": 3, "tier.ssd.direct": True},
            [{"name": "a", "shape": [28, 28]}, {"name": "b", "path": pathlib.Path("/x")}])
        self.assertEqual(tomllib.loads(text), {
            "daemon": {"socket": 'a "quoted" path'},
            "tier": {"ram": {"capacity": "2GiB"}, "ssd": {"direct": True}},
            "stage": {"readers": 3},
            "dataset": [{"name": "a", "shape": [28, 28]}, {"name": "b", "path": "/x"}]})


class ReportTest(unittest.TestCase):
    def test_writes_json_markdown_and_wellformed_svg(self):
        sheet = [figures.from_runs("s.a", "GB/s", [1.0, 2.0, 3.0]),
                 figures.from_runs("s.b<c>", "GB/s", [2.0], goal=figures.Goal(3)),
                 figures.missing("s.d", "x", "no peer | here", goal=figures.Goal(1))]
        with tempfile.TemporaryDirectory() as folder:
            stem = pathlib.Path(folder) / "out"
            report.write(stem, report.to_json("s", True, machine.describe(), sheet))
            loaded = json.loads(stem.with_suffix(".json").read_text("utf-8"))
            self.assertEqual(loaded["failed"], ["s.b<c>", "s.d"])
            self.assertEqual(loaded["figures"][0]["spread"], [1.0, 3.0])
            svg = stem.with_name("out-GB_per_s.svg")
            xml.etree.ElementTree.parse(svg)
            self.assertIn(svg.name, stem.with_suffix(".md").read_text("utf-8"))

    def test_an_empty_report_has_no_charts(self):
        self.assertEqual(report.charts({"figures": []}), {})


class SpineTest(unittest.TestCase):
    def test_without_any_program_every_goal_is_missed(self):
        sheet = figures.Sheet(echo=lambda line: None)
        binaries = processes.Binaries(None)
        binaries._search = lambda name: None
        with tempfile.TemporaryDirectory() as folder:
            suite = spine.Spine(sheet, binaries, folder, quick=True)
            suite.run()
            goals = {figure_id for _, table in suite.rows().values() for figure_id in table}
        self.assertEqual({figure.id for figure in sheet.failed}, goals)
        self.assertTrue(all("Missing" in figure.note for figure in sheet.failed))

    def test_data_set_names_tell_them_apart(self):
        names = {datasets.Spec("files", 10).name, datasets.Spec("tar", 10).name,
                 datasets.Spec("files", 11).name, datasets.Spec("files", 10, seed=1).name}
        self.assertEqual(len(names), 4)


class OrderBenchmarkTest(unittest.TestCase):
    def test_takes_medians_of_the_sizes_that_count(self):
        def entry(name, rate, aggregate="median"):
            return {"name": name, "run_type": "aggregate", "aggregate_name": aggregate,
                    "items_per_second": rate, "real_time": 1e9 / rate}
        found = programs.parse_order_benchmark({"benchmarks": [
            entry("BM_Forward/n:17/block:0_median", 3e7),
            entry("BM_Forward/n:17/block:0_mean", 1e7, "mean"),
            entry("BM_Forward/n:17/block:1_median", 1e7),
            entry("BM_Forward/n:1099511627776/block:0_median", 1e7)]})
        self.assertEqual(list(found), [("Forward", 17)])
        self.assertEqual(found["Forward", 17][0], 3e7)


class MicroBenchmarkTest(unittest.TestCase):
    def entry(self, name, rate, **fields):
        return {"name": name, "run_name": name, "run_type": "iteration",
                "items_per_second": rate, "bytes_per_second": rate, **fields}

    def test_takes_every_run_and_no_aggregate(self):
        found = programs.parse_benchmark({"benchmarks": [
            self.entry("BM_A/1", 1.0), self.entry("BM_A/1", 2.0),
            self.entry("BM_A/1", 9.0, run_type="aggregate"),
            self.entry("BM_B", 3.0, error_occurred=True)]})
        self.assertEqual([run["items_per_second"] for run in found.pop("BM_A/1")], [1.0, 2.0])
        self.assertEqual(found, {})

    def test_stands_beside_its_limit(self):
        found = {"ring_bench": {
            "BM_PlainReads/bytes:4096/real_time": [self.entry("x", 2e6), self.entry("x", 4e6)]}}
        self.assertEqual(programs._limit_note("spine.micro.ring_uring_4k", [1.5], found),
                         "0.50 of ring_limit_4k")
        self.assertEqual(programs._limit_note("spine.micro.ring_limit_4k", [1.5], found), "")
        self.assertEqual(
            programs._limit_note("spine.micro.ring_uring_4k", [1.5], {"ring_bench": {}}),
            "ring_limit_4k was not measured")


class MemoryGroupTest(unittest.TestCase):
    ROOT = pathlib.Path("/groups")

    def test_looks_from_its_own_group_upwards(self):
        self.assertEqual(
            memory_group.places("3:cpu,memory:/a/b\n0::/x\n", self.ROOT),
            ([self.ROOT / "memory" / name for name in ("a/b", "a", "")],
             "memory.max_usage_in_bytes"))
        self.assertEqual(memory_group.places("0::/x\n", self.ROOT),
                         ([self.ROOT / "x", self.ROOT], "memory.peak"))
        self.assertEqual(memory_group.places("2:cpu:/\n0::/\n", self.ROOT),
                         ([self.ROOT], "memory.peak"))

    def test_where_nothing_counts_it_is_missing_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "x").mkdir()
            with self.assertRaisesRegex(processes.Missing, "no memory.peak.*no memory.peak"):
                with memory_group.MemoryGroup(root, "0::/x\n"):
                    pass
            self.assertEqual([path.name for path in root.rglob("*")], ["x"])

    def test_a_folder_that_is_not_there_is_passed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(processes.Missing, "No such file.*no memory.peak"):
                with memory_group.MemoryGroup(pathlib.Path(folder), "0::/gone\n"):
                    pass


class FakeGroup:
    def __init__(self, folder, peak):
        self.folder, self._peak = folder, peak

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def peak_bytes(self):
        return self._peak


class QuickstartTest(unittest.TestCase):
    def run_row(self, make_group, body):
        """Figure id -> figure, and the error that ended the row."""
        sheet = figures.Sheet(echo=lambda line: None)
        error = None
        with tempfile.TemporaryDirectory() as folder:
            repository = pathlib.Path(folder)
            (repository / "deploy").mkdir()
            (repository / "deploy" / "quickstart.sh").write_text(body, encoding="utf-8")
            log = repository / "build" / "quickstart" / "log"
            log.mkdir(parents=True)
            (log / "forebayd.log").write_text(
                "forebayd 0.1 serves job 'x' on unix:s (ram 256 MiB, slots 64 MiB, ssd 1 MiB, u)")
            with unittest.mock.patch.dict(os.environ), \
                    unittest.mock.patch.object(tempfile, "tempdir", folder):
                os.environ.pop("FOREBAY_QUICKSTART_DIR", None)
                try:
                    programs.quickstart(sheet, repository, make_group)
                except (processes.Missing, processes.RunFailed) as raised:
                    error = raised
        return {figure.id.rpartition(".")[2]: figure for figure in sheet.figures}, error

    BODY = ('[ "${FOREBAY_DAEMON_CGROUP:-none}" = "%s" ] || exit 9\n'
            'echo "trainer stall   1.44 %%     1.3 %% after"; echo "test accuracy   0.91"\n')

    def test_the_peak_is_read_against_what_the_daemon_says_it_takes(self):
        for over in (-1, 50):
            peak = (320 << 20) + over * 10**6
            row, error = self.run_row(lambda: FakeGroup("/g/a", peak), self.BODY % "/g/a")
            self.assertIsNone(error)
            self.assertEqual(row["memory_over_limits"].value, max(0, over))
            self.assertIn("limits=336 MB", row["memory_over_limits"].settings)
            self.assertEqual((row["accuracy"].value, row["stall"].value), (0.91, 1.44))
            self.assertLess(row["again_s"].value, 60)

    def test_without_a_cgroup_only_the_memory_is_missing(self):
        def none():
            raise processes.Missing("no cgroup")
        row, error = self.run_row(none, self.BODY % "none")
        self.assertIsInstance(error, processes.Missing)
        self.assertEqual(set(row), {"first_s", "again_s", "accuracy", "stall"})

    def test_a_daemon_outside_its_cgroup_is_no_figure(self):
        row, error = self.run_row(lambda: FakeGroup("/g/a", 0), self.BODY % "/g/a")
        self.assertIsInstance(error, processes.RunFailed)
        self.assertNotIn("memory_over_limits", row)

    def test_a_failing_script_or_one_that_says_nothing_is_no_figure(self):
        for body in ("echo why >&2; exit 1\n", "true\n"):
            row, error = self.run_row(lambda: FakeGroup("/g/a", 1), body)
            self.assertIsInstance(error, processes.RunFailed)
            self.assertNotIn("accuracy", row)

    def test_the_log_must_name_the_limits(self):
        with self.assertRaises(processes.RunFailed):
            programs.daemon_limits("forebayd: something else")


class MachineTest(unittest.TestCase):
    def test_reads_the_cpu_clock_of_a_process(self):
        before = machine.process_cpu_seconds(os.getpid())
        sum(range(200_000))
        self.assertGreater(machine.process_cpu_seconds(os.getpid()), before)

    def test_processors_of_other_cores_come_first(self):
        with tempfile.TemporaryDirectory() as topology, \
                unittest.mock.patch("os.sched_getaffinity", return_value={0, 1, 2, 3, 9}):
            for processor, siblings in enumerate(["0-1", "0-1", "2-3", "2-3"]):
                folder = pathlib.Path(topology) / f"cpu{processor}" / "topology"
                folder.mkdir(parents=True)
                (folder / "thread_siblings_list").write_text(siblings + "\n", encoding="ascii")
            self.assertEqual(machine.separate_cores(3, topology), [0, 2, 9])
            self.assertEqual(machine.separate_cores(9, topology), [0, 2, 9, 1, 3])

    def test_the_reader_of_a_pair_has_a_core_of_its_own_where_there_are_three(self):
        for cores, wanted in (([4, 6, 8], [4, 6, 8]), ([0, 1], [0, 1, 0])):
            with unittest.mock.patch("harness.machine.separate_cores", return_value=cores):
                self.assertEqual(nodes_job.pair_cores(), wanted)
        with unittest.mock.patch("harness.machine.separate_cores", return_value=[0]), \
                self.assertRaises(processes.Missing):
            nodes_job.pair_cores()


if __name__ == "__main__":
    unittest.main()
