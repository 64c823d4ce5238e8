"""Simulates the matrix of the rate controller, and writes the table and the picture of the documentation.

A cell of the matrix combines a limiter, a Retry-After, a limit, a round trip and a scenario.
`python -m tests.pace [--rates 5 50 500] [--runs N] [--fastest-alone] [--to FOLDER]` simulates runs of 30 virtual
minutes in 990 cells. Each cell has several simulated runs. The table shows their mean, because the result of a single
run depends on chance.
All cells take hours on one core, or ten minutes with PyPy. The 330 cells at 500 requests/s take most of the time.
With `--fastest-alone`, only 55 of these 330 cells are simulated: the cells without another client and with 20 ms
latency. `--others` simulates the controllers of other tools, only in the cells without another client and with 20 ms
latency, and prints a table.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path

from connector.pace.rate import RateController
from tests.pace.ablation import RULES, RULES_TABLE_HEAD, format_rule_row
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
    compute_means,
    list_cells,
    list_chance_cells,
    measure,
    read_promise,
    simulate_run,
)
from tests.pace.others import AimdController, CubicController

# Simulated runs of each cell, by the limit. At a low limit, a run has few requests, so its result depends more on
# chance.
_RUN_COUNT_BY_RATE = {5.0: 12, 50.0: 12, 500.0: 4}
_CHANCE_RUN_COUNT = 24
_PAGE_HEAD = """# The pace, cell by cell

This page is for you if you want every measurement of [the pace](pace.md). `python -m tests.pace` wrote the page.
[How the pace is found](explanation/pace.md) explains cells, goodput, bounds, chance cells and ramps. The limits are
{rates} requests/s. A value is the mean of {runs} simulated runs of a cell, and of {chance_runs} runs of a chance cell.
"""
_FASTEST_ALONE_NOTE = (
    "At {fastest:g} requests/s, only the cells without another client and with 20 ms latency are simulated.\n"
)
_MISSES_HEADING = "These cells do not keep their promise (`tests/pace/matrix.py:read_promise`):"
_NO_MISSES_TEXT = "All simulated cells keep their promise (`tests/pace/matrix.py:read_promise`)."
_RULES_INTRODUCTION = """\
The next table shows the effect of each rule of the rate controller. Each line has the results of a controller with one
changed rule. The results are of one simulated run of each cell at 5 and 50/s with 20 ms, of six cells at 500/s, and of
11 cells at 50/s with 300 ms. The column "chance" has the results of eight simulated runs of each chance cell: the mean,
the least, and the number below 50 %. The column "beside" has the least goodput beside another client, at 50/s with
300 ms and pauses of 5 and 30 s."""
_SQUARE_WIDTH, _SQUARE_HEIGHT, _LEFT_MARGIN, _TOP_MARGIN = 36, 22, 150, 40

CellResult = tuple[Cell, Measurements]


def simulate_cell(cell: Cell, run_count: int | None = None) -> CellResult:
    """Return the cell with the mean of its simulated runs. `run_count` replaces the usual number of runs."""
    seeds = range(1, 1 + (run_count or _RUN_COUNT_BY_RATE[cell.rate]))
    return cell, compute_means([measure(cell, simulate_run(cell, RateController(), seed)) for seed in seeds])


def format_other_controllers(cells: Sequence[Cell]) -> str:
    """Return a Markdown table with the mean and the smallest goodput of each controller, for each pause."""
    lines = [f"| goodput: mean, least | {' | '.join(map(format_pause, PAUSES))} |", f"|---|{'---|' * len(PAUSES)}"]
    for name, build_controller in (
        ("this one", RateController),
        ("AIMD", AimdController),
        ("botocore, adaptive", CubicController),
    ):
        goodputs_by_pause = [
            [measure(cell, simulate_run(cell, build_controller())).goodput for cell in cells if cell.pause_s == pause]
            for pause in PAUSES
        ]
        texts = [f"{sum(goodputs) / len(goodputs):.2f}, {min(goodputs):.2f}" for goodputs in goodputs_by_pause]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def format_pause(pause_s: float | None) -> str:
    """Return the text of a pause for a heading."""
    return "none" if pause_s is None else "date" if pause_s < 0 else f"{pause_s:g} s"


def format_limiter(cell: Cell) -> str:
    """Return the text of a cell's limiter for the first column of a table."""
    return f"{cell.limiter_kind}, {f'{cell.span_s:g} s' if cell.span_s else 'two tokens'}"


def format_table(results: Sequence[CellResult]) -> str:
    """Return a Markdown table with the range of the results of each limiter and pause, over all rates and round
    trips."""
    lines = [
        "| limiter | Retry-After | goodput alone | beside a client | refused after a halving | doubled used (s) |",
        "|---|---|---|---|---|---|",
    ]
    for (limiter, pause), group in groupby(results, key=lambda result: (format_limiter(result[0]), result[0].pause_s)):
        results_of_group = list(group)
        alone_goodputs = [measurements.goodput for cell, measurements in results_of_group if cell.scenario == ALONE]
        goodputs_beside_client = [
            measurements.goodput_beside_other_client
            for cell, measurements in results_of_group
            if cell.scenario == SHARED
        ]
        refused_shares = [
            measurements.refused_share_after_halving
            for cell, measurements in results_of_group
            if cell.scenario == CHANGED
        ]
        doubled_limit_used_times_s = [
            measurements.doubled_limit_used_after_s
            for cell, measurements in results_of_group
            if cell.scenario == CHANGED
        ]
        lines.append(
            f"| {limiter} | {format_pause(pause)} | {min(alone_goodputs):.3f} to {max(alone_goodputs):.3f} | "
            f"{min(goodputs_beside_client):.2f} to {max(goodputs_beside_client):.2f} | {max(refused_shares):.1%} | "
            f"{min(doubled_limit_used_times_s):.0f} to {max(doubled_limit_used_times_s):.0f} |"
        )
    return "\n".join(lines) + "\n"


def format_summary(results: Sequence[CellResult]) -> str:
    """Return a Markdown table of the cells whose scenario is ALONE: goodput, goodput of the first minute, and refusals,
    by Retry-After."""
    lines = [
        "| Retry-After | cells | goodput: mean, least | first minute: mean, least, below 70 % | refused: most, > 3 % |",
        "|---|---|---|---|---|",
    ]
    alone_results = [(cell, measurements) for cell, measurements in results if cell.scenario == ALONE]
    for pause in (*PAUSES, "all"):
        pause_measurements = [measurements for cell, measurements in alone_results if pause in (cell.pause_s, "all")]
        goodputs, first_minute_goodputs = (
            [measurements.goodput for measurements in pause_measurements],
            [measurements.first_minute_goodput for measurements in pause_measurements],
        )
        refused_shares = [measurements.refused_share for measurements in pause_measurements]
        lines.append(
            f"| {pause if isinstance(pause, str) else format_pause(pause)} | {len(pause_measurements)} "
            f"| {sum(goodputs) / len(pause_measurements):.3f}, {min(goodputs):.3f} "
            f"| {sum(first_minute_goodputs) / len(pause_measurements):.3f}, {min(first_minute_goodputs):.3f}, "
            f"{sum(share < 0.7 for share in first_minute_goodputs)} "
            f"| {max(refused_shares):.1%}, {sum(share > 0.03 for share in refused_shares)} |"
        )
    return "\n".join(lines) + "\n"


def format_chance_table(results: Sequence[tuple[Cell, tuple[float, float, int]]]) -> str:
    """Return a Markdown table with the served requests of each chance cell, as a share of the bound."""
    lines = ["| cell | of the bound | first minute | sent inside a pause |", "|---|---|---|---|"]
    lines += [
        f"| {cell} | {served_share:.3f} | {first_minute_share:.3f} | {sent_in_pause_count} |"
        for cell, (served_share, first_minute_share, sent_in_pause_count) in results
    ]
    return "\n".join(lines) + "\n"


def simulate_chance_cell(cell: Cell) -> tuple[Cell, tuple[float, float, int]]:
    """Return the chance cell with the mean of its simulated runs."""
    run_results = [measure_chance(cell, RateController(), seed) for seed in range(1, 1 + _CHANCE_RUN_COUNT)]
    served_share, first_minute_share = (
        sum(run_result[index] for run_result in run_results) / len(run_results) for index in (0, 1)
    )
    return cell, (served_share, first_minute_share, sum(run_result[2] for run_result in run_results))


def format_misses(results: Sequence[CellResult]) -> str:
    """Return a Markdown list of the cells that break their promise."""
    lines = [
        f"- {cell}: {'; '.join(misses)}"
        for cell, measurements in results
        if (misses := read_promise(cell).list_misses(cell, measurements))
    ]
    return "\n".join([_MISSES_HEADING, "", *lines] if lines else [_NO_MISSES_TEXT]) + "\n"


def draw_picture(results: Sequence[CellResult]) -> str:
    """Return an SVG picture with a line for each limiter and a group of squares for each pause. A square is green if
    the limit is used, and red if much of the limit is unused."""
    alone_results = [result for result in results if result[0].scenario == ALONE]
    limiters = list(dict.fromkeys(format_limiter(cell) for cell, _ in alone_results))
    column_count = len({(cell.rate, cell.round_trip_s) for cell, _ in alone_results})
    group_width = column_count * _SQUARE_WIDTH + 10
    svg_elements = []
    for pause_index, pause in enumerate(PAUSES):
        svg_elements.append(
            f'<text x="{_LEFT_MARGIN + pause_index * group_width}" y="30">Retry-After {format_pause(pause)}</text>'
        )
    for limiter_index, limiter in enumerate(limiters):
        y = _TOP_MARGIN + limiter_index * _SQUARE_HEIGHT
        svg_elements.append(f'<text x="4" y="{y + 15}">{limiter}</text>')
        for pause_index, pause in enumerate(PAUSES):
            measurements_of_squares = [
                measurements
                for cell, measurements in alone_results
                if format_limiter(cell) == limiter and cell.pause_s == pause
            ]
            for column_index, measurements in enumerate(measurements_of_squares):
                x = _LEFT_MARGIN + pause_index * group_width + column_index * _SQUARE_WIDTH
                share = min(max((measurements.goodput - 0.7) / 0.3, 0.0), 1.0)
                fill_colour = f"hsl({120 * share:.0f},55%,65%)"
                svg_elements.append(
                    f'<rect x="{x}" y="{y}" width="{_SQUARE_WIDTH - 2}" height="{_SQUARE_HEIGHT - 2}" '
                    f'fill="{fill_colour}"/>'
                )
                svg_elements.append(f'<text x="{x + 4}" y="{y + 14}">{100 * measurements.goodput:.0f}</text>')
    width, height = _LEFT_MARGIN + len(PAUSES) * group_width, _TOP_MARGIN + len(limiters) * _SQUARE_HEIGHT + 4
    svg_head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    return svg_head + 'font-size="11">\n' + "\n".join(svg_elements) + "\n</svg>\n"


def main() -> None:
    """Simulate the cells, and write the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument(
        "--runs", type=int, help="simulated runs of each cell, except chance cells [default: 12, 12 and 4]"
    )
    parser.add_argument(
        "--fastest-alone",
        action="store_true",
        help="at the highest rate, simulate only the cells without another client and with 20 ms latency",
    )
    parser.add_argument("--others", action="store_true", help="simulate the controllers of other tools")
    parser.add_argument("--to", type=Path, default=Path("docs"))
    options = parser.parse_args()
    if options.others:
        cells = [cell for cell in list_cells() if (cell.round_trip_s, cell.scenario) == (ROUND_TRIPS_S[0], ALONE)]
        print(format_other_controllers([cell for cell in cells if cell.rate in options.rates]))
        return
    options.to.mkdir(parents=True, exist_ok=True)
    highest_rate = max(options.rates)
    cells = [cell for cell in list_cells() if cell.rate in options.rates]
    if options.fastest_alone:
        cells = [
            cell
            for cell in cells
            if cell.rate < highest_rate or (cell.round_trip_s, cell.scenario) == (ROUND_TRIPS_S[0], ALONE)
        ]
    row_order = list(dict.fromkeys((format_limiter(cell), cell.pause_s) for cell in list_cells()))
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(partial(simulate_cell, run_count=options.runs), cells, chunksize=4))
        chance_results = list(pool.map(simulate_chance_cell, list_chance_cells()))
        rules_table = RULES_TABLE_HEAD + "\n".join(pool.map(format_rule_row, range(len(RULES)))) + "\n"
    results.sort(key=lambda result: row_order.index((format_limiter(result[0]), result[0].pause_s)))
    run_counts_text = options.runs or ", ".join(str(_RUN_COUNT_BY_RATE[rate]) for rate in options.rates)
    rates_text = ", ".join(f"{rate:g}" for rate in options.rates)
    page_head = _PAGE_HEAD.format(rates=rates_text, runs=run_counts_text, chance_runs=_CHANCE_RUN_COUNT)
    if options.fastest_alone:
        page_head += _FASTEST_ALONE_NOTE.format(fastest=highest_rate)
    page_text = (
        f"{page_head}\n{format_summary(results)}\n{format_chance_table(chance_results)}\n{format_table(results)}\n"
    )
    page_text += f"{format_misses(results)}\n{_RULES_INTRODUCTION}\n\n{rules_table}"
    (options.to / "pace-table.md").write_text(page_text, encoding="utf-8")
    (options.to / "pace.svg").write_text(draw_picture(results), encoding="utf-8")


if __name__ == "__main__":
    main()
