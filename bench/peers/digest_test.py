"""digest.py agrees with delivery_digest.h: the same golden values."""

import unittest

import digest


class DigestTest(unittest.TestCase):
    def test_golden_value(self):
        data = bytes((i * 7 + i // 256) & 255 for i in range(100))
        result = digest.Digest()
        for i in range(10):
            result.add(i, data[i:i + 61], True)
        self.assertEqual(result.sums, 14684666601523854719)
        self.assertEqual(result.content, 7705781477531551675)
        self.assertEqual(result.samples, 10)
        self.assertEqual(result.bytes, 610)

    def test_byte_sum_is_little_endian_words(self):
        self.assertEqual(digest.byte_sum(b"\x01" + bytes(7) + b"\x02"), 3)
        self.assertEqual(digest.byte_sum(b"\xff" * 16), (2 * digest.MASK) & digest.MASK)
        self.assertEqual(digest.byte_sum(b""), 0)


if __name__ == "__main__":
    unittest.main()
