"""What the row `losses` of suite `nodes` and the chaos runner take for right; no daemon."""

import mmap
import os
import pathlib
import struct
import tempfile
import types
import unittest
import unittest.mock

from harness import delivered, figures, nodes_losses, processes, switch, wrong_clock


class DeliveredTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def log(self, name, *batches, rank=0, generation=0, tail=b""):
        """`batches`: epoch, position, samples, and maybe wrong samples and microseconds."""
        path = self.folder / name
        data = b""
        for epoch, position, samples, *more in batches:
            wrong, waited_us = more or (0, 0)
            data += struct.pack(f"<IIIIQ{len(samples)}Q", epoch, len(samples), wrong, waited_us,
                                position, *samples)
        path.write_bytes(data + tail)
        return delivered.Log(path, rank, generation)

    def expect_wrong(self, text, *logs, records=4, epochs=1):
        with self.assertRaisesRegex(delivered.Wrong, text):
            delivered.check(logs, records, epochs)

    def test_whole_epochs_of_two_ranks_are_right(self):
        delivered.check([self.log("a", (0, 0, [3, 1]), (1, 0, [0, 1])),
                         self.log("b", (0, 2, [0, 2]), (1, 2, [2, 3]), rank=1)], 4, 2)

    def test_a_batch_that_a_killed_reader_got_may_come_again(self):
        half_a_line = struct.pack("<IIIIQ", 0, 2, 0, 0, 2)
        delivered.check([self.log("a", (0, 0, [3, 1]), tail=half_a_line),
                         self.log("b", (0, 0, [3, 1]), (0, 2, [0, 2]))], 4, 1)

    def test_a_batch_of_a_rank_of_before_a_restart_may_be_another_ranks(self):
        delivered.check([self.log("a", (0, 0, [3, 1])),
                         self.log("b", (0, 0, [3, 1]), (0, 2, [0, 2]), rank=1, generation=1)],
                        4, 1)

    def test_wrong_bytes_are_found(self):
        self.expect_wrong("1 samples with wrong bytes at 2 of epoch 0",
                          self.log("a", (0, 0, [0, 1]), (0, 2, [2, 3], 1, 0)))

    def test_positions_that_nobody_got_are_found(self):
        self.expect_wrong("epoch 0: 2 of 4 positions", self.log("a", (0, 0, [0, 1])))

    def test_a_sample_at_two_positions_is_found(self):
        self.expect_wrong("delivered twice", self.log("a", (0, 0, [0, 1]), (0, 2, [2, 2])))

    def test_another_sample_at_the_same_position_is_found(self):
        self.expect_wrong("two samples at 1", self.log("a", (0, 0, [0, 1])),
                          self.log("b", (0, 0, [0, 2])))

    def test_a_batch_that_comes_twice_is_found(self):
        self.expect_wrong("0 of epoch 0 comes after", self.log("a", (0, 0, [0, 1]), (0, 0, [0, 1])))

    def test_two_ranks_with_one_batch_are_found(self):
        self.expect_wrong("two ranks have got 0", self.log("a", (0, 0, [0, 1])),
                          self.log("b", (0, 0, [0, 1]), rank=1))

    def test_an_epoch_too_many_is_found(self):
        self.expect_wrong("a batch of epoch 1", self.log("a", (0, 0, [0, 1, 2, 3]), (1, 0, [0])))

    def test_the_first_wait_is_no_stall(self):
        log = self.log("a", (0, 0, [0], 0, 9_000_000), (0, 1, [1], 0, 20_000),
                       (0, 2, [2], 0, 500_000))
        self.assertAlmostEqual(delivered.longest_stall_s(log.path), 0.5)
        self.assertEqual(delivered.longest_stall_s(self.log("b", (0, 0, [0], 0, 9)).path), 0)


class SwitchTest(unittest.TestCase):
    def test_a_rate_is_that_of_all_packets_together(self):
        rate = switch.Rate(bits_per_s=8e6)
        self.assertAlmostEqual(rate.sent_at(10.0, 1000), 10.001)
        self.assertAlmostEqual(rate.sent_at(10.0, 1000), 10.002)
        self.assertEqual(rate.waited, 1)
        self.assertAlmostEqual(rate.sent_at(20.0, 1000), 20.001)

    def test_a_packet_that_would_wait_too_long_is_dropped(self):
        rate = switch.Rate(bits_per_s=8e3)
        self.assertAlmostEqual(rate.sent_at(0.0, 1000), 1.0)
        self.assertIsNone(rate.sent_at(0.5, 1000))
        self.assertAlmostEqual(rate.sent_at(0.9, 1000), 2.0)

    def test_no_node_is_a_pair_with_itself(self):
        self.assertEqual(switch.between([0, 1], [1, 2]), [(0, 1), (0, 2), (1, 2)])


class ClocksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name).resolve() / "clock1"
        self.clocks = wrong_clock.Clocks("lib.so", folder.name, [1])
        self.this = types.SimpleNamespace(pid=os.getpid())  # in place of a daemon

    def test_only_daemons_whose_clocks_may_be_wrong_load_the_library(self):
        self.assertEqual(self.clocks.command(0), [])
        self.assertEqual(self.clocks.command(1), ["env", f"LD_PRELOAD={pathlib.Path.cwd()}/lib.so",
                                                  f"FOREBAY_TEST_CLOCK={self.path}"])

    def test_a_clock_is_right_until_it_is_set(self):
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as page:
            self.assertEqual(page[:], bytes(8))
            self.clocks.set(1, self.this, hours=-20)
            self.assertEqual(struct.unpack("=q", page[:]), (-20 * 3600,))

    def test_a_daemon_that_has_not_loaded_the_library_is_an_error(self):
        with self.assertRaisesRegex(processes.RunFailed, "daemon of node 1 .* its clock is right"):
            self.clocks.set(1, self.this, hours=1)
        self.assertEqual(self.path.read_bytes(), bytes(8))


class LossesTest(unittest.TestCase):
    def test_a_fault_that_is_not_chosen_has_no_goals(self):
        self.assertEqual(set(nodes_losses.goals_of_row(["slow", "clocks_jump"])), {
            "nodes.losses.clocks_jump_exact", "nodes.losses.clocks_jump_gfs_of_bound",
            "nodes.losses.slow_exact", "nodes.losses.slow_time"})
        self.assertEqual(nodes_losses.GOALS, nodes_losses.goals_of_row(nodes_losses.NAMES))

    def test_a_part_of_a_name_that_no_fault_has_is_an_error(self):
        with unittest.mock.patch.object(nodes_losses, "CHOSEN", []), \
                self.assertRaisesRegex(processes.Missing, "FOREBAY_LOSSES_ONLY.*kill_staging"):
            nodes_losses.run(None)

    def test_a_jump_of_clocks_costs_no_read_of_the_gfs(self):
        shares = {scenario.name: scenario.shares for scenario in nodes_losses.SCENARIOS}
        self.assertEqual((shares["clocks_jump"], shares["clocks_jump_staging"]), (0, 0))

    def test_a_lost_share_may_be_read_a_second_time(self):
        self.assertLess(nodes_losses.gfs_bound(64 << 20, 0), 1.03 * (64 << 20))
        bound = nodes_losses.gfs_bound(64 << 20, 1)
        self.assertGreater(bound, 1.02 * 1.25 * (64 << 20))
        self.assertLess(bound, 1.02 * 1.30 * (64 << 20))

    def test_kills_have_all_goals_of_the_issue(self):
        for phase in ("staging", "warm", "eviction"):
            for name, bound in (("exact", nodes_losses.INSTANTS), ("gfs_of_bound", 1),
                                ("stall", 5)):
                _, goal = nodes_losses.GOALS[f"nodes.losses.kill_{phase}_{name}"]
                self.assertEqual(goal.bound, bound)

    def test_the_worst_run_has_to_meet_the_goal(self):
        figure = figures.worst("a", "s", [1, 6, 2], goal=figures.Goal(5, at_least=False))
        self.assertIs(figure.met, False)
        self.assertEqual((figure.value, figure.low, figure.high, figure.runs), (6, 1, 6, 3))


if __name__ == "__main__":
    unittest.main()
