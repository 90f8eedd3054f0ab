"""Writes a suite's figures as JSON, Markdown and SVG."""

import html
import json

BAR_WIDTH = 420
LABEL_WIDTH = 300
ROW_HEIGHT = 26


def to_json(suite, quick, machine, figures):
    return {
        "suite": suite,
        "quick": quick,
        "machine": machine,
        "figures": [figure.to_json() for figure in figures],
        "failed": [figure.id for figure in figures if figure.failed],
    }


def _number(value):
    return "-" if value is None else f"{value:.4g}"


def to_markdown(report, charts, more_lines=()):
    machine = report["machine"]
    lines = [
        f"# Suite `{report['suite']}`" + (" (quick)" if report["quick"] else ""), "",
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory']}, "
        f"{machine['system']}, kernel {machine['kernel']}; load average at the start "
        + ", ".join(f"{load:.2f}" for load in machine["load_average"]) + ".", "",
        # A reader of the page has to know what the numbers are without this code.
        "Medians; ranges over the runs in brackets; ratios are taken within each round.", "",
        "| figure | value | range | runs | goal | met | settings, notes |",
        "|---|---|---|---|---|---|---|",
    ]
    for figure in report["figures"]:
        spread = figure["spread"] or (None, None)
        met = {None: "", True: "yes", False: "**no**"}[figure["met"]]
        remarks = "; ".join(text for text in (figure["settings"], figure["note"]) if text)
        lines.append(
            f"| `{figure['id']}` | {_number(figure['value'])} {figure['unit']} "
            f"| {_number(spread[0])} .. {_number(spread[1])} | {figure['runs']} "
            f"| {figure['goal'] or ''} | {met} | {remarks.replace('|', '/')} |")
    lines += more_lines
    for chart in charts:
        lines += ["", f"![{chart}]({chart})"]
    return "\n".join(lines) + "\n"


def _bar(index, label, value, low, high, scale, unit):
    top = 40 + index * ROW_HEIGHT
    middle = top + 9
    # At least a pixel, so that a small value is not taken for a missing one.
    width = max(1.0, value * scale)
    parts = [
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 13}" text-anchor="end">{html.escape(label)}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{width:.1f}" height="18" fill="#4477aa"/>',
        f'<line x1="{LABEL_WIDTH + low * scale:.1f}" x2="{LABEL_WIDTH + high * scale:.1f}" '
        f'y1="{middle}" y2="{middle}" stroke="#222222" stroke-width="2"/>',
        f'<text x="{LABEL_WIDTH + max(width, high * scale) + 6:.1f}" y="{top + 13}">'
        f"{value:.4g} {html.escape(unit)}</text>",
    ]
    return "\n".join(parts)


def to_svg(title, rows):
    """A bar chart. `rows`: (label, value, low, high, unit); bars share one scale."""
    # The scale is set by the highest run and not by the highest median, so that no range leaves the
    # picture.
    highest = max((row[3] for row in rows), default=0) or 1
    scale = BAR_WIDTH / highest
    height = 52 + ROW_HEIGHT * len(rows)
    bars = [_bar(index, label, value, low, high, scale, unit)
            for index, (label, value, low, high, unit) in enumerate(rows)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL_WIDTH + BAR_WIDTH + 130}" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15">{html.escape(title)}</text>',
        *bars, "</svg>", ""])


def charts(report):
    """File suffix -> SVG, one chart per unit that at least two figures share."""
    groups = {}
    for figure in report["figures"]:
        # Only figures of one unit stand in one picture: bars of different units would invite
        # comparisons that mean nothing.
        if figure["value"] is not None:
            groups.setdefault(figure["unit"], []).append(
                (figure["id"], figure["value"], *figure["spread"], figure["unit"]))
    titles = {"GB/s": "Throughput", "x": "Ratios", "MB/s": "Throughput on the emulated GFS"}
    return {unit.replace("/", "_per_"): to_svg(f"{titles.get(unit, 'Figures')} ({unit})", rows)
            for unit, rows in groups.items() if len(rows) >= 2 and unit in titles}


def write(stem, report, more_charts=None, more_lines=()):
    """STEM.json, STEM.md and STEM-*.svg beside each other. A suite that brings charts of its own
    (`more_charts`: suffix -> SVG) gets those and no bars."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    names = []
    for suffix, svg in (more_charts or charts(report)).items():
        path = stem.with_name(f"{stem.name}-{suffix}.svg")
        path.write_text(svg, encoding="utf-8")
        names.append(path.name)
    stem.with_suffix(".md").write_text(to_markdown(report, names, more_lines),
                                      encoding="utf-8")
