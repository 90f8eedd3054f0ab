"""bench/run.sh: runs a suite, prints its figures, says by the exit status whether all are met."""

import argparse
import os
import pathlib
import sys
import tempfile

from harness import codec, figures, gpu, machine, nodes, processes, report, rows, spine, \
    trainer, versus

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
SUITES = {"spine": spine.Spine, "codec": codec.Codec, "trainer": trainer.Trainer,
          "gpu": gpu.Gpu, "nodes": nodes.Nodes, "versus": versus.Versus}


def default_build():
    # A release build is preferred: figures of a build with sanitizers would be taken for the
    # product's.
    for name in ("build/release", "build"):
        if (REPOSITORY / name).is_dir():
            return REPOSITORY / name
    return None


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--quick", action="store_true", help="smaller sets, fewer rounds")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="also FILE with .md and -*.svg beside it")
    parser.add_argument("--build", type=pathlib.Path, default=default_build(), metavar="DIR",
                        help="build tree to take programs from; else they are found on PATH")
    parser.add_argument("--base", type=pathlib.Path, metavar="DIR",
                        help="suite versus: build tree of what is compared with")
    parser.add_argument("--data", type=pathlib.Path, metavar="DIR",
                        default=pathlib.Path(os.environ.get(
                            "FOREBAY_BENCH_DATA",
                            os.path.join(tempfile.gettempdir(), "forebay-bench"))),
                        help="where data sets are made and kept (11 GB, codec 0.5 GB; "
                        "$FOREBAY_BENCH_DATA)")
    parser.add_argument("--only", default="", metavar="ROW,...",
                        help="rows whose name holds one of these")
    options = parser.parse_args(arguments)
    if (options.base is None) == (options.suite == "versus"):
        parser.error("--base goes with suite versus, and that with it")
    return options


def make_suite(options, sheet):
    more = [processes.Binaries(options.base)] if options.base else []
    return SUITES[options.suite](sheet, processes.Binaries(options.build), options.data,
                                 options.quick, *more)


def main(arguments=None):
    options = parse(arguments)
    # Before the suite, so that the load average is that of the machine without it.
    description = machine.describe()
    sheet = figures.Sheet(echo=lambda line: print(line, flush=True))
    suite = make_suite(options, sheet)
    # A name that no row holds is a typing error; an empty run that passes would hide it.
    if not rows.chosen(suite.rows(), options.only):
        print(f"no row holds \"{options.only}\"; rows: {', '.join(suite.rows())}",
              file=sys.stderr)
        return 2
    print(f"machine: {description['cores']} x {description['processor']}, "
          f"{description['memory']}, kernel {description['kernel']}", flush=True)
    suite.run(options.only)
    if options.json:
        charts, lines = suite.extras() if hasattr(suite, "extras") else ({}, [])
        report.write(options.json.with_suffix(""),
                     report.to_json(options.suite, options.quick, description, sheet.figures),
                     charts, lines)
    # Repeated at the end, because hundreds of lines may lie between.
    for figure in sheet.failed:
        print(f"failed: {figure.line()}")
    print(f"{len(sheet.figures) - len(sheet.failed)} of {len(sheet.figures)} figures hold")
    return 1 if sheet.failed else 0


if __name__ == "__main__":
    sys.exit(main())
