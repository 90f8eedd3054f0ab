"""Wall clocks of some daemons that are wrong, and may jump. A library that is loaded before all
others of such a daemon (tests/integration/wrong_clock_preload.cc) adds the seconds that stand in a
file to its wall clock."""

import pathlib
import struct

from harness import processes

LIBRARY = "libforebay_wrong_clock.so"
_SECONDS = struct.Struct("=q")


class Clocks:
    """`folder` must exist while the daemons of `nodes` run. Their clocks are right at first."""

    def __init__(self, library, folder, nodes):
        self._library = library and pathlib.Path(library).resolve()  # none if no clock is wrong
        self._paths = {node: pathlib.Path(folder).resolve() / f"clock{node}" for node in nodes}
        for path in self._paths.values():
            path.write_bytes(_SECONDS.pack(0))

    def command(self, node):
        """Words before the command of the node's daemon; none where its clock stays right."""
        if node not in self._paths:
            return []
        return ["env", f"LD_PRELOAD={self._library}", f"FOREBAY_TEST_CLOCK={self._paths[node]}"]

    def set(self, node, process, hours):
        """From now on, the wall clock of `process`, the daemon of the node, is ahead by `hours`;
        negative: behind."""
        # The loader only warns if it cannot load the library: then the clock would stay right.
        mapped = pathlib.Path(f"/proc/{process.pid}/maps").read_text("utf-8")
        if str(self._paths[node]) not in mapped:
            raise processes.RunFailed(
                f"the daemon of node {node} has not loaded {self._library}: its clock is right")
        # In place, because the daemon has mapped the file.
        with self._paths[node].open("r+b") as file:
            file.write(_SECONDS.pack(hours * 3600))
