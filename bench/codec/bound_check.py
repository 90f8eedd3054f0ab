"""The one checker of error bounds: holds every lossy codec to the same words.

A *valid* value is finite and not the fill value. A codec keeps an absolute bound when every valid
value comes back within it, measured in float64; what is not valid must come back as it was: the
same fill, NaN for NaN, the same infinity.
"""

import dataclasses

import numpy


@dataclasses.dataclass
class Verdict:
    valid: int              # values
    violations: int         # valid values beyond the bound, or no longer finite
    worst: float            # largest error of a valid value; infinite where not finite
    holes_changed: int      # values that are not valid and came back different

    def to_json(self):
        return dataclasses.asdict(self)


def check_absolute(original, decoded, bound, fill=None):
    """Holds `decoded` to `bound`. Arrays of one shape and float type; raises ValueError else."""
    if original.shape != decoded.shape or original.dtype != decoded.dtype:
        raise ValueError(f"{decoded.dtype}{decoded.shape} for {original.dtype}{original.shape}")
    valid = numpy.isfinite(original)
    if fill is not None:
        valid &= original != original.dtype.type(fill)
    # Differences are computed in float64, so that their own rounding does not count as an error of
    # the codec.
    with numpy.errstate(invalid="ignore", over="ignore"):
        errors = numpy.abs(original[valid].astype("f8") - decoded[valid].astype("f8"))
    # A value that came back as NaN or infinity has no distance; it counts as a violation.
    errors = numpy.where(numpy.isfinite(errors), errors, numpy.inf)
    holes, holes_back = original[~valid], decoded[~valid]
    # NaN is not equal to itself, so it needs a comparison of its own.
    same = (holes == holes_back) | (numpy.isnan(holes) & numpy.isnan(holes_back))
    return Verdict(int(valid.sum()), int((errors > bound).sum()),
                   float(errors.max(initial=0.0)), int((~same).sum()))
