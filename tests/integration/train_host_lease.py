"""forebay-train: what is swapped out lies in memory that is leased from the daemon.

Usage: train_host_lease.py FOREBAY_TRAIN FOREBAYD

A run that swaps leases before it trains, and ends in the weights of one that does not swap. Where
the daemon cannot spare the memory, the run ends before its first step, and says what to change.
Exit code 1 where any of that is not so.
"""

import argparse
import pathlib
import re
import sys
import tempfile

from train_kill_cycles import Job, shared_memory

ALONE = (1, ())
SWAP = ("--policy", "swap", "--host-bytes", "8MB")


def ended(job):
    """Waits for the private daemon of the run before to go."""
    left = job.leftovers(shared_memory())
    assert not left, left


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("forebayd")
    arguments = parser.parse_args()
    arguments.cycles, arguments.augment = 0, False
    with tempfile.TemporaryDirectory(prefix="fbl.") as name:
        job = Job(arguments, pathlib.Path(name))
        job.words[job.words.index("--epochs") + 1] = 1
        kept = job.summary("kept", ALONE)
        ended(job)
        swapped = job.summary("swapped", ALONE, SWAP)
        ended(job)
        leased = re.search(r"memory: ([\d.]+) MB of the host.* leased", job.log("swapped"))
        assert leased and float(leased[1]) == 8, job.log("swapped")
        assert swapped["weights_digest"] == kept["weights_digest"], (swapped, kept)
        # At most half of the tier is lent, which is less than the run asks for.
        job.config.write_text('[tier.ram]\ncapacity = "2MiB"\n'
                              + job.config.read_text(encoding="utf-8"), encoding="utf-8")
        refused = job.start("refused", ALONE, SWAP)
        assert refused.wait(60) == 1, job.log("refused")
        for words in ("rank 0 may swap up to", "are left", "tier.ram.scratch_reserve",
                      "memory.host_bytes"):
            assert words in job.log("refused"), (words, job.log("refused"))
        assert "epoch 0" not in job.log("refused"), job.log("refused")
    print(f"leased {leased[1]} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
