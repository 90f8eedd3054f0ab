#!/usr/bin/env python3
"""Checks the tree against the include table and the naming, size and wording rules.

    check_tree.py [--root DIR] [--only RULE] [--count]

Prints one line per finding and exits 1 where there is any. What must stay although a rule
forbids it is listed in allowlist.txt beside this file, with its reason:

    RULE PATH [TEXT THAT THE MESSAGE CONTAINS] -- reason

An entry that allows nothing any more is itself a finding.
"""

import argparse
import collections
import dataclasses
import pathlib
import sys

from document_rules import DOCUMENT_RULES
from include_rules import include_rules
from layout_rules import LAYOUT_RULES
from source_tree import Finding, Tree
from text_rules import TEXT_RULES

RULES = [include_rules, *TEXT_RULES, *LAYOUT_RULES, *DOCUMENT_RULES]
ALLOWLIST = "tests/tidy/allowlist.txt"


@dataclasses.dataclass
class Allowance:
    line: int
    rule: str
    path: str
    contains: str
    used: bool = False

    def allows(self, finding):
        return (finding.rule == self.rule and finding.path == self.path
                and self.contains in finding.message)


def read_allowlist(tree):
    """Returns (allowances, findings about the list itself)."""
    allowances, findings = [], []
    file = tree.by_path.get(ALLOWLIST)
    for number, line in enumerate(file.lines if file else [], start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        entry, separator, reason = line.partition(" -- ")
        words = entry.split(maxsplit=2)
        if not separator or len(reason.split()) < 3 or len(words) < 2:
            findings.append(Finding(ALLOWLIST, number, "allowlist",
                                    "write RULE PATH [TEXT] -- reason in a few words"))
            continue
        contains = words[2].strip() if len(words) > 2 else ""
        allowances.append(Allowance(number, words[0], words[1], contains))
    return allowances, findings


def check(root):
    """All findings below `root`, sorted, without what the allowlist allows."""
    tree = Tree(root)
    allowances, findings = read_allowlist(tree)
    for rule in RULES:
        for finding in rule(tree):
            allowed = [entry for entry in allowances if entry.allows(finding)]
            for entry in allowed:
                entry.used = True
            if not allowed:
                findings.append(finding)
    for entry in allowances:
        if not entry.used:
            findings.append(Finding(ALLOWLIST, entry.line, "allowlist",
                                    f"allows nothing any more: {entry.rule} {entry.path}"))
    return sorted(set(findings))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--only", metavar="RULE", help="report one rule")
    parser.add_argument("--count", action="store_true", help="print counts per rule only")
    options = parser.parse_args()
    findings = check(options.root)
    if options.only:
        findings = [finding for finding in findings if finding.rule == options.only]
    if not options.count:
        for finding in findings:
            print(finding)
    for rule, count in collections.Counter(finding.rule for finding in findings).most_common():
        print(f"{count:5} {rule}", file=sys.stderr)
    print(f"check_tree: {len(findings)} finding(s)", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
