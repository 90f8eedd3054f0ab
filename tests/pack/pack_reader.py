#!/usr/bin/env python3
"""An independent reader of pack files and sets of them, written from docs/pack.md alone.

    pack_reader.py list FILE...          print what the files hold
    pack_reader.py check DUMP FILE...    compare with what the program DUMP prints of each
    pack_reader.py refuse FILE...        find the damage of each

Chunks that are stored or of LZ4 are decoded, those of zstd where a module for it exists; of all
others head, payload and index are verified, of coded ones the stages, the table of streams and what
lies around the streams, too: frames, blocks, runs of masks. Every checksum is looked at.
"""

import dataclasses
import hashlib
import math
import os
import struct
import subprocess
import sys

from xxh3 import xxh3

try:
    import zstandard
except ImportError:
    zstandard = None

WORD = (1 << 64) - 1
CHUNK_BYTES_MAX, START_BYTES_MAX = 4 << 20, 1 << 20
SAMPLES_MAX = 1 << 40
ELEMENT_BYTES = (1, 1, 1, 2, 2, 4, 8, 2, 2, 4, 8)
LETTERS = "BBbHhiqeffd"  # bf16 as f32
BYTES, F16, BF16 = 0, 7, 8
CHUNK, KEYS, INDEX, STATISTICS = 1, 2, 4, 5
FEATURE_PREDICTORS = 2
HELD, NAMED = 1, 2  # types of sections
STORE, ZSTD, LZ4, CODED = 0, 1, 2, 3
PLANES, PLANES_RAW, PLANES_ZSTD, PLANES_BLOCK_RANS = 3, 0, 1, 4  # a coder, and kinds of its bodies
QUANTISE, MASK, ESCAPE, OFFSET, DICTIONARY, COLOUR = range(1, 7)  # stages of coded chunks

measured_fields = 0  # whose statistics were computed here, too


class Damaged(Exception):
    """A file that the document does not allow."""


def need(condition, what):
    if not condition:
        raise Damaged(what)


def hash_as(identity, data):
    """The hash of bytes under an identity of four numbers."""
    return xxh3(data, xxh3(struct.pack("<4Q", *(word & WORD for word in identity))))


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        need(count <= len(self.data) - self.at, "ends early")
        self.at += count
        return self.data[self.at - count:self.at]

    def read(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def varint(self):
        value = shift = 0
        while True:
            need(shift < 70, "a varint of more than 10 bytes")
            (byte,) = self.read("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def string(self):
        return self.take(self.varint())


def check_zstd(data, raw_bytes, needs_checksum=True):
    """Refuses what is not one frame, as docs/pack_chunk.md wants it, from the first byte to the
    last; what the blocks hold is not looked at. raw_bytes None: of any size that it states."""
    cursor = Cursor(data)
    need(cursor.read("I") == (0xFD2FB528,), "no zstd frame")
    (descriptor,) = cursor.read("B")
    single, checksum = descriptor & 0x20, descriptor & 4
    need(descriptor & 8 == 0, "a reserved bit of a zstd frame")
    need(descriptor & 3 == 0, "a zstd frame that asks for a dictionary")
    need(checksum or not needs_checksum, "a zstd frame without a checksum")
    window = 0
    if not single:
        (byte,) = cursor.read("B")
        window = (8 + (byte & 7)) << (7 + (byte >> 3))
    size_kind = descriptor >> 6
    need(size_kind or single, "a zstd frame that does not state its content's size")
    (size,) = cursor.read("BHIQ"[size_kind])
    size += 256 if size_kind == 1 else 0
    need(raw_bytes is None or size == raw_bytes, "a zstd frame of another size")
    need((size if single else window) <= CHUNK_BYTES_MAX, "too large a window of a zstd frame")
    last = False
    while not last:
        low, high = cursor.read("HB")
        header = low | high << 16
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        need(kind < 3, "a reserved kind of a zstd block")
        cursor.take(1 if kind == 1 else length)
    cursor.take(4 if checksum else 0)
    need(cursor.at == len(data), "bytes behind a zstd frame")


def decode_lz4(data, raw_bytes):
    """One LZ4 block from the first byte to the last, of exactly raw_bytes."""
    cursor, raw = Cursor(data), bytearray()

    def length(nibble):
        total = nibble
        while nibble == 15:
            (byte,) = cursor.read("B")
            total += byte
            if byte < 255:
                break
        return total

    while True:
        (token,) = cursor.read("B")
        raw += cursor.take(length(token >> 4))
        need(len(raw) <= raw_bytes, "an LZ4 block of another size")
        if cursor.at == len(data):
            break
        (offset,) = cursor.read("H")
        need(0 < offset <= len(raw), "an LZ4 match before the begin")
        count = length(token & 15) + 4
        need(len(raw) + count <= raw_bytes, "an LZ4 block of another size")
        for _ in range(count):
            raw.append(raw[-offset])
    need(len(raw) == raw_bytes, "an LZ4 block of another size")
    return bytes(raw)


@dataclasses.dataclass
class Field:
    name: str
    kind: int
    dtype: int
    rank: int
    extent: tuple
    tile: tuple
    samples_per_chunk: int
    channel_axis: int  # None: no such axis
    fill: int  # bits; None: no such value

    @property
    def variable(self):
        return self.dtype == BYTES and self.rank == 0

    def tiles(self):
        """(origin, extent) of each tile, in their order."""
        found = [((), ())]
        for whole, part in zip(self.extent, self.tile):
            found = [(origin + (at,), extent + (min(part, whole - at),))
                     for origin, extent in found for at in range(0, whole, part)]
        return found


def product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def read_field(data):
    cursor = Cursor(data)
    name = cursor.string().decode()
    kind, dtype, rank, *numbers = cursor.read("3B8I")
    channel, _, has_fill, fill = cursor.read("BBBQ")
    cursor.read("BQQ")
    (samples_per_chunk,) = cursor.read("I")
    return Field(name, kind, dtype, rank, tuple(numbers[:4]), tuple(numbers[4:]),
                 samples_per_chunk, channel - 1 if channel else None, fill if has_fill else None)


class Manifest:
    """A set of packs: `shards` are (name, bytes, samples, root)."""

    def __init__(self, data):
        need(data[:8] == b"FEBYSET1" and len(data) >= 64, "no manifest")
        major, _, _, features, self.generation, self.fingerprint, size, list_hash, checksum = (
            struct.unpack_from("<8xHHIQQQQQQ", data))
        need(xxh3(data[:56]) == checksum, "header checksum")
        need(major == 1 and features == 0, "a newer version")
        need(len(data) == 64 + size and xxh3(data[64:]) == list_hash, "list checksum")
        cursor, self.shards = Cursor(data[64:]), []
        for _ in range(cursor.varint()):
            entry = Cursor(cursor.string())
            name = entry.string().decode()
            need(all(part not in ("", ".", "..") for part in name.split("/")), "a name")
            self.shards.append((name, *entry.read("3Q")))
        need(cursor.at == size, "bytes behind the list")
        need(1 <= len(self.shards) <= 65536, "number of shards")
        need(len({shard[0] for shard in self.shards}) == len(self.shards), "a name twice")
        need(self.generation >= 1, "generations count from 1")
        need(sum(shard[2] for shard in self.shards) <= SAMPLES_MAX, "too many samples")

    def open(self, folder, number):
        """A shard, found to be the one that the manifest names."""
        name, size, samples, root = self.shards[number]
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        need(len(data) == size, name + ": another size")
        pack = Pack(data)
        need((pack.samples, pack.root, pack.fingerprint) == (samples, root, self.fingerprint),
             name + ": another file")
        return pack


class Pack:
    def __init__(self, data):
        self.data = data
        need(data[:8] == b"FEBYPAK1", "no pack")
        need(len(data) >= 64, "no header")
        self.major, self.minor, self.alignment = struct.unpack_from("<8xHHI", data)
        if self.major == 1:
            features, _, schema_bytes, schema_hash = struct.unpack_from("<4Q", data, 16)
            self.id = None
        else:
            features, _, schema_bytes, schema_hash, self.id = struct.unpack_from(
                "<IIQQ16s", data, 16)
        (self.identity,) = struct.unpack_from("<Q", data, 56)
        need(xxh3(data[:56]) == self.identity, "header checksum")
        need(self.major in (1, 2) and features & ~FEATURE_PREDICTORS == 0, "a newer version")
        need(self.alignment in (8, 4096), "an alignment")
        need(schema_bytes <= START_BYTES_MAX - 64, "a schema of too many bytes")
        schema = data[64:64 + schema_bytes]
        need(len(schema) == schema_bytes and xxh3(schema) == schema_hash, "schema checksum")
        self.read_schema(Cursor(schema))
        need((features != 0) == bool(self.predictors), "predictors without their feature")
        self.read_end()

    def read_schema(self, cursor):
        (flags,) = cursor.read("B")
        self.keyed = bool(flags & 1)
        self.fields = [read_field(cursor.string()) for _ in range(cursor.varint())]
        self.fingerprint = xxh3(cursor.data[:cursor.at])
        self.provenance = [(cursor.string(), cursor.string()) for _ in range(cursor.varint())]
        self.predictors = []  # ("held" or "named", SHA-256, record or None)
        for _ in range(cursor.varint()):
            kind, data = cursor.varint(), cursor.string()
            if kind == HELD:
                self.predictors.append(("held", hashlib.sha256(data).hexdigest(), data))
            elif kind == NAMED:
                need(len(data) == 32, "a name of another length")
                self.predictors.append(("named", data.hex(), None))
        need(len({name for _, name, _ in self.predictors}) == len(self.predictors) <= 16,
             "a predictor twice, or too many")

    def record(self, offset):
        """(type, head bytes, what the type adds, payload, word at 8), all verified."""
        need(offset % 8 == 0, "a record beside a multiple of 8")
        need(offset + 40 <= len(self.data), "a record outside the file")
        magic, kind, _, checksum, head_bytes, added_bytes, payload_bytes, payload_hash = (
            struct.unpack_from("<4sHHQIIQQ", self.data, offset))
        need(magic == b"FREC", "no record")
        end = offset + head_bytes + payload_bytes
        need(40 + added_bytes <= head_bytes and end <= len(self.data), "a record's size")
        covered = self.data[offset + 16:offset + 40 + added_bytes]
        need(hash_as((self.identity, kind, offset, len(covered)), covered) == checksum,
             "head checksum")
        payload = self.data[offset + head_bytes:end]
        need(hash_as((self.identity, kind, ~offset, payload_bytes), payload) == payload_hash,
             "payload checksum")
        return kind, head_bytes, covered[24:], payload, checksum

    def read_end(self):
        footer = self.data[-64:]
        identity, offset, size, samples, self.statistics_at, statistics_bytes = (
            struct.unpack_from("<6Q", footer))
        checksum, magic = struct.unpack_from("<Q8s", footer, 48)
        need(magic == b"FEBYENP1" and identity == self.identity, "no footer")
        need(xxh3(footer[:48]) == checksum, "footer checksum")
        need(offset + size + 64 == len(self.data), "an index beside the footer")
        kind, _, _, payload, self.root = self.record(offset)
        need(kind == INDEX, "no index")
        need((self.statistics_at == 0) == (statistics_bytes == 0), "half a statistics record")
        cursor = Cursor(payload)
        self.samples, chunks, keys = cursor.read("3Q")
        need(self.samples == samples, "footer and index disagree")
        self.chunk_entries = [cursor.read("IIQIIQQQQQ") for _ in range(chunks)]
        self.key_entries = [cursor.read("QIIQQQ") for _ in range(keys)]
        need(cursor.at == len(payload), "bytes behind the index")
        order = [(e[0], e[2], e[1], e[7]) for e in self.chunk_entries]
        need(order == sorted(order), "an index out of order")

    def statistics(self):
        """Per field the words of its statistics: 8 of version 1, 10 of later ones."""
        if self.statistics_at == 0:
            return []
        kind, _, added, payload, _ = self.record(self.statistics_at)
        need(kind == STATISTICS and not added, "no statistics")
        words = 8 if self.major == 1 else 10
        need(len(payload) == 8 * words * len(self.fields), "statistics of other fields")
        return [struct.unpack_from("<%dQ" % words, payload, 8 * words * i)
                for i in range(len(self.fields))]

    def keys(self):
        found = []
        for first, count, head_bytes, offset, payload_bytes, word in self.key_entries:
            kind, head, added, payload, checksum = self.record(offset)
            need((kind, head, len(payload), checksum) == (KEYS, head_bytes, payload_bytes, word),
                 "not the key record of the index")
            need(struct.unpack("<QI", added) == (first, count) and first == len(found),
                 "keys of other samples")
            cursor = Cursor(payload)
            found += [cursor.string() for _ in range(count)]
            need(cursor.at == len(payload), "bytes behind the keys")
        need(len(found) == (self.samples if self.keyed else 0), "keys for some samples only")
        return found

    def chunk(self, entry):
        number, tile, first, count, head_bytes, offset, payload_bytes, part, whole, word = entry
        kind, head, added, payload, checksum = self.record(offset)
        need((kind, head, len(payload), checksum) == (CHUNK, head_bytes, payload_bytes, word),
             "not the chunk record of the index")
        need((offset + head) % self.alignment == 0, "a payload beside the alignment")
        cursor = Cursor(added)
        head = cursor.read("IIQIBBHQQQ")
        need(head[:4] == (number, tile, first, count) and head[8:] == (part, whole),
             "a chunk of other samples")
        codec, flags, _, raw_bytes = head[4:8]
        need(codec <= CODED, "an unknown codec")
        need(raw_bytes <= CHUNK_BYTES_MAX and flags <= 1, "raw bytes or flags of a chunk")
        checksums = cursor.read("%dQ" % count)
        field = self.fields[number]
        if field.variable:
            lengths = cursor.read("%dI" % count)
        else:
            lengths = (product(field.tiles()[tile][1]) * ELEMENT_BYTES[field.dtype],) * count
        need(cursor.at == len(added) and sum(lengths) == raw_bytes, "lengths of a chunk")
        if codec == CODED and raw_bytes > 0:
            if field.variable:
                check_coded(payload, 1, raw_bytes, 1)
            else:
                extent, channel = field.tiles()[tile][1], field.channel_axis
                channels = extent[channel] if channel is not None else 1
                check_coded(payload, ELEMENT_BYTES[field.dtype],
                            raw_bytes // ELEMENT_BYTES[field.dtype],
                            channels if 2 <= channels <= 4 else 1)
        return codec, flags, checksums, lengths, self.decode(codec, payload, raw_bytes)

    @staticmethod
    def decode(codec, payload, raw_bytes):
        """The raw bytes, or None where this reader has no decoder."""
        raw = None
        if codec == STORE or raw_bytes == 0:
            raw = payload
        elif codec == ZSTD:
            check_zstd(payload, raw_bytes)
            if zstandard is not None:
                raw = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw_bytes)
        elif codec == LZ4:
            raw = decode_lz4(payload, raw_bytes)
        need(raw is None or len(raw) == raw_bytes, "raw bytes of another length")
        return raw

    def cut(self, entry, codec_and_so_on):
        """Of a decoded chunk [(sample, bytes)], verified."""
        number, tile, first, part = entry[0], entry[1], entry[2], entry[7]
        _, _, checksums, lengths, raw = codec_and_so_on
        cursor, found = Cursor(raw), []
        for i, (checksum, length) in enumerate(zip(checksums, lengths)):
            data = cursor.take(length)
            need(hash_as((self.identity ^ part, number << 32 | tile, first + i, length), data)
                 == checksum, "sample checksum")
            found.append((first + i, data))
        return found


def place(field, tile, data, whole):
    """Puts a tile's elements where they belong in a whole sample."""
    size = ELEMENT_BYTES[field.dtype]
    origin, extent = field.tiles()[tile]
    run = extent[3] * size
    at = 0
    for a in range(extent[0]):
        for b in range(extent[1]):
            for c in range(extent[2]):
                element = 0
                for index, along in zip((origin[0] + a, origin[1] + b, origin[2] + c, origin[3]),
                                        field.extent):
                    element = element * along + index
                whole[element * size:element * size + run] = data[at:at + run]
                at += run


def read_stages(cursor, width, elements, channels):
    """The stages of a coded chunk (docs/pack_chunk.md, section 3) and what each says."""
    said, last = {}, 0
    (count,) = cursor.read("B")
    for _ in range(count):
        (stage,) = cursor.read("B")
        need(last < stage <= COLOUR, "stages out of order, or unknown")
        last = stage
        if stage == QUANTISE:
            (kind,) = cursor.read("B")
            need(1 <= kind <= 3, "a quantiser")
            said[stage] = cursor.read("d") if kind == 1 else cursor.varint()
            cursor.take(8 if kind == 3 else 0)
        elif stage == MASK:
            (said[stage],) = cursor.read("B")
            need(said[stage] in (1, 2), "masks")
            for _ in range(said[stage]):
                pattern, flags = cursor.read("QB")
                need(pattern >> 8 * width == 0 and flags <= 1, "a mask")
        elif stage == COLOUR:
            (said[stage],) = cursor.read("B")
            need(said[stage] in (1, 2) and channels >= 3, "a colour space")
        else:
            said[stage] = cursor.varint()
            if stage == OFFSET:
                need(cursor.read("B")[0] < 8 * width, "a shift")
            else:
                need(1 <= said[stage] <= elements, "escapes or a dictionary")
    return said


def check_coded(payload, width, elements, channels):
    """Stages, planes and streams of a coded chunk whose elements have `width` bytes."""
    cursor = Cursor(payload)
    need(cursor.read("B")[0] == 1, "an unknown layout")
    said = read_stages(cursor, width, elements, channels)
    planes = cursor.read("%dB" % cursor.read("B")[0])
    need(all(1 <= bits <= 16 for bits in planes), "bits of a plane")
    need(sum(1 if bits <= 8 else 2 for bits in planes) <= width, "planes")
    bits = sum(planes)
    if DICTIONARY in said:
        need(bits <= 16 and said[DICTIONARY] <= 1 << bits, "a dictionary beyond its codes")
    need(COLOUR not in said or 1 <= bits <= 16, "colours without planes, or of too many bits")
    sides = said.get(MASK, 0) + 2 * (ESCAPE in said) + (DICTIONARY in said)
    streams = []
    for stream in range(sides + channels * len(planes)):
        (coder,) = cursor.read("B")
        raw, coded = cursor.varint(), cursor.varint()
        need(coder <= 4 and (coder != 0 or raw == coded), "a stream")
        if stream >= sides:
            plane = planes[(stream - sides) % len(planes)]
            need(raw == elements // channels * (1 if plane <= 8 else 2), "size of a plane")
        else:
            need(raw <= elements * width + 64, "size of a stream")
        streams.append((coder, raw, coded))
    for number, (coder, raw, coded) in enumerate(streams):
        plain = check_body(coder, cursor.take(coded), raw)
        if number < said.get(MASK, 0) and plain is not None:
            check_runs(plain, elements)
    need(cursor.at == len(payload), "bytes behind the last stream")


def check_body(coder, body, raw_bytes):
    """A stream's body: its bytes, or None where this reader has no decoder."""
    if coder == ZSTD:
        check_zstd(body, raw_bytes)
    elif coder == LZ4:
        return decode_lz4(body, raw_bytes)
    elif coder == PLANES:
        cursor = Cursor(body)
        (kind,) = cursor.read("B")
        need(kind <= 5, "an unknown kind of planes")
        if kind == PLANES_RAW:
            need(len(body) == 1 + raw_bytes, "raw planes of another length")
        elif kind == PLANES_ZSTD:
            check_zstd(body[1:], raw_bytes)
        elif kind == PLANES_BLOCK_RANS:
            flags, side, *_ = cursor.read("B3I")
            need(flags <= 1, "flags of block-rANS planes")
            if flags:
                check_zstd(cursor.take(side), None, needs_checksum=False)
    return body if coder == STORE else None


def check_runs(data, elements):
    """The runs of a mask, which end with its elements."""
    cursor, at, first = Cursor(data), 0, True
    while at < elements:
        run = cursor.varint()
        need((run > 0 or first) and run <= elements - at, "the runs of a mask")
        at, first = at + run, False
    need(cursor.at == len(data), "bytes behind the last run of a mask")


def predictor_macs(data):
    """Multiplications per pixel of a learned predictor's record, every size checked."""
    cursor = Cursor(data)
    magic, size, macs = cursor.read("8sII")
    need(magic == b"FEBYNET1" and size == len(data), "no predictor")
    largest = 0
    for inputs_max in (21, 35):
        (layers,) = cursor.read("B")
        need(layers <= 4, "layers of a network")
        if layers == 0:
            continue
        inputs, *outputs = cursor.read("%dB" % (1 + layers))
        need(1 <= inputs <= inputs_max and outputs[-1] == 2, "a network's inputs or outputs")
        total = 0
        for output in outputs:
            need(1 <= output <= 64, "a layer's outputs")
            total += inputs * output
            for _ in range(output):
                shift, bias, *_ = cursor.read("Bi%db" % inputs)
                need(shift <= 24 and abs(bias) <= 1 << 24, "a shift or a bias")
            inputs = output
        largest = max(largest, total)
    need(cursor.at == len(data) and macs == largest, "a predictor's size or budget")
    return macs


def describe(name):
    """The lines that pack_dump prints; None in place of a hash that cannot be had here."""
    with open(name, "rb") as file:
        data = file.read()
    folder = os.path.dirname(name)
    if not data.startswith(b"FEBYSET1"):
        return describe_pack(Pack(data), folder, 0)
    manifest = Manifest(data)
    lines = ["set generation=%d fingerprint=%016x" % (manifest.generation, manifest.fingerprint)]
    first = 0
    for number, (shard, size, samples, root) in enumerate(manifest.shards):
        lines.append("shard %s first=%d bytes=%d root=%016x" % (shard, first, size, root))
        lines += describe_pack(manifest.open(folder, number), folder, first)
        first += samples
    return lines


def elements(field, data):
    """The values of bytes, and whether each is valid, None for NaN."""
    width = ELEMENT_BYTES[field.dtype]
    count = len(data) // width
    bits = struct.unpack("<%d%s" % (count, {1: "B", 2: "H", 4: "I", 8: "Q"}[width]), data)
    if field.dtype == BF16:
        data = struct.pack("<%dI" % count, *(word << 16 for word in bits))
    values = struct.unpack("<%d%s" % (count, LETTERS[field.dtype]), data)
    return [(value, None if value != value else word != field.fill)
            for value, word in zip(values, bits)]


def bits_of(field, value):
    """A minimum or maximum as a word."""
    layout = "<d" if field.dtype >= F16 else "<q"
    return struct.unpack("<Q", struct.pack(layout, value or 0))[0]


def real_bits(value):
    """A sum or a mean as a word; there is one NaN."""
    return struct.unpack("<Q", struct.pack("<d", value if value == value else math.nan))[0]


def first_equal(choose, values):
    """The smallest or largest of values, of equal ones the first, or None."""
    return choose(values) if values else None


@dataclasses.dataclass
class Sums:
    """Statistics of version 1; `+` adds those of the next chunk."""
    values: int = 0
    valid: int = 0
    zeros: int = 0
    nans: int = 0
    low: object = None
    high: object = None
    sum: float = 0.0
    squares: float = 0.0

    @staticmethod
    def of(_, found):
        valid = [value for value, is_valid in found if is_valid]
        sums = Sums(len(found), len(valid), sum(value == 0 for value in valid),
                    sum(is_valid is None for _, is_valid in found),
                    first_equal(min, valid), first_equal(max, valid))
        for value in valid:
            sums.sum += float(value)
            sums.squares += float(value) * float(value)
        return sums

    def __add__(self, later):
        low = [value for value in (self.low, later.low) if value is not None]
        high = [value for value in (self.high, later.high) if value is not None]
        return Sums(self.values + later.values, self.valid + later.valid,
                    self.zeros + later.zeros, self.nans + later.nans,
                    first_equal(min, low), first_equal(max, high),
                    self.sum + later.sum, self.squares + later.squares)

    def words(self, field):
        return (self.values, self.valid, self.zeros, self.nans, bits_of(field, self.low),
                bits_of(field, self.high), real_bits(self.sum), real_bits(self.squares))

    @staticmethod
    def merged(chunks):
        return sum(chunks, Sums())


@dataclasses.dataclass
class Moments:
    """Statistics of version 2; `+` merges those of values that lie behind."""
    values: int = 0
    valid: int = 0
    zeros: int = 0
    nans: int = 0
    above: int = 0  # +inf
    below: int = 0
    low: object = None
    high: object = None
    mean: float = 0.0
    moment: float = 0.0

    @staticmethod
    def of(field, found):
        finite = [value for value, is_valid in found if is_valid and abs(value) != math.inf]
        moments = Moments(len(found), len(finite), sum(value == 0 for value in finite),
                          sum(is_valid is None for _, is_valid in found),
                          sum(bool(is_valid) and value == math.inf for value, is_valid in found),
                          sum(bool(is_valid) and value == -math.inf for value, is_valid in found),
                          first_equal(min, finite), first_equal(max, finite))
        if not finite:
            return moments
        first = finite[0]
        differences = squares = 0.0
        for value in finite:
            difference = float(value - first)  # of integers exact, then rounded
            differences += difference
            squares += difference * difference
        moments.mean = float(first) + differences / len(finite)
        moments.moment = squares - differences * differences / len(finite)
        if moments.moment < 0:
            moments.moment = 0.0
        return moments

    def __add__(self, later):
        low = [value for value in (self.low, later.low) if value is not None]
        high = [value for value in (self.high, later.high) if value is not None]
        both = Moments(self.values + later.values, self.valid + later.valid,
                       self.zeros + later.zeros, self.nans + later.nans,
                       self.above + later.above, self.below + later.below,
                       first_equal(min, low), first_equal(max, high))
        if not (self.valid and later.valid):
            part = self if self.valid else later
            both.mean, both.moment = part.mean, part.moment
            return both
        share = float(later.valid) / float(both.valid)
        difference = later.mean - self.mean
        both.mean = self.mean + difference * share
        both.moment = (self.moment + later.moment
                       + difference * difference * (float(self.valid) * share))
        return both

    def words(self, field):
        return (self.values, self.valid, self.zeros, self.nans, self.above, self.below,
                bits_of(field, self.low), bits_of(field, self.high), real_bits(self.mean),
                real_bits(self.moment))

    @staticmethod
    def merged(chunks):
        """As many chunks with as many; what is left from the end on."""
        runs = []
        for taken, chunk in enumerate(chunks, 1):
            runs.append(chunk)
            while taken % 2 == 0:
                later = runs.pop()
                runs[-1] = runs[-1] + later
                taken //= 2
        result = runs.pop() if runs else Moments()
        while runs:
            result = runs.pop() + result
        return result


def measure(pack, entry, chunk, measured):
    """Adds a chunk to `measured`: by field the statistics of its chunks, None if unknown."""
    field, lengths, part, whole = pack.fields[entry[0]], chunk[3], entry[7], entry[8]
    if field.variable:
        if whole != 0:
            lengths = [whole] if part == 0 else []
        found = [(length, True) for length in lengths]
    elif chunk[4] is None:
        measured[entry[0]] = None
        return
    else:
        found = elements(field, chunk[4])
    chunks = measured.setdefault(entry[0], [])
    if chunks is not None:
        chunks.append((Sums if pack.major == 1 else Moments).of(field, found))


def check_statistics(pack, measured):
    """The number of fields whose statistics are those of what was decoded here."""
    agreed = 0
    for number, (field, found) in enumerate(zip(pack.fields, pack.statistics())):
        chunks = measured.get(number, [])
        if chunks is None:
            continue
        mine = (Sums if pack.major == 1 else Moments).merged(chunks)
        need(mine.words(field) == found, field.name + ": other statistics")
        agreed += 1
    return agreed


def describe_pack(pack, folder, first_sample):
    """Of a pack that lies in `folder`; samples are numbered from first_sample on."""
    lines = ["pack format=%d.%d id=%s samples=%d keyed=%d alignment=%d" % (
        pack.major, pack.minor, pack.id.hex() if pack.id else "none", pack.samples, pack.keyed,
        pack.alignment)]
    for field in pack.fields:
        lines.append("field %s kind=%d dtype=%d rank=%d extent=%s tile=%s samples_per_chunk=%d" % (
            field.name, field.kind, field.dtype, field.rank, ",".join(map(str, field.extent)),
            ",".join(map(str, field.tile)), field.samples_per_chunk))
    for key, value in pack.provenance:
        lines.append("provenance %s=%s" % (key.hex(), value.hex()))
    for held, name, data in pack.predictors:
        if data is None:  # the file lies beside the pack
            with open(os.path.join(folder, name + ".net"), "rb") as file:
                data = file.read()
            need(hashlib.sha256(data).hexdigest() == name, "another predictor")
        lines.append("predictor %s %s macs=%d" % (held, name, predictor_macs(data)))
    lines += ["key %s" % key.hex() for key in pack.keys()]
    values, missing, measured = {}, set(), {}
    for entry in pack.chunk_entries:
        chunk = pack.chunk(entry)
        lines.append("chunk field=%d tile=%d first=%d samples=%d part=%d of=%d codec=%d "
                     "sequence=%d checksums=%s" % (
                         *entry[:4], *entry[7:9], chunk[0], chunk[1],
                         ",".join("%016x" % word for word in chunk[2])))
        measure(pack, entry, chunk, measured)
        if chunk[4] is None:
            missing.update((entry[0], entry[2] + i) for i in range(entry[3]))
            continue
        for sample, part in pack.cut(entry, chunk):
            field = pack.fields[entry[0]]
            bytes_all = product(field.extent) * ELEMENT_BYTES[field.dtype]
            value = values.setdefault((entry[0], sample),
                                      bytearray(0 if field.variable else bytes_all))
            if field.variable:
                need(len(value) == entry[7], "parts that do not follow one another")
                value += part
            else:
                place(field, entry[1], part, value)
    global measured_fields
    measured_fields += check_statistics(pack, measured)
    for words in pack.statistics():
        lines.append("statistics %s" % ",".join("%016x" % word for word in words))
    for sample in range(pack.samples):
        for number in range(len(pack.fields)):
            where = (number, sample)
            need(where in values or where in missing, "a sample in no chunk")
            found = None if where in missing else "%016x" % xxh3(bytes(values[where]))
            lines.append("sample %d field=%d hash=%s" % (first_sample + sample, number, found))
    return lines


def compare(name, mine, theirs):
    """The number of hashes that both sides have; ends the program where they differ."""
    need(len(mine) == len(theirs), "%s: %d lines, the program has %d"
         % (name, len(mine), len(theirs)))
    agreed = 0
    for left, right in zip(mine, theirs):
        if left.endswith("hash=None"):
            need(right.startswith(left[:-4]), "%s: %s is not %s" % (name, left, right))
            continue
        need(left == right, "%s: %s is not %s" % (name, left, right))
        agreed += left.startswith("sample")
    return agreed


def refuse(names):
    """Whether each file is refused; prints why, or that it is not."""
    accepted = 0
    for name in names:
        try:
            describe(name)
        except Damaged as damage:
            print("%s: %s" % (os.path.basename(name), damage))
            continue
        print("%s: IS NOT REFUSED" % name)
        accepted += 1
    return 0 if names and accepted == 0 else 1


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("list", "check", "refuse"):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments[0] == "refuse":
        return refuse(arguments[1:])
    check = arguments[0] == "check"
    files = arguments[2:] if check else arguments[1:]
    agreed = 0
    for name in files:
        mine = describe(name)
        if not check:
            print("\n".join([name] + mine))
            continue
        answer = subprocess.run([arguments[1], name], check=True, capture_output=True, text=True)
        agreed += compare(name, mine, answer.stdout.splitlines())
    if check:
        print("%d files agree, %d samples decoded by both, statistics of %d fields" % (
            len(files), agreed, measured_fields))
        return 0 if len(files) >= 12 and agreed >= 20 and measured_fields >= 15 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
