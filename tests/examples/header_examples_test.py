#!/usr/bin/env python3
"""Tests of header_examples.py."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import header_examples  # noqa: E402


class HeaderExamples(unittest.TestCase):
    def test_takes_indented_lines_of_the_first_comment(self):
        text = ("// Adds numbers.\n//\n//   int Two() {\n//     return 2;\n//   }\n"
                "// Text goes on.\n#pragma once\n//   not this\n")
        self.assertEqual(header_examples.example_of("a.h", text),
                         ["int Two() {", "  return 2;", "}"])

    def test_keeps_empty_lines_between_functions(self):
        text = "// T.\n//\n//   int F();\n//\n//   int G();\n//\n// More.\n"
        self.assertEqual(header_examples.example_of("a.h", text), ["int F();", "", "int G();"])

    def test_takes_comments_of_c(self):
        text = "/* Reads.\n *\n *   int f(void);\n *\n * More. */\nint g(void);\n"
        self.assertEqual(header_examples.example_of("c.h", text), ["int f(void);"])

    def test_puts_headers_first_then_what_examples_include(self):
        self.assertEqual(
            header_examples.source_of({
                "client/include/forebay/a.h": ["#include <vector>", "", "int F();"],
                "compress/b.h": ["int G();"]}),
            '#include "forebay/a.h"\n#include "compress/b.h"\n#include <vector>\n\n'
            "// client/include/forebay/a.h\n\nint F();\n\n// compress/b.h\nint G();\n")

    def test_refuses_a_header_without_example(self):
        for text in ("#pragma once\n", "// Adds numbers.\n#pragma once\n", "/* Reads. */\n",
                     "/* never ends\n *   int f(void);\n", "// T.\n#pragma once\n//   int F();\n"):
            with self.assertRaisesRegex(ValueError, "a.h: .*no example"):
                header_examples.example_of("a.h", text)


if __name__ == "__main__":
    unittest.main()
