"""The plots of docs/explanation/speed.md, drawn from the lines of JSON that the benchmarks print.

`python -m tests.benchmarks.plots` draws them from docs/explanation/figures.jsonl, which has a line for each benchmark.
With `--measure` it first runs the benchmarks, with nothing else running, and keeps their lines; `--measure NAME …` runs
those alone. Each plot names the commit and the command of its line.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tests.benchmarks.processes import ROOT

FOLDER = ROOT / "docs" / "explanation"
FIGURES = FOLDER / "figures.jsonl"
BENCHMARKS = ("load_cpu", "load_latency", "export", "lost_answers")

_WIDTH, _LEFT, _LINE = 460, 200, 26
_OURS, _OTHERS = "#1f7a5c", "#9aa5b1"

Bar = tuple[str, float]
"""What it stands for, and its length; a bar whose name begins with `connector` is the connector's."""


def build_plots(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return each plot as SVG, by its file's name, of the benchmarks that there are figures of."""
    plots = {}
    for name, line in figures.items():
        for file, title, bars in _READERS[name](line):
            plots[file] = draw_bars(title, bars, f"commit {line['commit']}: {line['command']}")
    return plots


def draw_bars(title: str, bars: Sequence[Bar], source: str) -> str:
    """A bar for each figure, with its number, under a title and above where the figures come from."""
    longest = max(value for _, value in bars) or 1.0
    room, height = _WIDTH - _LEFT - 76, 40 + _LINE * len(bars) + 26
    parts = [f'<text x="12" y="24" font-weight="bold">{escape(title)}</text>']
    for index, (name, value) in enumerate(bars):
        y = 40 + index * _LINE
        length = max(1.0, room * value / longest)
        fill = _OURS if name.startswith("connector") else _OTHERS
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.0f}" height="{_LINE - 7}" fill="{fill}"/>')
        parts.append(f'<text x="{_LEFT + length + 6:.0f}" y="{y + 14}">{value:,.0f}</text>')
    parts.append(f'<text x="12" y="{height - 12}" font-size="10" fill="#555">{escape(source)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="13">', _BACKGROUND, *parts, "</svg>\n"])


_BACKGROUND = '<rect width="100%" height="100%" rx="6" fill="#fff"/>'


def _read_load_cpu(line: Mapping[str, Any]) -> Iterable[tuple[str, str, list[Bar]]]:
    rounds: Mapping[str, Any] = line["rounds"]
    for file, key, title in (
        ("creates.svg", "sending_per_s", "Creates a second, without latency"),
        ("create_cpu.svg", "cpu_us_per_row", "Processor time of a create, in µs"),
    ):
        yield file, title, [(name, _take_median(runs, key)) for name, runs in rounds.items()]


def _read_load_latency(line: Mapping[str, Any]) -> Iterable[tuple[str, str, list[Bar]]]:
    bars = [("64 in flight ÷ 20 ms", float(line["bound_per_s"]))]
    for each in line["contestants"]:
        if each["rounds"] and each["left_out"] is None:
            steady = [run for run in each["rounds"] if run["steady_per_s"] is not None]
            value = _take_median(steady, "steady_per_s") if steady else _take_median(each["rounds"], "per_s")
            bars.append((_drop_version(each["name"]), value))
    yield "creates_away.svg", f"Creates a second, {line['latency_ms']} ms away", bars


def _read_export(line: Mapping[str, Any]) -> Iterable[tuple[str, str, list[Bar]]]:
    for file, entries, rows in (
        ("exports.svg", line[f"of_{max(line['rows'])}"], max(line["rows"])),
        ("exports_others.svg", line["others"], line["others_rows"]),
    ):
        bars = [(each["name"], _take_median(each["runs"], "per_s")) for each in entries if each["runs"]]
        if file == "exports.svg":
            bars = [(f"connector export, {name}", value) for name, value in bars]
        bars.sort(key=lambda bar: bar[0].partition(", ")[2])  # one destination beside the other tools' same one
        yield file, f"Rows a second, whole process, of {rows:,}", bars


def _read_lost_answers(line: Mapping[str, Any]) -> Iterable[tuple[str, str, list[Bar]]]:
    bars = [(_drop_version(each["name"]), 1000 * each["duplicates"] / each["rows"]) for each in line["figures"]]
    yield "duplicates.svg", f"Duplicates in 1,000 creates, {line['share']:.0%} of the answers lost", bars


_READERS = {
    "load_cpu": _read_load_cpu,
    "load_latency": _read_load_latency,
    "export": _read_export,
    "lost_answers": _read_lost_answers,
}


def _drop_version(name: str) -> str:
    return name.partition(" [")[0]


def _take_median(runs: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def read_figures() -> dict[str, dict[str, Any]]:
    """The kept line of each benchmark, by its name."""
    lines = map(json.loads, FIGURES.read_text(encoding="utf-8").splitlines())
    return {line["benchmark"]: line for line in lines}


def measure(name: str) -> dict[str, Any]:
    """Run a benchmark, whose table goes to standard output, and return its line. Raises CalledProcessError."""
    ended = subprocess.run((sys.executable, "-m", f"tests.benchmarks.{name}"), stdout=subprocess.PIPE, check=True)
    print(ended.stdout.decode())
    line: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return line


def main() -> None:
    """Measure what is asked for, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    options = parser.parse_args()
    for name in [] if options.measure is None else options.measure or BENCHMARKS:
        figures = read_figures() | {name: measure(name)}
        FIGURES.write_text("".join(json.dumps(figures[each]) + "\n" for each in sorted(figures)), encoding="utf-8")
    for file, svg in build_plots(read_figures()).items():
        (FOLDER / file).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
