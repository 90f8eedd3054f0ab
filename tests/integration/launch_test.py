#!/usr/bin/env python3
"""`forebay launch`: exit codes, signals, deaths, and nodes that end at different times.

    launch_test.py FOREBAY FOREBAYD [unittest options]
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from launch_rig import FOREBAY, FOREBAYD, WAITING, LaunchRig, eventually, run_tests

# A daemon that was built without libpmix has this message.
PMIX = b"built without PMIx" not in pathlib.Path(FOREBAYD).read_bytes()


def blocks(pid, number):
    """Whether the main thread of the process blocks the signal."""
    status = pathlib.Path("/proc/%d/status" % pid).read_text()
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    return int(mask, 16) >> (number - 1) & 1


class LaunchTest(LaunchRig):
    # One node ------------------------------------------------------------------------------------

    def test_the_exit_code_is_that_of_the_command(self):
        not_executable = self.folder / "text"
        not_executable.write_text("no program")
        for command, code in ((["true"], 0), (["sh", "-c", "exit 7"], 7),
                              (["sh", "-c", "kill -KILL $$"], 137),
                              ([str(self.folder / "absent")], 127), ([str(not_executable)], 126)):
            with self.subTest(command=command):
                done = self.run_launch(command)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(self.daemon_pids(), [])

    def test_the_command_gets_its_arguments_as_they_are_and_the_address(self):
        words = ["[a,b]", "--json", "--", "pack", "{}", "-a", "", "two words"]
        script = 'printf "%s\\n" "$@"; exec ' + FOREBAY + " status --json"
        done = self.run_launch(["sh", "-c", script, "sh", *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:len(words)], words)
        status = json.loads(lines[-1])
        self.assertEqual(status["job_id"], "launch")
        self.assertEqual(status["node_connections"], "", "there is no other node")

    def test_the_configuration_may_come_from_the_environment(self):
        words = [FOREBAY, "launch", "--", "true"]
        without = subprocess.run(words, env=self.environment, capture_output=True, text=True,
                                 timeout=120, check=False)
        self.assertEqual(without.returncode, 2)
        self.assertIn("FOREBAY_CONFIG", without.stderr)
        self.environment["FOREBAY_CONFIG"] = str(self.config)
        subprocess.run(words, env=self.environment, timeout=120, check=True)

    def test_signals_reach_the_command(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(signal=number):
                mark = self.folder / ("mark%d" % number)
                launch = self.start(["sh", "-c", 'trap "exit 30" %d; echo > %s; '
                                     "while :; do sleep 0.05; done" % (number, mark)])
                eventually(mark.exists, "the command")
                launch.send_signal(number)
                self.assertEqual(launch.wait(60), 30)

    def test_below_nohup_a_hangup_ends_nothing(self):
        mark = self.folder / "mark"
        launch = self.start(["sh", "-c", WAITING.format(mark)],
                            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        eventually(mark.exists, "the command")
        [daemon] = self.daemon_pids()
        launch.send_signal(signal.SIGHUP)
        os.kill(daemon, signal.SIGHUP)
        self.assertEqual(self.daemon_pids(), [daemon])
        launch.terminate()
        self.assertEqual(launch.wait(60), 9)
        self.assertNotIn("the daemon ended", self.errors())

    def test_a_batch_systems_warning_to_all_processes_does_not_end_the_daemon(self):
        launch = self.start_waiting()
        [daemon] = self.daemon_pids()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(daemon, number)
        done = subprocess.run([FOREBAY, "status", "--json"], env=self.environment,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.daemon_pids(), [daemon])
        launch.terminate()
        self.assertEqual(launch.wait(60), 9)
        self.assertNotIn("the daemon ended", self.errors())

    def test_a_command_that_a_passed_signal_ends_gives_128_more(self):
        mark = self.folder / "mark"
        launch = self.start(["sh", "-c", "echo > %s; exec sleep 1000" % mark])
        eventually(mark.exists, "the command")
        launch.terminate()
        self.assertEqual(launch.wait(60), 128 + signal.SIGTERM)

    def test_a_daemon_that_does_not_start_is_reported(self):
        done = self.run_launch(["true"], ["--set", "no.such_key=1"])
        self.assertEqual(done.returncode, 4)
        self.assertIn("no.such_key", done.stderr)
        self.assertIn("did not start (exit code 2)", done.stderr)
        log = self.folder / "log"
        done = self.run_launch(["true"], ["--set", "no.such_key=1", "--log", str(log)])
        self.assertIn(str(log), done.stderr)
        self.assertIn("no.such_key", log.read_text())

    def test_a_further_task_of_the_node_is_told_what_to_do(self):
        self.start_waiting()
        done = self.run_launch(["true"], env={**self.environment, "SLURM_LOCALID": "1"})
        self.assertEqual(done.returncode, 4)
        self.assertIn("another forebayd", done.stderr)
        self.assertIn("--ntasks-per-node=1", done.stderr)
        self.started[0].terminate()
        self.assertEqual(self.started[0].wait(60), 9)

    def test_a_daemon_that_dies_ends_the_command(self):
        launch = self.start_waiting()
        [daemon] = self.daemon_pids()
        os.kill(daemon, signal.SIGKILL)
        self.assertEqual(launch.wait(60), 4)
        self.assertTrue((self.folder / "waits0.got").exists())
        self.assertIn("the daemon of this node has ended (signal 9)", self.errors())

    def test_a_daemon_that_ends_right_after_it_was_ready_is_noticed(self):
        programs = self.folder / "programs"
        programs.mkdir()
        fake = programs / "forebayd"
        fake.write_text('#!/bin/sh\nwhile [ "$1" != --ready-fd ]; do shift; done\n'
                        'echo $$ > {0}/part && mv {0}/part {0}/pid\n'
                        "while [ ! -e {0}/go ]; do sleep 0.05; done\n"
                        'echo "READY unix:{0}/none.sock" > /proc/self/fd/$2\nexit 3\n'
                        .format(self.folder), encoding="ascii")
        fake.chmod(0o700)
        self.environment["PATH"] = "%s:%s" % (programs, self.environment["PATH"])
        launch = self.start(["touch", str(self.folder / "begun")])
        eventually((self.folder / "pid").exists, "the daemon")
        daemon = int((self.folder / "pid").read_text())
        # The launch sleeps until the daemon has ended: then it finds the line and the signal at
        # the same time.
        launch.send_signal(signal.SIGSTOP)
        (self.folder / "go").touch()
        state = pathlib.Path("/proc/%d/stat" % daemon)
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", "its end")
        launch.send_signal(signal.SIGCONT)
        self.assertEqual(launch.wait(60), 4)
        self.assertIn("ended before the command began (exit code 3)", self.errors())
        self.assertFalse((self.folder / "begun").exists())

    def test_a_launch_that_is_killed_leaves_nothing(self):
        launch = self.start_waiting()
        launch.kill()
        launch.wait()  # tearDown looks for the rest

    # Two nodes -----------------------------------------------------------------------------------

    def test_a_node_that_waits_for_others_is_given_up(self):
        done = self.run_launch(["true"], [*self.node(0), "--ready-timeout-s", "1"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("--ready-timeout-s", done.stderr)

    def test_a_launch_that_is_killed_while_it_waits_for_others_leaves_nothing(self):
        launch = self.start(["true"], self.node(0))
        eventually(lambda: list((self.folder / "rendezvous").iterdir()), "a rendezvous file")
        launch.kill()
        launch.wait()

    def test_a_signal_before_the_command_ends_the_launch(self):
        launch = self.start(["true"], self.node(0))
        eventually(lambda: list((self.folder / "rendezvous").iterdir()), "a rendezvous file")
        launch.terminate()
        self.assertEqual(launch.wait(60), 128 + signal.SIGTERM)

    def test_a_node_that_has_finished_supplies_the_other_one(self):
        go = self.folder / "go"
        status = self.folder / "status.json"
        script = ("until [ -e {go} ]; do sleep 0.05; done; "
                  "{forebay} pack records {out} && {forebay} status --json > {status}")
        first = self.start(["true"], self.node(0))
        second = self.start(["sh", "-c", script.format(go=go, forebay=FOREBAY, status=status,
                                                       out=self.folder / "out.fbp")], self.node(1))
        eventually(lambda: "it serves the other nodes" in self.log(0), "the first command's end")
        go.touch()
        self.assertEqual(second.wait(60), 0, self.log(1))
        self.assertEqual(first.wait(60), 0, self.log(0))
        self.assertIn("all nodes have finished", self.log(1))
        subprocess.run([FOREBAY, "unpack", str(self.folder / "out.fbp"), "--to",
                        str(self.folder / "arrays")], env=self.environment, check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        self.assertTrue((self.folder / "arrays" / "value.npy").read_bytes().endswith(self.data))
        read = json.loads(status.read_text().splitlines()[-1])["gfs"]["bytes"]
        self.assertLess(read, len(self.data), "the rest came from the first node")

    def test_a_command_that_fails_does_not_wait_for_the_other_node(self):
        second = self.start(["sh", "-c", WAITING.format(self.folder / "mark")], self.node(1))
        first = self.start(["sh", "-c", "exit 5"], self.node(0))
        self.assertEqual(first.wait(60), 5, self.log(0))
        eventually((self.folder / "mark").exists, "the other command")
        second.terminate()
        self.assertEqual(second.wait(60), 9, self.log(1))

    def test_a_node_that_waits_ends_when_it_is_asked_to(self):
        second = self.start(["sh", "-c", WAITING.format(self.folder / "mark")], self.node(1))
        first = self.start(["true"], self.node(0))
        eventually(lambda: "it serves the other nodes" in self.log(0), "the first command's end")
        first.terminate()
        self.assertEqual(first.wait(60), 0, self.log(0))
        eventually((self.folder / "mark").exists, "the other command")
        second.terminate()
        self.assertEqual(second.wait(60), 9, self.log(1))

    def test_a_node_that_waits_may_leave_before_the_others_end(self):
        second = self.start(["sh", "-c", WAITING.format(self.folder / "mark")], self.node(1))
        first = self.start(["true"], self.node(0))
        eventually(lambda: "it serves the other nodes" in self.log(0), "the first command's end")
        eventually((self.folder / "mark").exists, "the other command")
        asked = subprocess.run([FOREBAY, "--address", "unix:%s/run1/d.sock" % self.folder, "drain",
                                "--node", "0"], env=self.environment, capture_output=True,
                               text=True, timeout=60, check=False)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertIn("node '0' hands over what it has", asked.stdout)
        self.assertEqual(first.wait(60), 0, self.log(0))
        self.assertIn("the other nodes have taken over", self.log(0))
        second.terminate()
        self.assertEqual(second.wait(60), 9, self.log(1))

    def test_nodes_get_the_secret_from_standard_input(self):
        secret = subprocess.run([FOREBAY, "secret"], capture_output=True, text=True, timeout=60,
                                check=True).stdout
        script = "read rest; echo $rest, $FOREBAY_JOB_SECRET > {0}.rest; " + WAITING
        for rank in (0, 1):
            # What the configuration and the environment say does not count.
            self.environment["FOREBAY_JOB_SECRET"] = 64 * str(rank)
            self.start_with_secret(["sh", "-c", script.format(self.folder / ("mark%d" % rank))],
                                   [*self.node(rank), "--set", "peer.secret=none"], secret,
                                   "for the command\n")
        for rank in (0, 1):
            mark = self.folder / ("mark%d" % rank)
            eventually(mark.exists, "the command")
            self.assertEqual(pathlib.Path("%s.rest" % mark).read_text(), "for the command,\n")
            self.assertEqual(self.status(rank)["node_connections"], "encrypted")
        for pid in self.daemon_pids():
            environment = pathlib.Path("/proc/%d/environ" % pid).read_bytes()
            self.assertIn(b"FOREBAY_JOB_SECRET=", environment)
            self.assertNotIn(secret.strip().encode(), environment)
        for launch in self.started:
            launch.terminate()
            self.assertEqual(launch.wait(60), 9)

    def test_a_daemon_without_other_nodes_forgets_the_secret(self):
        for options in ([], ["--set", "nodes.rendezvous=directory:%s/rendezvous" % self.folder,
                             "--node-rank", "0", "--node-count", "1"]):
            with self.subTest(options=options):
                mark = self.folder / ("mark%d" % len(self.started))
                launch = self.start_with_secret(["sh", "-c", WAITING.format(mark)], options,
                                                64 * "5a" + "\n")
                eventually(mark.exists, "the command")
                [daemon] = self.daemon_pids()
                environment = pathlib.Path("/proc/%d/environ" % daemon).read_bytes()
                self.assertIn(b"FOREBAY_JOB_SECRET=", environment)
                self.assertNotIn(b"5a5a", environment)
                launch.terminate()
                self.assertEqual(launch.wait(60), 9, self.errors())

    def test_without_a_secret_at_the_descriptor_nothing_is_started(self):
        for number, reason in (("0", "there is no secret"), ("77", "Bad file descriptor"),
                               ("-1", "--secret-fd")):
            with self.subTest(number=number):
                done = self.run_launch(["true"], ["--secret-fd", number],
                                       stdin=subprocess.DEVNULL)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(reason, done.stderr)
                self.assertFalse((self.folder / "forebay-launch").exists(), "no daemon was started")

    def test_a_terminal_is_asked_for_the_secret(self):
        keyboard, terminal = os.openpty()
        launch = self.start(["true"], [*self.own_options(0), "--secret-fd", "0"], stdin=terminal)
        os.close(terminal)
        eventually(lambda: "waits for a line with the secret" in self.errors(), "the question")
        self.assertIsNone(launch.poll())
        os.write(keyboard, 64 * b"a" + b"\n")
        self.assertEqual(launch.wait(60), 0, self.errors())
        os.close(keyboard)

    def test_a_node_joins_the_running_job(self):
        free = ["--set", "nodes.free_places=1"]
        for rank in (0, 1):
            self.start(["sh", "-c", WAITING.format(self.folder / ("mark%d" % rank))],
                       [*self.node(rank), *free])
        eventually(lambda: all((self.folder / ("mark%d" % rank)).exists() for rank in (0, 1)),
                   "both commands")
        seen = self.nodes_seen_by(0)
        self.assertEqual([node["is_free"] for node in seen], [False, False, True])
        # What --set says about the rendezvous does not count beside --join.
        third = self.start(["sh", "-c", WAITING.format(self.folder / "mark2")],
                           [*self.own_options(2), *free, "--set", "nodes.rendezvous=none",
                            "--join", seen[1]["address"]])
        eventually((self.folder / "mark2").exists, "the command of the node that has joined")
        for rank in (0, 1, 2):
            eventually(lambda at=rank: [node["rank"] for node in self.nodes_seen_by(at)
                                        if node["is_self"] or node["answers"]] == [0, 1, 2],
                       "three nodes that answer node %d" % rank)
        for launch in (third, *self.started[:2]):
            launch.terminate()
            self.assertEqual(launch.wait(60), 9)

    def test_a_node_that_got_a_signal_does_not_wait_for_the_readers_of_others(self):
        marks = [self.folder / ("mark%d" % rank) for rank in (0, 1)]
        # The command of node 1 takes the signal for a success, as one that has saved its state may.
        for rank, code in ((0, 9), (1, 0)):
            self.start(["sh", "-c", WAITING.replace("exit 9", "exit %d" % code)
                        .format(marks[rank])], self.node(rank))
        eventually(lambda: all(mark.exists() for mark in marks), "both commands")
        other, launch = self.started
        launch.terminate()
        self.assertEqual(launch.wait(60), 0, self.errors(1))
        self.assertIsNone(other.poll(), "the other node goes on")
        other.terminate()
        self.assertEqual(other.wait(60), 9, self.errors(0))

    def test_a_node_that_cannot_join_says_why(self):
        for address, reason in (("127.0.0.1:1", "peer.secret"), ("somewhere", "join:HOST:PORT")):
            with self.subTest(address=address):
                done = self.run_launch(["true"], ["--join", address, "--set", "peer.interface=lo",
                                                  "--set", "nodes.rendezvous_timeout_s=1"])
                self.assertEqual(done.returncode, 4)
                self.assertIn("nodes.rendezvous", done.stderr)
                self.assertIn(reason, done.stderr)

    def nodes_seen_by(self, name):
        """The places of the job, as the daemon with own_options(name) sees them."""
        done = subprocess.run([FOREBAY, "--address", "unix:%s/run%s/d.sock" % (self.folder, name),
                               "status", "--nodes", "--json"], env=self.environment,
                              capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)["nodes"]

    def under_mpirun(self, script):
        """The command and environment of two tasks, which stand for two nodes."""
        # Launchers that share a folder fail where two make it at once.
        return {"args": ["mpirun", "-n", "2", "--oversubscribe", "sh", "-c", script],
                "env": {**self.environment, "OMPI_MCA_orte_tmpdir_base": str(self.folder),
                        "OMPI_ALLOW_RUN_AS_ROOT": "1",
                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}}

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
    def test_two_nodes_under_mpirun(self):
        for rendezvous in ("", "pmix") if PMIX else ("",):
            with self.subTest(rendezvous=rendezvous or "directory"):
                # The tasks are on one machine, so each says which node it is.
                options = " ".join(self.node("$OMPI_COMM_WORLD_RANK", rendezvous))
                script = ("exec %s launch --config %s %s -- "
                          "sh -c 'echo rank $OMPI_COMM_WORLD_RANK: $FOREBAY_ADDRESS'"
                          % (FOREBAY, self.config, options))
                done = subprocess.run(**self.under_mpirun(script), capture_output=True, text=True,
                                      timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(done.stdout.splitlines()),
                                 ["rank %d: unix:%s/run%d/d.sock" % (rank, self.folder, rank)
                                  for rank in (0, 1)])
                for rank in (0, 1):
                    self.assertIn("node %d of 2" % rank, self.log(rank))

    @unittest.skipUnless(shutil.which("mpirun") and PMIX, "no mpirun, or no PMIx")
    def test_a_node_that_waits_for_others_in_pmix_ends_when_it_is_asked_to(self):
        # The second task is connected, and never comes.
        script = ("[ $OMPI_COMM_WORLD_RANK = 0 ] || exec sleep 1000; exec %s launch --config %s "
                  "%s -- true" % (FOREBAY, self.config, " ".join(self.node(0, "pmix"))))
        with open(self.folder / "errors0", "wb") as errors:
            launch = subprocess.Popen(**self.under_mpirun(script), stderr=errors)
        self.started.append(launch)
        [daemon] = eventually(self.daemon_pids, "the daemon")
        # From then on the signal stays until the daemon reads it, so it may also come too early.
        eventually(lambda: blocks(daemon, signal.SIGTERM), "a daemon that handles the signal")
        os.kill(daemon, signal.SIGTERM)
        self.assertNotEqual(launch.wait(60), 0, "no command has run")
        self.assertIn("the daemon was told to stop", self.log(0))


if __name__ == "__main__":
    run_tests()
