"""Starts a daemon over a folder, for the Python tests of this room."""

import os
import subprocess


def serve(forebayd, folder, dataset):
    """A daemon over folder/gfs, ready for clients at folder/s. `dataset` are the lines of its data
    set's table, without the path."""
    config = folder / "forebayd.toml"
    config.write_text(f'[daemon]\nsocket = "{folder}/s"\njob_id = "t"\n'
                      f'[[dataset]]\npath = "{folder}/gfs"\n{dataset}\n', encoding="utf-8")
    ready, says_ready = os.pipe()
    process = subprocess.Popen([forebayd, "--config", str(config), "--ready-fd", str(says_ready)],
                               pass_fds=[says_ready])
    os.close(says_ready)
    assert os.read(ready, 100).startswith(b"READY"), "forebayd did not start"
    os.close(ready)
    return process
