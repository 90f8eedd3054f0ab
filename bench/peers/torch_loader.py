"""The torch peer: torch.utils.data.DataLoader over the same samples in the same order."""

import argparse
import os

import numpy
import torch

import digest


class Samples(torch.utils.data.Dataset):
    """Samples by id. Whole-file samples are opened, read and closed; of larger objects each
    process keeps a descriptor."""

    def __init__(self, root, index):
        self.root = root
        self.places = []
        counts = {}
        with open(index, encoding="utf-8") as file:
            for line in file:
                path, offset, length = line.rstrip("\n").split("\t")
                self.places.append((path, int(offset), int(length)))
                counts[path] = counts.get(path, 0) + 1
        self.keep_open = max(counts.values()) > 1
        self.descriptors = {}

    def __len__(self):
        return len(self.places)

    def read(self, path, offset, length):
        if not self.keep_open:
            with open(os.path.join(self.root, path), "rb", buffering=0) as file:
                return file.read(length)
        # Workers are forked from this process. Its id in the key gives each its own descriptors.
        key = (os.getpid(), path)
        if key not in self.descriptors:
            self.descriptors[key] = os.open(os.path.join(self.root, path), os.O_RDONLY)
        return os.pread(self.descriptors[key], length, offset)

    def __getitem__(self, sample):
        data = self.read(*self.places[sample])
        if len(data) != self.places[sample][2]:
            raise OSError(f"sample {sample}: {len(data)} bytes")
        # bytearray copies the bytes, because a tensor over immutable bytes gives a warning for each
        # sample.
        return sample, torch.frombuffer(bytearray(data), dtype=torch.uint8)


class FixedOrder(torch.utils.data.Sampler):
    """The next epoch of the order file at each iteration."""

    def __init__(self, order, samples):
        super().__init__(None)
        self.order = order
        self.samples = samples
        self.epoch = 0

    def __len__(self):
        return self.samples

    def __iter__(self):
        begin = self.epoch * self.samples
        # The order is that of write_order, so this peer reads what Forebay's consumer reads, in
        # that order.
        return iter(self.order[begin:begin + self.samples].tolist())


def batches(loader):
    for ids, tensor in loader:
        array = tensor.numpy()
        yield [(int(sample), array[row]) for row, sample in enumerate(ids)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--order", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch-factor", type=int, default=4)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    # The consumer is one thread in every contender.
    torch.set_num_threads(1)
    samples = Samples(arguments.root, arguments.index)
    order = numpy.fromfile(arguments.order, dtype="<u8")
    sampler = FixedOrder(order, len(samples))
    # prefetch_factor and persistent_workers are refused without workers. Workers persist, so that
    # an epoch does not pay for starting them.
    options = {}
    if arguments.workers > 0:
        options = {"prefetch_factor": arguments.prefetch_factor, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(
        samples, batch_size=arguments.batch, sampler=sampler, num_workers=arguments.workers,
        drop_last=False, **options)
    consumer = digest.Consumer(
        "torch_loader", f"torch={torch.__version__} workers={arguments.workers} "
        f"batch={arguments.batch} prefetch_factor={arguments.prefetch_factor}")
    if arguments.check:
        consumer.run_epoch(lambda: batches(loader), check=True)
    for epoch in range(arguments.epochs):
        sampler.epoch = epoch
        consumer.run_epoch(lambda: batches(loader))
    consumer.print()


if __name__ == "__main__":
    main()
