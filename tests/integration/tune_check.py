"""forebay tune against a real daemon: it reads labels as they are stored, and measures the tier.

Usage: tune_check.py FOREBAY FOREBAYD

The labels have 32 bits, and no single byte of them tells the three classes apart.
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

import served_daemon

DATASET = 'name = "sorted"\nformat = "idx"\nfiles = ["images=images", "labels=labels"]'
LABELS = [256] * 300 + [1] * 300 + [65537] * 200  # sorted by class
IMAGE_BYTES = 4 * 4


def write_set(folder):
    folder.mkdir()
    count = len(LABELS)
    images = b"".join(bytes([place % 256]) * IMAGE_BYTES for place in range(count))
    (folder / "images").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, 4, 4) + images)
    (folder / "labels").write_bytes(struct.pack(">4BI", 0, 0, 12, 1, count)
                                    + struct.pack(f">{count}i", *LABELS))


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(forebay, address):
    tune = (forebay, "--address", address, "--json", "tune", "--dataset", "sorted",
            "--global-batch", 20, "--seconds", 0.2, "--mode", "sequential")
    run(forebay, "--address", address, "--json", "stage", "sorted")
    figures, *modes, answer = run(*tune)
    assert figures["samples"] == len(LABELS), figures
    assert figures["classes"] == 3, figures
    assert figures["classes_origin"] == "measured, field 'labels'", figures
    assert figures["rates"]["ram_bytes_per_s"]["origin"] == "measured", figures
    assert figures["rates"]["ram_bytes_per_s"]["value"] > 0, figures
    # 300 samples are 15 batches, so each batch of the order of storage has one class.
    sequential = modes[-1]
    assert sequential["mode"] == "sequential" and sequential["batch_entropy"] == 0, sequential
    assert answer["mode"] == "global", answer
    # The first two classes alone, by a selection.
    part = run(*tune, "--selection", "range:0:600")[0]
    assert part["samples"] == 600 and part["classes"] == 2, part


def main():
    forebay, forebayd = sys.argv[1:]
    os.environ["FOREBAY_JOB_ID"] = "t"
    with tempfile.TemporaryDirectory(prefix="fb.") as name:
        folder = pathlib.Path(name)
        write_set(folder / "gfs")
        daemon = served_daemon.serve(forebayd, folder, DATASET)
        try:
            check(forebay, f"unix:{folder}/s")
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=60) == 0


if __name__ == "__main__":
    main()
