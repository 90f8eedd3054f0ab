"""Figures: what a suite measures, and whether it reaches its goal."""

import dataclasses
import statistics
import typing


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound on a figure. `at_least` or at most."""

    bound: float
    at_least: bool = True

    def met(self, value):
        # The bound itself meets the goal.
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self):
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


@dataclasses.dataclass
class Figure:
    """One line of a report. `value` is None where it could not be measured: `note` says why,
    and a figure with a goal then counts as missed. A figure without a goal informs only."""

    id: str
    unit: str
    value: typing.Optional[float] = None
    low: typing.Optional[float] = None
    high: typing.Optional[float] = None
    runs: int = 0
    goal: typing.Optional[Goal] = None
    settings: str = ""
    note: str = ""

    @property
    def met(self):
        """True, False, or None without a goal."""
        if self.goal is None:
            return None
        # A figure that could not be measured has missed its goal. Otherwise a machine without a
        # peer would pass.
        return self.value is not None and self.goal.met(self.value)

    @property
    def failed(self):
        return self.value is None or self.met is False

    def line(self):
        if self.value is None:
            text = "not measured"
        else:
            text = f"{self.value:.4g} {self.unit}"
            if self.runs > 1:
                text += f" [{self.low:.4g} .. {self.high:.4g}, {self.runs} runs]"
        verdict = {None: "", True: "  MET", False: "  MISSED"}[self.met]
        goal = f"  goal {self.goal}" if self.goal else ""
        note = f"  ({self.note})" if self.note else ""
        return f"{self.id:<42} {text}{goal}{verdict}{note}"

    def to_json(self):
        return {
            "id": self.id,
            "value": self.value,
            "unit": self.unit,
            "spread": None if self.value is None else [self.low, self.high],
            "runs": self.runs,
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
            "settings": self.settings,
            "note": self.note,
        }


def from_runs(figure_id, unit, values, **fields):
    """The median of several runs, with their range."""
    # Median and whole range: means hide one slow run, and a range shows whether two figures differ
    # at all.
    return Figure(figure_id, unit, statistics.median(values), min(values), max(values),
                  len(values), **fields)


def worst(figure_id, unit, values, **fields):
    """The largest of several runs, all of which have to meet the goal, with their range. Where the
    goal is a bound from below, there is one value."""
    return Figure(figure_id, unit, max(values), min(values), max(values), len(values), **fields)


def missing(figure_id, unit, note, **fields):
    return Figure(figure_id, unit, note=note, **fields)


class Sheet:
    """The figures of a suite, printed as they come."""

    def __init__(self, echo=print):
        self.figures = []
        self.echo = echo

    def add(self, figure):
        # Two figures of one id would make the report contradict itself.
        if any(known.id == figure.id for known in self.figures):
            raise ValueError(f"figure {figure.id} twice")
        self.figures.append(figure)
        self.echo(figure.line())

    @property
    def failed(self):
        return [figure for figure in self.figures if figure.failed]


def interleave(rounds, contenders):
    """Runs every contender once per round, in turned order on odd rounds, so that no one always
    runs first. `contenders`: name -> callable(round) -> result. Returns name -> results."""
    results = {name: [] for name in contenders}
    # Contenders run in turn and not one after the other: the machine's speed changes over minutes,
    # and a ratio within a round cancels that. What falsifies such a ratio is a change within a
    # round, which the order that turns makes visible in the range.
    for number in range(rounds):
        names = list(contenders)
        if number % 2 == 1:
            names.reverse()
        for name in names:
            results[name].append(contenders[name](number))
    return results


def ratios(numerators, denominators):
    """Round by round."""
    # A ratio belongs to one round; without its partner it cannot be taken.
    if len(numerators) != len(denominators):
        raise ValueError("unequal numbers of runs")
    return [a / b for a, b in zip(numerators, denominators)]
