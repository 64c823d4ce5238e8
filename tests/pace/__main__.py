"""Simulates the matrix of the rate controller, and writes the table and the picture of the documentation.

A case of the matrix combines a limiter, a Retry-After, a limit, a round trip and a scenario.
`python -m tests.pace [--rates 5 50 500] [--runs N] [--fastest-alone] [--to FOLDER]` simulates runs of 30 virtual
minutes in 990 cases. Each case has several simulated runs. The table shows the mean of the runs, because the result of
a single run depends on chance.
All cases take hours on one core, or ten minutes with PyPy. The 330 cases at 500 requests/s take most of the time.
With `--fastest-alone`, only 55 of these 330 cases are simulated: the cases without another client and with 20 ms
latency. `--others` simulates the controllers of other tools, only in the cases without another client and with 20 ms
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
from tests.pace.chance import compare_with_known_limit
from tests.pace.matrix import (
    CHANGED_LIMIT,
    ONE_CLIENT,
    PAUSES,
    RATES,
    ROUND_TRIPS_S,
    SHARED_LIMIT,
    Case,
    Measurements,
    choose_bounds,
    compute_means,
    list_cases,
    list_random_refusal_cases,
    measure,
    simulate_run,
)
from tests.pace.others import AimdController, CubicController

# The number of simulated runs of each case, by the limit in requests/s. At a low limit, a run has few requests, so the
# result of a single run depends more on chance.
_RUN_COUNT_BY_RATE = {5.0: 12, 50.0: 12, 500.0: 4}
_RANDOM_REFUSAL_RUN_COUNT = 24
_PAGE_HEAD = """# The pace, case by case

This page is for you if you want every measurement of [the pace](pace.md). `python -m tests.pace` wrote the page. [How
the pace is found](explanation/pace.md) explains the cases, bounds and ramps. The used share of a limit is the number of
served requests, divided by the number of allowed requests. Beside another client, the allowed requests are the requests
that the other client leaves.

Simulated runs of each case: {run_counts}, and
{random_refusal_run_count} with random refusals. The tables use the means of these runs.
"""
_FEWER_CASES_NOTE = (
    "At {fastest:g} requests/s, only the cases without another client and with 20 ms latency are simulated.\n"
)
_BROKEN_BOUNDS_HEADING = "These cases exceed the bounds in `tests/pace/matrix.py:choose_bounds`:"
_NO_BROKEN_BOUND_TEXT = "No simulated case exceeds the bounds in `tests/pace/matrix.py:choose_bounds`."
_RULES_INTRODUCTION = """\
The next table shows the effect of each rule of the rate controller. Each line has the results of a controller with one
changed rule:

- The used share and the refused requests come from one simulated run of each of these cases: all cases at 5 and
  50 requests/s with a round trip of 20 ms, six cases at 500 requests/s, and 11 cases at 50 requests/s with a round
  trip of 300 ms.
- The used share beside another client comes from the cases at 50 requests/s with a round trip of 300 ms and pauses of
  5 and 30 s.
- The column about random refusals compares the controller with a client that knows the limit. Each case with random
  refusals (429) has eight simulated runs."""
_SQUARE_WIDTH, _SQUARE_HEIGHT, _LEFT_MARGIN, _TOP_MARGIN = 36, 22, 150, 40

CaseResult = tuple[Case, Measurements]


def simulate_case(case: Case, run_count: int | None = None) -> CaseResult:
    """Return the case with the mean of its simulated runs. `run_count` replaces the usual number of runs."""
    seeds = range(1, 1 + (run_count or _RUN_COUNT_BY_RATE[case.rate]))
    return case, compute_means([measure(case, simulate_run(case, RateController(), seed)) for seed in seeds])


def format_other_controllers(cases: Sequence[Case]) -> str:
    """Return a Markdown table with the mean and the smallest goodput of each controller, for each pause."""
    lines = [f"| goodput: mean, least | {' | '.join(map(format_pause, PAUSES))} |", f"|---|{'---|' * len(PAUSES)}"]
    for name, build_controller in (
        ("this one", RateController),
        ("AIMD", AimdController),
        ("botocore, adaptive", CubicController),
    ):
        goodputs_by_pause = {
            pause: [
                measure(case, simulate_run(case, build_controller())).goodput for case in cases if case.pause_s == pause
            ]
            for pause in PAUSES
        }
        texts = [f"{sum(goodputs) / len(goodputs):.2f}, {min(goodputs):.2f}" for goodputs in goodputs_by_pause.values()]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def format_pause(pause_s: float | None) -> str:
    """Return the pause as a text: "none", "date", or for example "5 s"."""
    return "none" if pause_s is None else "date" if pause_s < 0 else f"{pause_s:g} s"


def _format_head(*headings: str) -> str:
    return f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}"


def format_limiter(case: Case) -> str:
    """Return the text of a case's limiter for the first column of a table."""
    return f"{case.limiter_kind}, {f'{case.limiter_span_s:g} s' if case.limiter_span_s else 'two tokens'}"


def format_table(results: Sequence[CaseResult]) -> str:
    """Return a Markdown table with the range of the results of each limiter and pause, over all rates and round
    trips."""
    lines = [
        _format_head(
            "limiter",
            "Retry-After",
            "used share of the limit: smallest and largest",
            "used share of the limit beside another client: smallest and largest",
            "largest share of refused requests after the limit was halved",
            "smallest and largest number of seconds until a doubled limit is used",
        )
    ]
    for (limiter, pause), grouped_results in groupby(
        results, key=lambda result: (format_limiter(result[0]), result[0].pause_s)
    ):
        results_of_group = list(grouped_results)
        goodputs_with_one_client, goodputs_beside_other_client, refused_shares, times_to_use_doubled_limit_s = (
            [getattr(measurements, name) for case, measurements in results_of_group if case.scenario == scenario]
            for scenario, name in (
                (ONE_CLIENT, "goodput"),
                (SHARED_LIMIT, "goodput_beside_other_client"),
                (CHANGED_LIMIT, "refused_share_under_halved_limit"),
                (CHANGED_LIMIT, "time_to_use_doubled_limit_s"),
            )
        )
        lines.append(
            f"| {limiter} | {format_pause(pause)} "
            f"| {min(goodputs_with_one_client):.3f} to {max(goodputs_with_one_client):.3f} | "
            f"{min(goodputs_beside_other_client):.2f} to {max(goodputs_beside_other_client):.2f} | "
            f"{max(refused_shares):.1%} | "
            f"{min(times_to_use_doubled_limit_s):.0f} to {max(times_to_use_doubled_limit_s):.0f} |"
        )
    return "\n".join(lines) + "\n"


def format_summary(results: Sequence[CaseResult]) -> str:
    """Return a Markdown table of the cases with one client and a steady limit. The table has a line for each
    Retry-After."""
    lines = [
        _format_head(
            "Retry-After",
            "number of cases",
            "used share of the limit: mean, smallest",
            "first minute, relative to the best possible result: mean, smallest, number of cases under 70 %",
            "share of refused requests: largest, number of cases over 3 %",
        )
    ]
    results_with_one_client = [(case, measurements) for case, measurements in results if case.scenario == ONE_CLIENT]
    for pause in (*PAUSES, "all"):
        pause_measurements = [
            measurements for case, measurements in results_with_one_client if pause in (case.pause_s, "all")
        ]
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


def format_random_refusals(results: Sequence[tuple[Case, tuple[float, float, int]]]) -> str:
    """Return a Markdown table of the cases with random refusals. The table compares the controller with a client that
    knows the limit."""
    lines = [
        _format_head(
            "case",
            "served requests, relative to a client that knows the limit",
            "served requests in the first minute, relative to a client that knows the limit",
            "requests sent inside a pause",
        )
    ]
    lines += [
        f"| {case} | {served_share:.3f} | {first_minute_share:.3f} | {sent_in_pause_count} |"
        for case, (served_share, first_minute_share, sent_in_pause_count) in results
    ]
    return "\n".join(lines) + "\n"


def simulate_random_refusals(case: Case) -> tuple[Case, tuple[float, float, int]]:
    """Return the case, and the results of its simulated runs: the means of the two quotients of
    `compare_with_known_limit`, and the number of requests sent inside a pause."""
    run_results = [
        compare_with_known_limit(case, RateController(), seed) for seed in range(1, 1 + _RANDOM_REFUSAL_RUN_COUNT)
    ]
    served_share, first_minute_share = (
        sum(run_result[index] for run_result in run_results) / len(run_results) for index in (0, 1)
    )
    return case, (served_share, first_minute_share, sum(run_result[2] for run_result in run_results))


def format_broken_bounds(results: Sequence[CaseResult]) -> str:
    """Return a Markdown list of the cases that exceed a bound."""
    lines = [
        f"- {case}: {'; '.join(broken_bounds)}"
        for case, measurements in results
        if (broken_bounds := choose_bounds(case).list_broken_bounds(case, measurements))
    ]
    return "\n".join([_BROKEN_BOUNDS_HEADING, "", *lines] if lines else [_NO_BROKEN_BOUND_TEXT]) + "\n"


def draw_picture(results: Sequence[CaseResult]) -> str:
    """Return an SVG picture with a line for each limiter and a group of squares for each pause. A square is green if
    the limit is used, and red if much of the limit is unused."""
    results_with_one_client = [result for result in results if result[0].scenario == ONE_CLIENT]
    limiters = list(dict.fromkeys(format_limiter(case) for case, _ in results_with_one_client))
    column_count = len({(case.rate, case.round_trip_s) for case, _ in results_with_one_client})
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
            measurements_of_group = [
                measurements
                for case, measurements in results_with_one_client
                if format_limiter(case) == limiter and case.pause_s == pause
            ]
            for column_index, measurements in enumerate(measurements_of_group):
                x = _LEFT_MARGIN + pause_index * group_width + column_index * _SQUARE_WIDTH
                green_share = min(max((measurements.goodput - 0.7) / 0.3, 0.0), 1.0)
                fill_colour = f"hsl({120 * green_share:.0f},55%,65%)"
                svg_elements.append(
                    f'<rect x="{x}" y="{y}" width="{_SQUARE_WIDTH - 2}" height="{_SQUARE_HEIGHT - 2}" '
                    f'fill="{fill_colour}"/>'
                )
                svg_elements.append(f'<text x="{x + 4}" y="{y + 14}">{100 * measurements.goodput:.0f}</text>')
    width, height = _LEFT_MARGIN + len(PAUSES) * group_width, _TOP_MARGIN + len(limiters) * _SQUARE_HEIGHT + 4
    svg_head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    return svg_head + 'font-size="11">\n' + "\n".join(svg_elements) + "\n</svg>\n"


def main() -> None:
    """Simulate the cases, and write the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument(
        "--runs",
        type=int,
        help="simulated runs of each case without random refusals [default: 4 at 500 requests/s, otherwise 12]",
    )
    parser.add_argument(
        "--fastest-alone",
        action="store_true",
        help="at the highest rate, simulate only the cases without another client and with 20 ms latency",
    )
    parser.add_argument("--others", action="store_true", help="simulate the controllers of other tools")
    parser.add_argument("--to", type=Path, default=Path("docs"))
    options = parser.parse_args()
    if options.others:
        cases = [case for case in list_cases() if (case.round_trip_s, case.scenario) == (ROUND_TRIPS_S[0], ONE_CLIENT)]
        print(format_other_controllers([case for case in cases if case.rate in options.rates]))
        return
    options.to.mkdir(parents=True, exist_ok=True)
    highest_rate = max(options.rates)
    cases = [case for case in list_cases() if case.rate in options.rates]
    if options.fastest_alone:
        cases = [
            case
            for case in cases
            if case.rate < highest_rate or (case.round_trip_s, case.scenario) == (ROUND_TRIPS_S[0], ONE_CLIENT)
        ]
    row_order = list(dict.fromkeys((format_limiter(case), case.pause_s) for case in list_cases()))
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(partial(simulate_case, run_count=options.runs), cases, chunksize=4))
        random_refusal_results = list(pool.map(simulate_random_refusals, list_random_refusal_cases()))
        rules_table = RULES_TABLE_HEAD + "\n".join(pool.map(format_rule_row, range(len(RULES)))) + "\n"
    results.sort(key=lambda result: row_order.index((format_limiter(result[0]), result[0].pause_s)))
    run_count_texts = [f"{options.runs or _RUN_COUNT_BY_RATE[rate]} at {rate:g} requests/s" for rate in options.rates]
    page_head = _PAGE_HEAD.format(
        run_counts=", ".join(run_count_texts), random_refusal_run_count=_RANDOM_REFUSAL_RUN_COUNT
    )
    if options.fastest_alone:
        page_head += _FEWER_CASES_NOTE.format(fastest=highest_rate)
    page_text = f"{page_head}\n{format_summary(results)}\n{format_random_refusals(random_refusal_results)}\n"
    page_text += f"{format_table(results)}\n"
    page_text += f"{format_broken_bounds(results)}\n{_RULES_INTRODUCTION}\n\n{rules_table}"
    (options.to / "pace-table.md").write_text(page_text, encoding="utf-8")
    (options.to / "pace.svg").write_text(draw_picture(results), encoding="utf-8")


if __name__ == "__main__":
    main()
