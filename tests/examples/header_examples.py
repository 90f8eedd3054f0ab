#!/usr/bin/env python3
"""Writes the examples in headers' opening comments to one source file that a build compiles.

    header_examples.py --root . --out examples.inc HEADER...      paths from the root

An example is every line of a header's first comment that is indented by three spaces or more behind
the comment sign ("//   code", " *   code" in headers of C). It is code at namespace scope: whole
functions, and includes if it needs more than its header. The file includes the headers, then has
what the examples include, then the rest of them.
"""

import argparse
import pathlib
import re
import sys

INDENT = "  "  # of code, behind the comment sign and one space


def opening_comment(text):
    """The lines of a header's first comment without their comment signs."""
    if text.startswith("/*"):
        body = text[2:text.index("*/")] if "*/" in text else ""
        return [re.sub(r"^ ?\*? ?", "", line, count=1) for line in body.splitlines()]
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").removeprefix(" "))
    return lines


def example_of(header, text):
    """The code lines of a header's example. Raises ValueError where it has none."""
    code = [line[len(INDENT):].rstrip() for line in opening_comment(text)
            if line.startswith(INDENT) or not line.strip()]
    while code and not code[0]:
        code.pop(0)
    while code and not code[-1]:
        code.pop()
    if not code:
        raise ValueError(f"{header}: its opening comment has no example; add a function that uses "
                         "it, each line indented by three spaces behind the comment sign")
    return code


def included_as(header):
    """How a program includes a header: public ones lie in an include folder of their room."""
    return header.partition("/include/")[2] or header


def source_of(examples):
    """One source file of {header: lines of its example}."""
    includes = [f'#include "{included_as(header)}"' for header in examples]
    code = []
    for header, lines in examples.items():
        includes += [line for line in lines if line.startswith("#include")]
        code += ["", f"// {header}", *(line for line in lines if not line.startswith("#include"))]
    return "\n".join([*includes, *code, ""])


def read_examples(root, headers):
    """{header: lines of its example}. Raises ValueError where one has none."""
    return {header: example_of(header, (pathlib.Path(root) / header).read_text(encoding="utf-8"))
            for header in headers}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("headers", nargs="+", metavar="HEADER", help="path from the root")
    arguments = parser.parse_args()
    try:
        source = source_of(read_examples(arguments.root, arguments.headers))
    except ValueError as error:
        sys.exit(str(error))
    pathlib.Path(arguments.out).write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
