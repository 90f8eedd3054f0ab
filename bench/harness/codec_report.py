"""Tables and the picture of suite `codec`: ratio against decode speed, all codecs in one."""

import html
import math
import statistics

from harness.codec_goals import SIX

WIDTH, HEIGHT = 860, 560
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 56
LABEL_WIDTH, LABEL_HEIGHT = 6.2, 12  # of a character, at the font size of labels
OURS, OTHERS = "#cc3311", "#4477aa"
TICKS = (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70)


def by_set(measurements):
    """Set -> contender -> (ratio, decode rate in MB/s, settings), of whole sets on one thread;
    where a set was measured more than once, the run with the most contenders."""
    largest = {}
    for report in measurements:
        # Reports with a bound or with smaller vectors are of other rows, and would mix two
        # questions in one picture.
        if "bound" in report or report.get("isa", "best") != "best":
            continue
        entries = {}
        for entry in report["contenders"]:
            if "error" not in entry and "1" in entry.get("decode_s", {}):
                rate = report["raw_bytes"] / statistics.median(entry["decode_s"]["1"]) / 1e6
                entries[entry["name"]] = entry["ratio"], rate, entry["settings"]
        if len(entries) > len(largest.get(report["set"], {})):
            largest[report["set"]] = entries
    return largest


def means(table, sets):
    """Contender -> (ratio, rate), geometric means over `sets`; only those measured on all."""
    # A mean over fewer sets is no mean of the same thing, so a contender that lacks one set is left
    # out.
    names = set.intersection(*(set(table[name]) for name in sets)) if sets else set()
    return {name: tuple(math.exp(statistics.fmean(math.log(table[each][name][axis])
                                                  for each in sets)) for axis in (0, 1))
            for name in names}


def markdown(table):
    """A table per suite run: ratio (decode MB/s)."""
    sets = list(table)
    names = []
    for entries in table.values():
        names += [name for name in entries if name not in names]
    lines = ["", "Ratio (decode MB/s, one thread), medians:", "",
             "| codec | " + " | ".join(sets) + " |", "|---" * (len(sets) + 1) + "|"]
    for name in names:
        cells = []
        for each in sets:
            found = table[each].get(name)
            cells.append(f"{found[0]:.2f} ({found[1]:.0f})" if found else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


class _Log:
    """Maps values to pixels, logarithmically, with a little room at both ends."""

    def __init__(self, values, first, last):
        low, high = math.log(min(values)), math.log(max(values))
        # At least a tenth, so that a single point has axes too.
        room = max(0.06 * (high - low), 0.1)
        self.low, self.high, self.first, self.last = low - room, high + room, first, last

    def __call__(self, value):
        share = (math.log(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def shows(self, value):
        return self.low <= math.log(value) <= self.high


def _overlap(one, other):
    return not (one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1]
                or other[3] <= one[1])


def _place_label(x, y, text, taken):
    """The first of eight places around a point where the label covers nothing, else the first.
    Returns (x, y, anchor)."""
    width = LABEL_WIDTH * len(text)
    choices = [(x + 8, y + 4, "start"), (x - 8, y + 4, "end"), (x, y - 9, "middle"),
               (x, y + 18, "middle"), (x + 6, y - 8, "start"), (x + 6, y + 16, "start"),
               (x - 6, y - 8, "end"), (x - 6, y + 16, "end")]
    boxes = []
    for left, base, anchor in choices:
        start = left - {"start": 0, "middle": width / 2, "end": width}[anchor]
        boxes.append((start, base - LABEL_HEIGHT + 2, start + width, base + 2))
    inside = [box[0] >= LEFT and box[2] <= WIDTH - 2 for box in boxes]
    for choice, box, fits in zip(choices, boxes, inside):
        # Labels never cover each other while one of eight places is free; a reader must be able to
        # tell points apart.
        if fits and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return choice
    taken.append(boxes[0])
    return choices[0]


def _axes(across, up):
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
             f'height="{HEIGHT - TOP - BOTTOM}" fill="none" stroke="#999999"/>']
    for power in range(0, 5):
        for tick in (10 ** power, 2 * 10 ** power, 5 * 10 ** power):
            if across.shows(tick):
                x = across(tick)
                label = f"{tick / 1000:g} GB/s" if tick >= 1000 else f"{tick} MB/s"
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
                             'stroke="#eeeeee"/>')
                parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" '
                             f'text-anchor="middle">{label}</text>')
    for tick in TICKS:
        if up.shows(tick):
            y = up(tick)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                         'stroke="#eeeeee"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" '
                 'text-anchor="middle">decode, one thread</text>')
    parts.append(f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
                 f'transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2})">ratio</text>')
    return parts


def scatter(title, subtitle, points):
    """An SVG of (ratio, MB/s) by name, both axes logarithmic; ours stand out and are joined."""
    across = _Log([rate for _, rate in points.values()], LEFT, WIDTH - RIGHT)
    up = _Log([ratio for ratio, _ in points.values()], HEIGHT - BOTTOM, TOP)
    parts = _axes(across, up)
    places = {name: (across(rate), up(ratio)) for name, (ratio, rate) in points.items()}
    # Points take their places before any label does.
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    ours = sorted((place for name, place in places.items() if name.startswith("forebay_")))
    if len(ours) > 1:
        parts.append('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>' % (
            OURS, " ".join(f"{x:.1f},{y:.1f}" for x, y in ours)))
    # Ours choose their places first.
    for name in sorted(places, key=lambda name: (not name.startswith("forebay_"), name)):
        x, y = places[name]
        mine = name.startswith("forebay_")
        text = name.replace("_", " ")
        left, base, anchor = _place_label(x, y, text, taken)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if mine else 4}" '
                     f'fill="{OURS if mine else OTHERS}"/>')
        weight = "bold" if mine else "normal"
        parts.append(f'<text x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}" '
                     f'font-size="11" font-weight="{weight}">{html.escape(text)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{html.escape(title)}</text>',
        f'<text x="{LEFT}" y="39">{html.escape(subtitle)}</text>',
        *parts, "</svg>", ""])


def extras(measurements):
    """(file suffix -> SVG, Markdown lines) of a run; both empty where nothing was measured."""
    table = {name: entries for name, entries in by_set(measurements).items() if len(entries) > 1}
    charts = {}
    sets = [name for name in SIX if name in table]
    points = means(table, sets)
    if len(points) > 1:
        charts["ratio_speed"] = scatter(
            "Ratio against decode speed", "geometric means of " + ", ".join(sets), points)
    return charts, markdown(table) if table else []
