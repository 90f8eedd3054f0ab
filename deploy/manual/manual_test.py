"""What `cmake --install` leaves of the manual, against what the programs themselves say.

    manual_test.py --cmake CMAKE --build FOLDER PROGRAM...

Method: the component `manual` is installed into a temporary folder. Commands and options are read
from what each PROGRAM prints for --help; each must have its page, its line in the page, and its
place in both completions. The bash script is sourced in bash and asked what words complete to.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None  # of this script's command line
INSTALLED = None  # the folder that was installed to

# Calls the completion function as bash does; prints one word a line.
ASK_BASH = """
source "$1" || exit 1
shift
function_name=$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$function_name"
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Command:
    """A command as its --help shows it."""

    def __init__(self, program, words):
        self.words = words
        self.name = "-".join(words)
        text = run([program, *words[1:], "--help"]).stdout
        self.options = set()
        for names in re.findall(r"(?m)^  (-[\w,-]+)", text):
            self.options.update(names.split(","))
        listed = re.search(r"(?ms)^Subcommands:\n(.*?)(?:\n\n|\Z)", text)
        names = re.findall(r"(?m)^  (\w\S*)", listed.group(1)) if listed else []
        self.below = [Command(program, [*words, name]) for name in names]

    def all(self):
        return [self] + [deeper for below in self.below for deeper in below.all()]


def run(words, **settings):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60, **settings)


def bash(words, folder=None):
    """What the last of `words` completes to."""
    script = INSTALLED / "share/bash-completion/completions" / words[0]
    answer = run(["bash", "-c", ASK_BASH, "bash", str(script), *words], cwd=folder).stdout
    return [line for line in answer.split("\n") if line]


def long_options(command):
    return {option for option in command.options if option.startswith("--")}


class ManualTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = {}
        for path in OPTIONS.programs:
            name = pathlib.Path(path).name
            cls.programs[name] = Command(path, [name])

    def commands(self):
        return [command for program in self.programs.values() for command in program.all()]

    def page(self, command):
        section = 8 if command.name == "forebayd" else 1
        return INSTALLED / f"share/man/man{section}" / f"{command.name}.{section}"

    def test_every_command_has_a_page_and_no_page_is_left_over(self):
        self.assertGreater(len(self.programs["forebay"].below), 10, "forebay --help lists commands")
        pages = {self.page(command) for command in self.commands()}
        self.assertEqual(pages, set(INSTALLED.glob("share/man/man*/*")))

    def test_every_option_is_in_its_page(self):
        for command in self.commands():
            text = self.page(command).read_text().replace("\\-", "-")
            self.assertTrue(text.startswith('.TH "'), command.name)
            self.assertIn("--help", command.options, f"{command.name}: --help was understood")
            for option in command.options:
                self.assertIn(f"\\fB{option}\\fR", text, f"{command.name}: {option}")

    def test_every_command_is_in_the_page_above_it(self):
        for command in self.commands():
            text = self.page(command).read_text().replace("\\-", "-")
            for below in command.below:
                self.assertIn(f"\\fB{below.name}\\fR(1)", text)

    def test_the_daemons_page_has_every_key(self):
        reference = run([next(path for path in OPTIONS.programs if path.endswith("forebayd")),
                         "--config-reference"]).stdout
        keys = re.findall(r"(?m)^\| `([\w.]+)` \|", reference)
        self.assertGreater(len(keys), 30)
        text = self.page(self.programs["forebayd"]).read_text()
        for key in keys:
            self.assertIn(f"\\fB{key}\\fR", text)

    def test_pages_are_roff_without_a_warning(self):
        groff = shutil.which("groff")
        if groff is None:
            self.skipTest("groff is missing: deploy/install_packages.sh test")
        for command in self.commands():
            result = run([groff, "-man", "-ww", "-Tutf8", str(self.page(command))])
            self.assertEqual(result.stderr, "", command.name)
            plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
            self.assertIn("Print this help message and exit", plain)

    def test_bash_completes_commands(self):
        names = [below.words[-1] for below in self.programs["forebay"].below]
        self.assertEqual(bash(["forebay", ""]), names)
        self.assertEqual(bash(["forebay", "st"]), ["stage", "status"])
        self.assertEqual(bash(["forebay", "compress", ""]), ["bench"])
        self.assertEqual(bash(["forebay", "--timeout-ms", "5", "--json", "ver"]), ["verify"])
        self.assertEqual(bash(["forebay", "--address", "stage", "ver"]), ["verify"],
                         "an option's value is no command")
        self.assertEqual(bash(["forebay", "help", "ev"]), ["evict"])

    def test_bash_completes_every_option_of_every_command(self):
        for program in self.programs.values():
            for command in program.all():
                wanted = long_options(command) | long_options(program)
                self.assertEqual(set(bash([*command.words, "--"])), wanted, command.name)

    def test_bash_completes_values(self):
        self.assertEqual(bash(["forebay", "evict", "--tier", ""]), ["ram", "ssd"])
        self.assertEqual(bash(["forebay", "evict", "--tier", "=", "s"]), ["ssd"])
        self.assertEqual(bash(["forebay", "order", "--mode", "="]),
                         ["global", "block", "sequential", "partial"])
        self.assertEqual(bash(["forebay", "compress", "bench", "--profiles", "d"]), ["dense"])
        self.assertEqual(bash(["forebay", "order", "--seed", ""]), [], "any number")
        self.assertEqual(bash(["forebay", "status", ""]), [], "no argument follows")

    def test_bash_completes_files_where_a_path_is_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a pack.fbp").touch()
            (pathlib.Path(folder) / "a folder").mkdir()
            both = ["a folder", "a pack.fbp"]
            for words in (["unpack", ""], ["inspect", "a"], ["audit", "a"], ["verify", ""],
                          ["pack", "--from", ""], ["compress", "bench", ""], ["--socket", ""],
                          ["inspect", "x.fbp", "--plot", "="]):
                self.assertEqual(sorted(bash(["forebay", *words], folder)), both, words)
            for words in (["unpack", "x.fbp", "--to", ""], ["pack", "--images", "a"]):
                self.assertEqual(bash(["forebay", *words], folder), ["a folder"], words)
            self.assertEqual(sorted(bash(["forebayd", "--config", ""], folder)), both)
            self.assertEqual(bash(["forebay", "stage", ""], folder), [], "a data set's name")

    def test_zsh_has_a_function_of_every_command_with_its_options(self):
        for name, program in self.programs.items():
            script = (INSTALLED / "share/zsh/site-functions" / f"_{name}").read_text()
            self.assertTrue(script.startswith(f"#compdef {name}\n"))
            for command in program.all():
                function = "_" + "_".join(command.words).replace("-", "_")
                body = re.search(rf"(?ms)^{function}\(\) {{\n(.*?)^}}\n", script)
                self.assertIsNotNone(body, function)
                for option in long_options(command) | long_options(program):
                    self.assertRegex(body.group(1), rf"'\*?{option}[=\[]", function)
                for below in command.below:
                    self.assertRegex(body.group(1), rf"'{below.words[-1]}:")

    def test_zsh_takes_its_scripts(self):
        if shutil.which("zsh") is None:
            self.skipTest("zsh is missing: its scripts are not parsed by it")
        folder = INSTALLED / "share/zsh/site-functions"
        with tempfile.TemporaryDirectory() as scratch:
            for name in self.programs:
                known = run(["zsh", "-f", "-c",
                             f"zsh -n {folder}/_{name} && fpath=({folder} $fpath)"
                             " && autoload -Uz compinit && compinit -u -D"
                             f" && print -- $_comps[{name}] && autoload +X _{name}"],
                            cwd=scratch)
                self.assertEqual((known.stdout, known.stderr), (f"_{name}\n", ""))


def main():
    global OPTIONS, INSTALLED
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    OPTIONS = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        INSTALLED = pathlib.Path(folder)
        run([OPTIONS.cmake, "--install", OPTIONS.build, "--component", "manual",
             "--prefix", folder])
        program = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
