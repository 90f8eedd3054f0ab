#!/usr/bin/env python3
"""Every seed that a program writes lies in the corpus, because only the corpus is replayed.

    seeds_check.py [--names-only] PROGRAM CORPUS

A seed with other bytes in the corpus counts as missing: where a checksum has come to cover another
field, the old bytes do not get past it any more. The corpus has further files, such as inputs that
once failed, which no program writes.

--names-only is for seeds whose bytes follow from choices that an encoder may change freely.
"""

import pathlib
import subprocess
import sys
import tempfile


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def complaints(written, corpus, names_only):
    if not written:
        yield "the program wrote no seeds"
    for name, seed in written.items():
        if name not in corpus:
            yield f"{name} is missing"
        elif not names_only and corpus[name] != seed:
            yield (f"{name} has other bytes; if the seed has changed its meaning on purpose, take "
                   "the new ones, otherwise give the new seed a name of its own")


def main(words):
    names_only = words[0] == "--names-only"
    program, corpus = words[1:] if names_only else words
    with tempfile.TemporaryDirectory(prefix="fbs.") as name:
        subprocess.run([program, name], check=True, timeout=60)
        written = files_of(pathlib.Path(name))
    found = list(complaints(written, files_of(pathlib.Path(corpus)), names_only))
    for complaint in found:
        print(f"{corpus}: {complaint}", file=sys.stderr)
    if found:
        print(f"Run {program} FOLDER, and copy these files.", file=sys.stderr)
    print(f"{len(written)} seeds compared")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
