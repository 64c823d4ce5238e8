"""`python -m tests.pace [--rates 5 50 500] [--plays N] [--fastest-alone] [--to FOLDER]` plays the matrix; writes table
and picture.

It is 990 cells of 30 virtual minutes, each played several times, and the mean counts: near a bound, chance decides a
single play. That takes hours of one core, and ten minutes by PyPy, nearly all of it for the 330 at 500/s;
`--fastest-alone` plays of these the 55 alone at 20 ms.
`--others` plays no more than the cells alone at 20 ms, with the controllers of other tools besides, and prints a table.
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
    Shown,
    average,
    list_cells,
    list_chance_cells,
    measure,
    play,
    read_promise,
)
from tests.pace.others import Aimd, CubicRetry

_PLAYS = {5.0: 12, 50.0: 12, 500.0: 4}  # of each cell: the fewer the requests, the more is left to chance
_CHANCE_PLAYS = 24
_HEAD = """# The pace, cell by cell

This page is for you if you want every measurement of [the pace](pace.md). `python -m tests.pace` wrote the page.
The limits are {rates} requests/s. Each cell is the mean of {plays} plays, and each chance cell of {chance_plays}.
"""
_MISSES = "These cells do not keep their promise (`tests/pace/matrix.py:read_promise`):"
_RULES = """What each rule is worth: one play of the cells at 5 and 50/s and 20 ms, of six cells at 500/s and of 11
cells at 50/s with 300 ms, and of the chance cells (mean, least, below 85 %). "Beside" is the least goodput at 50/s and
300 ms beside another client, with pauses of 5 and 30 s."""
_WIDTH, _HEIGHT, _LEFT, _TOP = 36, 22, 150, 40

Result = tuple[Cell, Shown]


def play_cell(cell: Cell, plays: int | None = None) -> Result:
    """Return the mean of a cell's plays, for a process of the pool. `plays` replaces the usual number."""
    seeds = range(1, 1 + (plays or _PLAYS[cell.rate]))
    return cell, average([measure(cell, play(cell, RateController(), seed)) for seed in seeds])


def write_others(cells: Sequence[Cell]) -> str:
    """Return in Markdown the mean and the least goodput of each controller, for each pause."""
    lines = [f"| goodput: mean, least | {' | '.join(map(write_pause, PAUSES))} |", f"|---|{'---|' * len(PAUSES)}"]
    for name, build in (("this one", RateController), ("AIMD", Aimd), ("botocore, adaptive", CubicRetry)):
        goodputs = [
            [measure(cell, play(cell, build())).goodput for cell in cells if cell.pause_s == pause] for pause in PAUSES
        ]
        lines.append(f"| {name} | {' | '.join(f'{sum(each) / len(each):.2f}, {min(each):.2f}' for each in goodputs)} |")
    return "\n".join(lines) + "\n"


def write_pause(pause_s: float | None) -> str:
    """As a heading."""
    return "none" if pause_s is None else "date" if pause_s < 0 else f"{pause_s:g} s"


def write_limiter(cell: Cell) -> str:
    """As the head of a line."""
    return f"{cell.kind}, {f'{cell.span_s:g} s' if cell.span_s else 'two tokens'}"


def write_table(results: Sequence[Result]) -> str:
    """Return in Markdown the least and the mean of each limiter and pause, over rates and round trips."""
    lines = [
        "| limiter | Retry-After | goodput alone | beside another | refused after a halving | doubled used (s) |",
        "|---|---|---|---|---|---|",
    ]
    for (limiter, pause), group in groupby(results, key=lambda each: (write_limiter(each[0]), each[0].pause_s)):
        cells = list(group)
        alone = [shown.goodput for cell, shown in cells if cell.scene == ALONE]
        beside = [shown.beside for cell, shown in cells if cell.scene == SHARED]
        exceeded = [shown.exceeded for cell, shown in cells if cell.scene == CHANGED]
        used = [shown.used_s for cell, shown in cells if cell.scene == CHANGED]
        lines.append(
            f"| {limiter} | {write_pause(pause)} | {min(alone):.3f} to {max(alone):.3f} | "
            f"{min(beside):.2f} to {max(beside):.2f} | {max(exceeded):.1%} | {min(used):.0f} to {max(used):.0f} |"
        )
    return "\n".join(lines) + "\n"


def write_summary(results: Sequence[Result]) -> str:
    """Return in Markdown goodput, first minute and refusals of the cells with a steady limit, by Retry-After."""
    lines = [
        "| Retry-After | cells | goodput: mean, least | first minute: mean, least, below 70 % | refused: most, > 3 % |",
        "|---|---|---|---|---|",
    ]
    alone = [(cell, shown) for cell, shown in results if cell.scene == ALONE]
    for pause in (*PAUSES, "all"):
        mine = [shown for cell, shown in alone if pause in (cell.pause_s, "all")]
        goodput, first = [each.goodput for each in mine], [each.first for each in mine]
        refused = [each.refused for each in mine]
        lines.append(
            f"| {pause if isinstance(pause, str) else write_pause(pause)} | {len(mine)} "
            f"| {sum(goodput) / len(mine):.3f}, {min(goodput):.3f} "
            f"| {sum(first) / len(mine):.3f}, {min(first):.3f}, {sum(each < 0.7 for each in first)} "
            f"| {max(refused):.1%}, {sum(each > 0.03 for each in refused)} |"
        )
    return "\n".join(lines) + "\n"


def write_chance(results: Sequence[tuple[Cell, tuple[float, float, int]]]) -> str:
    """Return in Markdown what each chance cell is served, as a share of the bound."""
    lines = ["| cell | of the bound | first minute | sent inside a pause |", "|---|---|---|---|"]
    lines += [f"| {cell} | {served:.3f} | {first:.3f} | {inside} |" for cell, (served, first, inside) in results]
    return "\n".join(lines) + "\n"


def play_chance(cell: Cell) -> tuple[Cell, tuple[float, float, int]]:
    """Return the mean of a chance cell's plays, for a process of the pool."""
    plays = [measure_chance(cell, RateController(), seed) for seed in range(1, 1 + _CHANCE_PLAYS)]
    served, first = (sum(each[index] for each in plays) / len(plays) for index in (0, 1))
    return cell, (served, first, sum(each[2] for each in plays))


def write_misses(results: Sequence[Result]) -> str:
    """Return in Markdown each cell that does not keep its promise."""
    lines = [
        f"- {cell}: {'; '.join(misses)}"
        for cell, shown in results
        if (misses := read_promise(cell).list_misses(cell, shown))
    ]
    return "\n".join(lines) + "\n"


def draw(results: Sequence[Result]) -> str:
    """As SVG: a line for each limiter, a group of squares for each pause, darker where less of the limit is used."""
    alone = [each for each in results if each[0].scene == ALONE]
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
            cells = [shown for cell, shown in alone if write_limiter(cell) == limiter and cell.pause_s == pause]
            for place, shown in enumerate(cells):
                x = _LEFT + index * group_width + place * _WIDTH
                share = min(max((shown.goodput - 0.7) / 0.3, 0.0), 1.0)
                fill = f"hsl({120 * share:.0f},55%,65%)"
                parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" fill="{fill}"/>')
                parts.append(f'<text x="{x + 4}" y="{y + 14}">{100 * shown.goodput:.0f}</text>')
    width, height = _LEFT + len(PAUSES) * group_width, _TOP + len(limiters) * _HEIGHT + 4
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    return head + 'font-size="11">\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    """Play, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--plays", type=int, help="plays of each cell but those of chance [default: 12, 12 and 4]")
    parser.add_argument("--fastest-alone", action="store_true", help="of the last rate only cells alone at 20 ms")
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
    results.sort(key=lambda each: order.index((write_limiter(each[0]), each[0].pause_s)))
    plays = options.plays or ", ".join(str(_PLAYS[rate]) for rate in options.rates)
    rates = ", ".join(f"{rate:g}" for rate in options.rates)
    head = _HEAD.format(rates=rates, plays=plays, chance_plays=_CHANCE_PLAYS)
    table = f"{head}\n{write_summary(results)}\n{write_chance(chance)}\n{write_table(results)}\n{_MISSES}\n\n"
    table += f"{write_misses(results)}\n{_RULES}\n\n{rules}"
    (options.to / "pace-table.md").write_text(table, encoding="utf-8")
    (options.to / "pace.svg").write_text(draw(results), encoding="utf-8")


if __name__ == "__main__":
    main()
