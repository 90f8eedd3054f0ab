"""forebay tune against a real daemon: it reads labels as they are stored, measures the tier, and
does not recommend what the daemon refuses.

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
# Three times the RAM tier, and there is no SSD tier.
LARGE_SIDE = 64
LARGE_LABELS = [place % 10 for place in range(6000)]
LARGE_DATASET = DATASET + ('\nextent = "512KiB"\n[tier.ram]\ncapacity = "8MiB"\n'
                           '[slots]\ncapacity = "32MiB"')


def write_set(folder, stored_labels, side):
    folder.mkdir()
    count = len(stored_labels)
    images = b"".join(bytes([place % 256]) * (side * side) for place in range(count))
    (folder / "images").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, side, side) + images)
    (folder / "labels").write_bytes(struct.pack(">4BI", 0, 0, 12, 1, count)
                                    + struct.pack(f">{count}i", *stored_labels))


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


def check_beyond_the_tiers(forebay, address):
    # The command fails, because not all of the set is on a tier afterwards.
    subprocess.run([forebay, "--address", address, "--json", "stage", "sorted"],
                   stdout=subprocess.DEVNULL, timeout=120, check=False)
    _, *modes, answer = run(forebay, "--address", address, "--json", "tune", "--dataset", "sorted",
                            "--global-batch", 20, "--seconds", 0.2)
    assert modes[0]["mode"] == "global" and modes[0]["is_refused"], modes[0]
    # The daemon itself has said why.
    assert "order mode 'global' needs all of 'sorted'" in modes[0]["refusal"], modes[0]
    assert answer["order_mode"] != "global" and not answer["is_refused"], answer


def with_daemon(forebayd, dataset, stored_labels, side, act):
    with tempfile.TemporaryDirectory(prefix="fb.") as name:
        folder = pathlib.Path(name)
        write_set(folder / "gfs", stored_labels, side)
        daemon = served_daemon.serve(forebayd, folder, dataset)
        try:
            act(f"unix:{folder}/s")
        finally:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(timeout=60) == 0


def main():
    forebay, forebayd = sys.argv[1:]
    os.environ["FOREBAY_JOB_ID"] = "t"
    with_daemon(forebayd, DATASET, LABELS, 4, lambda address: check(forebay, address))
    with_daemon(forebayd, LARGE_DATASET, LARGE_LABELS, LARGE_SIDE,
                lambda address: check_beyond_the_tiers(forebay, address))


if __name__ == "__main__":
    main()
