#!/usr/bin/env python3
"""No object compiled for a newer processor defines functions that the linker may give to others.

    kernel_symbols.py --commands build/compile_commands.json [--nm nm]

Of inline functions and templates that several objects hold, the linker keeps any one. Were it the
one compiled with AVX-512, scalar code would run it on processors that lack it. So an object with
such flags defines no weak function of the standard library, which every other object may hold,
and none that an object of other flags in the same folder tree defines as well.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys

ISA_FLAG = re.compile(r"\s(-m(?:avx|sse|bmi|popcnt|fma|f16c|gfni|lzcnt)\S*)")
OBJECT = re.compile(r"\s-o (\S+)")
LIBRARY = re.compile(r"_ZN?K?S[tabsiod]|_ZNK?9__gnu_cxx")


def findings(objects):
    """Sentences about {object: (flags, names of weak functions)}."""
    holders = collections.defaultdict(set)
    for name, (_, functions) in objects.items():
        for function in functions:
            holders[function].add(name)
    found = []
    for name, (flags, functions) in sorted(objects.items()):
        if not flags:
            continue
        for function in sorted(functions):
            others = sorted(other for other in holders[function] if objects[other][0] != flags)
            if LIBRARY.match(function):
                found.append("%s: defines %s of the standard library" % (name, function))
            elif others:
                found.append("%s: defines %s, as does %s" % (name, function, others[0]))
    return found


def weak_functions(nm, paths):
    """{path: names} of objects that exist; the nm program reads them all at once."""
    answer = subprocess.run([nm, "-A", "-P", "--defined-only", *paths], check=True,
                            capture_output=True, text=True)
    names = {path: set() for path in paths}
    for line in answer.stdout.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if kind == "W":
            names[path].add(name)
    return names


def read_objects(commands, nm):
    with open(commands, encoding="utf-8") as file:
        entries = [entry for entry in json.load(file)
                   if "/compress/" in entry["file"]]
    flags = {os.path.join(entry["directory"], OBJECT.search(entry["command"]).group(1)):
             tuple(sorted(ISA_FLAG.findall(entry["command"]))) for entry in entries}
    built = sorted(path for path in flags if os.path.exists(path))
    kernels = [path for path in flags if flags[path]]
    missing = [path for path in kernels if path not in built]
    if missing:
        raise SystemExit("not built: " + ", ".join(missing))
    names = weak_functions(nm, built) if kernels else {}
    return {os.path.basename(path): (flags[path], names[path]) for path in names}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", required=True)
    parser.add_argument("--nm", default="nm")
    arguments = parser.parse_args()
    objects = read_objects(arguments.commands, arguments.nm)
    found = findings(objects)
    print("\n".join(found))
    print("kernel_symbols: %d objects, %d finding(s)" % (len(objects), len(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
