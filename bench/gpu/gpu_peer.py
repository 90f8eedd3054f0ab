"""Training steps of ResNet-50, ViT-S/16 or ViT-L/16 with PyTorch, eager or compiled: the peer of
forebay_gpu_bench. Prints one line of JSON.

The same sizes, batch, autocast and optimiser (SGD with momentum); samples lie on the device. With
--save-on-cpu autograd's values go to pinned memory and back; with --gap also for how long of a step
the device is busy."""

import argparse
import contextlib
import json
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gpu_busy import is_work, union

IMAGE = (3, 224, 224)
CLASSES = 1000
PROFILED_STEPS = 3  # behind those that are timed


def convolution(channels, out, side, stride=1):
    return [nn.Conv2d(channels, out, side, stride, side // 2, bias=False), nn.BatchNorm2d(out)]


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            *convolution(channels, width, 1), nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
            *convolution(width, 4 * width, 1))
        same = stride == 1 and channels == 4 * width
        self.shortcut = (nn.Identity() if same
                         else nn.Sequential(*convolution(channels, 4 * width, 1, stride)))

    def forward(self, values):
        return torch.relu(self.body(values) + self.shortcut(values))


def resnet50():
    layers = [*convolution(IMAGE[0], 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not block else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, CLASSES))


class VisionTransformer(nn.Module):
    def __init__(self, patch=16, width=1024, depth=24, heads=16):
        super().__init__()
        tokens = (IMAGE[1] // patch) * (IMAGE[2] // patch)
        self.patches = nn.Conv2d(IMAGE[0], width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, tokens + 1, width))
        self.blocks = nn.Sequential(*(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True)
            for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        first = self.first.expand(len(tokens), -1, -1)
        return self.head(self.blocks(torch.cat((first, tokens), 1) + self.places)[:, 0])


TASKS = {
    "resnet50": resnet50,
    "vit-small": lambda: VisionTransformer(width=384, depth=12, heads=6),
    "vit-large": VisionTransformer,
}


def saved_values(settings):
    if settings.save_on_cpu:
        return torch.autograd.graph.save_on_cpu(pin_memory=True)
    return contextlib.nullcontext()


def synchronise(settings):
    if settings.device == "cuda":
        torch.cuda.synchronize()


def busy_s(settings, train_step):
    """Of a step, for how long the device is busy."""
    on_gpu = settings.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        for _ in range(PROFILED_STEPS):
            train_step()
    spans = [(event.time_range.start, event.time_range.end) for event in seen.events()
             if is_work(event, on_gpu)]
    if not spans:
        raise SystemExit("PyTorch's profiler saw nothing on the device: of a GPU it needs CUPTI, "
                         "and the right to use it")
    return union(spans) / 1e6 / PROFILED_STEPS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=tuple(TASKS), required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--save-on-cpu", action="store_true")
    parser.add_argument("--gap", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    settings = parser.parse_args()
    torch.manual_seed(1)
    model = TASKS[settings.task]().to(settings.device)
    step_model = torch.compile(model) if settings.compiled else model
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(settings.samples, *IMAGE, device=settings.device)
    classes = torch.randint(CLASSES, (settings.samples,), device=settings.device)

    def train_step():
        with saved_values(settings), torch.autocast(settings.device, torch.bfloat16,
                                                    enabled=settings.precision == "bf16"):
            loss = nn.functional.cross_entropy(step_model(images), classes)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        synchronise(settings)

    times = []
    for step in range(settings.warm + settings.steps):
        synchronise(settings)
        began = time.perf_counter()
        train_step()
        if step >= settings.warm:
            times.append(time.perf_counter() - began)
    report = {"step_s": times, "step_samples": settings.samples, "torch": torch.__version__,
              "gpu": torch.cuda.get_device_name() if settings.device == "cuda" else "none"}
    if settings.gap:
        report["busy_s"] = busy_s(settings, train_step)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
