"""Rules about where files lie and what they are called."""

import collections
import re

from source_tree import Finding

FILE_BYTES_MAX = 256 * 1024
README_LINES_MAX = 80
FUZZ_LIST = "tests/fuzz/CMakeLists.txt"
VAGUE_WORDS = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}
UNIQUE_SUFFIXES = {".h", ".cc", ".proto"}
FOREIGN_SUFFIXES = {".cpp", ".cxx", ".c", ".hpp", ".hh", ".hxx", ".C"}
_SNAKE = re.compile(r"_{0,2}[a-z0-9]+(_[a-z0-9]+)*_{0,2}$")


def file_names(tree):
    for file in tree.files:
        if file.suffix in FOREIGN_SUFFIXES:
            yield Finding(file.path, 1, "file-name", "C++ files end in .h and .cc")
        if file.suffix in {".h", ".cc", ".py", ".sh", ".proto"}:
            if not _SNAKE.match(file.stem):
                yield Finding(file.path, 1, "file-name", "file names are snake_case")
            if VAGUE_WORDS & set(file.stem.split("_")):
                yield Finding(file.path, 1, "vague-name", "name the file after what it holds")
            for part in file.folder.split("/"):
                if part in VAGUE_WORDS:
                    yield Finding(file.path, 1, "vague-name", f"folder {part}/ says nothing")


def unique_names(tree):
    places = collections.defaultdict(list)
    for file in tree.files:
        if file.suffix in UNIQUE_SUFFIXES:
            places[file.name].append(file.path)
    for paths in places.values():
        for path in paths[1:]:
            yield Finding(path, 1, "unique-name", f"same name as {paths[0]}")


def _lists_above(tree, folder):
    """CMakeLists.txt of a folder and of those above it."""
    while True:
        path = f"{folder}/CMakeLists.txt" if folder else "CMakeLists.txt"
        if path in tree.by_path:
            yield tree.by_path[path]
        if not folder:
            return
        folder = folder.rpartition("/")[0]


def _lists_for(tree, file):
    """The CMakeLists.txt files that may put a file into the build."""
    yield from _lists_above(tree, file.folder)
    # Fuzz targets lie beside their parsers and are registered in one place.
    if file.stem.endswith("_fuzz") and FUZZ_LIST in tree.by_path:
        yield tree.by_path[FUZZ_LIST]


def unlisted_sources(tree):
    """A source or a test that no CMakeLists.txt names is not in the build."""
    words_of = {}
    for file in tree.files:
        python_test = file.suffix == ".py" and file.stem.endswith("_test")
        if file.suffix != ".cc" and not python_test:
            continue
        listed = False
        for lists in _lists_for(tree, file):
            if lists.path not in words_of:
                words_of[lists.path] = set(re.findall(r"[\w./-]+", lists.uncommented))
            words = words_of[lists.path]
            below = file.path[len(lists.folder) + 1:] if lists.folder else file.path
            # A loop over names may spell `${name}.cc`, so the stem counts too.
            if words & {below, file.name, file.stem, file.path}:
                listed = True
                break
            if any(word.endswith("/" + file.name) for word in words):
                listed = True
                break
        if not listed:
            yield Finding(file.path, 1, "unlisted-source",
                          "no CMakeLists.txt in this folder or above names it")


def large_files(tree):
    for file in tree.files:
        if file.size_bytes > FILE_BYTES_MAX:
            yield Finding(file.path, 1, "large-file",
                          f"{file.size_bytes} bytes, at most {FILE_BYTES_MAX}")


def readmes(tree):
    folders = set()
    for file in tree.files:
        if file.suffix in {".h", ".cc", ".py", ".sh", ".proto"} and file.folder:
            if not any(part.startswith(".") for part in file.folder.split("/")):
                folders.add(file.folder)
        if file.name == "README.md" and file.folder:
            count = file.text.count("\n")
            if count > README_LINES_MAX:
                yield Finding(file.path, README_LINES_MAX + 1, "readme-length",
                              f"{count} lines, at most {README_LINES_MAX}")
    for folder in sorted(folders):
        if f"{folder}/README.md" not in tree.by_path:
            yield Finding(f"{folder}/README.md", 1, "readme-missing",
                          "every folder with sources says what belongs in it")


LAYOUT_RULES = [file_names, unique_names, unlisted_sources, large_files, readmes]
