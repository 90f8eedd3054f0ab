"""Rules about what the text of a file says: banned words, sizes, leftovers."""

import ast
import re

from source_tree import Finding, cpp_functions

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70

# Code in which another compiler or library must give the same answer.
AGREED_FOLDERS = ("proto/contract", "compress", "server/plan", "server/catalog", "server/tier",
                  "server/stage", "server/fetch", "server/peer", "server/stream",
                  "server/rendezvous", "client")


_OWNED_AT_ONCE = re.compile(r"(?:unique|shared)_ptr\s*<[^;{}]*>\s*\w*\s*[({]\s*$")


def has_any(text, words):
    return any(word in text for word in words)


def _anywhere(file):
    return True


# Where LibTorch is: its tensors are detached from graphs.
def _without_torch(file):
    return not file.path.startswith(("trainer/exec/", "compress/train/"))


def _agreed(file):
    return file.path.startswith(AGREED_FOLDERS) and not file.is_test


def _in_tests(file):
    return file.is_test


def _in_product(file):
    return not file.is_test


# The folder of a data-set format; "storage" is what formats share.
_FORMAT_FOLDER = re.compile(r"server/catalog/(?!storage/)[^/]+/")


def _outside_formats(file):
    return (file.path.startswith(("server/", "client/")) and not file.is_test
            and "/testing/" not in file.path and not _FORMAT_FOLDER.match(file.path))


# Code of the product, whose locks clang's thread-safety analysis checks. proto/contract, which
# wraps the standard types, is not among these folders.
def _with_checked_locks(file):
    return (file.path.startswith(("server/", "client/", "trainer/", "compress/"))
            and not file.is_test and "/testing/" not in file.path)


# (rule, words, pattern, where, remedy); matched against code without comments and literals. Each
# match has one of the words. Most files have none, and to find that out takes far less time than to
# try the pattern at every letter.
BANNED_CODE = [
    ("library-shuffle", ("shuffle", "sample"),
     r"\bstd::(ranges::)?(shuffle|random_shuffle|sample)\b", _anywhere,
     "its order differs between libraries; use proto/contract's order function"),
    ("library-hash", ("std::hash",),
     r"(?<!struct )\bstd::hash\s*<", _agreed,
     "differs between libraries; use proto/contract/checksum.h"),
    ("library-distribution", ("_distribution",),
     r"\bstd::\w+_distribution\b", _agreed,
     "differs between libraries; derive the number with integer arithmetic"),
    ("global-random", ("rand",),
     r"(?<![\w.>:])(?:std::|::)?s?rand\s*\(|\bstd::random_device\b", _in_product,
     "inject a seeded generator from main"),
    ("coroutine", ("co_",),
     r"\bco_(await|yield|return)\b", _anywhere,
     "g++ 12 miscompiles coroutines; use threads and explicit state machines"),
    ("ranges-views", ("views",),
     r"\b(std::|ranges::)+views::|\bnamespace\s+views\b", _anywhere,
     "clang 14 cannot compile them; use std::ranges algorithms or a loop"),
    ("std-format", ("std::format", "std::vformat", "std::print"),
     r"\bstd::(v?format(_to(_n)?)?|print(ln)?)\b", _anywhere, "use fmt"),
    ("std-expected", ("expected",),
     r"\bstd::(un)?expected\b", _anywhere, "use forebay::Result"),
    ("source-location", ("source_location",),
     r"\bsource_location\b", _anywhere,
     "clang 14 lacks it; name the place in the message"),
    ("sleep-in-test", ("sleep",),
     r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(|(?<![\w.>])(::)?sleep\s*\(",
     _in_tests, "wait on what should happen, or crank an injected clock"),
    ("new-expression", ("new",),
     r"(?<!operator )(?<!<)\bnew\b(?!\s*\()", _anywhere,
     "use std::make_unique, a container, or unique_ptr<T>(new T) where T's constructor is private"),
    ("delete-expression", ("delete",),
     r"(?<!operator )(?<!=)(?<!= )\bdelete\b", _anywhere,
     "use std::unique_ptr"),
    ("detached-thread", ("detach",),
     r"(\.|->)detach\s*\(\s*\)", _without_torch,
     "keep a std::jthread and join it at shutdown"),
    ("assert-macro", ("assert",),
     r"\bassert\s*\(", _anywhere,
     "use FOREBAY_CHECK (invariants stay on) or a Result (bytes from outside)"),
    ("unchecked-lock", ("mutex", "condition_variable"),
     r"\bstd::(recursive_|timed_|recursive_timed_|shared_|shared_timed_)?mutex\b"
                       r"|\bstd::condition_variable(_any)?\b", _with_checked_locks,
     "use Mutex and CondVar of proto/contract/thread_annotations.h, and name what they guard"),
    ("format-named", ("Format::k",),
     r"\bFormat::k[A-Z]", _outside_formats,
     "a data-set format is named in its own folder alone; ask its FormatDriver"),
]
BANNED_HEADERS = {
    "coroutine": "coroutines are not used",
    "format": "use fmt",
    "expected": "use forebay::Result",
    "source_location": "clang 14 lacks it",
    "cassert": "use FOREBAY_CHECK",
}


def banned_code(tree):
    for file in tree.files:
        if not file.is_cpp:
            continue
        for rule, words, pattern, applies, remedy in BANNED_CODE:
            if not has_any(file.code, words) or not applies(file):
                continue
            for match in re.finditer(pattern, file.code):
                if rule == "new-expression" and _OWNED_AT_ONCE.search(
                        file.code, max(0, match.start() - 200), match.start()):
                    continue
                word = " ".join(match.group(0).split())
                yield Finding(file.path, file.line_of(match.start()), rule, f"`{word}`: {remedy}")
        for match in re.finditer(r"(?m)^\s*#\s*include\s*<(\w+)>", file.uncommented):
            if match.group(1) in BANNED_HEADERS:
                yield Finding(file.path, file.line_of(match.start(1)), "banned-header",
                              f"<{match.group(1)}>: {BANNED_HEADERS[match.group(1)]}")


def long_lines(tree):
    for file in tree.files:
        if not file.is_source:
            continue
        for number, line in enumerate(file.lines, start=1):
            if len(line) > COLUMNS_MAX:
                yield Finding(file.path, number, "long-line",
                              f"{len(line)} columns, at most {COLUMNS_MAX}")


def _python_functions(file):
    try:
        module = ast.parse(file.text)
    except SyntaxError as error:
        yield error.lineno or 1, FUNCTION_LINES_MAX + 1, f"unreadable Python: {error.msg}"
        return
    # Statements alone are visited: ast.walk visits expressions, too, which takes ten times as long.
    left = [module]
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, [])


def long_functions(tree):
    for file in tree.files:
        if file.is_cpp:
            functions = cpp_functions(file)
        elif file.suffix == ".py":
            functions = _python_functions(file)
        else:
            continue
        for line, count, name in functions:
            if count > FUNCTION_LINES_MAX:
                short = name if len(name) <= 60 else "..." + name[-57:]
                yield Finding(file.path, line, "long-function",
                              f"`{short}` has {count} lines, at most {FUNCTION_LINES_MAX}")


def header_guards(tree):
    for file in tree.files:
        if file.suffix == ".h" and not re.search(r"(?m)^#pragma once\s*$", file.text):
            yield Finding(file.path, 1, "pragma-once", "a header starts with #pragma once")


def leftovers(tree):
    for file in tree.files:
        if not (file.is_source or file.suffix == ".md") or file.folder == "tests/tidy":
            continue
        if not has_any(file.text, ("FIXME", "XXX", "HACK", "TODO")):
            continue
        for number, line in enumerate(file.lines, start=1):
            if re.search(r"\b(FIXME|XXX|HACK)\b", line):
                yield Finding(file.path, number, "fixme", "fix it now, or file it and use TODO")
            for match in re.finditer(r"\bTODO\b(\([a-z-]+, #\d+\))?", line):
                if not match.group(1):
                    yield Finding(file.path, number, "todo", "write TODO(kind, #issue)")


# (pattern, how to give the reason); each match has one of _SKIP_WORDS.
_SKIP_WORDS = ("DISABLED", "SKIP", "skip")
_SKIPS = [
    (r"\bDISABLED_\w+", None),
    (r"\bGTEST_SKIP\s*\(\s*\)(?!\s*<<)", "stream the reason into GTEST_SKIP()"),
    (r"@unittest\.skip(?:\s*\(\s*\))?\s*$", "give the reason as its argument"),
    (r"\bskipTest\s*\(\s*\)", "give the reason as its argument"),
    (r"\bDISABLED\s+(TRUE|ON|1)\b", None),
]


def skipped_tests(tree):
    for file in tree.files:
        if not file.is_source or file.folder == "tests/tidy":
            continue
        if not has_any(file.code, _SKIP_WORDS):
            continue
        for pattern, remedy in _SKIPS:
            for match in re.finditer(pattern, file.code, re.MULTILINE):
                number = file.line_of(match.start())
                near = " ".join(file.lines[max(0, number - 2):number])
                if remedy is None and re.search(r"#\d+", near):
                    continue
                yield Finding(file.path, number, "skipped-test",
                              remedy or "name the issue (#12) in a comment above")


def non_ascii(tree):
    for file in tree.files:
        if not file.is_source or file.raw.isascii():
            continue
        for number, line in enumerate(file.lines, start=1):
            if not line.isascii():
                yield Finding(file.path, number, "non-ascii", "sources are ASCII; escape it")


_MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(work|root)/")
_MACHINE_WORDS = ("/work/", "/root/")
_SCRATCH_PATH = re.compile(r"(?<![\w.$}/-])/tmp/")
_SCRATCH_ALLOWED = ("tests/", "deploy/", "bench/", "docs/")
_REGISTRY = re.compile(
    r"\b((deb|snapshot|security|ftp)\.debian\.org|pypi\.org|pythonhosted\.org|npmjs\.org|"
    r"crates\.io|proxy\.golang\.org|repo1?\.maven\.org|anaconda\.org|huggingface\.co|"
    r"download\.pytorch\.org|ghcr\.io|docker\.io|quay\.io)\b")
_REGISTRY_WORDS = (".org", ".io", ".co")


def foreign_places(tree):
    """Paths and hosts of one machine in files that go to every machine."""
    for file in tree.files:
        if file.folder == "tests/tidy" or file.size_bytes > FILE_BYTES_READ_MAX:
            continue
        if not has_any(file.text, _MACHINE_WORDS + _REGISTRY_WORDS):
            continue
        for number, line in enumerate(file.lines, start=1):
            if has_any(line, _MACHINE_WORDS) and _MACHINE_PATH.search(line):
                yield Finding(file.path, number, "machine-path",
                              "take the place from configuration or the environment")
            if has_any(line, _REGISTRY_WORDS) and _REGISTRY.search(line):
                yield Finding(file.path, number, "registry-host",
                              "name the package, not the host; clients know theirs")


def scratch_paths(tree):
    """A comment may name /tmp; product code asks for the temporary directory."""
    for file in tree.files:
        if file.path.startswith(_SCRATCH_ALLOWED) or file.is_test or not file.is_source:
            continue
        if "/tmp/" not in file.uncommented:
            continue
        for number, line in enumerate(file.uncommented.split("\n"), start=1):
            if _SCRATCH_PATH.search(line):
                yield Finding(file.path, number, "machine-path",
                              "ask std::filesystem::temp_directory_path(), which heeds TMPDIR")


FILE_BYTES_READ_MAX = 1 << 20
TEXT_RULES = [banned_code, long_lines, long_functions, header_guards, leftovers, skipped_tests,
              non_ascii, foreign_places, scratch_paths]
