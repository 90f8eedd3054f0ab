#!/usr/bin/env python3
"""The independent reader refuses what the product's reader does: streams of zstd and LZ4."""

import struct
import unittest

from pack_reader import Damaged, check_zstd, decode_lz4

CONTENT = b"0123456789"
DICTIONARY, CHECKSUM, RESERVED, SINGLE = 1, 4, 8, 0x20


def frame(flags=CHECKSUM | SINGLE, size=len(CONTENT), window=b"", dictionary=b"", kind=0):
    """A zstd frame of one block, stored or repeated."""
    block = struct.pack("<I", 1 | kind << 1 | len(CONTENT) << 3)[:3]
    block += CONTENT[:1] if kind == 1 else CONTENT
    stated = struct.pack("B", size) if flags & SINGLE else b""
    return (struct.pack("<IB", 0xFD2FB528, flags) + window + dictionary + stated + block
            + (bytes(4) if flags & CHECKSUM else b""))


class ZstdTest(unittest.TestCase):
    def refuse(self, data, size=len(CONTENT)):
        with self.assertRaises(Damaged):
            check_zstd(data, size)

    def test_takes_one_frame(self):
        check_zstd(frame(), len(CONTENT))
        check_zstd(frame(kind=1), len(CONTENT))
        window = frame(flags=CHECKSUM | 0x40, window=b"\x00")  # a size of two bytes
        window = window[:6] + struct.pack("<H", 300 - 256) + window[6:]
        check_zstd(window, 300)

    def test_refuses_what_is_not_one_frame(self):
        skippable = struct.pack("<IIH", 0x184D2A50, 2, 0)
        for data in (b"", frame()[:-1], frame() + b"\0", frame() + frame(), frame() + skippable,
                     skippable + frame(), frame(kind=3)):
            self.refuse(data)

    def test_refuses_other_frames(self):
        self.refuse(frame(), len(CONTENT) + 1)
        self.refuse(frame(flags=SINGLE))
        self.refuse(frame(flags=SINGLE | CHECKSUM | RESERVED))
        self.refuse(frame(flags=SINGLE | CHECKSUM | DICTIONARY, dictionary=b"\x07"))
        self.refuse(frame(flags=CHECKSUM, window=b"\x00"))  # states no size
        large = frame(flags=CHECKSUM | 0x40, window=b"\xF8")
        self.refuse(large[:6] + struct.pack("<H", 300 - 256) + large[6:], 300)


class Lz4Test(unittest.TestCase):
    # "ab" and then what lies two bytes before, six times; then five bytes as they are.
    BLOCK = b"\x22ab\x02\x00\x5012345"
    CONTENT = b"abababab12345"

    def test_takes_one_block(self):
        self.assertEqual(decode_lz4(self.BLOCK, len(self.CONTENT)), self.CONTENT)
        long = b"\xF0\x05" + b"x" * 20
        self.assertEqual(decode_lz4(long, 20), b"x" * 20)

    def test_refuses_others(self):
        for data, size in ((self.BLOCK, 12), (self.BLOCK, 14), (self.BLOCK + b"\0", 13),
                           (self.BLOCK[:-1], 13), (b"", 0), (b"\x22ab\x03\x00\x5012345", 13),
                           (b"\x22ab\x00\x00\x5012345", 13)):
            with self.assertRaises(Damaged):
                decode_lz4(data, size)


if __name__ == "__main__":
    unittest.main()
