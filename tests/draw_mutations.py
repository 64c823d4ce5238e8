"""Draws mutations of the product at random, and reports for each the first test that notices the mutation.

`python -m tests.draw_mutations` breaks a copy of the last commit in one place at a time, and runs the tests of the
broken area. If all pass, it runs the tests of the simulation, the library and the command line. The draw depends only
on the seed and on the name of each place: changes elsewhere in the product do not alter the draw.
"""

import ast
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice
from math import inf
from operator import setitem
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Area:
    """Modules of the product, and the tests that are nearest to them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_SOURCES = ("connector/sources", "connector/spool.py", "connector/spooled_rows.py")
AREAS = {
    "ledger": Area(("connector/ledger", "connector/states.py"), ("tests/ledger", "tests/test_states.py")),
    "load": Area(("connector/load",), ("tests/load", "tests/simulation/test_seeds.py")),
    "listing": Area(("connector/listing",), ("tests/load", "tests/export/test_listing.py")),
    "paging": Area(("connector/paging",), ("tests/paging",)),
    "subscribers": Area(("connector/subscribers",), ("tests/subscribers", "tests/jobs")),
    "sources": Area(_SOURCES, ("tests/sources", "tests/test_spool.py")),
    "warehouse": Area(("connector/warehouse", "connector/export.py"), ("tests/export",)),
    "mail": Area(("connector/mail", "connector/sender.py"), ("tests/mail", "tests/pipelines/emails")),
}
WIDER_TESTS = ("tests/simulation", "tests/library", "tests/pipelines")
_LEFT_OUT = "tests/simulation/test_mutations.py"  # its tests break copies of the product themselves

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEFT_WHOLE = ("annotation", "returns", "decorator_list", "bases")  # fields of nodes that hold no behaviour
_MEMORY_BYTES = 12 << 30  # a loop without an end must not fill the memory of the machine
_TIMES_AS_LONG, _MORE_S = 4, 120  # tests hang if they take that much longer than without a mutation
_LONGEST_TEST_S = 300  # several times as long as the longest test, which plays all seeds of the simulation
_TO_END_S = 30  # between the interruption of tests that hang and their end by force


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a parsed module, the node there, and the call that breaks the module in this place."""

    function: str
    kind: str
    node: ast.expr | ast.stmt
    change: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A place of the product by its file, its function, the kind of the change, and its number among these."""

    area: str
    path: str
    function: str
    kind: str
    number: int

    @property
    def name(self) -> str:
        """The name of the place, which stays the same when other functions change."""
        return f"{self.path}:{self.function} {self.kind} {self.number}"

    def rank(self, seed: int) -> bytes:
        """Return the digest by which mutations are drawn."""
        return hashlib.sha256(f"{seed} {self.name}".encode()).digest()


def find_places(node: ast.AST, function: str = "module", *, is_nested: bool = False) -> Iterator[Place]:
    """Yield the places of a parsed module in the order of its text. `is_nested`: the statements of this node are
    below another statement of their function."""
    if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
        return
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        function = node.name if function == "module" else f"{function}.{node.name}"
    else:
        yield from _find_changes(node, function)
    for name, value in ast.iter_fields(node):
        if name in _LEFT_WHOLE:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.stmt) and _is_removable(child, is_nested=is_nested):
                kind = "step" if isinstance(child, ast.Expr) else "exit"
                yield Place(function, kind, child, partial(setitem, children, index, ast.Pass()))
            if isinstance(child, ast.stmt):
                is_below = not isinstance(child, (*_FUNCTIONS, ast.ClassDef))
                yield from find_places(child, function, is_nested=is_below)
            elif isinstance(child, ast.AST):
                yield from find_places(child, function, is_nested=is_nested)


def _find_changes(node: ast.AST, function: str) -> Iterator[Place]:
    """Yield the changes of an expression, and of the condition of a node."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for kind, other_operators in (("comparison", _NEGATED), ("bound", _SHIFTED)):
                if other := other_operators.get(type(operator)):
                    yield Place(function, kind, node, partial(setitem, node.ops, index, other()))
    elif isinstance(node, ast.BoolOp):
        other_word = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Place(function, "and-or", node, partial(setattr, node, "op", other_word))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Place(function, "constant", node, partial(setattr, node, "value", not node.value))
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and ast.unparse(node.test) != "TYPE_CHECKING":
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield Place(function, "condition", node.test, partial(setattr, node, "test", negated))
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            negated = ast.UnaryOp(ast.Not(), condition)
            yield Place(function, "condition", condition, partial(setitem, node.ifs, index, negated))


def _is_removable(statement: ast.stmt, *, is_nested: bool) -> bool:
    """Return whether the statement is a step (a call without a value) or an early exit."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Await | ast.Call)
    return isinstance(statement, ast.Continue | ast.Break | ast.Raise) or (
        isinstance(statement, ast.Return) and is_nested
    )


def list_mutations(root: Path) -> list[Mutation]:
    """Return all mutations of the areas."""
    mutations = []
    for name, area in AREAS.items():
        for path in (path for module in area.modules for path in _list_files(root, module)):
            numbers = Counter[tuple[str, str]]()
            for place in find_places(ast.parse((root / path).read_text(encoding="utf-8"))):
                mutations.append(Mutation(name, path, place.function, place.kind, numbers[place.function, place.kind]))
                numbers[place.function, place.kind] += 1
    return mutations


def _list_files(root: Path, path: str) -> list[str]:
    """Return the Python files below a folder, or the file itself, as paths below the root."""
    found = sorted((root / path).rglob("*.py")) if (root / path).is_dir() else [root / path]
    return [str(file.relative_to(root)) for file in found]


def mutate(text: str, mutation: Mutation) -> tuple[str, str]:
    """Return the text of the broken module, and the change in words."""
    tree = ast.parse(text)
    of_kind = (spot for spot in find_places(tree) if (spot.function, spot.kind) == (mutation.function, mutation.kind))
    place = next(islice(of_kind, mutation.number, None))
    before = " ".join(ast.unparse(place.node).split())
    place.change()
    changes = {"condition": "negated", "step": "removed", "exit": "removed"}
    after = changes.get(mutation.kind) or " ".join(ast.unparse(place.node).split())
    return ast.unparse(ast.fix_missing_locations(tree)), f"line {place.node.lineno}: {before} -> {after}"


class Copy:
    """A copy of the last commit, in which mutations are tested. Everything that a test leaves is below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._python, self._output, self._leavings = folder / "venv/bin/python", folder / "output", folder / "leavings"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", self.tree, "HEAD"], cwd=ROOT, check=True)
        venv.create(folder / "venv", symlinks=True)
        [packages] = folder.glob("venv/lib/python*/site-packages")
        own_packages = sysconfig.get_path("purelib")
        (packages / "copy.pth").write_text(f"{self.tree}\nimport site; site.addsitedir({own_packages!r})\n")

    def remove(self) -> None:
        """Remove the copy from git's list; its folder is the caller's."""
        subprocess.run(["git", "worktree", "remove", "--force", self.tree], cwd=ROOT, check=True)

    def run(self, tests: Sequence[str], *options: str, timeout_s: float | None = None) -> str | None:
        """Run tests in this order until one fails. Return the name of that test, or None if all pass."""
        plugin = ("-p", "tests.draw_mutations", "-p", "no:cacheprovider", "--deselect", _LEFT_OUT)
        hang = ("-o", f"faulthandler_timeout={_LONGEST_TEST_S}", "-o", "faulthandler_exit_on_timeout=true")
        command = [str(self._python), "-m", "pytest", "-q", "-x", *plugin, *hang, *options, *tests]
        shutil.rmtree(self._leavings, ignore_errors=True)
        self._leavings.mkdir()
        environ = os.environ | {"TMPDIR": str(self._leavings)}
        with self._output.open("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=environ, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return "a hang"
            finally:
                _end_group(process)
        return None if status == 0 else _read_failure(self._output.read_text(errors="replace"), status)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the tests, if they have not ended, and all processes of their group."""
    with suppress(subprocess.TimeoutExpired):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # the tests stop their servers
            process.wait(_TO_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_failure(output: str, status: int) -> str:
    """Return the name of the first failed test in the output of pytest."""
    if "Timeout (" in output:
        return "a hang"
    found = re.search(r"^(?:FAILED|ERROR) (?:collecting )?(\S.*?)(?: - .*)?$", output, re.MULTILINE)
    return found[1] if found else f"the status {status} of pytest"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files in the order of the command line. This module is a plugin of the tests that it starts."""
    order = {config.rootpath / argument: index for index, argument in enumerate(config.args)}
    items.sort(key=lambda item: order.get(item.path, 0))


def read_seconds(result: Path) -> dict[str, float]:
    """Return the seconds of each test file from a JUnit file."""
    seconds = defaultdict[str, float](float)
    for case in ElementTree.parse(result).iter("testcase"):
        seconds[case.attrib["file"]] += float(case.attrib["time"])
    return seconds


def choose_stages(tree: Path, mutation: Mutation, seconds: Mapping[str, float], most_s: float) -> list[list[str]]:
    """Return the test files that may notice the mutation: those of the area that name the module, the others of the
    area, and the wider ones in the same way. In a stage fast files come first; `most_s` limits the time of all."""
    stages: list[list[str]] = [[], [], [], []]
    for file in sorted(seconds, key=lambda file: seconds[file]):
        is_near = file.startswith(AREAS[mutation.area].tests)
        is_named = Path(mutation.path).stem in (tree / file).read_text(encoding="utf-8")
        if is_near or file.startswith(WIDER_TESTS):
            stages[2 * (not is_near) + (not is_named)].append(file)
    ends_s = dict(zip(chain(*stages), accumulate(seconds[file] for file in chain(*stages)), strict=True))
    return [[file for file in stage if ends_s[file] <= most_s] for stage in stages]


def find_noticing_test(copy: Copy, mutation: Mutation, stages: list[list[str]], timeout_s: float) -> str | None:
    """Return the first test that notices the mutation, or None if all tests pass."""
    path = copy.tree / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutate(text, mutation)[0], encoding="utf-8")
    try:
        return next(filter(None, (copy.run(files, timeout_s=timeout_s) for files in stages if files)), None)
    finally:
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Draw mutations, test each, and print a table and the share that was noticed."""
    parser = ArgumentParser(prog="python -m tests.draw_mutations", description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=150, help="number of mutations to draw [default: 150]")
    parser.add_argument("--seed", type=int, default=40, help="seed of the draw [default: 40]")
    parser.add_argument("--skip", type=int, default=0, help="number of drawn mutations to leave out [default: 0]")
    parser.add_argument("--list", action="store_true", help="print the drawn mutations without testing them")
    parser.add_argument(
        "--times", type=Path, help="JUnit file of a run of all these tests without a mutation; made if missing"
    )
    parser.add_argument(
        "--most", type=float, default=inf, help="seconds of tests for each mutation [default: no limit]"
    )
    options = parser.parse_args(arguments)
    drawn = sorted(list_mutations(ROOT), key=lambda mutation: mutation.rank(options.seed))[: options.number]
    if options.list:
        for mutation in drawn:
            print(f"{mutation.name}  {mutate((ROOT / mutation.path).read_text(encoding='utf-8'), mutation)[1]}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests ignore the signal if this process does
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mutations-", dir=memory if memory.is_dir() else None) as folder:
        copy = Copy(Path(folder))
        try:
            times = options.times or Path(folder) / "times.xml"
            _test_all(copy, drawn[options.skip :], times, most_s=options.most)
        finally:
            copy.remove()


def _test_all(copy: Copy, mutations: Sequence[Mutation], times: Path, *, most_s: float) -> None:
    """Test mutations in turn, and print each result. Measure the seconds of the test files first, if need be."""
    if not times.exists():
        tests = {test for area in AREAS.values() for test in area.tests} | {*WIDER_TESTS}
        if failed := copy.run(sorted(tests), f"--junitxml={times.absolute()}", "-o", "junit_family=xunit1"):
            raise SystemExit(f"Without a mutation, {failed} fails. Correct it first.")
    seconds = read_seconds(times)
    noticed, tested = Counter[str](), Counter[str]()
    for mutation in mutations:
        started_at = time.monotonic()
        stages = choose_stages(copy.tree, mutation, seconds, most_s)
        timeout_s = _TIMES_AS_LONG * sum(seconds[file] for stage in stages for file in stage) + _MORE_S
        noticed_by = find_noticing_test(copy, mutation, stages, timeout_s)
        change = mutate((copy.tree / mutation.path).read_text(encoding="utf-8"), mutation)[1]
        tested[mutation.area] += 1
        noticed[mutation.area] += noticed_by is not None
        result = "SURVIVED" if noticed_by is None else f"noticed by {noticed_by}"
        print(f"{mutation.name}  {change}\n    {result} ({time.monotonic() - started_at:.0f} s)", flush=True)
    print()
    for area in tested:
        print(f"{area:12} {noticed[area]:4} of {tested[area]:4}")
    print(f"{'all':12} {noticed.total():4} of {tested.total():4} noticed")


if __name__ == "__main__":
    main(sys.argv[1:])
