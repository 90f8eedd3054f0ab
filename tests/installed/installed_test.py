#!/usr/bin/env python3
"""Tests of an installed prefix: the client library as another project uses it, and the programs.

Installs the library of a build folder into a temporary prefix, builds the program of the root
README against it, once by pkg-config and once by find_package, and runs both beside a daemon.
Run by ctest; tests/installed/CMakeLists.txt has the arguments.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import header_examples  # noqa: E402

arguments = argparse.Namespace()

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(reader CXX)
find_package(forebay {version} REQUIRED)
add_executable(reader reader.cc)
target_link_libraries(reader PRIVATE forebay::client)
"""


def run(command, **options):
    """The output of a command that must succeed. Raises AssertionError with all it has written."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def readme_program():
    """The program in the root README: its only block of C++."""
    text = (arguments.source / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```cpp\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1, f"README.md has {len(blocks)} blocks of C++, not 1"
    return blocks[0]


class InstalledPrograms(unittest.TestCase):
    def test_the_component_has_no_more_than_the_quick_start_builds(self):
        """deploy/quickstart.sh builds three programs and installs `programs`: a file that it has
        not built would end it."""
        with tempfile.TemporaryDirectory(prefix="forebay-programs-") as prefix:
            run([arguments.cmake, "--install", arguments.build, "--prefix", prefix,
                 "--component", "programs"])
            files = {path.relative_to(prefix).as_posix()
                     for path in pathlib.Path(prefix).rglob("*") if path.is_file()}
        self.assertLessEqual(files, {"bin/forebayd", "bin/forebay", "bin/forebay-train"})


class InstalledLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="forebay-installed-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.prefix = cls.folder / "prefix"
        run([arguments.cmake, "--install", arguments.build, "--prefix", cls.prefix,
             "--component", "client"])
        cls.library = next(cls.prefix.glob("lib*/**/libforebay.so"))
        cls.source = cls.folder / "reader.cc"
        cls.source.write_text(readme_program(), encoding="utf-8")
        cls.environment = dict(
            os.environ, PKG_CONFIG_PATH=str(cls.library.parent / "pkgconfig"),
            LD_LIBRARY_PATH=str(cls.library.parent))
        for name in ("FOREBAY_CONFIG", "FOREBAY_JOB_ID"):
            cls.environment.pop(name, None)

    def pkg_config(self, *words):
        return run(["pkg-config", *words, "forebay"], env=self.environment).split()

    def compile(self, source, program):
        run([arguments.compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror",
             *arguments.flags.split(), source, *self.pkg_config("--cflags", "--libs"),
             "-o", program])

    def expect_reads(self, program):
        """The program reads the epoch that a daemon from memory serves: 15 batches of 64."""
        socket = self.folder / "s"
        ready, write_end = os.pipe()
        with subprocess.Popen([arguments.daemon, "--socket", socket, "--ready-fd", str(write_end)],
                              pass_fds=[write_end]) as daemon:
            os.close(write_end)
            try:
                with os.fdopen(ready) as lines:
                    address = lines.readline().split()[1]
                output = run([program, "fake"],
                             env=dict(self.environment, FOREBAY_ADDRESS=address))
            finally:
                daemon.terminate()
        self.assertEqual(output, "64 samples, 6400 bytes\n" * 15)

    def test_shows_only_public_headers(self):
        include = self.prefix / "include"
        headers = {str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}
        public = {f"forebay/{path.name}"
                  for path in (arguments.source / "client/include/forebay").glob("*.h")}
        contract = {name for name in headers if name.startswith("forebay/contract/")}
        self.assertLess({"forebay/client.h", "forebay/contract/result.h"}, headers)
        self.assertEqual(headers, public | contract)
        for name in headers:
            text = (include / name).read_text(encoding="utf-8")
            for included in re.findall(r'(?m)^#include "([^"]+)"', text):
                self.assertIn(included, headers, f"included by {name}")

    def test_exports_the_functions_that_are_listed(self):
        symbols = run(["nm", "--dynamic", "--defined-only", "--demangle", self.library])
        exported = {line.split(maxsplit=2)[2] for line in symbols.splitlines()}
        for name in exported:
            self.assertRegex(name, r"^(typeinfo( name)? for |vtable for )?forebay::(?!internal)")
        # Inline functions come and go with the optimiser: only the others are strong symbols.
        strong = [line.split(maxsplit=2)[2] for line in symbols.splitlines() if " T " in line]
        listed = (arguments.source / "client/libforebay.symbols").read_text(encoding="utf-8")
        self.assertEqual(
            "\n".join(sorted(strong)) + "\n",
            "".join(line for line in listed.splitlines(True) if not line.startswith("#")),
            "libforebay.so exports other functions than client/libforebay.symbols lists. Correct "
            "the list; where a function has gone or changed, raise abi_version, too "
            "(docs/client.md, Versions).")

    def test_carries_its_abi_version(self):
        dynamic = run(["readelf", "--dynamic", self.library])
        soname = re.search(r"soname: \[(.*)\]", dynamic).group(1)
        self.assertRegex(soname, r"^libforebay\.so\.\d+$")
        self.assertTrue((self.library.parent / soname).exists())
        self.assertEqual(self.pkg_config("--modversion"), [arguments.version])

    def test_builds_the_readme_program_by_pkg_config(self):
        program = self.folder / "by_pkg_config"
        self.compile(self.source, program)
        self.expect_reads(program)

    def test_links_the_examples_of_public_headers(self):
        # That of torch.h needs LibTorch: client/torch runs it.
        headers = [str(path.relative_to(arguments.source))
                   for path in (arguments.source / "client/include/forebay").glob("*.h")
                   if path.name != "torch.h"]
        self.assertGreaterEqual(len(headers), 4)
        examples = self.folder / "examples.cc"
        examples.write_text(
            header_examples.source_of(header_examples.read_examples(arguments.source, headers)) +
            "int main() {}\n", encoding="utf-8")
        self.compile(examples, self.folder / "examples")

    def test_builds_the_readme_program_by_find_package(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT.format(version=arguments.version),
                                                encoding="utf-8")
        (project / "reader.cc").write_text(readme_program(), encoding="utf-8")
        run([arguments.cmake, "-S", project, "-B", project / "build", "-G", arguments.generator,
             f"-DCMAKE_CXX_COMPILER={arguments.compiler}", f"-DCMAKE_CXX_FLAGS={arguments.flags}",
             f"-DCMAKE_PREFIX_PATH={self.prefix}"])
        run([arguments.cmake, "--build", project / "build"])
        self.expect_reads(project / "build/reader")
        # A program that finds nobody says so, with the address and what to do.
        done = subprocess.run([project / "build/reader", "fake"], capture_output=True, text=True,
                              env=dict(self.environment,
                                       FOREBAY_ADDRESS=f"unix:{self.folder}/nobody"), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "UNAVAILABLE: .*nobody")


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "build"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    for name in ("cmake", "generator", "compiler", "flags", "version", "daemon"):
        parser.add_argument(f"--{name}", required=True)
    _, rest = parser.parse_known_args(namespace=arguments)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
