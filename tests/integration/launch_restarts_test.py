#!/usr/bin/env python3
"""`forebay launch --restarts`: daemons that are started again, commands that are run again.

    launch_restarts_test.py FOREBAY FOREBAYD PACED_READER [unittest options]
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from launch_rig import FOREBAY, WAITING, LaunchRig, eventually, processes, run_tests

READER = os.path.abspath(sys.argv[3])
REQUEUE = 85  # of forebay-train
# A daemon of which each start but the first fails as `later` says. It counts its starts, and notes
# its arguments.
FAKE = '''#!/bin/sh
echo >> {0}/starts
echo "$@" >> {0}/arguments
while [ "$1" != --ready-fd ]; do shift; done
trap "exit 0" TERM
[ "$(wc -l < {0}/starts)" = 1 ] || {{ {1}; }}
echo $$ > {0}/part && mv {0}/part {0}/pid
echo "READY unix:{0}/none.sock" > /proc/self/fd/$2
while :; do sleep 0.05; done
'''
# Notes each run, and what it knows of it.
NOTE = 'echo "$FOREBAY_RESTART" >> %s; '


class LaunchRestartsTest(LaunchRig):
    def setUp(self):
        super().setUp()
        self.runs = self.folder / "runs"
        self.note = NOTE % self.runs

    def runs_seen(self):
        return self.runs.read_text().split() if self.runs.exists() else []

    def kill_daemon(self, address_part=""):
        """Returns the process of the daemon that was killed."""
        [pid] = [pid for pid in self.daemon_pids()
                 if any(address_part in word for word in processes(str(self.folder))[pid])]
        os.kill(pid, signal.SIGKILL)
        return pid

    def use_fake_daemon(self, later):
        """`later` is what each start but the first does."""
        programs = self.folder / "programs"
        programs.mkdir()
        fake = programs / "forebayd"
        fake.write_text(FAKE.format(self.folder, later), encoding="ascii")
        fake.chmod(0o700)
        self.environment["PATH"] = "%s:%s" % (programs, self.environment["PATH"])

    def kill_fake_daemon(self):
        pid = self.folder / "pid"
        eventually(pid.exists, "the daemon")
        os.kill(int(pid.read_text()), signal.SIGKILL)

    def starts(self):
        path = self.folder / "starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def start_waiting(self, options=("--restarts", "3"), trap="exit 9", before=""):
        """A launch whose command notes its run and waits for TERM, or for the file `go`."""
        mark = self.folder / "waits"
        launch = self.start(["sh", "-c", self.note + 'trap "%s" TERM; %secho > %s; '
                             "until [ -e %s/go ]; do sleep 0.05; done"
                             % (trap, before, mark, self.folder)], options)
        eventually(mark.exists, "the command")
        return launch

    def reader(self, rank=0):
        """The words of a reader, which waits in the middle of its epoch for `let_read`."""
        os.mkfifo(self.folder / ("go%d" % rank))
        return [READER, "records"] + [str(self.folder / ("%s%d" % (name, rank)))
                                      for name in ("read", "middle", "go")]

    def let_read(self, rank=0):
        os.close(os.open(self.folder / ("go%d" % rank), os.O_WRONLY))

    def assert_exact(self, rank=0):
        self.assertEqual((self.folder / ("read%d" % rank)).read_bytes(), self.data)

    # The daemon ----------------------------------------------------------------------------------

    def test_a_reader_goes_on_when_its_daemon_is_killed(self):
        count = self.folder / "reconnects"
        launch = self.start(["sh", "-c", self.note + '"$@" > %s' % count, "sh", *self.reader()],
                            ["--restarts", "1"])
        eventually((self.folder / "middle0").exists, "half of the epoch")
        killed = self.kill_daemon()
        eventually(lambda: "the daemon of this node runs again" in self.errors(), "a daemon")
        self.assertNotEqual(self.daemon_pids(), [killed])
        self.let_read()
        self.assertEqual(launch.wait(120), 0, self.errors())
        self.assert_exact()
        self.assertGreater(int(count.read_text()), 0, "the fault did not happen")
        self.assertIn("the daemon of this node has ended (signal 9), and is started again in 0.1 s "
                      "(restart 1 of 1)", self.errors())
        self.assertEqual(self.runs_seen(), ["0"])

    def test_no_more_restarts_than_were_allowed(self):
        launch = self.start_waiting(["--restarts", "2"])
        for number in (1, 2):
            self.kill_daemon()
            eventually(lambda: self.errors().count("runs again") == number, "a daemon")
        self.kill_daemon()
        self.assertEqual(launch.wait(60), 4)
        self.assertIn("which gets SIGTERM now; all 2 restarts (--restarts) are used", self.errors())
        self.assertIn("in 0.2 s (restart 2 of 2)", self.errors())

    def test_a_daemon_that_was_asked_to_end_is_not_started_again(self):
        launch = self.start_waiting()
        [daemon] = self.daemon_pids()
        os.kill(daemon, signal.SIGTERM)
        self.assertEqual(launch.wait(60), 4)
        self.assertIn("has ended (exit code 0)", self.errors())
        self.assertIn("because it was asked to end", self.errors())

    def test_a_daemon_is_started_at_the_same_address_until_it_runs(self):
        self.use_fake_daemon('[ "$(wc -l < {0}/starts)" = 4 ] || exit 3'.format(self.folder))
        launch = self.start_waiting(trap="exit 9")
        self.kill_fake_daemon()
        eventually(lambda: "runs again" in self.errors(), "a daemon")
        self.assertEqual(self.starts(), 4)
        self.assertEqual(self.errors().count("the daemon did not start (exit code 3)"), 2)
        for pause in ("in 0.1 s (restart 1", "in 0.2 s (restart 2", "in 0.4 s (restart 3"):
            self.assertIn(pause, self.errors())
        [first, *later] = (self.folder / "arguments").read_text().splitlines()
        self.assertNotIn("--socket", first)
        for words in later:
            self.assertIn("--socket %s/none.sock" % self.folder, words)
        launch.terminate()
        self.assertEqual(launch.wait(60), 9)

    def test_a_daemon_that_does_not_come_back_ends_the_command(self):
        self.use_fake_daemon("exit 3")
        launch = self.start_waiting()
        self.kill_fake_daemon()
        self.assertEqual(launch.wait(60), 4)
        self.assertEqual(self.starts(), 4)
        self.assertIn("has ended (exit code 3) while 'sh' ran, which gets SIGTERM now; all 3 "
                      "restarts (--restarts) are used", self.errors())

    def test_a_daemon_that_does_not_become_ready_again_is_given_up(self):
        self.use_fake_daemon("while :; do sleep 0.05; done")
        launch = self.start_waiting(["--restarts", "3", "--ready-timeout-s", "1"])
        self.kill_fake_daemon()
        self.assertEqual(launch.wait(60), 4)
        self.assertEqual(self.starts(), 2)
        self.assertIn("was not ready within 1 s (--ready-timeout-s)", self.errors())
        self.assertNotIn("asked to end", self.errors())

    def test_a_daemon_that_was_not_ready_and_fails_when_it_is_ended_is_given_up_too(self):
        self.use_fake_daemon('trap "exit 1" TERM; while :; do sleep 0.05; done')
        launch = self.start_waiting(["--restarts", "3", "--ready-timeout-s", "1"], trap="exit 85")
        self.kill_fake_daemon()
        self.assertEqual(launch.wait(60), 4)
        self.assertEqual(self.starts(), 2)
        self.assertIn("was not ready within 1 s (--ready-timeout-s)", self.errors())
        self.assertIn("has ended (exit code 1) while 'sh' ran, which gets SIGTERM now; the daemon "
                      "is not started again, because it was not ready in time", self.errors())
        self.assertNotIn("asked to end", self.errors())
        self.assertEqual(self.runs_seen(), ["0"])

    def test_sigterm_while_the_daemon_is_started_again_ends_both(self):
        self.use_fake_daemon("while :; do sleep 0.05; done")
        launch = self.start_waiting()
        self.kill_fake_daemon()
        eventually(lambda: self.starts() == 2, "the second start")
        launch.terminate()
        self.assertEqual(launch.wait(60), 9, "the command's exit code")
        self.assertEqual(self.starts(), 2)

    def test_a_daemon_that_dies_after_sigterm_is_not_started_again(self):
        trapped = self.folder / "trapped"
        # Its last words end when the test says so.
        launch = self.start_waiting(trap="echo > %s" % trapped)
        launch.terminate()
        eventually(trapped.exists, "the signal")
        [daemon] = self.daemon_pids()
        os.kill(daemon, signal.SIGKILL)
        eventually(lambda: not self.daemon_pids(), "the daemon's end")
        (self.folder / "go").touch()
        self.assertEqual(launch.wait(60), 0, "the command's exit code")
        self.assertNotIn("again", self.errors())

    def test_a_command_that_ends_meanwhile_needs_no_daemon(self):
        self.use_fake_daemon("while :; do sleep 0.05; done")
        launch = self.start_waiting()
        self.kill_fake_daemon()
        eventually(lambda: self.starts() == 2, "the second start")
        (self.folder / "go").touch()
        self.assertEqual(launch.wait(60), 0)

    # The command ---------------------------------------------------------------------------------

    def test_a_command_that_asks_for_it_is_run_again_and_finds_the_data_staged(self):
        status = self.folder / "status"
        script = (self.note + "{forebay} stage records && {forebay} status --json >> {status} && "
                  "[ $FOREBAY_RESTART = 2 ] || exit 85").format(forebay=FOREBAY, status=status)
        done = self.run_launch(["sh", "-c", script], ["--restarts", "5"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.runs_seen(), ["0", "1", "2"])
        seen = [json.loads(line) for line in status.read_text().splitlines()]
        seen = [line for line in seen if "pid" in line]
        self.assertEqual(len(seen), 3)
        self.assertEqual(len({line["pid"] for line in seen}), 1, "the daemon is kept")
        self.assertEqual(seen[-1]["gfs"]["bytes"], len(self.data), "read once for all runs")
        self.assertIn("'sh' has ended (exit code 85), and is run again in 0.1 s (restart 1 of 5); "
                      "the daemon is kept", done.stderr)
        self.assertNotIn("runs again", done.stderr)

    def test_a_command_that_always_asks_for_it_ends_with_that_code(self):
        done = self.run_launch(["sh", "-c", self.note + "exit 85"], ["--restarts", "2"])
        self.assertEqual(done.returncode, REQUEUE)
        self.assertEqual(self.runs_seen(), ["0", "1", "2"])
        self.assertIn("is not run again; all 2 restarts (--restarts) are used", done.stderr)

    def test_a_command_that_a_signal_ended_is_run_again_without_what_it_left(self):
        # The process that stays has this name.
        rest = str(self.folder / "rest")
        os.symlink("/bin/sleep", rest)
        script = (self.note + "[ $FOREBAY_RESTART = 0 ] || exit 7; {0} 1000 & echo $! > {0}.pid; "
                  "kill -KILL $$").format(rest)
        done = self.run_launch(["sh", "-c", script], ["--restarts", "2"])
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(self.runs_seen(), ["0", "1"])
        self.assertIn("'sh' has ended (signal 9), and is run again", done.stderr)
        # The look of tearDown comes later, when a launch that ends could have killed it, too.
        eventually(lambda: not os.path.exists("/proc/" + (self.folder / "rest.pid").read_text()
                                              .strip()), "the end of what the first run left")

    def test_the_code_of_a_shell_whose_program_was_killed_counts_as_a_signal(self):
        done = self.run_launch(["sh", "-c", self.note + "sh -c 'kill -SEGV $$'; exit $?"],
                               ["--restarts", "1"])
        self.assertEqual(done.returncode, 128 + signal.SIGSEGV)
        self.assertEqual(self.runs_seen(), ["0", "1"])

    def test_other_ends_are_final(self):
        for code in (0, 1, 84, 86, 128, 255):
            with self.subTest(code=code):
                done = self.run_launch(["sh", "-c", self.note + "exit %d" % code],
                                       ["--restarts", "3"])
                self.assertEqual(done.returncode, code)
                self.assertEqual(self.runs_seen(), ["0"])
                self.runs.unlink()

    def test_without_the_option_nothing_is_run_again(self):
        done = self.run_launch(["sh", "-c", self.note + "exit 85"])
        self.assertEqual(done.returncode, REQUEUE)
        self.assertEqual(self.runs_seen(), ["0"])
        self.assertNotIn("again", done.stderr)

    def test_a_command_that_was_sent_a_signal_is_not_run_again(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=number):
                mark = self.folder / "waits"
                launch = self.start(["sh", "-c", self.note + 'trap "exit 85" %d; echo > %s; '
                                     "while :; do sleep 0.05; done" % (number, mark)],
                                    ["--restarts", "3"])
                eventually(mark.exists, "the command")
                launch.send_signal(number)
                self.assertEqual(launch.wait(60), REQUEUE)
                self.assertEqual(self.runs_seen(), ["0"])
                self.assertIn("'sh' has ended (exit code 85), and is not run again, because it was "
                              "sent a signal", self.errors())
                self.runs.unlink()
                mark.unlink()

    def test_a_signal_before_the_next_run_prevents_it(self):
        # Each run is killed at once, so that the pauses become long.
        launch = self.start(["sh", "-c", self.note + "kill -KILL $$"], ["--restarts", "1000"])
        eventually(lambda: " in 3.2 s" in self.errors(), "a pause that is long enough")
        launch.send_signal(signal.SIGUSR1)
        self.assertEqual(launch.wait(60), 128 + signal.SIGKILL)
        self.assertEqual(len(self.runs_seen()), self.errors().count("is run again"))
        self.assertIn("'sh' is not run again, because launch got signal 10", self.errors())

    def test_a_command_is_not_run_again_without_a_daemon(self):
        launch = self.start(["sh", "-c", self.note + "exit 85"], ["--restarts", "6"])
        eventually(lambda: " in 3.2 s" in self.errors(), "a pause that is long enough")
        [daemon] = self.daemon_pids()
        os.kill(daemon, signal.SIGTERM)
        self.assertEqual(launch.wait(60), REQUEUE)
        self.assertIn("'sh' is not run again, because the daemon has ended (exit code 0)",
                      self.errors())

    def test_a_daemon_that_dies_between_two_runs_is_started_again_first(self):
        launch = self.start(["sh", "-c", self.note + "[ $FOREBAY_RESTART = 6 ] || exit 85; exec "
                             + FOREBAY + " stage records"], ["--restarts", "7"])
        eventually(lambda: " in 3.2 s" in self.errors(), "a pause that is long enough")
        self.kill_daemon()
        self.assertEqual(launch.wait(60), 0, self.errors())
        self.assertIn("(restart 7 of 7)", self.errors())
        self.assertEqual(self.runs_seen(), [str(run) for run in range(7)])

    def test_the_end_of_the_job_is_left_to_the_batch_system(self):
        script = ["sh", "-c", self.note + "exit 85"]
        for left_s, runs in ((60, ["0"]), (3600, ["0", "1"])):
            with self.subTest(left_s=left_s):
                end = str(int(time.time()) + left_s)
                done = self.run_launch(script, ["--restarts", "1"],
                                       env={**self.environment, "SLURM_JOB_END_TIME": end})
                self.assertEqual(done.returncode, REQUEUE)
                self.assertEqual(self.runs_seen(), runs)
                self.assertEqual("$SLURM_JOB_END_TIME" in done.stderr, left_s == 60)
                self.runs.unlink()

    def test_numbers_that_are_none_are_refused(self):
        for number in ("-1", "1001", "many"):
            done = self.run_launch(["true"], ["--restarts", number])
            self.assertEqual(done.returncode, 2, number)
            self.assertIn("--restarts", done.stderr)

    # Two nodes -----------------------------------------------------------------------------------

    def test_each_launch_restarts_the_daemon_of_its_own_node(self):
        launches = [self.start(self.reader(rank), [*self.node(rank), "--restarts", "1"])
                    for rank in (0, 1)]
        for rank in (0, 1):
            eventually((self.folder / ("middle%d" % rank)).exists, "half of the epoch")
        self.kill_daemon("run1/d.sock")
        eventually(lambda: "runs again" in self.errors(1), "the daemon of node 1")
        for rank in (0, 1):
            self.let_read(rank)
        for rank in (0, 1):
            self.assertEqual(launches[rank].wait(120), 0, self.errors(rank) + self.log(rank))
            self.assert_exact(rank)
        self.assertIn("joins the others again", self.log(1))
        self.assertNotIn("again", self.errors(0))
        self.assertIsNone(re.search("node 0.*joins", self.log(0)))

    def test_a_daemon_that_is_started_again_gets_the_secret_of_standard_input_again(self):
        marks = [self.folder / ("mark%d" % rank) for rank in (0, 1)]
        for rank in (0, 1):
            self.start_with_secret(["sh", "-c", WAITING.format(marks[rank])],
                                   [*self.node(rank), "--restarts", "1"], 64 * "5a" + "\n")
        for mark in marks:
            eventually(mark.exists, "the command")
        self.kill_daemon("run1/d.sock")
        eventually(lambda: "runs again" in self.errors(1), "the daemon of node 1")
        self.assertEqual(self.status(1)["node_connections"], "encrypted")
        self.assertIn("joins the others again", self.log(1))
        for launch in self.started:
            launch.terminate()
            self.assertEqual(launch.wait(60), 9)

    def start_two(self, secret=True):
        """Launches of two nodes, whose readers wait in the middle of their epochs."""
        if secret:
            self.environment["FOREBAY_JOB_SECRET"] = 64 * "5a"
        # Node 0 stays for so long after the loss of node 1.
        options = ["--set", "nodes.lost_readers_s=20"]
        launches = [self.start(self.reader(rank), self.node(rank) + options) for rank in (0, 1)]
        for rank in (0, 1):
            eventually((self.folder / ("middle%d" % rank)).exists, "half of the epoch")
        return launches

    def assert_node_1_reads_elsewhere(self, launches, how):
        eventually(lambda: "has ended (%s)" % how in self.errors(1), "the end of the daemon")
        for rank in (0, 1):
            self.let_read(rank)
        for rank in (0, 1):
            self.assertEqual(launches[rank].wait(120), 0, self.errors(rank) + self.log(rank))
            self.assert_exact(rank)
        self.assertIn("which goes on, and reads from other nodes of the job", self.errors(1))
        self.assertIn("this program reads from another node", self.errors(1))

    def test_a_command_goes_on_at_another_node_when_its_daemon_was_killed(self):
        launches = self.start_two()
        self.kill_daemon("run1/d.sock")
        self.assert_node_1_reads_elsewhere(launches, "signal 9")

    def test_a_command_goes_on_at_another_node_when_its_node_is_drained(self):
        launches = self.start_two()
        done = subprocess.run([FOREBAY, "drain", "--node", "1", "--address",
                               "unix:%s/run1/d.sock" % self.folder], env=self.environment,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_node_1_reads_elsewhere(launches, "exit code 0")

    def test_a_command_is_not_run_again_after_its_daemon_was_asked_to_end(self):
        self.environment["FOREBAY_JOB_SECRET"] = 64 * "5a"
        go = self.folder / "go"
        other = self.start(["sh", "-c", "until [ -e %s ]; do sleep 0.05; done" % go], self.node(0))
        launch = self.start(["sh", "-c", self.note + "until [ -e %s ]; do sleep 0.05; done; exit 85"
                             % go], [*self.node(1), "--restarts", "3"])
        eventually(self.runs.exists, "the command")
        [daemon] = [pid for pid in self.daemon_pids()
                    if any("run1/d.sock" in word for word in processes(str(self.folder))[pid])]
        os.kill(daemon, signal.SIGTERM)
        eventually(lambda: "which goes on" in self.errors(1), "the end of the daemon")
        go.touch()
        self.assertEqual(launch.wait(120), REQUEUE, self.errors(1))
        self.assertIn("and is not run again, because the daemon has ended; the daemon is not "
                      "started again, because it was asked to end", self.errors(1))
        self.assertEqual(self.runs_seen(), ["0"])
        self.assertEqual(other.wait(120), 0, self.errors(0))

    def test_a_command_that_no_other_node_may_serve_is_ended(self):
        launches = self.start_two(secret=False)
        self.kill_daemon("run1/d.sock")
        self.assertEqual(launches[1].wait(60), 4, self.errors(1))
        self.assertIn("which gets SIGTERM now", self.errors(1))
        self.let_read(0)
        self.assertEqual(launches[0].wait(120), 0, self.errors(0) + self.log(0))
        self.assert_exact(0)


if __name__ == "__main__":
    run_tests(programs=3)
