"""Goals of suite `codec`, and the sets that they are about."""

from harness.figures import Goal

CAMERA = ("mire2", "mbtcube", "castelG", "vtestG")
SIX = ("mire2", "mbtcube", "castelG", "simuG", "vtestG", "ch2better")
BEST_ZSTD = ("zstd_19", "delta_zstd_9")
# Ratios of TEZip's own encoding of previous-frame residuals, 64 frames in windows of 8, as
# measured when the goals were set: the stand-in must give them again.
TEZIP_PUBLISHED = {"mire2": 1.94, "mbtcube": 5.00, "castelG": 1.78, "vtestG": 3.41,
                   "simuG": 8.75}
TEZIP_DEVIATION_MAX = 3  # %
# Field -> absolute bounds.
LOSSY_BOUNDS = {"navyU": (0.1, 0.01), "inia19": (1.0, 0.1), "levT": (0.1, 0.01),
                "levTfilled": (0.1, 0.01)}
# Profiles that are measured within a bound, each against all goals: one must keep them together.
LOSSY_PROFILES = ("dense", "balanced")
# A field whose holes were filled for codecs that know none -> the field itself.
FILLED_OF = {"levTfilled": "levT"}


def _at_most(bound):
    return Goal(bound, at_least=False)


def _per_set(prefix, sets, goal):
    return {f"{prefix}.{name}": ("x", goal) for name in sets}


def _lossless():
    return {
        "codec.dense.vs_x264_geomean": ("x", Goal(1.00)),
        "codec.dense.vs_x264_worst": ("x", Goal(0.85)),
        **_per_set("codec.dense.vs_best_zstd", SIX, Goal(1.15)),
        "codec.dense.vs_best_zstd_mean": ("x", Goal(1.4)),
        # A number and not a comparison: no peer of the suite is made for depth with holes.
        "codec.dense.ratio.castelD": ("x", Goal(10.0)),
        "codec.dense.decode": ("GB/s", Goal(0.5)),
        **_per_set("codec.dense.decode_vs_x264", CAMERA, Goal(5)),
        **_per_set("codec.balanced.vs_delta_zstd3", SIX, Goal(1.0)),
        "codec.balanced.vs_delta_zstd3_mean": ("x", Goal(1.15)),
        "codec.balanced.decode": ("GB/s", Goal(0.9)),
        **{f"codec.balanced.decode_vs_delta_zstd3.{name}":
           ("x", Goal(1.0 if name in CAMERA else 0.8)) for name in SIX},
        **_per_set("codec.fast.vs_blosc", SIX, Goal(1.0)),
        "codec.fast.vs_blosc_mean": ("x", Goal(1.2)),
        "codec.fast.decode": ("GB/s", Goal(3)),
        "codec.balanced.encode": ("MB/s", Goal(60)),
        "codec.dense.encode": ("MB/s", Goal(10)),
    }


def _tezip():
    goals = {f"codec.tezip.deviation.{name}": ("%", _at_most(TEZIP_DEVIATION_MAX))
             for name in TEZIP_PUBLISHED}
    goals.update(_per_set("codec.dense.vs_tezip", TEZIP_PUBLISHED, Goal(1.35)))
    goals["codec.dense.vs_tezip_mean"] = ("x", Goal(1.7))
    return goals


LOSSY_GOALS = {
    "vs_sz3_default": ("x", Goal(1.10)),
    # The goal is to be no worse than SZ3's best algorithm, which a user of SZ3 would have to find
    # first.
    "vs_sz3_best": ("x", Goal(1.0)),
    "decode_vs_sz3": ("x", Goal(3)),
    # None at all: a bound that is kept nearly always is no bound.
    "violations": ("values", _at_most(0)),
}


def lossy_prefix(label, profile):
    """Of a profile's ids on a field within a bound; dense, the first, needs no name."""
    return f"codec.lossy.{label}" + ("" if profile == "dense" else f".{profile}")


def _lossy():
    return {f"{lossy_prefix(f'{name}.{bound:g}', profile)}.{part}": goal
            for name, bounds in LOSSY_BOUNDS.items() for bound in bounds
            for profile in LOSSY_PROFILES for part, goal in LOSSY_GOALS.items()}


# Row -> figure id -> (unit, goal).
GOALS = {
    "lossless": _lossless(),
    "tezip": _tezip(),
    "isa": {},
    # The only goal on generated data, because it is about what must not happen.
    "generated": {"codec.auto.expansion": ("%", _at_most(0.1))},
    "learned": {f"codec.learned.gain.{name}": ("%", Goal(3)) for name in ("mire2", "castelG")},
    "random_frame": {"codec.random_frame_p99.balanced": ("ms", _at_most(5)),
                     "codec.random_frame_p99.dense": ("ms", _at_most(8))},
    "threads": {"codec.threads.balanced_of_control": ("x", Goal(0.95)),
                "codec.threads.dense_of_control": ("x", Goal(0.95))},
    "lossy": _lossy(),
    "end_to_end": {"codec.block.decode_amplification": ("x", _at_most(1.1)),
                   "codec.block.of_sequential": ("x", Goal(0.9)),
                   "codec.gfs.gain_of_ratio": ("x", Goal(0.8)),
                   "codec.ram.fits_of_raw": ("x", Goal(0.95)),
                   "codec.ram.loss_prediction_error": ("%", _at_most(10))},
}
