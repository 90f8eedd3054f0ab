"""DeliveryDigest in Python (delivery_digest.h defines it), and the report that peers print."""

import ctypes
import ctypes.util
import json
import resource
import time

import numpy

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# The constants are those of delivery_digest.h; digest_test.py holds both to one table of golden
# values.
def mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def element(sample, content_hash):
    return mix64(mix64((sample + GOLDEN) & MASK) ^ content_hash)


def byte_sum(data):
    """The sum of `data` (bytes-like, contiguous) as little-endian 64-bit words, modulo 2^64."""
    view = memoryview(data).cast("B")
    words = len(view) // 8
    # numpy sums with its widest vectors, as ByteSum does in C++, so the consumer costs the same in
    # both.
    total = int(numpy.frombuffer(view, dtype="<u8", count=words).sum(dtype=numpy.uint64))
    return (total + int.from_bytes(view[words * 8:], "little")) & MASK


def _load_xxh3():
    # The system's library through ctypes: a pure Python XXH3 would take longer than the epoch
    # itself.
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"
    function = ctypes.CDLL(name).XXH3_64bits
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return function


_XXH3 = None


def xxh3(data):
    global _XXH3
    if _XXH3 is None:
        _XXH3 = _load_xxh3()
    array = numpy.frombuffer(data, dtype=numpy.uint8)
    return _XXH3(array.ctypes.data, array.size)


class Digest:
    def __init__(self):
        self.samples = 0
        self.bytes = 0
        self.byte_sum = 0
        self.sums = 0
        self.content = 0

    def add(self, sample, data, with_content):
        total = byte_sum(data)
        self.samples += 1
        self.bytes += len(data)
        self.byte_sum = (self.byte_sum + total) & MASK
        self.sums = (self.sums + element(sample, total)) & MASK
        if with_content:
            self.content = (self.content + element(sample, xxh3(data))) & MASK


def cpu_seconds():
    """User and system seconds of this process and of its children that have ended."""
    total = 0.0
    # Workers that are still alive (persistent ones of a DataLoader) are not in these sums, so the
    # CPU time of such a peer comes out too small, in its favour.
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def epoch_json(digest, seconds, cpu):
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "samples": digest.samples,
        "bytes": digest.bytes,
        "byte_sum": f"{digest.byte_sum:016x}",
        "sums_digest": f"{digest.sums:016x}",
        "content_digest": f"{digest.content:016x}",
    }


def percentile(ordered, fraction):
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0


class Consumer:
    """Runs epochs over iterators of batches [(sample id, bytes-like), ...]; builds the report."""

    def __init__(self, contender, settings):
        self.report = {"contender": contender, "settings": settings, "check": None, "epochs": []}
        self.waits_ms = []

    def run_epoch(self, make_batches, check=False):
        digest = Digest()
        begin_cpu = cpu_seconds()
        begin = time.monotonic()
        waited_from = begin
        # A wait is the time from the end of one batch's sums to the arrival of the next batch: what
        # the loader did not hide behind the consumer's work.
        for batch in make_batches():
            if not check:
                self.waits_ms.append((time.monotonic() - waited_from) * 1e3)
            for sample, data in batch:
                digest.add(sample, data, check)
            waited_from = time.monotonic()
        result = epoch_json(digest, time.monotonic() - begin, cpu_seconds() - begin_cpu)
        if check:
            self.report["check"] = result
        else:
            self.report["epochs"].append(result)

    def print(self):
        print_report(self.report, self.waits_ms)


def print_report(report, waits_ms):
    """Prints `report` with what `waits_ms`, the waits for each batch in their order, amount to."""
    ordered = sorted(waits_ms)
    report["waits"] = {
        "first_ms": waits_ms[0] if waits_ms else 0.0,
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "max_ms": ordered[-1] if ordered else 0.0,
        "total_ms": sum(ordered),
    }
    print(json.dumps(report))
