"""Plays the matrix of the pace, and writes the table and the picture of the documentation.

`python -m tests.pace [--rates 5 50 500] [--plays N] [--fastest-alone] [--to FOLDER]` plays 990 cells of 30 virtual
minutes each. Each cell is played several times, and the mean counts, because chance decides a single play near a bound.
All cells take hours on one core, or ten minutes with PyPy. Most of the time is for the 330 cells at 500 requests/s.
With `--fastest-alone`, only 55 of these 330 cells are played: the cells without another client and with 20 ms latency.
`--others` plays only the cells without another client and with 20 ms latency. It also plays the controllers of other
tools, and prints a table.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path

from connector.pace.rate import RateController
from tests.pace.ablation import HEAD, RULES, write_rule
from tests.pace.chance import measure_chance
from tests.pace.matrix import (
    ALONE,
    CHANGED,
    PAUSES,
    RATES,
    ROUND_TRIPS_S,
    SHARED,
    Cell,
    Measurements,
    average,
    list_cells,
    list_chance_cells,
    measure,
    play,
    read_promise,
)
from tests.pace.others import Aimd, CubicRetry

_PLAYS = {5.0: 12, 50.0: 12, 500.0: 4}  # plays of each cell: with fewer requests, chance has more influence
_CHANCE_PLAYS = 24
_HEAD = """# The pace, cell by cell

This page is for you if you want every measurement of [the pace](pace.md). `python -m tests.pace` wrote the page.
The limits are {rates} requests/s. Each cell is the mean of {plays} plays, and each chance cell of {chance_plays}.
"""
_FASTEST_ALONE = "At {fastest:g} requests/s, only the cells without another client and with 20 ms latency are played.\n"
_MISSES = "These cells do not keep their promise (`tests/pace/matrix.py:read_promise`):"
_NO_MISSES = "All played cells keep their promise (`tests/pace/matrix.py:read_promise`)."
_RULES = """What each rule is worth: one play of the cells at 5 and 50/s and 20 ms, of six cells at 500/s and of 11
cells at 50/s with 300 ms, and of the chance cells (mean, least, below 85 %). "Beside" is the least goodput at 50/s and
300 ms beside another client, with pauses of 5 and 30 s."""
_WIDTH, _HEIGHT, _LEFT, _TOP = 36, 22, 150, 40

Result = tuple[Cell, Measurements]


def play_cell(cell: Cell, plays: int | None = None) -> Result:
    """Return the cell with the mean of its plays. `plays` replaces the usual number of plays."""
    seeds = range(1, 1 + (plays or _PLAYS[cell.rate]))
    return cell, average([measure(cell, play(cell, RateController(), seed)) for seed in seeds])


def write_others(cells: Sequence[Cell]) -> str:
    """Return a Markdown table with the mean and the smallest goodput of each controller, for each pause."""
    lines = [f"| goodput: mean, least | {' | '.join(map(write_pause, PAUSES))} |", f"|---|{'---|' * len(PAUSES)}"]
    for name, build in (("this one", RateController), ("AIMD", Aimd), ("botocore, adaptive", CubicRetry)):
        goodputs = [
            [measure(cell, play(cell, build())).goodput for cell in cells if cell.pause_s == pause] for pause in PAUSES
        ]
        lines.append(
            f"| {name} | {' | '.join(f'{sum(values) / len(values):.2f}, {min(values):.2f}' for values in goodputs)} |"
        )
    return "\n".join(lines) + "\n"


def write_pause(pause_s: float | None) -> str:
    """Return the text of a pause for a heading."""
    return "none" if pause_s is None else "date" if pause_s < 0 else f"{pause_s:g} s"


def write_limiter(cell: Cell) -> str:
    """Return the text of a cell's limiter for the first column of a table."""
    return f"{cell.kind}, {f'{cell.span_s:g} s' if cell.span_s else 'two tokens'}"


def write_table(results: Sequence[Result]) -> str:
    """Return a Markdown table with the range of the results of each limiter and pause, over all rates and round
    trips."""
    lines = [
        "| limiter | Retry-After | goodput alone | beside a client | refused after a halving | doubled used (s) |",
        "|---|---|---|---|---|---|",
    ]
    for (limiter, pause), group in groupby(results, key=lambda result: (write_limiter(result[0]), result[0].pause_s)):
        cells = list(group)
        alone = [measurements.goodput for cell, measurements in cells if cell.scene == ALONE]
        beside = [measurements.beside for cell, measurements in cells if cell.scene == SHARED]
        exceeded = [measurements.exceeded for cell, measurements in cells if cell.scene == CHANGED]
        used = [measurements.used_s for cell, measurements in cells if cell.scene == CHANGED]
        lines.append(
            f"| {limiter} | {write_pause(pause)} | {min(alone):.3f} to {max(alone):.3f} | "
            f"{min(beside):.2f} to {max(beside):.2f} | {max(exceeded):.1%} | {min(used):.0f} to {max(used):.0f} |"
        )
    return "\n".join(lines) + "\n"


def write_summary(results: Sequence[Result]) -> str:
    """Return a Markdown table of the cells with a steady limit: goodput, first minute and refusals, by Retry-After."""
    lines = [
        "| Retry-After | cells | goodput: mean, least | first minute: mean, least, below 70 % | refused: most, > 3 % |",
        "|---|---|---|---|---|",
    ]
    alone = [(cell, measurements) for cell, measurements in results if cell.scene == ALONE]
    for pause in (*PAUSES, "all"):
        pause_measurements = [measurements for cell, measurements in alone if pause in (cell.pause_s, "all")]
        goodput, first = (
            [measurements.goodput for measurements in pause_measurements],
            [measurements.first for measurements in pause_measurements],
        )
        refused = [measurements.refused for measurements in pause_measurements]
        lines.append(
            f"| {pause if isinstance(pause, str) else write_pause(pause)} | {len(pause_measurements)} "
            f"| {sum(goodput) / len(pause_measurements):.3f}, {min(goodput):.3f} "
            f"| {sum(first) / len(pause_measurements):.3f}, {min(first):.3f}, {sum(share < 0.7 for share in first)} "
            f"| {max(refused):.1%}, {sum(share > 0.03 for share in refused)} |"
        )
    return "\n".join(lines) + "\n"


def write_chance(results: Sequence[tuple[Cell, tuple[float, float, int]]]) -> str:
    """Return a Markdown table with the served requests of each chance cell, as a share of the bound."""
    lines = ["| cell | of the bound | first minute | sent inside a pause |", "|---|---|---|---|"]
    lines += [f"| {cell} | {served:.3f} | {first:.3f} | {inside} |" for cell, (served, first, inside) in results]
    return "\n".join(lines) + "\n"


def play_chance(cell: Cell) -> tuple[Cell, tuple[float, float, int]]:
    """Return the chance cell with the mean of its plays."""
    plays = [measure_chance(cell, RateController(), seed) for seed in range(1, 1 + _CHANCE_PLAYS)]
    served, first = (sum(results[index] for results in plays) / len(plays) for index in (0, 1))
    return cell, (served, first, sum(results[2] for results in plays))


def write_misses(results: Sequence[Result]) -> str:
    """Return a Markdown list of the cells that break their promise."""
    lines = [
        f"- {cell}: {'; '.join(misses)}"
        for cell, measurements in results
        if (misses := read_promise(cell).list_misses(cell, measurements))
    ]
    return "\n".join([_MISSES, "", *lines] if lines else [_NO_MISSES]) + "\n"


def draw(results: Sequence[Result]) -> str:
    """Return an SVG picture with a line for each limiter and a group of squares for each pause. A square is green if
    the limit is used, and red if much of the limit is unused."""
    alone = [result for result in results if result[0].scene == ALONE]
    limiters = list(dict.fromkeys(write_limiter(cell) for cell, _ in alone))
    number = len({(cell.rate, cell.trip_s) for cell, _ in alone})
    group_width = number * _WIDTH + 10
    parts = []
    for index, pause in enumerate(PAUSES):
        parts.append(f'<text x="{_LEFT + index * group_width}" y="30">Retry-After {write_pause(pause)}</text>')
    for line, limiter in enumerate(limiters):
        y = _TOP + line * _HEIGHT
        parts.append(f'<text x="4" y="{y + 15}">{limiter}</text>')
        for index, pause in enumerate(PAUSES):
            cells = [
                measurements for cell, measurements in alone if write_limiter(cell) == limiter and cell.pause_s == pause
            ]
            for column, measurements in enumerate(cells):
                x = _LEFT + index * group_width + column * _WIDTH
                share = min(max((measurements.goodput - 0.7) / 0.3, 0.0), 1.0)
                fill = f"hsl({120 * share:.0f},55%,65%)"
                parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" fill="{fill}"/>')
                parts.append(f'<text x="{x + 4}" y="{y + 14}">{100 * measurements.goodput:.0f}</text>')
    width, height = _LEFT + len(PAUSES) * group_width, _TOP + len(limiters) * _HEIGHT + 4
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    return head + 'font-size="11">\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Play the cells, and write the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--plays", type=int, help="plays of each cell, except chance cells [default: 12, 12 and 4]")
    parser.add_argument(
        "--fastest-alone",
        action="store_true",
        help="play only the cells without another client and with 20 ms latency at the highest rate",
    )
    parser.add_argument("--others", action="store_true", help="play the controllers of other tools")
    parser.add_argument("--to", type=Path, default=Path("docs"))
    options = parser.parse_args()
    if options.others:
        cells = [cell for cell in list_cells() if (cell.trip_s, cell.scene) == (ROUND_TRIPS_S[0], ALONE)]
        print(write_others([cell for cell in cells if cell.rate in options.rates]))
        return
    options.to.mkdir(parents=True, exist_ok=True)
    fastest = max(options.rates)
    cells = [cell for cell in list_cells() if cell.rate in options.rates]
    if options.fastest_alone:
        cells = [
            cell for cell in cells if cell.rate < fastest or (cell.trip_s, cell.scene) == (ROUND_TRIPS_S[0], ALONE)
        ]
    order = list(dict.fromkeys((write_limiter(cell), cell.pause_s) for cell in list_cells()))
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(partial(play_cell, plays=options.plays), cells, chunksize=4))
        chance = list(pool.map(play_chance, list_chance_cells()))
        rules = HEAD + "\n".join(pool.map(write_rule, range(len(RULES)))) + "\n"
    results.sort(key=lambda result: order.index((write_limiter(result[0]), result[0].pause_s)))
    plays = options.plays or ", ".join(str(_PLAYS[rate]) for rate in options.rates)
    rates = ", ".join(f"{rate:g}" for rate in options.rates)
    head = _HEAD.format(rates=rates, plays=plays, chance_plays=_CHANCE_PLAYS)
    if options.fastest_alone:
        head += _FASTEST_ALONE.format(fastest=fastest)
    table = f"{head}\n{write_summary(results)}\n{write_chance(chance)}\n{write_table(results)}\n"
    table += f"{write_misses(results)}\n{_RULES}\n\n{rules}"
    (options.to / "pace-table.md").write_text(table, encoding="utf-8")
    (options.to / "pace.svg").write_text(draw(results), encoding="utf-8")


if __name__ == "__main__":
    main()
