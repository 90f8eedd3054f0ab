"""A memory cgroup of its own for one program: what it took at most, shared memory and page cache
included."""

import os
import pathlib

from harness.processes import Missing

CGROUP_ROOT = pathlib.Path("/sys/fs/cgroup")


def places(own_groups, root=CGROUP_ROOT):
    """Where a group may be made, by the text of /proc/self/cgroup: beneath this process's own
    group first, then beneath each one above it. Returns (folders, the file that holds a group's
    peak). In a container the own group's path may not be visible; the root always is."""
    paths = {}
    for line in own_groups.splitlines():
        _, controllers, path = line.split(":", 2)
        # Version 2 has one line with an empty list of controllers, so its key is "".
        for controller in controllers.split(","):
            paths[controller] = path
    # Version 1 has a tree for memory alone. A machine may have both; the one that limits memory
    # counts.
    if "memory" in paths:
        base, peak, own = root / "memory", "memory.max_usage_in_bytes", paths["memory"]
    else:
        base, peak, own = root, "memory.peak", paths.get("", "/")
    folder = base / own.strip("/")
    folders = [folder]
    while folder != base:
        folder = folder.parent
        folders.append(folder)
    return folders, peak


class MemoryGroup:
    """Made on entry, removed on exit. Missing where no group that counts can be made."""

    def __init__(self, root=CGROUP_ROOT, own_groups=None):
        if own_groups is None:
            own_groups = pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii")
        self._folders, self._peak = places(own_groups, root)
        self.folder = None

    def __enter__(self):
        reasons = []
        # The search goes from the process's own group upwards, because a container may write
        # beneath only one of the groups.
        for parent in self._folders:
            folder = parent / f"forebay-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError as error:
                reasons.append(str(error))
                continue
            # Without the memory controller the folder can be made and counts nothing.
            if (folder / self._peak).exists():
                self.folder = folder
                return self
            folder.rmdir()
            reasons.append(f"{folder}: no {self._peak}")
        raise Missing("no memory cgroup can be made: " + "; ".join(reasons))

    def __exit__(self, *_):
        self.folder.rmdir()

    def peak_bytes(self):
        return int((self.folder / self._peak).read_text(encoding="ascii"))
