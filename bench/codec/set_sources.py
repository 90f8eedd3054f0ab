"""Readers of what Debian's data packages hold, and generators, as numpy arrays.

Every function returns (array, facts): the array with samples on its first axis, little-endian,
and a dictionary of what a reader of the figures must know: `source`, `real` (measured by a
sensor or model run, not made for a test), and `fill` where a value marks holes.
"""

import gzip
import pathlib
import struct
import subprocess

import numpy

SHARE = pathlib.Path("/usr/share")
VISP = SHARE / "visp-images-data/ViSP-images"
VTEST = SHARE / "doc/opencv-doc/examples/data/vtest.avi"
MRICRON = SHARE / "mricron/templates"
FERRET = SHARE / "ferret-vis/data"
FASHION = SHARE / "datasets/fashion-mnist/train-images-idx3-ubyte.gz"
PACKAGES = {VISP: "visp-images-data", VTEST: "opencv-doc", MRICRON: "mricron-data",
            FERRET: "ferret-datasets", FASHION: "dataset-fashion-mnist"}
NIFTI_TYPES = {2: "u1", 4: "<i2", 8: "<i4", 16: "<f4"}


class MissingPackage(Exception):
    """A Debian package that holds a data set is not installed."""


def _need(place):
    if not place.exists():
        raise MissingPackage(f"{place} is missing: install {PACKAGES[place]}")
    return place


def read_pgm(path):
    """A binary portable graymap as rows x columns of u8 or u16."""
    data = path.read_bytes()
    fields, at = [], 0
    # The header may have comments and any white space; pixels begin one byte after the last number.
    while len(fields) < 4:
        while data[at:at + 1].isspace():
            at += 1
        if data[at:at + 1] == b"#":
            at = data.index(b"\n", at) + 1
            continue
        end = at
        while not data[end:end + 1].isspace():
            end += 1
        fields.append(data[at:end])
        at = end
    if fields[0] != b"P5":
        raise ValueError(f"{path}: not a binary graymap")
    columns, rows, highest = (int(field) for field in fields[1:])
    # Two bytes per pixel are big-endian in this format; prepare_sets.py turns them around.
    kind = "u1" if highest < 256 else ">u2"
    pixels = numpy.frombuffer(data, kind, rows * columns, at + 1)
    return pixels.reshape(rows, columns)


def _frames(pattern, read=read_pgm):
    paths = sorted(_need(VISP).glob(pattern))
    if not paths:
        raise MissingPackage(f"{VISP / pattern}: nothing; another visp-images-data?")
    return numpy.stack([read(path) for path in paths])


def _depth_file(path):
    """ViSP's depth map: height and width as u32, then u16 depths; 0 is a hole."""
    data = path.read_bytes()
    rows, columns = struct.unpack_from("<2I", data)
    return numpy.frombuffer(data, "<u2", rows * columns, 8).reshape(rows, columns)


def _camera(pattern, what):
    return lambda: (_frames(pattern), {"source": f"visp-images-data, {what}", "real": True})


def castle_depth():
    return _frames("mbt-depth/castel/castel/*.bin", _depth_file), {
        "source": "visp-images-data, mbt-depth/castel: depth of an RGB-D camera", "real": True,
        "fill": 0}


def rendered_gray():
    return _frames("mbt-depth/Castle-simu/Images/*.pgm"), {
        "source": "visp-images-data, mbt-depth/Castle-simu: rendered", "real": False}


def rendered_depth():
    return _frames("mbt-depth/Castle-simu/Depth/*.bin", _depth_file), {
        "source": "visp-images-data, mbt-depth/Castle-simu: rendered", "real": False, "fill": 0}


def vtest_gray(frames=200):
    """The first frames as full-range gray. Both options matter: without them the decoder
    rescales the range."""
    command = ["ffmpeg", "-loglevel", "error", "-i", str(_need(VTEST)), "-frames:v", str(frames),
               "-pix_fmt", "gray", "-color_range", "pc", "-f", "rawvideo", "-"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise MissingPackage("no program ffmpeg: install ffmpeg") from error
    pixels = numpy.frombuffer(done.stdout, "u1").reshape(frames, 576, 768)
    return pixels, {"source": "opencv-doc, vtest.avi, 200 frames: decoded from MS-MPEG-4",
                    "real": True, "lossy_source": True}


def read_nifti(path):
    """A gzip-compressed NIfTI-1 volume as slices x rows x columns."""
    data = gzip.decompress(path.read_bytes())
    axes = struct.unpack_from("<8h", data, 40)
    kind = NIFTI_TYPES[struct.unpack_from("<h", data, 70)[0]]
    # NIfTI stores the offset of the voxels as a float.
    first = int(struct.unpack_from("<f", data, 108)[0])
    shape = axes[3], axes[2], axes[1]
    return numpy.frombuffer(data, kind, int(numpy.prod(shape)), first).reshape(shape)


def _volume(name, what):
    return lambda: (read_nifti(_need(MRICRON) / f"{name}.nii.gz"),
                    {"source": f"mricron-data, {name}: {what}", "real": True})


def read_netcdf(name, variable):
    """(array as stored, its fill value or None)"""
    try:
        import netCDF4
    except ImportError as error:
        raise MissingPackage("no Python module netCDF4: install python3-netcdf4") from error
    with netCDF4.Dataset(_need(FERRET) / name) as dataset:
        # The stored values are wanted, fill values included; masked arrays would hide what a codec
        # has to code.
        dataset.set_auto_maskandscale(False)
        field = dataset[variable]
        fill = getattr(field, "_FillValue", None)
        return numpy.ascontiguousarray(field[:], "<f4"), fill


def _climate(name, variable):
    def read():
        field, fill = read_netcdf(name, variable)
        facts = {"source": f"ferret-datasets, {name}: {variable}", "real": True}
        # A field that declares a fill value and never uses it has no holes.
        if fill is not None and (field == numpy.float32(fill)).any():
            facts["fill"] = float(numpy.float32(fill))
        return field, facts
    return read


def replace_fill(field, fill):
    """Holes take the last valid value in raster order (rows of the last axis, then on), the
    first ones the first valid value: what a user does for a compressor that knows no masks."""
    flat = field.reshape(-1)
    valid = flat != numpy.float32(fill)
    places = numpy.where(valid, numpy.arange(flat.size), 0)
    # Each place becomes that of the last valid value before it: valid places keep their number,
    # holes take the largest before them.
    numpy.maximum.accumulate(places, out=places)
    first = int(numpy.argmax(valid))
    return flat[numpy.maximum(places, first)].reshape(field.shape), ~valid.reshape(field.shape)


def levitus_filled():
    field, fill = read_netcdf("levitus_climatology.cdf", "TEMP")
    filled, holes = replace_fill(field, fill)
    return filled, {"source": "ferret-datasets, levitus_climatology.cdf: TEMP, fill replaced by "
                    "the last valid value", "real": True, "holes": int(holes.sum())}


# Generated: functional tests, no evidence of ratio.

def moving_mnist(seed=1, sequences=200, frames=20, side=64):
    """Two of Fashion-MNIST's images a sequence, moving with constant speed and bouncing."""
    data = gzip.decompress(_need(FASHION).read_bytes())
    images = numpy.frombuffer(data, "u1", offset=16).reshape(-1, 28, 28)
    # PCG64 with a fixed seed: every machine makes the same bytes.
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    out = numpy.zeros((sequences * frames, side, side), "u1")
    for sequence in range(sequences):
        for image in images[generator.integers(0, len(images), 2)]:
            place = generator.integers(0, side - 28, 2)
            step = generator.integers(-4, 5, 2)
            for frame in range(frames):
                row, column = place
                target = out[sequence * frames + frame, row:row + 28, column:column + 28]
                numpy.maximum(target, image, out=target)
                moved = place + step
                step = numpy.where((moved < 0) | (moved > side - 28), -step, step)
                place = place + step
    return out, {"source": f"generated from dataset-fashion-mnist, seed {seed}", "real": False,
                 "sequence": frames}


def cosmo_like(seed=2, samples=1, side=128):
    """Particle counts on a grid at four times, in the manner of CosmoFlow's 4 x 128^3 u16:
    Poisson counts of a log-normal field with a falling spectrum, growing in contrast."""
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    axis = numpy.fft.fftfreq(side)
    wave = numpy.sqrt(axis[:, None, None] ** 2 + axis[None, :, None] ** 2
                      + numpy.fft.rfftfreq(side)[None, None, :] ** 2)
    wave[0, 0, 0] = 1
    out = numpy.empty((samples, 4, side, side, side), "<u2")
    for sample in range(samples):
        noise = numpy.fft.rfftn(generator.standard_normal((side, side, side)))
        field = numpy.fft.irfftn(noise * wave ** -0.9, (side, side, side))
        field /= field.std()
        # Contrast grows with time, as structure does in the simulations that this imitates.
        for time, contrast in enumerate((0.8, 1.2, 1.6, 2.0)):
            density = 0.25 * numpy.exp(contrast * field - contrast ** 2 / 2)
            out[sample, time] = generator.poisson(density).clip(0, 65535)
    return out, {"source": f"generated, seed {seed}", "real": False}


def random_bytes(seed=3, samples=256, sample_bytes=114_660):
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    return generator.integers(0, 256, (samples, sample_bytes), "u1"), {
        "source": f"generated, seed {seed}", "real": False}


SETS = {
    "mire2": _camera("mire-2/*.pgm", "mire-2: camera"),
    "mbtcube": _camera("mbt/cube/image*.pgm", "mbt/cube: camera"),
    "castelG": _camera("mbt-depth/castel/castel/*.pgm", "mbt-depth/castel: camera"),
    "castelD": castle_depth,
    "simuG": rendered_gray,
    "simuD": rendered_depth,
    "vtestG": vtest_gray,
    "ch2better": _volume("ch2better", "MR volume"),
    "labelsAal": _volume("aal", "label volume"),
    "labelsInia": _volume("inia19-NeuroMaps", "label volume"),
    "navyU": _climate("monthly_navy_winds.cdf", "UWND"),
    "navyV": _climate("monthly_navy_winds.cdf", "VWND"),
    "inia19": _volume("inia19-t1-brain", "MR volume"),
    "levT": _climate("levitus_climatology.cdf", "TEMP"),
    "levTfilled": levitus_filled,
    "oceanT": _climate("ocean_atlas_subset.nc", "TEMP"),
    "movingMnist": moving_mnist,
    "cosmoLike": cosmo_like,
    "randomBytes": random_bytes,
}
