#!/usr/bin/env python3
"""Takes checks away one at a time, on a copy of the tree, and fails where no test notices.

    run_mutants.py --root DIR [--folder DIR] [--only NAME ...] [--jobs N]
    run_mutants.py --root DIR --check-list BUILD_FOLDER

Exit codes: 0 every mutant was caught, 1 one survived, 2 the list or the copy is at fault.
"""

import argparse
import filecmp
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

TEST_TIMEOUT_S = 300
SKIPPED = ("build", ".git", "out", "__pycache__")


class ListError(Exception):
    """The list of mutants, or the copy, is at fault."""


def refresh_copy(root, tree):
    """Makes `tree` what `root` is now; files that are the same keep their times."""
    kept = set()
    for source in root.rglob("*"):
        part = source.relative_to(root)
        if source.is_dir() or any(name.startswith(SKIPPED) for name in part.parts[:1]):
            continue
        kept.add(part)
        target = tree / part
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for target in list(tree.rglob("*")):
        if target.is_file() and target.relative_to(tree) not in kept:
            target.unlink()


def run(command, timeout_s=None):
    """(exit code, output); a command that hangs has failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s, text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return 124, "timed out"
    return done.returncode, done.stdout


def configure(tree, build):
    if (build / "build.ninja").is_file():
        return
    command = ["cmake", "-G", "Ninja", "-S", str(tree), "-B", str(build),
               "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DFOREBAY_BUILD_BENCH=OFF",
               "-DFOREBAY_BUILD_TRAINER=OFF"]
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    code, output = run(command)
    if code != 0:
        raise ListError(f"the copy cannot be configured:\n{output}")


def build_targets(build, targets, jobs):
    return run(["ninja", "-C", str(build), "-j", str(jobs), *sorted(targets)])


def program_of(build, target):
    found = [path for path in build.rglob(target) if path.is_file()]
    if len(found) != 1:
        raise ListError(f"{len(found)} programs are called {target}")
    return found[0]


def run_test(build, mutant):
    """(exit code, names of failed tests)."""
    code, output = run([str(program_of(build, mutant["target"])),
                        "--gtest_filter=" + mutant.get("filter", "*")], TEST_TIMEOUT_S)
    if "[==========] 0 tests" in output or "Running 0 tests" in output:
        raise ListError(f"{mutant['name']}: the filter names no test")
    failed = {line.split("]")[1].split("(")[0].strip() for line in output.splitlines()
              if line.startswith("[  FAILED  ]") and "." in line}
    return code, sorted(name.split(",")[0] for name in failed)


def text_of(tree, mutant):
    """The text of the mutant's file, in which the mutant's own text occurs once."""
    path = tree / mutant["file"]
    if not path.is_file():
        raise ListError(f"{mutant['name']}: there is no file {mutant['file']}")
    text = path.read_text()
    if text.count(mutant["find"]) != 1:
        raise ListError(f"{mutant['name']}: its text occurs {text.count(mutant['find'])} times "
                        f"in {mutant['file']}")
    return text


def check_list(root, build, mutants):
    """Whether files, programs and tests are there, without any mutant: what a change may break."""
    tests = {}
    for mutant in mutants:
        text_of(root, mutant)
        key = (mutant["target"], mutant.get("filter", "*"))
        if key not in tests:
            _, tests[key] = run([str(program_of(build, key[0])), "--gtest_list_tests",
                                 "--gtest_filter=" + key[1]], TEST_TIMEOUT_S)
        if not any(line.startswith("  ") for line in tests[key].splitlines()):
            raise ListError(f"{mutant['name']}: the filter {key[1]} names no test of {key[0]}")
    print(f"all {len(mutants)} mutants have their text, program and tests")
    return 0


def try_mutant(tree, build, mutant, jobs):
    """True where a test noticed. The file is as before afterwards."""
    path = tree / mutant["file"]
    text = text_of(tree, mutant)
    try:
        path.write_text(text.replace(mutant["find"], mutant["become"]))
        code, output = build_targets(build, [mutant["target"]], jobs)
        if code != 0:
            raise ListError(f"{mutant['name']} does not compile:\n{output[-3000:]}")
        code, failed = run_test(build, mutant)
    finally:
        path.write_text(text)
    if code == 0:
        print(f"SURVIVED {mutant['name']} ({mutant['file']}): {mutant['target']} passes without "
              "it", flush=True)
        return False
    by = ", ".join(failed[:2]) + (f" and {len(failed) - 2} more" if len(failed) > 2 else "")
    print(f"caught   {mutant['name']} by {by or 'exit code ' + str(code)}", flush=True)
    return True


def check_all(arguments, mutants):
    folder = pathlib.Path(arguments.folder)
    tree, build = folder / "tree", folder / "build"
    refresh_copy(pathlib.Path(arguments.root).resolve(), tree)
    configure(tree, build)
    code, output = build_targets(build, {mutant["target"] for mutant in mutants}, arguments.jobs)
    if code != 0:
        raise ListError(f"the copy does not build:\n{output[-3000:]}")
    for mutant in mutants:
        code, failed = run_test(build, mutant)
        if code != 0:
            raise ListError(f"{mutant['target']} fails on the tree as it is: {failed}")
    caught = [try_mutant(tree, build, mutant, arguments.jobs) for mutant in mutants]
    print(f"{sum(caught)} of {len(caught)} mutants caught")
    return 0 if all(caught) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", default=".")
    parser.add_argument("--folder", help="keep copy and build here")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check-list", metavar="BUILD_FOLDER",
                        help="only look whether the list fits the tree and its programs")
    arguments = parser.parse_args()
    listed = pathlib.Path(__file__).with_name("mutants.json")
    mutants = [mutant for mutant in json.loads(listed.read_text())
               if not arguments.only or mutant["name"] in arguments.only]
    try:
        if not mutants:
            raise ListError("no mutant has that name")
        if arguments.check_list:
            return check_list(pathlib.Path(arguments.root), pathlib.Path(arguments.check_list),
                              mutants)
        if arguments.folder:
            return check_all(arguments, mutants)
        with tempfile.TemporaryDirectory(prefix="forebay-mutants-") as folder:
            arguments.folder = folder
            return check_all(arguments, mutants)
    except ListError as error:
        print(f"run_mutants: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
