#!/usr/bin/env python3
"""An independent reader of OrderSpec versions 1 and 2, written from docs/order.md alone.

    order_reader.py check FILE    recompute every vector of FILE; exit 1 on the first mismatch
    order_reader.py write FILE    write the vectors

It favours the document's wording over speed: block order is built from lists.
"""
import struct
import sys

WORD = (1 << 64) - 1
G = 0x9E3779B97F4A7C15
MODES = {"global": 1, "block": 2, "sequential": 3, "partial": 4}
TAILS = {"drop": 1, "pad": 2, "short": 3}


# Section 2.
def mulhi(x, y):
    return (x * y) >> 64


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def absorb(s, w):
    return mix(((s ^ w) + G) & WORD)


def draw(key, i):
    return mix((key + (i + 1) * G) & WORD)


def tag(text):
    return struct.unpack("<Q", text.encode("ascii"))[0]


def fold(t, data):
    s = absorb(t, len(data))
    for (w,) in struct.iter_unpack("<Q", data):
        s = absorb(s, w)
    return s


# Section 3.
class Permutation:
    def __init__(self, size, key):
        self.size = size
        self.table = None
        if size <= 16:
            self.table = list(range(size))
            for i in range(size - 1, 0, -1):
                j = mulhi(draw(key, size - 1 - i), i + 1)
                self.table[i], self.table[j] = self.table[j], self.table[i]
            return
        self.k = (size - 1).bit_length() // 2
        self.rows = ((size - 1) >> self.k) + 1
        rounds = 12 if size <= 512 else 8
        self.keys = [draw(key, i) for i in range(rounds)]

    @staticmethod
    def word(v, key):
        x = ((v + key) * 0xD6E8FEB86659FD93) & WORD
        x ^= x >> 32
        return (x * 0xBF58476D1CE4E5B9) & WORD

    def forward(self, x):
        if self.table:
            return self.table[x]
        while True:
            low, high = x % (1 << self.k), x >> self.k
            for i in range(0, len(self.keys), 2):
                high = (high + mulhi(self.word(low, self.keys[i]), self.rows)) % self.rows
                low = (low + (self.word(high, self.keys[i + 1]) >> (64 - self.k))) % (1 << self.k)
            x = (high << self.k) + low
            if x < self.size:
                return x

    def inverse(self, y):
        if self.table:
            return self.table.index(y)
        while True:
            low, high = y % (1 << self.k), y >> self.k
            for i in range(len(self.keys) - 2, -1, -2):
                low = (low - (self.word(high, self.keys[i + 1]) >> (64 - self.k))) % (1 << self.k)
                high = (high - mulhi(self.word(low, self.keys[i]), self.rows)) % self.rows
            y = (high << self.k) + low
            if y < self.size:
                return y


# Section 4.
class Order:
    def __init__(self, seed, epoch, n, shape):
        self.n = n
        self.mode = shape[0]
        root = absorb(absorb(absorb(tag("FBORDER1"), seed), epoch), n)
        if self.mode == "global":
            self.permutation = Permutation(n, absorb(root, 1))
        if self.mode == "partial":
            self.partial = Partial(seed, root, n, *shape[1:])
        if self.mode == "block":
            self.b, self.w = shape[1:]
            self.b = min(self.b, n)
            self.q, self.t = divmod(n, self.b)
            self.m = self.q + (1 if self.t else 0)
            self.w = min(self.w, self.m)
            self.runs = Permutation(self.q, absorb(root, 2))
            self.s = mulhi(absorb(root, 3), self.m)
            self.windows_key = absorb(root, 4)

    def run_in_slot(self, j):
        if self.t and j == self.s:
            return self.q
        return self.runs.forward(j - 1 if self.t and j > self.s else j)

    def run_size(self, j):
        return self.t if self.t and j == self.s else self.b

    def window_of_slot(self, v):
        """start(v), the slots of window v and size(v)."""
        slots = range(v * self.w, min((v + 1) * self.w, self.m))
        early = self.t and self.s < v * self.w
        start = v * self.w * self.b - (self.b - self.t if early else 0)
        has_short = self.t and self.s in slots
        return start, slots, len(slots) * self.b - (self.b - self.t if has_short else 0)

    def forward(self, p):
        if self.mode == "sequential":
            return p
        if self.mode == "global":
            return self.permutation.forward(p)
        if self.mode == "partial":
            return self.partial.forward(p)
        v = p // (self.w * self.b)  # the window, or one before it where the gap shifts it
        start, slots, size = self.window_of_slot(v)
        while p >= start + size:
            v += 1
            start, slots, size = self.window_of_slot(v)
        place = Permutation(size, absorb(self.windows_key, v)).forward(p - start)
        # Walk the runs of the window; all but the short one are b long.
        for j in self.candidate_slots(slots, place):
            begin = (j - slots[0]) * self.b
            if self.t and slots[0] <= self.s < j:
                begin -= self.b - self.t
            if begin <= place < begin + self.run_size(j):
                return self.run_in_slot(j) * self.b + place - begin
        raise AssertionError("no run holds the place")

    def candidate_slots(self, slots, place):
        j = slots[0] + place // self.b
        return [j for j in (j, j + 1) if j in slots]

    def inverse(self, index):
        if self.mode == "sequential":
            return index
        if self.mode == "global":
            return self.permutation.inverse(index)
        if self.mode == "partial":
            return self.partial.inverse(index)
        run, offset = divmod(index, self.b)
        if run == self.q:
            j = self.s
        else:
            j = self.runs.inverse(run)
            if self.t and j >= self.s:
                j += 1
        v = j // self.w
        start, slots, size = self.window_of_slot(v)
        place = (j - slots[0]) * self.b + offset
        if self.t and slots[0] <= self.s < j:
            place -= self.b - self.t
        return start + Permutation(size, absorb(self.windows_key, v)).inverse(place)


class Partial:
    def __init__(self, seed, root, n, b, x, m, batch):
        self.n, self.b, self.m, self.batch = n, min(b, n), m, batch
        self.f = n // self.b
        self.runs = Permutation(self.f, absorb(absorb(tag("FBHOMES1"), seed), n))
        self.draws_key, self.lists_key = absorb(root, 5), absorb(root, 7)
        sizes = [n // m + 1] * (n % m) + [n // m] * (m - n % m) if m <= 1000 else None
        k = [(s * x + 500000) // 1000000 for s in (n // m, n // m + 1)]
        self.pool = (m - n % m) * k[0] + (n % m) * k[1]
        if sizes:
            assert self.pool == sum((s * x + 500000) // 1000000 for s in sizes)
            assert sorted(sizes) == sorted(self.len(n, c) for c in range(m))
            assert all(self.len(self.pool, c) == (self.len(n, c) * x + 500000) // 1000000
                       for c in range(m))
        self.exchange = Permutation(self.pool, absorb(root, 6)) if self.pool else None

    def cut(self, total, c):
        return total * c // self.m

    def len(self, total, c):
        return self.cut(total, c + 1) - self.cut(total, c)

    def of(self, total, y):
        return ((y + 1) * self.m - 1) // total

    def draw(self, c):
        return Permutation(self.len(self.n, c), absorb(self.draws_key, c))

    def list(self, c):
        return Permutation(self.len(self.n, c), absorb(self.lists_key, c))

    def forward(self, p):
        g, t = divmod(p, self.batch)
        m = min(self.batch, self.n - g * self.batch)
        c = self.of(m, t)
        entry = self.list(c).forward(g * (self.batch // self.m) + t - self.cut(m, c))
        if entry < self.len(self.pool, c):
            y = self.exchange.forward(self.cut(self.pool, c) + entry)
            c = self.of(self.pool, y)
            entry = y - self.cut(self.pool, c)
        h = self.cut(self.n, c) + self.draw(c).forward(entry)
        if h < self.f * self.b:
            return self.runs.forward(h // self.b) * self.b + h % self.b
        return h

    def inverse(self, i):
        h = i
        if i < self.f * self.b:
            h = self.runs.inverse(i // self.b) * self.b + i % self.b
        c = self.of(self.n, h)
        entry = self.draw(c).inverse(h - self.cut(self.n, c))
        if entry < self.len(self.pool, c):
            y = self.exchange.inverse(self.cut(self.pool, c) + entry)
            c = self.of(self.pool, y)
            entry = y - self.cut(self.pool, c)
        j = self.list(c).inverse(entry)
        g = min(j // (self.batch // self.m), self.n // self.batch)
        m = min(self.batch, self.n - g * self.batch)
        return g * self.batch + self.cut(m, c) + j - g * (self.batch // self.m)


# Section 5.
def part(n, batch, tail, step, i, parts):
    """(first position, count) of part i of `parts` of a step; None where there is no such step."""
    steps = n // batch if tail == "drop" else (n + batch - 1) // batch
    if step >= steps:
        return None
    m = min(batch, n - step * batch) if tail == "short" else batch
    begin = m * i // parts
    return step * batch + begin, m * (i + 1) // parts - begin


# Section 6.
def transform_seed(seed, epoch, sample):
    return absorb(absorb(absorb(tag("FBTSEED1"), seed), epoch), sample)


# Section 8.
def encode_spec(seed, n, selection, tail, shape, first):
    first_mode = MODES[first[0]] if first else 0
    version = 2 if MODES["partial"] in (MODES[shape[0]], first_mode) else 1
    return struct.pack("<4sHBBQQQII", b"FBOS", version, TAILS[tail], 0, seed, n, selection,
                       MODES[shape[0]], first_mode) + parameters(shape) + parameters(first)


def parameters(shape):
    if shape is None:
        return bytes(16)
    return struct.pack("<IIII" if shape[0] == "partial" else "<QQ", *shape[1:])


def encode_token(catalog, spec, batch, epoch, step):
    body = struct.pack("<4sHHQ", b"FBTK", 1, 0, catalog) + spec
    body += struct.pack("<IIQ", batch, epoch, step)
    return body + struct.pack("<Q", fold(tag("FBTOKEN1"), body))


# The vectors: one per line, "kind key=value ... = results". Recomputed from the left side.
# A shape is MODE:b:w, or partial:b:x:M:B.
def parse_shape(text):
    if text == "none":
        return None
    mode, *numbers = text.split(":")
    return (mode, *map(int, numbers))


def answer(kind, given):
    number = {k: int(v) for k, v in given.items() if v.isdigit()}
    if kind == "mix":
        return "%016x" % mix(number["x"])
    if kind == "draw":
        return "%016x" % draw(number["key"], number["i"])
    if kind == "transform":
        return "%016x" % transform_seed(number["seed"], number["epoch"], number["sample"])
    if kind == "order":
        order = Order(number["seed"], number["epoch"], number["n"], parse_shape(given["shape"]))
        pairs = []
        for p in map(int, given["at"].split(",")):
            index = order.forward(p)
            assert order.inverse(index) == p, "inverse(forward(%d)) != %d" % (p, p)
            pairs.append(str(index))
        return ",".join(pairs)
    if kind == "part":
        found = part(number["n"], number["batch"], given["tail"], number["step"], number["i"],
                     number["parts"])
        return "none" if found is None else "%d,%d" % found
    spec = encode_spec(number["seed"], number["n"], number["selection"], given["tail"],
                       parse_shape(given["shape"]), parse_shape(given["first"]))
    if kind == "spec":
        return "%s,%016x" % (spec.hex(), fold(tag("FBOSFP01"), spec))
    if kind == "token":
        return encode_token(number["catalog"], spec, number["batch"], number["epoch"],
                            number["step"]).hex()
    raise ValueError("unknown kind " + kind)


def questions():
    for x in (0, 1, 2, 1 << 63, WORD, 0x0123456789ABCDEF):
        yield "mix x=%d" % x
        yield "draw key=%d i=%d" % (x, x % 7)
    for seed, epoch, sample in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1),
                                (WORD, (1 << 32) - 1, (1 << 40) - 1)):
        yield "transform seed=%d epoch=%d sample=%d" % (seed, epoch, sample)
    yield from order_questions()
    for n, batch in ((10, 4), (12, 4), (3, 8), (1 << 40, 1 << 20), (1000003, 96)):
        for tail in TAILS:
            last = n // batch
            for step in {0, max(last - 1, 0), last, last + 1}:
                for parts in (1, 2, batch):
                    for i in {0, parts // 2, parts - 1}:
                        yield ("part n=%d batch=%d tail=%s step=%d i=%d parts=%d"
                               % (n, batch, tail, step, i, parts))
    specs = ("seed=0 n=1 selection=0 tail=drop shape=global:0:0 first=none",
             "seed=%d n=%d selection=%d tail=short shape=sequential:0:0 first=none"
             % (WORD, 1 << 40, WORD),
             "seed=7 n=60000 selection=81985529216486895 tail=pad shape=global:0:0 "
             "first=block:256:64")
    for spec in specs:
        yield "spec " + spec
        yield "token %s catalog=16045690984833335023 batch=1 epoch=0 step=0" % spec
    yield "token %s catalog=5 batch=512 epoch=4294967295 step=117" % specs[2]
    yield from partial_questions()


def order_questions():
    shapes = ("sequential:0:0", "global:0:0", "block:1:1", "block:1:5", "block:4:2", "block:7:3",
              "block:256:64", "block:1099511627776:1099511627776")
    sizes = [1, 2, 3, 5, 16, 17, 18, 31, 32, 33, 64, 65, 97, 127, 256, 257, 512, 513, 1000]
    for n in sizes:
        for shape in shapes:
            at = range(n) if n <= 33 else sorted({mix(n + i) % n for i in range(24)} | {0, n - 1})
            yield ("order seed=%d epoch=%d n=%d shape=%s at=%s"
                   % (n * 1000 + 1, n % 5, n, shape, ",".join(map(str, at))))
    large = (60000, 1000003, (1 << 32) - 1, (1 << 33) + 1, (1 << 34) - 1, 1 << 34, 1 << 40)
    for n in large:
        for shape in ("global:0:0", "block:256:64", "block:1000:7", "block:4096:1099511627776"):
            for seed, epoch in ((0, 0), (0, 1), (WORD, (1 << 32) - 1)):
                at = sorted({mix(n + i) % n for i in range(14)} | {0, n - 1})
                yield ("order seed=%d epoch=%d n=%d shape=%s at=%s"
                       % (seed, epoch, n, shape, ",".join(map(str, at))))


def partial_questions():
    # n, M, B: remainders in shares, steps and both; fewer samples than a batch; one share each.
    counts = [(1, 1, 1), (2, 1, 4), (3, 3, 3), (5, 2, 4), (7, 7, 14), (17, 4, 8), (33, 4, 12),
              (40, 8, 8), (65, 5, 20), (100, 8, 128), (257, 16, 16), (1000, 7, 21)]
    for n, m, batch in counts:
        for b in (1, 3, 1000):
            for x in (0, 1, 100000, 333333, 500000, 1000000):
                at = range(n) if n <= 17 else sorted({mix(n + i) % n for i in range(16)}
                                                     | {0, n // batch * batch % n, n - 1})
                yield ("order seed=%d epoch=%d n=%d shape=partial:%d:%d:%d:%d at=%s"
                       % (n * 1000 + x, n % 5, n, b, x, m, batch, ",".join(map(str, at))))
    for n in (60000, 1000003, (1 << 33) + 1, (1 << 40) - 1, 1 << 40):
        for m, batch in ((1, 1), (16, 4096), (1000, 60000), (1 << 15, 1 << 20)):
            for b, x in ((1, 100000), (4096, 250000), ((1 << 32) - 1, 999999)):
                at = sorted({mix(n + i) % n for i in range(12)} | {0, n - 1})
                yield ("order seed=%d epoch=%d n=%d shape=partial:%d:%d:%d:%d at=%s"
                       % (WORD - m, batch, n, b, x, m, batch, ",".join(map(str, at))))
    specs = ("seed=7 n=60000 selection=9 tail=short shape=partial:1024:100000:16:512 first=none",
             "seed=8 n=60000 selection=9 tail=drop shape=global:0:0 first=partial:1:0:512:512",
             "seed=9 n=1048576 selection=0 tail=pad "
             "shape=partial:4294967295:1000000:1048576:1048576 first=block:256:64")
    for spec, batch in zip(specs, (512, 512, 1 << 20)):
        yield "spec " + spec
        yield "token %s catalog=3 batch=%d epoch=1 step=1" % (spec, batch)


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("check", "write"):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments[0] == "write":
        with open(arguments[1], "w", encoding="ascii") as out:
            out.write("# Golden vectors of docs/order.md, versions 1 and 2. Written by "
                      "order_reader.py.\n")
            for question in questions():
                kind, *given = question.split()
                result = answer(kind, dict(pair.split("=") for pair in given))
                out.write("%s = %s\n" % (question, result))
        return 0
    checked = 0
    with open(arguments[1], encoding="ascii") as lines:
        for line_number, line in enumerate(lines, 1):
            if line.startswith("#"):
                continue
            question, expected = line.rstrip("\n").split(" = ")
            kind, *given = question.split()
            found = answer(kind, dict(pair.split("=") for pair in given))
            if found != expected:
                print("line %d: %s: expected %s, computed %s"
                      % (line_number, question, expected, found), file=sys.stderr)
                return 1
            checked += 1
    print("%d vectors agree" % checked)
    return 0 if checked >= 800 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
