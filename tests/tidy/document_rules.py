"""Rules about what documents say of the tree: tests that they name or filter for exist."""

import collections
import functools
import re

from source_tree import Finding

_TEST_MACRO = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")
# `Suite.Test`, or `Suite` where the suite's name says that it is one.
_NAMED_TEST = re.compile(r"`([A-Z]\w*?)(?:\.([A-Z]\w+))?`")
# "`FaultMatrixTest`, the cases `remount/*`"
_NAMED_CASES = re.compile(r"`([A-Z]\w*Test)`, (?:the )?cases? `([\w-]+)(?:/\*)?`")

# "`ctest -L slow -R 'Pack(File|Set)|Golden'`": the pattern, with its quotation marks. It may stand
# on the next line.
_CTEST_FILTER = re.compile(r'''\bctest\b[^`\n]*?\s-R\s+('[^'\n]+'|"[^"\n]+"|[^\s`'"]+)''')
# A forebay_test is left out: ctest knows its test cases, not its name.
_TEST_NAME = re.compile(r"\b(?!forebay_test\b)\w+\(\s*NAME\s+([^\s)]+)")
# An alternative of such a pattern, with groups one level deep.
_ALTERNATIVE = re.compile(r"(?:[^|()]|\([^()]*\))+")
_GROUP = re.compile(r"\(([^()]*)\)")
_VARIABLE = re.compile(r"\$\{\w+\}")


@functools.lru_cache(maxsize=1)
def _suites(tree):
    """Suite -> ({its tests}, {folders of its files})."""
    suites = collections.defaultdict(lambda: (set(), set()))
    for file in tree.files:
        if not file.is_cpp:
            continue
        for suite, test in _TEST_MACRO.findall(file.code):
            suites[suite][0].add(test)
            suites[suite][1].add(file.folder)
    return suites


def _tests_named(line):
    """Yields (suite, test or "") for each test that a line of a document names."""
    for suite, test in _NAMED_TEST.findall(line):
        if suite.endswith("Test"):
            yield suite, test


def _has_literal(tree, folders, word):
    return any(file.is_cpp and file.folder in folders and f'"{word}"' in file.uncommented
               for file in tree.files)


def _what_is_missing(tree, suites, line):
    """Yields a message for each test or case that `line` names and the tree does not have."""
    for suite, test in _tests_named(line):
        if suite not in suites:
            yield f"no TEST, TEST_F or TEST_P is of the suite {suite}"
        elif test and test not in suites[suite][0]:
            yield f"the suite {suite} has no test {test}"
    for suite, case in _NAMED_CASES.findall(line):
        if suite in suites and not _has_literal(tree, suites[suite][1], case):
            yield f'no source beside the suite {suite} has a case "{case}"'


def tests_that_documents_name(tree):
    suites = _suites(tree)
    for file in tree.files:
        if file.suffix != ".md":
            continue
        for number, line in enumerate(file.lines, start=1):
            for message in _what_is_missing(tree, suites, line):
                yield Finding(file.path, number, "unknown-test",
                              message + "; name the test as it is called now")


def _test_names(tree, suites):
    """What ctest calls the tests, one a line; and patterns of names that have a variable."""
    names = [f"{suite}.{test}" for suite, (tests, _) in suites.items() for test in tests]
    for file in tree.files:
        if file.is_cmake:
            names += _TEST_NAME.findall(file.uncommented)
    # A name that begins with a variable would fit every filter.
    open_names = [re.compile(r"\w+".join(map(re.escape, _VARIABLE.split(name))))
                  for name in names if name.find("$") > 0]
    return "\n".join(name for name in names if "$" not in name), open_names


def _single_filters(pattern):
    """Yields patterns without alternatives, which together select what `pattern` does."""
    for alternative in _ALTERNATIVE.findall(pattern):
        group = _GROUP.search(alternative)
        if not group:
            yield alternative
            continue
        for choice in group[1].split("|"):
            yield from _single_filters(
                alternative[:group.start()] + choice + alternative[group.end():])


def filters_that_select_nothing(tree):
    """Each alternative of `ctest -R` in a README finds a test."""
    names, open_names = _test_names(tree, _suites(tree))
    for file in tree.files:
        if file.name != "README.md":
            continue
        for match in _CTEST_FILTER.finditer(file.text):
            for single in _single_filters(match[1].strip("'\"")):
                if not (re.search(single, names, re.MULTILINE)
                        or any(name.fullmatch(single) for name in open_names)):
                    yield Finding(file.path, file.line_of(match.start(1)), "empty-filter",
                                  f"ctest -R '{single}' selects no test; name one that there is")


def _cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_without_test(tree):
    """A table of docs/ whose last column is "test" names one or more in every row."""
    for file in tree.files:
        if file.suffix != ".md" or file.folder != "docs":
            continue
        in_table = False
        for number, line in enumerate(file.lines, start=1):
            if not line.startswith("|"):
                in_table = False
            elif not in_table and _cells(line)[-1] == "test":
                in_table = True
            elif in_table and not set(line) <= set("|-: "):
                if not any(_tests_named(_cells(line)[-1])):
                    yield Finding(file.path, number, "row-without-test",
                                  "the last cell names no `Suite.Test`, nor a `SuiteTest`")


DOCUMENT_RULES = [tests_that_documents_name, filters_that_select_nothing, rows_without_test]
