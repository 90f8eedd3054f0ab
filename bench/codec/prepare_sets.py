#!/usr/bin/env python3
"""Makes raw arrays of the codec suite's data sets, each once.

    prepare_sets.py --out DIR [SET...]

DIR gets SET.raw (little-endian, C order) and SET.json: name, dtype, shape, bytes, facts about
the source, and the version of this maker. A set whose version and size match is kept. Prints a
JSON object, set -> "made", "kept", or why it could not be made; exit status 1 where one could
not. Needs numpy; netCDF4 for the climate fields, ffmpeg for vtestG.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy

import set_sources

# Raised when a maker changes, so that sets of an earlier version are made again and figures of two
# versions are never mixed.
VERSION = 1
DTYPES = {"|u1": "u8", "<u2": "u16", "<i2": "i16", "<i4": "i32", "<f4": "f32"}


def describe(name, array, facts):
    return {"name": name, "dtype": DTYPES[array.dtype.str], "shape": list(array.shape),
            "bytes": int(array.nbytes), "version": VERSION, **facts}


def is_kept(folder, name):
    try:
        known = json.loads((folder / f"{name}.json").read_text("utf-8"))
        # Size and version are enough: hashing some gigabytes at every run would take longer than
        # the run.
        return (known["version"] == VERSION
                and (folder / f"{name}.raw").stat().st_size == known["bytes"])
    except (OSError, ValueError, KeyError):
        return False


def make(folder, name):
    """The description goes last, so that a set cut short is made again."""
    array, facts = set_sources.SETS[name]()
    # The program reads C order and little-endian, whatever the source has.
    array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    (folder / f"{name}.json").unlink(missing_ok=True)
    array.tofile(folder / f"{name}.raw")
    (folder / f"{name}.json").write_text(json.dumps(describe(name, array, facts)) + "\n",
                                         encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("sets", nargs="*", metavar="SET", help="default: all")
    options = parser.parse_args()
    unknown = [name for name in options.sets if name not in set_sources.SETS]
    if unknown:
        parser.error(f"no set {unknown[0]}; there are: {' '.join(set_sources.SETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    report = {}
    for name in options.sets or set_sources.SETS:
        if is_kept(options.out, name):
            report[name] = "kept"
            continue
        try:
            make(options.out, name)
            report[name] = "made"
        # A set that cannot be made does not stop the others; the exit status and the report say
        # which one is missing.
        except (set_sources.MissingPackage, OSError, ValueError, KeyError,
                subprocess.CalledProcessError) as error:
            report[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(report))
    return 0 if all(word in ("made", "kept") for word in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
