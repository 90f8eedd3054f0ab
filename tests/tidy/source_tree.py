"""The tree under check: its files, their text, and a light reading of C++.

Nothing here knows a rule. Reading C++ means blanking comments and literals (columns and lines
stay where they were) and matching braces; it is a heuristic, good enough for style.
"""

import dataclasses
import functools
import os
import pathlib
import re
import subprocess

SKIPPED_FOLDERS = {".git", "__pycache__", ".cache", "out"}
SOURCE_SUFFIXES = {".h", ".cc", ".py", ".sh", ".proto", ".cmake"}

# Each alternative begins with a plain letter: then `re` skips to the next such letter by itself.
_CPP_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""
    r"""|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)\""""
    r"""|"(?:\\.|[^"\\\n])*"|'(?<![0-9a-fA-F]')(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def _blank(match, keep_literals):
    text = match.group(0)
    if keep_literals and not text.startswith("/"):
        return text
    return "\n".join(" " * len(line) for line in text.split("\n"))


def _blank_hash_comments(text):
    """Blanks the `#` comments of CMake, shell and Python; a # inside "quotes" stays."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        quoted = False
        for column, letter in enumerate(line if "#" in line else ""):
            if letter == '"' and line[column - 1 : column] != "\\":
                quoted = not quoted
            elif letter == "#" and not quoted and not line[:column][-1:].strip():
                lines[number] = line[:column] + " " * (len(line) - column)
                break
    return "\n".join(lines)


class SourceFile:
    """One file. `path` is relative to the root, with forward slashes."""

    def __init__(self, root, path):
        self.path = path
        self.name = path.rsplit("/", 1)[-1]
        self.stem, self.suffix = os.path.splitext(self.name)
        self.folder = path.rpartition("/")[0]
        self._full = pathlib.Path(root) / path

    @property
    def size_bytes(self):
        return self._full.stat().st_size

    @functools.cached_property
    def raw(self):
        return self._full.read_bytes()

    @functools.cached_property
    def text(self):
        return self.raw.decode("utf-8", errors="replace")

    @functools.cached_property
    def lines(self):
        return self.text.split("\n")

    @property
    def is_cpp(self):
        return self.suffix in {".h", ".cc"}

    @property
    def is_cmake(self):
        return self.suffix == ".cmake" or self.name == "CMakeLists.txt"

    @property
    def is_source(self):
        return self.suffix in SOURCE_SUFFIXES or self.name == "CMakeLists.txt"

    @property
    def is_test(self):
        return self.folder.split("/")[0] == "tests" or self.stem.endswith("_test")

    @functools.cached_property
    def uncommented(self):
        """Text with comments blanked and literals kept."""
        if self.is_cpp or self.suffix == ".proto":
            return _CPP_TOKEN.sub(lambda m: _blank(m, keep_literals=True), self.text)
        if self.is_cmake or self.suffix in {".py", ".sh"}:
            return _blank_hash_comments(self.text)
        return self.text

    @functools.cached_property
    def code(self):
        """Text with comments and literals blanked (C++), else `uncommented`."""
        if self.is_cpp:
            return _CPP_TOKEN.sub(lambda m: _blank(m, keep_literals=False), self.text)
        return self.uncommented

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1


class Tree:
    """All files that belong to the repository below `root`, sorted by path."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = [SourceFile(root, path) for path in sorted(self._paths())]
        self.by_path = {file.path: file for file in self.files}

    def _paths(self):
        if (self.root / ".git").exists():
            found = self._git_paths()
            if found is not None:
                return found
        paths = []
        for folder, subfolders, names in os.walk(self.root):
            at_root = pathlib.Path(folder) == self.root
            subfolders[:] = [
                name
                for name in subfolders
                if name not in SKIPPED_FOLDERS and not (at_root and name.startswith("build"))
            ]
            for name in names:
                full = pathlib.Path(folder) / name
                if full.is_file() and not full.is_symlink():
                    paths.append(full.relative_to(self.root).as_posix())
        return paths

    def _git_paths(self):
        """Tracked and untracked files that git does not ignore; None where git does not answer."""
        command = ["git", "-C", str(self.root), "-c", "safe.directory=*", "ls-files", "-z",
                   "--cached", "--others", "--exclude-standard"]
        try:
            answer = subprocess.run(command, capture_output=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return None
        names = {name for name in answer.stdout.decode().split("\0") if name}
        return [name for name in names if (self.root / name).is_file()]


def _opens_function(header):
    """Whether a brace after `header` (text since the last ; { or }) opens a function body."""
    header = re.sub(r"(?m)^[ \t]*#.*$", "", header).strip()
    header = re.sub(r"^(public|private|protected)\s*:", "", header).strip()
    if header == "":
        return True  # after a constructor's last braced initialiser comes its body
    if re.match(r"(template\s*<.*>\s*)?(class|struct|union|enum)\b.*[^)]$", header, re.DOTALL):
        return False
    if re.match(r"(inline\s+)?namespace\b", header) or header.endswith("="):
        return False
    return ")" in header or header.startswith(",")


def cpp_functions(file):
    """Yields (first line, line count, header) of each outermost function body."""
    code = file.code
    depth_in_function = 0  # braces open since the function's own, or a table's, was opened
    start = 0
    name = ""
    header_from = 0
    for match in re.finditer(r"[{};]", code):
        token, offset = match.group(0), match.start()
        if token == "{":
            if depth_in_function:
                depth_in_function += 1
            else:
                header = code[header_from:offset]
                if _opens_function(header):
                    depth_in_function = 1
                    start = offset
                    name = header
                elif header.rstrip().endswith("="):
                    depth_in_function = 1  # a table: skipped as a whole
                    start = -1
        elif token == "}":
            if depth_in_function:
                depth_in_function -= 1
                if depth_in_function == 0 and start >= 0:
                    count = code.count("\n", start, offset) + 1
                    yield file.line_of(start), count, " ".join(name.split())
        if not depth_in_function:
            header_from = offset + 1
