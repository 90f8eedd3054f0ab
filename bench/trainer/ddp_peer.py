"""A DP2 step of Python's DistributedDataParallel over Gloo: the peer of forebay_trainer_bench.

Trains the same chain of blocks on the same number of micro-batches, one thread a rank, gradients
accumulated over a rank's micro-batches and reduced with the last. Prints one line of JSON."""

import argparse
import contextlib
import json
import os
import tempfile
import time

import torch
from torch import nn
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rise = nn.Linear(width, 4 * width)
        self.fall = nn.Linear(4 * width, width)

    def forward(self, values):
        return values + self.fall(nn.functional.gelu(self.rise(values)))


def run_rank(rank, settings, meeting, report):
    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                       world_size=settings.replicas)
    torch.manual_seed(1)
    model = nn.Sequential(*(Block(settings.width) for _ in range(settings.blocks)))
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=settings.bucket_views)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)
    own = settings.micro_batches // settings.replicas
    shape = (settings.samples, settings.width)
    inputs = [torch.randn(shape) for _ in range(own)]
    targets = [torch.randn(shape) for _ in range(own)]
    total = settings.micro_batches * settings.samples
    times = []
    for step in range(settings.warm + settings.steps):
        barrier()
        began = time.perf_counter()
        loss_sum = 0.0
        for at in range(own):
            last = at + 1 == own
            with contextlib.nullcontext() if last else parallel.no_sync():
                loss = (parallel(inputs[at]) - targets[at]).pow(2).sum()
                loss_sum += loss.item()
                # DDP takes the mean over the ranks.
                (loss * (settings.replicas / total)).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=not settings.bucket_views)
        if step >= settings.warm:
            times.append(time.perf_counter() - began)
    if rank == 0:
        with open(report, "w", encoding="utf-8") as file:
            json.dump({"step_s": times, "torch": torch.__version__, "loss": loss_sum}, file)
    destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("replicas", 2), ("micro-batches", 8), ("samples", 32), ("width", 512),
                          ("blocks", 8), ("steps", 8), ("warm", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bucket-views", action="store_true",
                        help="gradients live in the buckets, which saves DDP a copy")
    settings = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        spawn(run_rank, (settings, os.path.join(folder, "meeting"), report), settings.replicas)
        with open(report, encoding="utf-8") as file:
            print(json.dumps(json.load(file)))


if __name__ == "__main__":
    main()
