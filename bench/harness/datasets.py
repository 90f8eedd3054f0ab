"""Makes the data sets that suites read, once each: same seed and sizes, same bytes."""

import dataclasses
import json
import pathlib
import shutil
import subprocess

MEAN_SAMPLE_BYTES = 114_660  # MLPerf Storage's resnet50


@dataclasses.dataclass(frozen=True)
class Spec:
    layout: str          # files, tar, records, rows
    samples: int
    sample_bytes: int = MEAN_SAMPLE_BYTES
    objects: int = 16    # class folders, shards or record files
    seed: int = 0

    @property
    def payload_bytes(self):
        return self.samples * self.sample_bytes

    @property
    # All parameters are in the name, so two specifications never share a folder.
    def name(self):
        return f"{self.layout}-{self.samples}x{self.sample_bytes}-{self.objects}-{self.seed}"


class Dataset:
    def __init__(self, spec, folder):
        self.spec = spec
        self.folder = folder
        self.data = folder / "data"
        self.index = folder / "index.tsv"

    @property
    def object_paths(self):
        return sorted(path for path in self.data.rglob("*") if path.is_file())

    def stored_bytes(self):
        """Of all objects: what one pass over the data set must read."""
        return sum(path.stat().st_size for path in self.object_paths)


class Store:
    """A folder of data sets and order files, reused by later runs."""

    def __init__(self, folder, make_dataset, write_order):
        self.folder = pathlib.Path(folder)
        self.make_dataset = make_dataset
        self.write_order = write_order

    def dataset(self, spec):
        folder = self.folder / spec.name
        marker = folder / "complete.json"
        wanted = json.dumps(dataclasses.asdict(spec), sort_keys=True)
        # The marker is written last: a set that was cut short is made again.
        if not (marker.exists() and marker.read_text(encoding="utf-8") == wanted):
            self._check_room(spec)
            subprocess.run(
                [self.make_dataset, "--layout", spec.layout, "--out", str(folder), "--samples",
                 str(spec.samples), "--sample-bytes", str(spec.sample_bytes), "--objects",
                 str(spec.objects), "--seed", str(spec.seed)], check=True)
            marker.write_text(wanted, encoding="utf-8")
        return Dataset(spec, folder)

    def order(self, samples, epochs, seed=0, mode="global", **shape):
        """`shape`: further flags of write_order, such as block_samples."""
        # An order is made once; it depends on these values only.
        name = "-".join(map(str, ("order", mode, samples, epochs, seed, *shape.values())))
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                [self.write_order, "--samples", str(samples), "--epochs", str(epochs), "--seed",
                 str(seed), "--mode", mode, "--out", str(path),
                 *(word for key, value in shape.items()
                   for word in (f"--{key.replace('_', '-')}", str(value)))], check=True)
        return path

    def _check_room(self, spec):
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        # Headers and padding take the rest; a full disk in the middle of a run would cost more than
        # this check.
        if free < 1.1 * spec.payload_bytes:
            raise OSError(f"{self.folder}: {free} bytes free, {spec.payload_bytes} needed; "
                          "name another folder with --data")
