"""Row `shuffle` of suite `trainer`: what orders that mix less cost in accuracy. A part of
Fashion-MNIST is stored sorted by class, which is the worst case; a small ResNet is trained on it in
each order, and beside its accuracy stands what `forebay tune` says about that order before.

A micro-batch is one canonical node's part of a step, so batch normalisation sees what it would see
on as many nodes that train data parallel."""

import html
import json
import math
import pathlib
import statistics
import tempfile

from harness import processes
from harness.trainer_accuracy import Trainings, unpack

SEEDS = (1, 2, 3, 4, 5)
PER_CLASS = 2000
CLASSES = 10
SAMPLES = PER_CLASS * CLASSES
IMAGE_BYTES = 28 * 28
GLOBAL_BATCH, NODES = 128, 8
RUN_WORDS = ("--architecture", "resnet18", "--settings",
             "width=8,blocks1=1,blocks2=1,blocks3=1,blocks4=0", "--shape", "1x28x28",
             "--classes", CLASSES, "--threads", "1", "--epochs", "3",
             "--global-batch", GLOBAL_BATCH, "--micro-batch", GLOBAL_BATCH // NODES,
             "--warmup-steps", "50", "--evaluate-every-epochs", "3",
             "--log-every-steps", "1000", "--train-dataset", "sorted")


def block(run, window):
    return (f"block:{run}:{window}",
            ("--order-mode", "block", "--block-samples", run, "--window-runs", window))


def partial(fraction, run=SAMPLES // NODES):
    # With runs of a whole share, a node's share is one place of the sorted set: one class or two.
    return (f"partial:{fraction:g}:{run}",
            ("--order-mode", "partial", "--block-samples", run, "--canonical-nodes", NODES,
             "--exchange-fraction", fraction))


# The name of a mode, as `forebay tune` takes it -> flags of forebay-train.
MODES = dict([
    ("global", ()), block(125, 64), block(500, 32), block(500, 16), block(125, 16), block(500, 4),
    block(500, 2), block(2000, 1), partial(1.0), partial(0.5), partial(0.3), partial(0.1),
    partial(0.05), partial(0.0), partial(0.0, run=1),
    ("sequential", ("--order-mode", "sequential")),
])
QUICK_MODES = ("global", "block:500:4", "partial:0.1:2500")


def sort_by_class(images, labels):
    """The first PER_CLASS samples of each class, class by class. Both are IDX files' bytes."""
    places = [[] for _ in range(CLASSES)]
    for place, label in enumerate(labels[8:]):
        if len(places[label]) < PER_CLASS:
            places[label].append(place)
    order = [place for of_class in places for place in of_class]
    count = len(order).to_bytes(4, "big")
    pixels = (images[16 + IMAGE_BYTES * at:16 + IMAGE_BYTES * (at + 1)] for at in order)
    return (images[:4] + count + images[8:16] + b"".join(pixels),
            labels[:4] + count + bytes(labels[8 + at] for at in order))


def store_sorted(folder):
    """Adds the data set `sorted` to what `unpack` has made; returns the configuration."""
    config = unpack(folder)
    files = [folder / f"train-{part}-ubyte" for part in ("images-idx3", "labels-idx1")]
    for name, data in zip(("images", "labels"), sort_by_class(*(file.read_bytes()
                                                               for file in files))):
        (folder / f"sorted-{name}").write_bytes(data)
    with open(config, "a", encoding="utf-8") as text:
        text.write(f'[[dataset]]\nname = "sorted"\npath = "{folder}"\nformat = "idx"\n'
                   'files = ["images=sorted-images", "labels=sorted-labels"]\n')
    return config


def predict(binaries, modes):
    """Mode -> what `forebay tune` says of it, for nodes that keep their home shares."""
    command = [binaries.find("forebay"), "tune", "--json", "--keep-home-shares",
               "--samples", SAMPLES, "--bytes", SAMPLES * (IMAGE_BYTES + 1),
               "--classes", CLASSES, "--nodes", NODES, "--global-batch", GLOBAL_BATCH]
    found = {}
    # A call for each: `partial` of two runs has one name in the answers.
    for mode in modes:
        text = processes.run_text([*command, "--mode", mode])
        lines = [json.loads(line) for line in text.splitlines()]
        asked = [line for line in lines if line["event"] == "mode"]
        # The mode that was asked for is the last one, unless it is a usual one.
        found[mode] = asked[0] if mode == "global" else asked[-1]
    return found


def x_of(mode):
    """("block", runs of a window) or ("partial", fraction) if a panel shows the mode, or None."""
    words = mode.split(":")
    if words[0] == "block":
        return "block", int(words[2])
    if words[0] == "partial" and words[2] != "1":
        return "partial", float(words[1])
    return None


class Shuffle:
    """`inform(figure_id, unit, values, **fields)` notes a figure."""

    def __init__(self, inform, binaries, environment, quick):
        self.inform = inform
        self.binaries = binaries
        self.trainings = Trainings(binaries, environment)
        self.modes = QUICK_MODES if quick else tuple(MODES)
        self.seeds = SEEDS[:1] if quick else SEEDS
        self.curves = ""  # SVG

    def run(self):
        predictions = predict(self.binaries, self.modes)
        accuracies = {mode: [] for mode in self.modes}
        with tempfile.TemporaryDirectory(prefix="forebay-shuffle-") as name:
            folder = pathlib.Path(name)
            config = store_sorted(folder)
            # Seed by seed, so that a run that is stopped has compared all modes.
            for seed in self.seeds:
                for mode in self.modes:
                    words = (*RUN_WORDS, "--seed", seed, *MODES[mode])
                    summary = self.trainings.run(config, folder / f"{mode}-{seed}", 1, words)
                    accuracies[mode].append(summary["test_accuracy"])
        self.judge(accuracies, predictions)

    def judge(self, accuracies, predictions):
        # Accuracies inform and have no goal: which loss is acceptable is the user's choice.
        for mode, values in accuracies.items():
            said = predictions[mode]
            self.inform(f"trainer.shuffle.{mode.replace(':', '_')}", "of 1", values,
                        note=f"forebay tune: a batch loses {100 * said['batch_entropy_loss']:.1f} %"
                        f" of its class entropy, a part {100 * said['part_entropy_loss']:.1f} %; "
                        f"{said['link_bytes'] / 1e6:.2f} MB over the link of a node")
        self.curves = to_svg(accuracies, predictions)


WIDTH, HEIGHT, LEFT, TOP, PANEL, GAP = 1040, 430, 60, 66, 280, 50
BOTTOM = HEIGHT - 60
OF_BLOCK, OF_PARTIAL = "#4477aa", "#cc3311"


def _y(accuracy):
    return BOTTOM - accuracy * (BOTTOM - TOP)


def _panel(number, title, axis, ticks, band):
    """The frame of a panel; `ticks`: place from 0 to 1 -> label; `band`: accuracies of global."""
    left = LEFT + number * (PANEL + GAP)
    parts = [f'<text x="{left}" y="{TOP - 12}" font-size="13">{html.escape(title)}</text>',
             f'<rect x="{left}" y="{_y(max(band)):.1f}" width="{PANEL}" '
             f'height="{max(1, _y(min(band)) - _y(max(band))):.1f}" fill="#bbddbb"/>',
             f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{BOTTOM - TOP}" fill="none" '
             'stroke="#999999"/>',
             f'<text x="{left + PANEL / 2}" y="{BOTTOM + 38}" text-anchor="middle">'
             f"{html.escape(axis)}</text>"]
    for tenths in range(0, 11, 2):
        y = _y(tenths / 10)
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">'
                     f"{tenths / 10:g}</text>")
    for place, label in ticks.items():
        parts.append(f'<text x="{left + place * PANEL:.1f}" y="{BOTTOM + 17}" '
                     f'text-anchor="middle">{html.escape(label)}</text>')
    return left, parts


def _points(left, place, values, colour):
    """A dot for each seed, and a bar at the mean."""
    x = left + place * PANEL
    mean = _y(statistics.fmean(values))
    dots = [f'<circle cx="{x:.1f}" cy="{_y(value):.1f}" r="3" fill="{colour}" '
            'fill-opacity="0.6"/>' for value in values]
    return [*dots, f'<line x1="{x - 7:.1f}" x2="{x + 7:.1f}" y1="{mean:.1f}" y2="{mean:.1f}" '
            f'stroke="{colour}" stroke-width="2"/>']


def to_svg(accuracies, predictions):
    """Accuracy against the runs of a window, against q, and against the loss that was predicted."""
    band = accuracies["global"]
    window = {(math.log2(runs) + 0.5) / 7: str(runs) for runs in (1, 2, 4, 8, 16, 32, 64)}
    shares = {0.05 + 0.9 * q: f"{q:g}" for q in (0, 0.1, 0.3, 0.5, 1)}
    losses = {0.05 + 0.9 * loss: f"{100 * loss:g} %" for loss in (0, 0.25, 0.5, 0.75, 1)}
    panels = [_panel(0, "block: what a window is made of", "runs of a window", window, band),
              _panel(1, "partial: what is exchanged", "q; bytes over links, global's = 1", shares,
                     band),
              _panel(2, "both: what forebay tune predicts", "predicted loss of class entropy",
                     losses, band)]
    parts = [part for _, frame in panels for part in frame]
    for mode, values in accuracies.items():
        shown = x_of(mode)
        if not shown or not values:
            continue
        kind, x = shown
        said = predictions[mode]
        if kind == "block":
            parts += _points(panels[0][0], (math.log2(x) + 0.5) / 7, values, OF_BLOCK)
            loss, colour = said["batch_entropy_loss"], OF_BLOCK
        else:
            parts += _points(panels[1][0], 0.05 + 0.9 * x, values, OF_PARTIAL)
            loss, colour = said["part_entropy_loss"], OF_PARTIAL
        parts += _points(panels[2][0], 0.05 + 0.9 * loss, values, colour)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">Test accuracy on Fashion-MNIST, stored sorted by '
        "class</text>",
        f'<text x="{LEFT}" y="38">a dot for each seed, a bar for the mean; green: the range of '
        f'global; <tspan fill="{OF_BLOCK}">block: loss of a batch</tspan>, '
        f'<tspan fill="{OF_PARTIAL}">partial: loss of a node\'s part</tspan></text>',
        *parts, "</svg>", ""])
