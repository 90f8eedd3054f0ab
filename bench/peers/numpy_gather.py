"""The NumPy peer: one process that gathers shuffled batches from a memory-mapped file of records
and sums every sample of them. The strongest thing that two lines of Python can do."""

import argparse
import time

import numpy

import digest

GOLDEN = numpy.uint64(digest.GOLDEN)


def mix64(x):
    """digest.mix64 of every element of an array of uint64."""
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def sum_digest(samples, sums):
    """What Digest.add does with each (sample, sum), for whole arrays; modulo 2^64."""
    return int(mix64(mix64(samples + GOLDEN) ^ sums).sum(dtype=numpy.uint64))


def map_rows(data, index):
    """The file's records as rows of little-endian 64-bit words, and the bytes of a sample. A record
    that does not end on a word is followed by zeros up to the next one."""
    with open(index, encoding="utf-8") as file:
        places = [tuple(map(int, line.rstrip("\n").split("\t")[1:])) for line in file]
    sample_bytes = places[0][1]
    row_bytes = (sample_bytes + 7) // 8 * 8
    # Rows are found by multiplication below, so a file with gaps would give wrong samples without
    # an error.
    if any(place != (i * row_bytes, sample_bytes) for i, place in enumerate(places)):
        raise SystemExit("numpy_gather: the records do not lie one after another in whole words")
    rows = numpy.memmap(data, dtype="<u8", mode="r", shape=(len(places), row_bytes // 8))
    # A plain array over the same memory: indexing the memmap class costs more.
    return numpy.asarray(rows), sample_bytes


class Gatherer:
    """Batches from `rows`. `in_place`: numpy.take into one buffer, which stays warm, instead of
    `rows[indices]`, which takes memory for each batch."""

    def __init__(self, rows, batch, in_place):
        self.rows = rows
        self.batch = batch
        self.buffer = numpy.empty((batch, rows.shape[1]), rows.dtype) if in_place else None

    def sum_epoch(self, order, sums):
        """Gathers and sums every sample of `order`, a batch at a time."""
        # Local names, because the loop below is timed and attribute look-ups are not free.
        rows, buffer = self.rows, self.buffer
        for at in range(0, len(order), self.batch):
            indices = order[at:at + self.batch]
            if buffer is None:
                gathered = rows[indices]
            else:
                gathered = numpy.take(rows, indices, axis=0, out=buffer[:len(indices)],
                                      # "raise" would make numpy.take fill a temporary array first,
                                      # and then copy it to `out`.
                                      mode="clip")
            numpy.add.reduce(gathered, axis=1, out=sums[at:at + len(indices)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--order", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    rows, sample_bytes = map_rows(arguments.data, arguments.index)
    count = len(rows)
    order = numpy.fromfile(arguments.order, dtype="<u8")
    sums = numpy.empty(count, dtype=numpy.uint64)
    gatherer = Gatherer(rows, arguments.batch, arguments.in_place)
    report = {"contender": "numpy_gather", "check": None, "epochs": [],
              "settings": f"numpy={numpy.__version__} batch={arguments.batch} "
              f"{'take' if arguments.in_place else 'rows[indices]'}"}
    if arguments.check:
        consumer = digest.Consumer("numpy_gather", "")
        consumer.run_epoch(
            lambda: [[(i, rows[i].view(numpy.uint8)[:sample_bytes])] for i in range(count)],
            check=True)
        report["check"] = consumer.report["check"]
    for epoch in range(arguments.epochs):
        # Converted outside the timing: indexing with uint64 would convert in every batch.
        ids = order[epoch * count:(epoch + 1) * count].astype(numpy.int64)
        begin_cpu, begin = digest.cpu_seconds(), time.monotonic()
        gatherer.sum_epoch(ids, sums)
        seconds, cpu = time.monotonic() - begin, digest.cpu_seconds() - begin_cpu
        # The digest is taken of the sums afterwards: NumPy is not to pay for our bookkeeping.
        result = digest.Digest()
        result.samples, result.bytes = count, count * sample_bytes
        result.byte_sum = int(sums.sum(dtype=numpy.uint64))
        result.sums = sum_digest(ids.astype(numpy.uint64), sums)
        report["epochs"].append(digest.epoch_json(result, seconds, cpu))
    digest.print_report(report, [])


if __name__ == "__main__":
    main()
