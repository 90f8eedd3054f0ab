"""Each rule fires on a small tree that breaks it and is silent on one that does not.

Method: write a few files into a temporary folder, run the checker on it, and compare the names
of the rules that reported. A rule without a case here fails the last test.
"""

import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import check_tree
import kernel_symbols
import text_rules

HEADER = "#pragma once\n"
A_TEST = "TEST(IoTest, Reads) {}"
LISTS = {"CMakeLists.txt": "# a.cc in a comment does not count\n"}


def rules_reported(files):
    """Runs the checker on `files`; README.md of each folder and the build lists are added."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            full = root / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {finding.rule for finding in check_tree.check(root)}


def complete(files):
    """Adds what a well-formed tree has, so that only the rule under test can fire."""
    sources = [path for path in files if path.endswith((".cc", "_test.py"))]
    added = dict(files)
    for path in files:
        folder = path.rpartition("/")[0]
        if folder and path.endswith((".h", ".cc", ".py", ".sh", ".proto")):
            added.setdefault(f"{folder}/README.md", "What belongs here.\n")
    added.setdefault("CMakeLists.txt", "add_library(x\n  " + "\n  ".join(sources) + ")\n")
    return added


def code(path, text):
    return {path: (HEADER if path.endswith(".h") else "") + text + "\n"}


def body(count):
    return "int F() {\n" + "  G();\n" * (count - 2) + "}"


# rule -> (trees on which it fires, trees on which it does not)
CASES = {
    "room-include": (
        [
            code("server/io/a.cc", '#include "server/tier/ram/ram_arena.h"'),
            code("server/catalog/a.cc", '#include "server/tier/ram/ram_arena.h"'),
            code("server/peer/a.cc", '#include "server/stream/x.h"'),
            code("server/stream/a.cc", '#include "server/peer/x.h"'),
            code("server/stream/testing/a.h", '#include "server/daemon/x.h"'),
            code("server/peer/testing/a.h", '#include "server/stream/x.h"'),
            code("server/rendezvous/a.cc", '#include "server/plan/ownership.h"'),
            code("server/rendezvous/a.cc", '#include "compress/codec.h"'),
            code("server/stage/a.cc", '#include "server/rendezvous/rendezvous.h"'),
            code("server/daemon/a.cc", '#include "client/handshake.h"'),
            code("server/daemon/a.cc", "#include <forebay/client.h>"),
            code("client/a.cc", '#include "server/io/clock.h"'),
            code("client/a.cc", "#include <server/io/clock.h>"),
            code("compress/a.cc", '#include "server/io/clock.h"'),
            code("compress/decode/a.cc", '#include "compress/train/net_trainer.h"'),
            code("proto/contract/a.cc", '#include "compress/codec.h"'),
            code("trainer/core/a.cc", '#include "server/io/clock.h"'),
            code("trainer/core/a.cc", '#include "client/session.h"'),
            code("trainer/core/a.cc", '#include "compress/codec.h"'),
            code("server/io/a.cc", '#include "tests/faulty.h"'),
            code("tests/e2e/a.cc", '#include "bench/harness/timer.h"'),
        ],
        [
            code("server/daemon/a.cc", '#include "server/io/clock.h"\n#include "compress/c.h"'),
            code("server/daemon/a.cc", '#include "server/rendezvous/rendezvous.h"'),
            code("server/tier/a.cc", '#include "server/catalog/catalog.h"'),
            code("compress/train/a.cc", '#include "compress/encode/wavefront/wavefront_work.h"'),
            code("server/stream/testing/a.h", '#include "server/peer/single_node.h"'),
            code("server/io/a.cc", '// #include "server/tier/ram/ram_arena.h"'),
            code("client/cli/a.cc", '#include "forebay/client.h"\n#include "compress/codec.h"'),
            {**code("client/include/forebay/batch.h", ""),
             **code("trainer/core/a.cc", '#include "forebay/batch.h"')},
            code("tests/e2e/a.cc", '#include "server/io/clock.h"\n#include "forebay/client.h"'),
            code("tests/e2e/a.cc", '#include "bench/gfs_emu/testing/a.h"'),
        ],
    ),
    "wire-include": (
        [
            code("server/fetch/a.cc", '#include "forebay/v1/data.pb.h"'),
            code("server/io/a.h", "#include <grpcpp/grpcpp.h>"),
            code("client/session.h", "#include <absl/strings/str_cat.h>"),
            code("server/stream/a.h", "#include <absl/strings/str_cat.h>"),
            code("trainer/core/a.cc", "#include <google/protobuf/message.h>"),
        ],
        [
            code("server/stream/a.h", '#include "forebay/v1/data.grpc.pb.h"'),
            code("server/peer/a.cc", "#include <absl/strings/str_cat.h>"),
            code("client/a.cc", '#include "forebay/v1/data.pb.h"\n#include <grpcpp/grpcpp.h>'),
            code("tests/e2e/a.cc", '#include "forebay/v1/data.pb.h"'),
        ],
    ),
    "third-party-include": (
        [
            code("server/io/a.cc", "#include <torch/torch.h>"),
            code("client/a.cc", "#include <torch/torch.h>"),
            code("server/stage/a.cc", "#include <mpi.h>"),
            code("server/tier/a.cc", "#include <liburing.h>"),
            code("server/stage/a.cc", "#include <zstd.h>"),
            code("server/daemon/a.cc", "#include <pmix.h>"),
            code("server/io/a.cc", "#include <fuse3/fuse.h>"),
        ],
        [
            code("trainer/core/a.cc", "#include <torch/torch.h>\n#include <mpi.h>"),
            code("client/include/forebay/torch.h", "#include <torch/torch.h>"),
            code("client/torch/dataset.h", "#include <torch/data.h>"),
            code("server/io/a.cc", "#include <liburing.h>"),
            code("server/rendezvous/a.cc", "#include <pmix.h>"),
            code("bench/gfs_emu/a.cc", "#include <fuse3/fuse.h>"),
        ],
    ),
    "pure-include": (
        [
            code("client/include/forebay/client.h", "#include <grpcpp/grpcpp.h>"),
            code("client/include/forebay/client.h", '#include "forebay/v1/data.pb.h"'),
            code("client/include/forebay/client.h", "#include <torch/torch.h>"),
            code("client/include/forebay/client.h", '#include "client/session.h"'),
            code("client/include/forebay/torch.h", '#include "client/session.h"'),
            code("proto/contract/a.cc", "#include <fmt/format.h>"),
            code("proto/contract/a.h", "#include <liburing.h>"),
        ],
        [
            code("client/include/forebay/client.h",
                 '#include <vector>\n#include <tl/expected.hpp>\n'
                 '#include "forebay/batch.h"\n#include "proto/contract/ids.h"'),
            code("client/session.h", "#include <fmt/format.h>\n#include <grpcpp/grpcpp.h>"),
            code("proto/contract/a.cc", "#include <xxhash.h>\n#include <sys/mman.h>"),
            code("proto/contract/a_test.cc", "#include <gtest/gtest.h>"),
        ],
    ),
    "path-include": (
        [code("server/io/a.cc", '#include "clock.h"'), code("server/io/a.cc", '#include "../x.h"'),
         code("client/a.cc", '#include "client/include/forebay/batch.h"'),
         code("compress/a.cc", '#include "compress/include/forebay/pack.h"')],
        [code("server/io/a.cc", '#include "server/io/clock.h"\n#include <clock.h>'),
         code("client/a.cc", '#include "forebay/batch.h"\n#include "forebay/v1/data.pb.h"'),
         code("compress/a.cc", '#include "forebay/pack.h"')],
    ),
    "own-include-first": (
        [
            {**code("server/io/a.cc", '#include <vector>\n#include "server/io/a.h"'),
             **code("server/io/a.h", "")},
            {**code("server/io/a.cc", ""), **code("server/io/a.h", "")},
        ],
        [
            {**code("server/io/a.cc", '// What it does.\n#include "server/io/a.h"\n'
                                      '#include <vector>'),
             **code("server/io/a.h", "")},
            code("server/io/a.cc", "#include <vector>"),
        ],
    ),
    "test-include": (
        [code("server/io/a.cc", "#include <gmock/gmock.h>")],
        [
            code("server/io/a_test.cc", "#include <gmock/gmock.h>"),
            code("server/io/backend_test_suite.h", "#include <gtest/gtest.h>"),
            code("tests/e2e/a.cc", "#include <gtest/gtest.h>"),
        ],
    ),
    "library-shuffle": (
        [code("tests/a.cc", "std::shuffle(a, b, c);"),
         code("server/io/a.cc", "std::ranges::shuffle(a, b);"),
         code("server/io/a.cc", "std::random_shuffle(a, b);")],
        [code("server/io/a.cc", "order.Shuffle(a);  // not std::shuffle"),
         code("server/io/a.cc", 'Say("std::shuffle");')],
    ),
    "library-hash": (
        [code("server/plan/a.cc", "auto h = std::hash<int>{}(3);")],
        [code("server/plan/a.h", "template <> struct std::hash<Id> { };"),
         code("trainer/a.cc", "auto h = std::hash<int>{}(3);")],
    ),
    "library-distribution": (
        [code("server/plan/a.cc", "std::uniform_int_distribution<int> d(0, 3);")],
        [code("bench/a.cc", "std::normal_distribution<double> d;"),
         code("server/plan/a_test.cc", "std::uniform_int_distribution<int> d(0, 3);")],
    ),
    "global-random": (
        [code("server/io/a.cc", "int x = rand();"), code("server/io/a.cc", "std::rand();"),
         code("server/io/a.cc", "std::random_device seed;")],
        [code("server/io/a.cc", "int x = operand(3) + random.rand();")],
    ),
    "coroutine": (
        [code("server/io/a.cc", "co_await x;"), code("server/io/a.cc", "co_return;")],
        [code("server/io/a.cc", "int co_awaited = 1;  // co_await")],
    ),
    "ranges-views": (
        [code("server/io/a.cc", "for (auto x : v | std::views::reverse) {}"),
         code("server/io/a.cc", "auto x = std::ranges::views::iota(0);")],
        [code("server/io/a.cc", "std::ranges::sort(views);"),
         code("server/io/a.cc", "delivery::views::Count();")],
    ),
    "std-format": (
        [code("server/io/a.cc", 'std::format("{}", 1);'),
         code("server/io/a.cc", 'std::print("{}", 1);')],
        [code("server/io/a.cc", 'fmt::format("{}", 1);')],
    ),
    "std-expected": (
        [code("server/io/a.h", "std::expected<int, int> F();")],
        [code("server/io/a.h", "tl::expected<int, int> F();")],
    ),
    "source-location": (
        [code("server/io/a.h", "void F(std::source_location where);")],
        [code("server/io/a.h", "void F(Location where);")],
    ),
    "sleep-in-test": (
        [code("server/io/a_test.cc", "std::this_thread::sleep_for(1s);"),
         code("tests/e2e/a.cc", "usleep(3);"), code("tests/e2e/a.cc", "::sleep(3);")],
        [code("server/io/a.cc", "clock.sleep_for(1s);"),
         code("server/io/a_test.cc", "clock.sleep(3);")],
    ),
    "new-expression": (
        [code("server/io/a.cc", "auto* x = new Thing(3);"),
         code("server/io/a.cc", "std::unique_ptr<Thing> x;\nauto* y = new Thing(3);")],
        [code("server/io/a.cc", "auto x = std::make_unique<Thing>(3);  // a new one"),
         code("server/io/a.cc", "std::unique_ptr<Thing> x(new Thing(3));"),
         code("server/io/a.cc", "return std::unique_ptr<Thing>(\n    new Thing(3));"),
         code("server/io/a.cc", "#include <new>\nnew (place) Thing(3);"),
         code("server/io/a.cc", "int new_size = 3;")],
    ),
    "delete-expression": (
        [code("server/io/a.cc", "delete x;"), code("server/io/a.cc", "delete[] x;")],
        [code("server/io/a.h", "A(const A&) = delete;\nA& operator=(A&) =delete;"),
         code("server/io/a.h", "void operator delete(void* p);")],
    ),
    "detached-thread": (
        [code("server/io/a.cc", "std::thread(F).detach();")],
        [code("server/io/a.cc", "tensor.detach_from(graph);"),
         code("trainer/exec/a.cc", "const auto value = output.detach();")],
    ),
    "assert-macro": (
        [code("server/io/a.cc", "assert(x > 0);")],
        [code("server/io/a.cc", "static_assert(sizeof(int) == 4);\nFOREBAY_CHECK(x > 0);")],
    ),
    "format-named": (
        [code("server/stage/a.cc", "if (format == catalog::Format::kTar) return;"),
         code("server/catalog/a.cc", "Format format = Format::kRaw;"),
         code("server/catalog/storage/a.h", "Format format = Format::kRaw;")],
        [code("server/catalog/tar/a.cc", "Format format = Format::kTar;"),
         code("server/stage/a_test.cc", "Format format = Format::kTar;"),
         code("server/stream/testing/a.cc", "Format format = Format::kTar;"),
         code("server/catalog/a.h", "// .format = Format::kLog\nLogFormat format;")],
    ),
    "unchecked-lock": (
        [code("server/io/a.h", "class A { std::mutex mutex_; };"),
         code("client/a.cc", "std::shared_mutex mutex;"),
         code("trainer/a.h", "std::condition_variable_any changed_;")],
        [code("server/io/a.h", "class A { Mutex mutex_; };  // not std::mutex"),
         code("server/io/testing/a.cc", "std::mutex mutex;"),
         code("server/io/a_test.cc", "std::condition_variable told;")],
    ),
    "banned-header": (
        [code("server/io/a.cc", "#include <coroutine>"),
         code("server/io/a.h", "#include <cassert>")],
        [code("server/io/a.cc", "#include <concepts>\n#include <fmt/format.h>")],
    ),
    "long-line": (
        [code("server/io/a.cc", "//" + "x" * 99), {"deploy/run.sh": "#" * 101}],
        [code("server/io/a.cc", "//" + "x" * 98), {"docs/page.md": "x" * 300}],
    ),
    "long-function": (
        [
            code("server/io/a.cc", body(71)),
            code("server/io/a.cc", "namespace x {\nclass A final : public B<int> {\n" + body(71)
                 + "\n};\n}"),
            code("server/io/a.cc", "A::A(int x)\n    : x_{x},\n      y_{x} {\n"
                 + "  G();\n" * 71 + "}"),
            code("server/io/a_test.cc", "TEST(Suite, Fact) {\n" + "  {\n  }\n" * 35 + "}"),
            code("tests/fuzz/a.cc", 'extern "C" ' + body(71)),
            code("tests/e2e/a.py", "def f():\n" + "    g()\n" * 70),
        ],
        [
            code("server/io/a.cc", body(70)),
            code("server/io/a.cc", "class A {\n" + "int x() { return 1; }\n" * 80 + "};"),
            code("server/io/a.cc", "constexpr Row kTable[] = {\n" + "  {1, 2},\n" * 80 + "};"),
            code("server/io/a.cc", "struct alignas(64) A {\n" + "  int x;\n" * 80 + "};"),
            code("server/io/a.cc", 'extern "C" {\n' + "int F();\n" * 80 + "}"),
            code("tests/e2e/a.py", "def f():\n" + "    g()\n" * 69),
        ],
    ),
    "pragma-once": (
        [{"server/io/a.h": "int F();\n"}],
        [{"server/io/a.h": "// Why.\n#pragma once\nint F();\n"}],
    ),
    "fixme": (
        [code("server/io/a.cc", "// FIX" + "ME: later"), {"docs/page.md": "HA" + "CK\n"}],
        [code("server/io/a.cc", "// Fixes what the hacker did.")],
    ),
    "todo": (
        [code("server/io/a.cc", "// TO" + "DO: later"), code("server/io/a.cc", "// TO" + "DO(me)")],
        [code("server/io/a.cc", "// TO" + "DO(perf, #12): one pass")],
    ),
    "skipped-test": (
        [
            code("server/io/a_test.cc", "TEST(Suite, DISABLED_Fact) {}"),
            code("server/io/a_test.cc", "GTEST_SKIP();"),
            code("tests/e2e/some_test.py", "@unittest.skip\ndef f(): pass"),
            code("tests/e2e/some_test.py", "self.skipTest()"),
        ],
        [
            code("server/io/a_test.cc", "// #12: forgets.\nTEST(Suite, DISABLED_Fact) {}"),
            code("server/io/a_test.cc", 'GTEST_SKIP() << "io_uring is forbidden here";'),
            code("tests/e2e/some_test.py", '@unittest.skip("no FUSE here")\ndef f(): pass'),
        ],
    ),
    "non-ascii": (
        [code("server/io/a.cc", "// \u00e9"), code("tests/e2e/a.py", "# \u2192")],
        [code("server/io/a.cc", r'Say("\u2192");'), {"README.md": "\u2192\n"}],
    ),
    "machine-path": (
        [code("server/io/a.cc", 'Open("/tmp/x");'), code("tests/a.cc", 'Open("/work' + '/data");'),
         {"docs/page.md": "see /root" + "/notes\n"}],
        [code("tests/e2e/a.cc", 'Open("/tmp/x");'), code("server/io/a.h", "// $TMPDIR or /tmp/x"),
         code("server/io/a.cc", 'Open("/var/tmp/x");'),
         {"docs/page.md": "see framework/data and ./work/x\n"}],
    ),
    "registry-host": (
        [{"deploy/run.sh": "curl https://py" + "pi.org/x\n"}],
        [{"deploy/run.sh": "apt-get install fio  # see debian.org\n"}],
    ),
    "file-name": (
        [code("server/io/RamArena.h", ""), code("server/io/a.cpp", ""),
         code("server/io/a-b.cc", "")],
        [code("server/io/ram_arena.h", ""), code("client/python/__init__.py", "")],
    ),
    "vague-name": (
        [code("server/io/io_utils.h", ""), code("server/common/a.h", ""),
         code("tests/helper.py", "")],
        [code("server/io/utility_curve.h", ""), code("server/io/commonwealth.h", "")],
    ),
    "unique-name": (
        [{**code("server/io/a.h", ""), **code("client/a.h", "")}],
        [{**code("server/io/a.h", ""), **code("server/io/a.cc", "")}],
    ),
    "unlisted-source": (
        [
            {**code("server/io/a.cc", ""), **LISTS},
            {**code("server/io/aa.cc", ""), "CMakeLists.txt": "add_library(x a.cc)\n"},
            {**code("server/io/a.cc", ""), **LISTS,
             "client/CMakeLists.txt": "add_library(x a.cc)\n"},
            {**code("tests/e2e/a_test.py", ""), **LISTS},
            {**code("server/io/a_fuzz.cc", ""), **LISTS,
             "tests/fuzz/CMakeLists.txt": "forebay_fuzz(SOURCES server/io/b_fuzz.cc)\n"},
            {**code("server/io/a.cc", ""), **LISTS,
             "tests/fuzz/CMakeLists.txt": "forebay_fuzz(SOURCES server/io/a.cc)\n"},
        ],
        [
            {**code("server/io/a.cc", ""), "server/io/CMakeLists.txt": "add_library(x a.cc)\n"},
            {**code("server/io/a.cc", ""), "server/CMakeLists.txt": "add_library(x io/a.cc)\n"},
            {**code("server/io/a_test.cc", ""),
             "server/io/CMakeLists.txt": "foreach(t a_test)\n  add_executable(${t} ${t}.cc)\n"},
            {**code("server/io/a_fuzz.cc", ""), **LISTS,
             "tests/fuzz/CMakeLists.txt": "forebay_fuzz(SOURCES server/io/a_fuzz.cc)\n"},
        ],
    ),
    "large-file": (
        [{"docs/plot.svg": b"x" * (256 * 1024 + 1)}],
        [{"docs/plot.svg": b"x" * (256 * 1024)}],
    ),
    "readme-missing": (
        [{"server/io/a.h": HEADER}, {"deploy/run.sh": "exit 0\n"}],
        [{"docs/page.md": "x\n"}, {".ci/start.sh": "exit 0\n"}],
    ),
    "readme-length": (
        [{"server/README.md": "x\n" * 81}],
        [{"server/README.md": "x\n" * 80, "README.md": "x\n" * 81}],
    ),
    "unknown-test": (
        [
            {"docs/page.md": "`IoTest.Gone`\n", **code("server/io/a_test.cc", A_TEST)},
            {"docs/page.md": "`GoneTest`, `IoTest.Reads`\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "`GoneTest.Reads`\n", **code("server/io/a_test.cc", A_TEST)},
            {"docs/page.md": "`IoTest.Reads`\n",
             **code("server/io/a_test.cc", "// TEST(IoTest, Reads)")},
            {"docs/page.md": "`IoTest`, the cases `gone/*`\n",
             **code("server/io/a_test.cc", A_TEST), **code("server/tier/a.cc", 'F("gone");')},
        ],
        [
            {"docs/page.md": "`IoTest.Reads`, `IoTest`, `TEST.net`, `ByteTest::Any`, `Reads`\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"docs/page.md": "`IoTest.Reads`\n",
             **code("server/io/a_test.cc", "TEST_P(IoTest,\n       Reads) {}")},
            {"docs/page.md": "`IoTest`, the cases `hang/*`; `IoTest`, cases `full`\n",
             **code("server/io/a_test.cc", A_TEST),
             **code("server/io/a_case.cc", 'F("hang"), F("full");')},
        ],
    ),
    "empty-filter": (
        [
            {"server/README.md": "`ctest -R 'Io|Gone'`\n", **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "`ctest -L unit -R Gone`\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "Run `ctest -R\nGone`.\n", **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "`ctest -R 'Io(Test|Gone)'`\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "`ctest -R Gone`\n",
             "CMakeLists.txt": "add_test(NAME ${name} COMMAND x)\n"},
            {"server/README.md": "`ctest -R io_test`\n",
             "CMakeLists.txt": "forebay_test(NAME io_test SOURCES a_test.cc)\n"},
            {"server/README.md": "`ctest -R '^Test'`\n", **code("server/io/a_test.cc", A_TEST)},
        ],
        [
            {"server/README.md": "    ctest -R 'IoTest.Reads|o(T|Test.)' # fast\n`ctest -L x`\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "`ctest -R 'bench_(io|tier)'`\n",
             "CMakeLists.txt": "add_test(NAME bench_${name} COMMAND x)\n"},
            {"server/README.md": "`ctest -R tree_check`\n",
             "CMakeLists.txt": "add_test(NAME tree_check\n  COMMAND x)\n"},
        ],
    ),
    "row-without-test": (
        [
            {"docs/page.md": "| what | test |\n|---|---|\n| reads | by hand |\n"},
            {"docs/page.md": "| what | test |\n|---|---|\n| `IoTest.Reads` | |\n",
             **code("server/io/a_test.cc", A_TEST)},
        ],
        [
            {"docs/page.md": "| what | test |\n|---|:--|\n| reads | `IoTest.Reads` |\n\n"
                             "| what | why |\n|---|---|\n| reads | speed |\n",
             **code("server/io/a_test.cc", A_TEST)},
            {"server/README.md": "| what | test |\n|---|---|\n| reads | by hand |\n"},
        ],
    ),
    "allowlist": (
        [
            {"tests/tidy/allowlist.txt": "long-line server/io/a.cc -- it is a long table\n"},
            {**code("server/io/a.cc", "delete x;"),
             "tests/tidy/allowlist.txt": "delete-expression server/io/a.cc\n"},
        ],
        [
            {**code("server/io/a.cc", "delete x;"), "tests/tidy/allowlist.txt":
             "# why not\ndelete-expression server/io/a.cc -- gRPC's reactors own themselves\n"},
        ],
    ),
}


class CheckTree(unittest.TestCase):
    def test_fires_on_what_breaks_the_rule(self):
        for rule, (firing, _) in CASES.items():
            for files in firing:
                tree = files if rule == "readme-missing" else complete(files)
                with self.subTest(rule=rule, files=files):
                    self.assertIn(rule, rules_reported(tree))

    def test_is_silent_on_what_keeps_the_rule(self):
        for rule, (_, silent) in CASES.items():
            for files in silent:
                with self.subTest(rule=rule, files=files):
                    self.assertEqual(set(), rules_reported(complete(files)) & {rule})

    def test_silent_trees_of_include_rules_break_no_other_rule(self):
        for rule in ("room-include", "wire-include", "third-party-include"):
            for files in CASES[rule][1]:
                with self.subTest(rule=rule, files=files):
                    self.assertEqual(set(), rules_reported(complete(files)))

    def test_allowlist_silences_only_the_named_file_and_text(self):
        files = {**code("server/io/a.cc", "delete x;"), **code("server/io/b.cc", "delete x;")}
        files["tests/tidy/allowlist.txt"] = "delete-expression server/io/a.cc -- for this test\n"
        self.assertEqual({"delete-expression"}, rules_reported(complete(files)))
        files = code("server/io/a.cc", "delete x;")
        files["tests/tidy/allowlist.txt"] = "delete-expression server/io/a.cc zzz -- no such text\n"
        self.assertEqual({"delete-expression", "allowlist"}, rules_reported(complete(files)))

    def test_reports_the_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "server/io/a.cc")
            path.parent.mkdir(parents=True)
            path.write_text("/* two\n lines */ int x;\n\nco_await y;\n")
            found = [f for f in check_tree.check(folder) if f.rule == "coroutine"]
            self.assertEqual([4], [finding.line for finding in found])

    def test_build_folders_are_not_read(self):
        self.assertEqual(set(), rules_reported({"build/dev/a.cc": "co_await x;\n"}))

    def test_every_rule_has_a_case(self):
        names = {entry[0] for entry in text_rules.BANNED_CODE}
        here = pathlib.Path(__file__).resolve().parent
        for module in ("include_rules.py", "text_rules.py", "layout_rules.py",
                       "document_rules.py"):
            names |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', (here / module).read_text()))
        names |= {"fixme", "todo", "allowlist"}
        self.assertEqual(set(), names ^ set(CASES))


class KernelSymbols(unittest.TestCase):
    """Objects compiled for newer processors, and the weak functions that they define."""

    def found(self, kernel, scalar=(), other=()):
        return len(kernel_symbols.findings({"wavefront_avx2.o": (("-mavx2",), set(kernel)),
                                            "wavefront_avx512.o": (("-mavx512f",), set(other)),
                                            "plan.o": ((), set(scalar))}))

    def test_own_functions_are_allowed(self):
        self.assertEqual(0, self.found(["_ZN9LanesAvx24LoadEv"], ["_ZN4PlanEv"]))
        self.assertEqual(0, self.found([], ["_ZSt3maxIiERKT_"]))

    def test_those_of_the_library_and_of_other_objects_are_not(self):
        for name in ("_ZSt3maxIiERKT_", "_ZNKSt5arrayIhLm4EE4sizeEv", "_ZNSaIcEC1Ev",
                     "_ZN9__gnu_cxx17__normal_iteratorC1Ev"):
            self.assertEqual(1, self.found([name]), name)
        self.assertEqual(1, self.found(["_ZN4PlanEv"], ["_ZN4PlanEv"]))
        self.assertEqual(2, self.found(["_ZN4PlanEv"], [], ["_ZN4PlanEv"]))

    def test_reads_flags_and_objects_of_commands(self):
        command = "g++ -O3 -mavx2 -mpopcnt -march=x86-64 -o folder/a.o -c a.cc"
        self.assertEqual(["-mavx2", "-mpopcnt"], kernel_symbols.ISA_FLAG.findall(command))
        self.assertEqual("folder/a.o", kernel_symbols.OBJECT.search(command).group(1))


if __name__ == "__main__":
    unittest.main()
