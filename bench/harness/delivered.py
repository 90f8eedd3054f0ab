"""What forebay_cluster_tool has written down of a job (tests/cluster/cluster_tool.cc): whether its
readers got each sample of each epoch once, at one place in the order, with the right bytes; and how
long they waited."""

import dataclasses
import struct

# Epoch, samples, samples with wrong bytes, microseconds until the batch came, first position. The
# numbers of the samples follow.
_HEAD = struct.Struct("<IIIIQ")


class Wrong(Exception):
    """Samples are missing, repeated, at another place or have other bytes."""


@dataclasses.dataclass
class Log:
    path: object
    rank: int
    generation: int = 0  # of the job: a restart of all its ranks begins another one


@dataclasses.dataclass
class Batch:
    epoch: int
    position: int  # of the first sample
    samples: tuple
    wrong: int     # samples with wrong bytes
    waited_s: float


def batches(path):
    """Yields the batches of one reader."""
    data = path.read_bytes()
    at = 0
    # A killed reader may have left a part of its last line.
    while at + _HEAD.size <= len(data):
        epoch, count, wrong, waited_us, position = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + 8 * count > len(data):
            return
        yield Batch(epoch, position, struct.unpack_from(f"<{count}Q", data, at), wrong,
                    waited_us * 1e-6)
        at += 8 * count


def check(logs, records, epochs):
    """Raises Wrong unless all readers together got `epochs` whole epochs. `records`: samples of
    the data set, a multiple of the global batch. Two readers may have got the same batch only if
    the second one took the place of the first: a reader gets each batch once, in the order of the
    positions, and no two ranks that run together get the same one."""
    got = [{} for _ in range(epochs)]
    ranks = {}  # by generation, epoch and position
    for log in logs:
        last = (-1, -1)
        for batch in batches(log.path):
            epoch, position = batch.epoch, batch.position
            if batch.wrong:
                raise Wrong(f"{batch.wrong} samples with wrong bytes at {position} of epoch "
                            f"{epoch} ({log.path.name})")
            if epoch >= epochs:
                raise Wrong(f"a batch of epoch {epoch} ({log.path.name})")
            if (epoch, position) <= last:
                raise Wrong(f"{log.path.name}: {position} of epoch {epoch} comes after {last}")
            last = (epoch, position + len(batch.samples) - 1)
            for i, sample in enumerate(batch.samples, start=position):
                if got[epoch].setdefault(i, sample) != sample:
                    raise Wrong(f"two samples at {i} of epoch {epoch}")
                if ranks.setdefault((log.generation, epoch, i), log.rank) != log.rank:
                    raise Wrong(f"two ranks have got {i} of epoch {epoch}")
    for epoch, samples in enumerate(got):
        if sorted(samples) != list(range(records)):
            raise Wrong(f"epoch {epoch}: {len(samples)} of {records} positions")
        if sorted(samples.values()) != list(range(records)):
            raise Wrong(f"epoch {epoch}: a sample was delivered twice, and another never")


def longest_stall_s(path):
    """Of one reader, between two batches: the wait for its first one is left out."""
    return max((batch.waited_s for batch in list(batches(path))[1:]), default=0.0)
