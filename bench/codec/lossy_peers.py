#!/usr/bin/env python3
"""Runs SZ3 (all its algorithms) and zfp on a field, and holds them and others to the bound.

    lossy_peers.py --data DIR --set NAME --bound B [--rounds N] [--mask-of SET]
                   [--check NAME=DECODED.raw ...]

Prints one line of JSON: a list of contenders with ratio, decode seconds, and the checker's verdict.
`--check` judges what another program decoded. `--mask-of` charges the cost of the holes of SET,
packed to bits and compressed with LZMA, to every codec: for a field whose fill was replaced.
Needs numpy, pysz (PyPI) and zfpy (Debian: python3-zfpy); exit status 3 where one is missing.
"""

import argparse
import json
import lzma
import os
import pathlib
import sys
import time

# Before the libraries are loaded, which read it at their start: one thread for every codec.
os.environ.setdefault("OMP_NUM_THREADS", "1")

try:
    import numpy
    import pysz
    import zfpy
except ImportError as missing:
    print(f"lossy_peers.py: {missing} (Debian: python3-numpy, python3-zfpy; PyPI: pysz)",
          file=sys.stderr)
    sys.exit(3)

import bound_check

DTYPES = {"f32": "<f4"}
# codec_rounds.cc flushes as many bytes, so both programs start a decode with caches in the same
# state.
FLUSH_BYTES = 96 << 20
# Those that predict; the rest store losslessly or are for one kind of data.
SZ3_ALGORITHMS = {"sz3_default": "INTERP_LORENZO", "sz3_interp": "INTERP",
                  "sz3_lorenzo_regression": "LORENZO_REG", "sz3_no_prediction": "NOPRED"}


def load(folder, name):
    facts = json.loads((folder / f"{name}.json").read_text("utf-8"))
    if facts["dtype"] not in DTYPES:
        raise ValueError(f"{name}: {facts['dtype']} is not for lossy codecs")
    field = numpy.fromfile(folder / f"{name}.raw", DTYPES[facts["dtype"]])
    return field.reshape(facts["shape"]), facts.get("fill")


def mask_bytes(folder, name):
    """Bytes that the places of the holes of set `name` cost."""
    field, fill = load(folder, name)
    if fill is None:
        return 0
    # A user who replaces holes has to store where they were; without this charge the peers would
    # get the mask for nothing.
    return len(lzma.compress(numpy.packbits(field == numpy.float32(fill)).tobytes(), preset=9))


def timed(decode, rounds):
    """(what the last call gave, {"decode_s", "decode_cpu_s": of each call on cold caches})"""
    flush = numpy.zeros(FLUSH_BYTES // 8, "u8")
    seconds, cpu, decoded = [], [], None
    for _ in range(rounds):
        # Touches every line of the buffer and so pushes out the coded bytes.
        flush += 1
        start, cpu_start = time.perf_counter(), time.process_time()
        decoded = decode()
        cpu.append(time.process_time() - cpu_start)
        seconds.append(time.perf_counter() - start)
    return decoded, {"decode_s": {"1": seconds}, "decode_cpu_s": {"1": cpu}}


def sz3(field, bound, algorithm, rounds):
    config = pysz.szConfig()
    config.errorBoundMode = pysz.szErrorBoundMode.ABS
    config.absErrorBound = bound
    config.cmprAlgo = getattr(pysz.szAlgorithm, algorithm)
    # Every contender encodes on one thread.
    config.openmp = False
    start = time.perf_counter()
    coded, _ = pysz.sz.compress(field, config)
    encode_s = time.perf_counter() - start
    decoded, times = timed(lambda: pysz.sz.decompress(coded, field.dtype, field.shape)[0], rounds)
    return coded.nbytes, encode_s, decoded, times


def zfp(field, bound, rounds):
    start = time.perf_counter()
    coded = zfpy.compress_numpy(field, tolerance=bound)
    encode_s = time.perf_counter() - start
    decoded, times = timed(lambda: zfpy.decompress_numpy(coded), rounds)
    return len(coded), encode_s, decoded, times


def contenders(field, bound, rounds):
    # All that predict are run, and the report has each.
    for name, algorithm in SZ3_ALGORITHMS.items():
        yield name, f"SZ3 (pysz) {algorithm}, absolute bound", lambda a=algorithm: sz3(
            field, bound, a, rounds)
    yield "zfp", "zfp (zfpy) accuracy mode", lambda: zfp(field, bound, rounds)


def measure(options):
    field, fill = load(options.data, options.set)
    charge = mask_bytes(options.data, options.mask_of) if options.mask_of else 0
    report = {"set": options.set, "bound": options.bound, "mask_bytes": charge,
              "raw_bytes": field.nbytes, "contenders": []}
    # Without rounds only what others decoded is judged.
    runs = contenders(field, options.bound, options.rounds) if options.rounds > 0 else ()
    for name, settings, run in runs:
        entry = {"name": name, "settings": settings}
        try:
            size, encode_s, decoded, times = run()
            verdict = bound_check.check_absolute(field, decoded, options.bound, fill)
            entry.update(coded_bytes=size + charge, ratio=field.nbytes / (size + charge),
                         encode_s=[encode_s], **times, **verdict.to_json())
        # The bindings raise these for data that an algorithm does not take. The entry keeps the
        # error.
        except (RuntimeError, ValueError, TypeError) as error:
            entry["error"] = f"{type(error).__name__}: {error}"
        report["contenders"].append(entry)
    for name, path in (word.split("=", 1) for word in options.check):
        decoded = numpy.fromfile(path, field.dtype).reshape(field.shape)
        verdict = bound_check.check_absolute(field, decoded, options.bound, fill)
        report["contenders"].append({"name": name, **verdict.to_json()})
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--set", required=True)
    parser.add_argument("--bound", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mask-of", metavar="SET")
    parser.add_argument("--check", action="append", default=[], metavar="NAME=FILE")
    print(json.dumps(measure(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
