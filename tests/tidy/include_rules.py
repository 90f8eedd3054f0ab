"""Who may include whom: the table of the house plan, as data, and the rules that read it."""

import re

from source_tree import Finding

SERVER_ROOMS = ["io", "catalog", "tier", "plan", "stage", "fetch", "peer", "stream", "daemon"]
# Rooms that may include wire code (forebay/v1, gRPC, protobuf, absl).
WIRE_ROOMS = {"server/stream", "server/peer", "server/daemon"}
# Nobody but these includes everything, and nobody includes these.
OUTER_ROOMS = {"tests", "bench", "deploy"}


def _allowed_rooms():
    """Room -> rooms it may include. Arrows run one way, so each room sees those before it."""
    allowed = {"proto/contract": {"proto/contract"}}
    allowed["compress"] = {"proto/contract", "compress"}
    # Trains predictors; nothing includes it.
    allowed["compress/train"] = {"proto/contract", "compress", "compress/train"}
    seen = set(allowed["compress"])
    for name in SERVER_ROOMS:
        room = f"server/{name}"
        seen.add(room)
        allowed[room] = set(seen)
    # Tells a daemon at its start which nodes there are; only the daemon wires it.
    allowed["server/rendezvous"] = {"proto/contract", "server/io", "server/rendezvous"}
    allowed["server/daemon"].add("server/rendezvous")
    # Finds out which nodes answer; peer carries its messages, and the daemon wires it.
    allowed["server/probe"] = {"proto/contract", "server/io", "server/plan", "server/probe"}
    allowed["server/peer"].add("server/probe")
    allowed["server/daemon"].add("server/probe")
    # peer and stream stand side by side: each implements or uses what fetch declares.
    allowed["server/stream"].discard("server/peer")
    allowed["client"] = {"proto/contract", "compress", "client"}
    allowed["trainer"] = {"proto/contract", "client", "trainer"}
    return allowed


ALLOWED_ROOMS = _allowed_rooms()
# What the testing/ folder of a room may include besides: fixtures wire rooms as the daemon does.
ALLOWED_FIXTURE_ROOMS = {"server/stream": {"server/peer"}}

# (what an include starts with, rooms that may, remedy). Tests and benchmarks always may.
THIRD_PARTY = [
    (r"(torch|ATen|c10|caffe2)/", {"trainer", "compress/train"}, "LibTorch belongs in trainer/, "
     "compress/train and the header-only torch adaptor of client/"),
    (r"mpi\.h$", {"trainer", "server/peer"}, "MPI belongs in trainer/ and server/peer"),
    (r"pmix", {"server/rendezvous"}, "PMIx stays behind server/rendezvous's interface"),
    (r"liburing", {"server/io"}, "io_uring stays behind server/io's interface"),
    (r"zstd", {"compress"}, "zstd stays behind compress/'s interface"),
    (r"fuse", set(), "FUSE belongs to the emulated GFS in bench/"),
]
WIRE_HEADER = re.compile(r"(forebay/v1/|grpc/|grpcpp/|grpc\+\+/|google/protobuf/)")
ABSL_HEADER = re.compile(r"absl/")
TEST_HEADER = re.compile(r"(gtest|gmock|benchmark)/")
# What proto/contract and the client's public headers may show besides the standard library.
PURE_ANGLE = re.compile(r"[a-z0-9_]+$|tl/expected\.hpp$|xxhash\.h$|[a-z0-9_]+\.h$|"
                        r"(sys|linux|net|netinet|arpa)/[a-z0-9_]+\.h$")
NOT_PURE = re.compile(r"(liburing|zstd\w*|mpi|archive|archive_entry|fuse\w*|lz4|curl|pthread)\.h$")
# The client's public headers. They are included as "forebay/x.h", in the tree and installed.
PUBLIC_FOLDER = "client/include/forebay/"
# Public headers of other rooms, which are included in the same way.
PUBLIC_ELSEWHERE = {"forebay/pack.h": "compress/include/forebay/pack.h"}

_INCLUDE = re.compile(r"(?m)^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]")


def path_of(header):
    """The path of a header as it is included: <forebay/x.h> is a public header."""
    if header in PUBLIC_ELSEWHERE:
        return PUBLIC_ELSEWHERE[header]
    if header.startswith("forebay/") and not WIRE_HEADER.match(header):
        return PUBLIC_FOLDER + header.removeprefix("forebay/")
    return header


def room_of(path):
    """The room a path, or a header as it is included, lies in; None for what lies in no room."""
    parts = path_of(path).split("/")
    if parts[0] == "server" and len(parts) > 2:
        return f"server/{parts[1]}"
    if parts[:2] == ["proto", "contract"]:
        return "proto/contract"
    if parts[:2] == ["compress", "train"] and len(parts) > 2:
        return "compress/train"
    if parts[0] in {"compress", "client", "trainer"} | OUTER_ROOMS and len(parts) > 1:
        return parts[0]
    return None


def is_torch_adaptor(file):
    return room_of(file.path) == "client" and "torch" in file.path.split("/", 1)[1]


def public_client_headers(tree):
    """The client's public headers but the torch adaptor, which shows LibTorch."""
    return {file.path for file in tree.files
            if file.path.startswith(PUBLIC_FOLDER) and not is_torch_adaptor(file)}


def _third_party(file, room, header):
    if WIRE_HEADER.match(header) and room not in WIRE_ROOMS | {"client"}:
        return "wire-include", ("generated wire code is seen only in server/stream, server/peer, "
                                "server/daemon and inside the client")
    if ABSL_HEADER.match(header) and not (
            file.suffix == ".cc" and room in WIRE_ROOMS | {"client"}):
        return "wire-include", "absl stays inside the .cc files that talk to gRPC"
    if TEST_HEADER.match(header) and not file.is_test and "test" not in file.path:
        return "test-include", ("gtest stays out of production targets: *_test.cc, or a header "
                                "in a testing/ folder or with `test` in its name")
    for pattern, rooms, remedy in THIRD_PARTY:
        if re.match(pattern, header) and room not in rooms:
            if "torch" in pattern and is_torch_adaptor(file):
                continue
            return "third-party-include", remedy
    return None


def _purity(file, room, quote, header, public):
    if file.path in public or room == "proto/contract" and not file.is_test:
        if quote == "<" and (NOT_PURE.match(header) or not PURE_ANGLE.match(header)) or (
                WIRE_HEADER.match(header)):
            where = "public headers of the client show" if file.path in public else (
                "proto/contract uses")
            return "pure-include", f"{where} only the standard library, tl::expected and xxHash"
    if file.path.startswith(PUBLIC_FOLDER) and room_of(header) == "client":
        if not path_of(header).startswith(PUBLIC_FOLDER):
            return "pure-include", "a public header of the client shows no other header of client/"
    return None


def _rooms(file, room, header, public):
    target = room_of(header)
    # Tests of daemons mount the emulated GFS.
    if room == "tests" and header.startswith("bench/gfs_emu/testing/"):
        return None
    if target in OUTER_ROOMS and target != room:
        return "room-include", f"nobody includes {target}/"
    if room in OUTER_ROOMS or target is None:
        return None
    allowed = ALLOWED_ROOMS[room]
    if file.path.startswith(f"{room}/testing/"):
        allowed = allowed | ALLOWED_FIXTURE_ROOMS.get(room, set())
    if target not in allowed:
        return "room-include", f"{room} must not include {target} (arrows run one way)"
    if room == "trainer" and target == "client" and path_of(header) not in public:
        if "torch" not in header:
            return "room-include", "the trainer sees only client/'s public headers"
    return None


def _own_header_first(tree, file):
    """x.cc includes x.h before all else, which shows that x.h compiles alone."""
    own = file.path.removesuffix(".cc") + ".h"
    if file.suffix != ".cc" or own not in tree.by_path:
        return
    first = _INCLUDE.search(file.uncommented)
    if first is None or first.group(2) != own:
        line = file.line_of(first.start(1)) if first else 1
        yield Finding(file.path, line, "own-include-first",
                      f"include \"{own}\" first: tests/header_check.cmake relies on it")


def include_rules(tree):
    public = public_client_headers(tree)
    for file in tree.files:
        room = room_of(file.path)
        if not file.is_cpp or room is None:
            continue
        yield from _own_header_first(tree, file)
        for match in _INCLUDE.finditer(file.uncommented):
            quote, header = match.groups()
            line = file.line_of(match.start(1))
            checks = [_rooms(file, room, header, public)]
            if room not in OUTER_ROOMS:
                checks += [_third_party(file, room, header),
                           _purity(file, room, quote, header, public)]
            if quote == '"' and room_of(header) is None and not WIRE_HEADER.match(header):
                checks.append(("path-include", "quoted includes are qualified from the root"))
            if header.startswith(PUBLIC_FOLDER) or header in PUBLIC_ELSEWHERE.values():
                checks.append(("path-include", "public headers are included as forebay/x.h"))
            for rule, message in filter(None, checks):
                yield Finding(file.path, line, rule, f"<{header}>: {message}")
