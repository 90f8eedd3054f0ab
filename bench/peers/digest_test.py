"""digest.py agrees with delivery_digest.h: the same golden values."""

import unittest

import numpy

import digest
import numpy_gather


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

    def test_whole_arrays_have_the_same_digest(self):
        rows = numpy.arange(12, dtype="<u8").reshape(4, 3) << numpy.uint64(61)
        order = numpy.array([2, 0, 3, 1])
        result = digest.Digest()
        for sample in order.tolist():
            result.add(sample, rows[sample].tobytes(), False)
        for in_place in (False, True):
            sums = numpy.zeros(4, dtype=numpy.uint64)
            numpy_gather.Gatherer(rows, 3, in_place).sum_epoch(order, sums)
            self.assertEqual(numpy_gather.sum_digest(order.astype(numpy.uint64), sums),
                             result.sums)


if __name__ == "__main__":
    unittest.main()
