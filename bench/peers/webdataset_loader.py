"""The WebDataset peer: the same samples out of tar shards, in WebDataset's own order (shards
shuffled, then a shuffle buffer): it cannot follow a given order."""

import argparse
import glob
import importlib.metadata
import os

import webdataset

import digest


# Batches stay lists of (key, bytes): to stack them would cost a copy that the digest does not need,
# which favours this peer.
def keep(batch):
    return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--shuffle-buffer", type=int, default=1000)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()

    shards = sorted(glob.glob(os.path.join(arguments.root, "*.tar")))
    if not shards:
        raise SystemExit(f"no shards in {arguments.root}")
    # empty_check=False, because a worker may get no shard if there are more workers than shards.
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
    if arguments.shuffle_buffer > 0:
        dataset = dataset.shuffle(arguments.shuffle_buffer)
    dataset = dataset.to_tuple("__key__", "bin").batched(arguments.batch, collation_fn=keep)
    loader = webdataset.WebLoader(
        # Batches are made by the data set itself, in the workers, which is what WebDataset
        # recommends.
        dataset, batch_size=None, num_workers=arguments.workers,
        persistent_workers=arguments.workers > 0)

    def batches():
        for batch in loader:
            yield [(int(key), data) for key, data in batch]

    version = importlib.metadata.version("webdataset")
    consumer = digest.Consumer(
        "webdataset_loader", f"webdataset={version} workers={arguments.workers} "
        f"batch={arguments.batch} shuffle_buffer={arguments.shuffle_buffer}")
    if arguments.check:
        consumer.run_epoch(batches, check=True)
    for _ in range(arguments.epochs):
        consumer.run_epoch(batches)
    consumer.print()


if __name__ == "__main__":
    main()
