"""What suites have in common: they run their rows, and a row that fails fails its figures."""

from harness import processes
from harness.figures import missing


def chosen(names, only):
    """Those of `names` that hold `only`, or one of its parts between commas; all where it is
    empty."""
    # "".split(",") gives one empty part, which every name holds, so no --only chooses all.
    return [name for name in names if any(part in name for part in only.split(","))]


def run_rows(rows, sheet, only=""):
    """`rows`: name -> (method, the ids of its figures with unit and goal). Those that `only`
    chooses run; a figure that its row did not add is added as missing, with the reason."""
    for name in chosen(rows, only):
        row, goals = rows[name]
        note = "the row ended without it"
        try:
            row()
        # A fault of the machine or of a contender becomes a note at the row's figures. A mistake of
        # the harness (any other exception) ends the run.
        except (processes.Missing, processes.RunFailed, OSError) as error:
            note = f"{type(error).__name__}: {error}"
        # Every figure that the row has promised appears in the report, so a goal cannot be missed
        # in silence.
        known = {figure.id for figure in sheet.figures}
        for figure_id, (unit, goal) in goals.items():
            if figure_id not in known:
                sheet.add(missing(figure_id, unit, note, goal=goal))
