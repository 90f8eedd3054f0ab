"""Readers, generators and the checker of error bounds, on arrays made here. Needs numpy."""

import gzip
import json
import pathlib
import struct
import tempfile
import unittest

import numpy

import bound_check
import prepare_sets
import set_sources


class ReadersTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def test_graymap_with_a_comment(self):
        path = self.folder / "a.pgm"
        path.write_bytes(b"P5\n# made here\n3 2\n255\n" + bytes(range(6)))
        self.assertEqual(set_sources.read_pgm(path).tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_graymap_of_two_bytes_is_big_endian(self):
        path = self.folder / "a.pgm"
        path.write_bytes(b"P5 1 2 65535\n" + struct.pack(">2H", 1, 513))
        self.assertEqual(set_sources.read_pgm(path).tolist(), [[1], [513]])

    def test_other_images_are_refused(self):
        path = self.folder / "a.pgm"
        path.write_bytes(b"P6 1 1 255\nabc")
        with self.assertRaises(ValueError):
            set_sources.read_pgm(path)

    def test_nifti_volume(self):
        header = bytearray(352)
        struct.pack_into("<8h", header, 40, 3, 4, 3, 2, 1, 1, 1, 1)
        struct.pack_into("<h", header, 70, 4)
        struct.pack_into("<f", header, 108, 352.0)
        path = self.folder / "v.nii.gz"
        path.write_bytes(gzip.compress(bytes(header) + numpy.arange(24, dtype="<i2").tobytes()))
        volume = set_sources.read_nifti(path)
        self.assertEqual(volume.shape, (2, 3, 4))
        self.assertEqual(volume[1, 2, 3], 23)

    def test_a_missing_package_is_named(self):
        place = self.folder / "absent"
        set_sources.PACKAGES[place] = "some-package"
        with self.assertRaisesRegex(set_sources.MissingPackage, "install some-package"):
            set_sources._need(place)
        del set_sources.PACKAGES[place]


class ArraysTest(unittest.TestCase):
    def test_fill_takes_the_last_valid_value(self):
        field = numpy.array([[9, 1, 9], [9, 2, 3]], "f4")
        filled, holes = set_sources.replace_fill(field, 9)
        self.assertEqual(filled.tolist(), [[1, 1, 1], [1, 2, 3]])
        self.assertEqual(holes.tolist(), [[True, False, True], [True, False, False]])

    def test_generators_follow_their_seed(self):
        first, facts = set_sources.cosmo_like(seed=5, side=16)
        again, _ = set_sources.cosmo_like(seed=5, side=16)
        other, _ = set_sources.cosmo_like(seed=6, side=16)
        self.assertEqual(first.shape, (1, 4, 16, 16, 16))
        self.assertTrue((first == again).all())
        self.assertFalse((first == other).all())
        self.assertIs(facts["real"], False)
        noise, _ = set_sources.random_bytes(seed=1, samples=4, sample_bytes=1000)
        self.assertGreater(len(numpy.unique(noise)), 250)

    def test_a_set_is_made_once(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            set_sources.SETS["tiny"] = lambda: (numpy.arange(6, dtype=">u2").reshape(2, 3),
                                                {"source": "test", "real": False})
            try:
                self.assertFalse(prepare_sets.is_kept(folder, "tiny"))
                prepare_sets.make(folder, "tiny")
            finally:
                del set_sources.SETS["tiny"]
            self.assertTrue(prepare_sets.is_kept(folder, "tiny"))
            facts = json.loads((folder / "tiny.json").read_text("utf-8"))
            self.assertEqual((facts["dtype"], facts["shape"], facts["bytes"]), ("u16", [2, 3], 12))
            self.assertEqual((folder / "tiny.raw").read_bytes()[:4], b"\0\0\1\0")
            (folder / "tiny.raw").write_bytes(b"short")
            self.assertFalse(prepare_sets.is_kept(folder, "tiny"))


class BoundTest(unittest.TestCase):
    def check(self, original, decoded, bound, fill=None):
        return bound_check.check_absolute(numpy.array(original, "f4"),
                                          numpy.array(decoded, "f4"), bound, fill)

    def test_errors_up_to_the_bound_hold(self):
        verdict = self.check([1.0, 2.0], [1.5, 2.0], 0.5)
        self.assertEqual((verdict.valid, verdict.violations, verdict.worst), (2, 0, 0.5))

    def test_an_error_beyond_the_bound_counts(self):
        self.assertEqual(self.check([1.0, 2.0, 3.0], [1.75, 2.0, 2.0], 0.5).violations, 2)

    def test_the_smallest_step_beyond_counts(self):
        beyond = numpy.nextafter(numpy.float32(1.5), numpy.float32(2))
        self.assertEqual(self.check([1.0], [beyond], 0.5).violations, 1)

    def test_a_valid_value_that_is_no_number_any_more_counts(self):
        for wrong in (numpy.nan, numpy.inf):
            verdict = self.check([1.0], [wrong], 1e30)
            self.assertEqual((verdict.violations, verdict.worst), (1, numpy.inf))

    def test_holes_are_judged_apart_and_exactly(self):
        original = [-1e34, numpy.nan, numpy.inf, -numpy.inf, 1.0]
        self.assertEqual(self.check(original, original, 0.0, -1e34).to_json(),
                         {"valid": 1, "violations": 0, "worst": 0.0, "holes_changed": 0})
        changed = [-1.01e34, 0.0, -numpy.inf, numpy.nan, 1.0]
        verdict = self.check(original, changed, 1e36, -1e34)
        self.assertEqual((verdict.violations, verdict.holes_changed), (0, 4))

    def test_other_shapes_and_types_are_refused(self):
        with self.assertRaises(ValueError):
            self.check([1.0], [1.0, 2.0], 1)
        with self.assertRaises(ValueError):
            bound_check.check_absolute(numpy.zeros(2, "f4"), numpy.zeros(2, "f8"), 1)


if __name__ == "__main__":
    unittest.main()
