"""Draws mutations of the product at random, and reports for each mutation the first test that notices it.

`python -m tests.draw_mutations` makes one mutation at a time in a copy of the last commit, and runs the tests of the
changed area. If these tests pass, the tests of the simulation, the library and the command line follow. The
draw depends only on the seed and on the name of each mutation: changes elsewhere in the product do not alter the draw.
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
class CodeArea:
    """Modules of the product, and the tests of these modules."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_MODULES_OF_SOURCES = ("connector/sources", "connector/spool.py", "connector/spooled_rows.py")
AREA_BY_NAME = {
    "ledger": CodeArea(("connector/ledger", "connector/states.py"), ("tests/ledger", "tests/test_states.py")),
    "load": CodeArea(("connector/load",), ("tests/load", "tests/simulation/test_seeds.py")),
    "listing": CodeArea(("connector/listing",), ("tests/load", "tests/export/test_listing.py")),
    "paging": CodeArea(("connector/paging",), ("tests/paging",)),
    "subscribers": CodeArea(("connector/subscribers",), ("tests/subscribers", "tests/jobs")),
    "sources": CodeArea(_MODULES_OF_SOURCES, ("tests/sources", "tests/test_spool.py")),
    "warehouse": CodeArea(("connector/warehouse", "connector/export.py"), ("tests/export",)),
    "mail": CodeArea(("connector/mail", "connector/sender.py"), ("tests/mail", "tests/pipelines/emails")),
}
WIDER_TESTS = ("tests/simulation", "tests/library", "tests/pipelines")
_EXCLUDED_TESTS = "tests/simulation/test_mutations.py"  # these tests make mutations themselves

_NEGATED_OPERATOR_BY_OPERATOR: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_OPERATOR_WITH_CHANGED_BOUND_BY_OPERATOR: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)
_UNCHANGED_FIELDS = ("annotation", "returns", "decorator_list", "bases")  # no mutation changes these fields
_MAX_PROCESS_MEMORY_BYTES = 12 << 30  # an endless loop must not fill the memory of the machine
_TIMEOUT_FACTOR, _EXTRA_TIMEOUT_S = 4, 120  # timeout = factor * (time without a mutation) + extra timeout
_TEST_TIMEOUT_S = 300  # the timeout of each test, several times the time of the longest test
_KILL_DELAY_S = 30  # seconds between the SIGINT and the SIGKILL to tests that hang


@dataclass(frozen=True, slots=True)
class Change:
    """A possible change of a parsed module: the function and the node that it changes, and the call that applies it."""

    function: str
    kind: str
    node: ast.expr | ast.stmt
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of the product. Its file, its function, its kind, and its number among the changes of this kind identify
    the change."""

    area: str
    path: str
    function: str
    kind: str
    change_number: int

    @property
    def name(self) -> str:
        """The name of the mutation, which stays the same when other functions change."""
        return f"{self.path}:{self.function} {self.kind} {self.change_number}"

    def rank(self, seed: int) -> bytes:
        """Return a digest of the seed and the name. The mutations with the smallest digests are drawn."""
        return hashlib.sha256(f"{seed} {self.name}".encode()).digest()


def find_changes(node: ast.AST, function: str = "module", *, is_nested: bool = False) -> Iterator[Change]:
    """Yield the possible changes of a node, and of the nodes inside. `is_nested` says whether the node is inside a
    statement such as `if` or `for`, because a `return` is removed only there."""
    if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
        return
    if isinstance(node, (*_FUNCTION_NODES, ast.ClassDef)):
        function = node.name if function == "module" else f"{function}.{node.name}"
    else:
        yield from _find_expression_changes(node, function)
    for name, value in ast.iter_fields(node):
        if name in _UNCHANGED_FIELDS:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.stmt) and _is_removable(child, is_nested=is_nested):
                kind = "step" if isinstance(child, ast.Expr) else "exit"
                yield Change(function, kind, child, partial(setitem, children, index, ast.Pass()))
            if isinstance(child, ast.stmt):
                is_definition = isinstance(child, (*_FUNCTION_NODES, ast.ClassDef))
                yield from find_changes(child, function, is_nested=not is_definition)
            elif isinstance(child, ast.AST):
                yield from find_changes(child, function, is_nested=is_nested)


def _find_expression_changes(node: ast.AST, function: str) -> Iterator[Change]:
    """Yield the possible changes of an expression, or of the condition of a statement or a comprehension."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for kind, new_operators in (
                ("comparison", _NEGATED_OPERATOR_BY_OPERATOR),
                ("bound", _OPERATOR_WITH_CHANGED_BOUND_BY_OPERATOR),
            ):
                if new_operator := new_operators.get(type(operator)):
                    yield Change(function, kind, node, partial(setitem, node.ops, index, new_operator()))
    elif isinstance(node, ast.BoolOp):
        new_operator_node = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Change(function, "and-or", node, partial(setattr, node, "op", new_operator_node))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Change(function, "constant", node, partial(setattr, node, "value", not node.value))
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and ast.unparse(node.test) != "TYPE_CHECKING":
        negation = ast.UnaryOp(ast.Not(), node.test)
        yield Change(function, "condition", node.test, partial(setattr, node, "test", negation))
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            negation = ast.UnaryOp(ast.Not(), condition)
            yield Change(function, "condition", condition, partial(setitem, node.ifs, index, negation))


def _is_removable(statement: ast.stmt, *, is_nested: bool) -> bool:
    """Return whether the statement is a step (a call whose result is not used) or an early exit."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Await | ast.Call)
    return isinstance(statement, ast.Continue | ast.Break | ast.Raise) or (
        isinstance(statement, ast.Return) and is_nested
    )


def list_mutations(root: Path) -> list[Mutation]:
    """Return all possible mutations of the areas."""
    mutations = []
    for name, area in AREA_BY_NAME.items():
        for path in (path for module in area.modules for path in _list_files(root, module)):
            next_change_numbers = Counter[tuple[str, str]]()
            for change in find_changes(ast.parse((root / path).read_text(encoding="utf-8"))):
                mutations.append(
                    Mutation(
                        name, path, change.function, change.kind, next_change_numbers[change.function, change.kind]
                    )
                )
                next_change_numbers[change.function, change.kind] += 1
    return mutations


def _list_files(root: Path, path: str) -> list[str]:
    """Return the paths of the Python files in a folder, or the path of a file, relative to the root."""
    files = sorted((root / path).rglob("*.py")) if (root / path).is_dir() else [root / path]
    return [str(file.relative_to(root)) for file in files]


def apply_mutation(text: str, mutation: Mutation) -> tuple[str, str]:
    """Return the text of the changed module, and a description of the change."""
    tree = ast.parse(text)
    changes_of_kind = (
        change for change in find_changes(tree) if (change.function, change.kind) == (mutation.function, mutation.kind)
    )
    change = next(islice(changes_of_kind, mutation.change_number, None))
    old_text = " ".join(ast.unparse(change.node).split())
    change.apply()
    word_by_kind = {"condition": "negated", "step": "removed", "exit": "removed"}
    new_text = word_by_kind.get(mutation.kind) or " ".join(ast.unparse(change.node).split())
    return ast.unparse(ast.fix_missing_locations(tree)), f"line {change.node.lineno}: {old_text} -> {new_text}"


class TreeCopy:
    """A copy of the last commit, in which mutations are tested. The tests write their files into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self._python, self._output = folder / "venv/bin/python", folder / "output"
        self._temporary_files = folder / "tmp"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", self.tree, "HEAD"], cwd=ROOT, check=True)
        venv.create(folder / "venv", symlinks=True)
        [packages_folder] = folder.glob("venv/lib/python*/site-packages")
        packages_path_of_this_python = sysconfig.get_path("purelib")
        (packages_folder / "copy.pth").write_text(
            f"{self.tree}\nimport site; site.addsitedir({packages_path_of_this_python!r})\n"
        )

    def remove(self) -> None:
        """Remove the worktree of the copy from git. The caller removes the folder."""
        subprocess.run(["git", "worktree", "remove", "--force", self.tree], cwd=ROOT, check=True)

    def run(self, tests: Sequence[str], *options: str, timeout_s: float | None = None) -> str | None:
        """Run tests in this order until one fails. Return the name of the failed test, or None if all pass."""
        plugin_options = ("-p", "tests.draw_mutations", "-p", "no:cacheprovider", "--deselect", _EXCLUDED_TESTS)
        timeout_options = ("-o", f"faulthandler_timeout={_TEST_TIMEOUT_S}", "-o", "faulthandler_exit_on_timeout=true")
        command = [str(self._python), "-m", "pytest", "-q", "-x", *plugin_options, *timeout_options, *options, *tests]
        shutil.rmtree(self._temporary_files, ignore_errors=True)
        self._temporary_files.mkdir()
        environ = os.environ | {"TMPDIR": str(self._temporary_files)}
        with self._output.open("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=environ, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return "a hang"
            finally:
                _end_process_group(process)
        return None if status == 0 else _read_failed_test(self._output.read_text(errors="replace"), status)


def _end_process_group(process: subprocess.Popen[bytes]) -> None:
    """Stop the tests if they still run, and kill all processes of their group."""
    with suppress(subprocess.TimeoutExpired):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # on this signal, the tests stop their servers
            process.wait(_KILL_DELAY_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_failed_test(output: str, status: int) -> str:
    """Return the name of the first failed test in the output of pytest. Without a name, return "a hang" or the exit
    code of pytest."""
    if "Timeout (" in output:
        return "a hang"
    match = re.search(r"^(?:FAILED|ERROR) (?:collecting )?(\S.*?)(?: - .*)?$", output, re.MULTILINE)
    return match[1] if match else f"the status {status} of pytest"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the files in the order of the command line. pytest calls this function because this module is its plugin."""
    index_by_path = {config.rootpath / argument: index for index, argument in enumerate(config.args)}
    items.sort(key=lambda item: index_by_path.get(item.path, 0))


def read_seconds(junit_file: Path) -> dict[str, float]:
    """Return the seconds of each test file from a JUnit file."""
    seconds_by_file = defaultdict[str, float](float)
    for test_case in ElementTree.parse(junit_file).iter("testcase"):
        seconds_by_file[test_case.attrib["file"]] += float(test_case.attrib["time"])
    return seconds_by_file


def choose_stages(
    tree: Path, mutation: Mutation, seconds_by_file: Mapping[str, float], limit_s: float
) -> list[list[str]]:
    """Return test files in four stages: the files of the area that mention the module, the other files of the area, and
    then `WIDER_TESTS` in the same two stages. In a stage, fast files come first. `limit_s` limits the total time."""
    stages: list[list[str]] = [[], [], [], []]
    for file in sorted(seconds_by_file, key=lambda file: seconds_by_file[file]):
        is_in_area = file.startswith(AREA_BY_NAME[mutation.area].tests)
        has_module_name = Path(mutation.path).stem in (tree / file).read_text(encoding="utf-8")
        if is_in_area or file.startswith(WIDER_TESTS):
            stages[2 * (not is_in_area) + (not has_module_name)].append(file)
    end_time_s_by_file = dict(
        zip(chain(*stages), accumulate(seconds_by_file[file] for file in chain(*stages)), strict=True)
    )
    return [[file for file in stage if end_time_s_by_file[file] <= limit_s] for stage in stages]


def find_noticing_test(
    tree_copy: TreeCopy, mutation: Mutation, stages: list[list[str]], timeout_s: float
) -> str | None:
    """Return the first test that notices the mutation, or None if all tests pass."""
    path = tree_copy.tree / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(apply_mutation(text, mutation)[0], encoding="utf-8")
    try:
        return next(filter(None, (tree_copy.run(files, timeout_s=timeout_s) for files in stages if files)), None)
    finally:
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Draw mutations, test each, and print for each area the numbers of noticed and tested mutations."""
    parser = ArgumentParser(prog="python -m tests.draw_mutations", description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=150, help="number of mutations to draw [default: 150]")
    parser.add_argument("--seed", type=int, default=40, help="seed of the draw [default: 40]")
    parser.add_argument("--skip", type=int, default=0, help="number of drawn mutations to leave out [default: 0]")
    parser.add_argument("--list", action="store_true", help="print the drawn mutations without testing them")
    parser.add_argument(
        "--times",
        type=Path,
        help="JUnit file with the time of each test without a mutation. If the file is missing, the tests run first "
        "to write the file.",
    )
    parser.add_argument(
        "--most",
        type=float,
        default=inf,
        help="time limit in seconds for the tests of each mutation [default: no limit]",
    )
    options = parser.parse_args(arguments)
    drawn_mutations = sorted(list_mutations(ROOT), key=lambda mutation: mutation.rank(options.seed))[: options.number]
    if options.list:
        for mutation in drawn_mutations:
            print(f"{mutation.name}  {apply_mutation((ROOT / mutation.path).read_text(encoding='utf-8'), mutation)[1]}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copy is removed
    # If this process ignored SIGINT, the tests would ignore SIGINT, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_PROCESS_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    memory_folder = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="mutations-", dir=memory_folder if memory_folder.is_dir() else None
    ) as folder:
        tree_copy = TreeCopy(Path(folder))
        try:
            times_path = options.times or Path(folder) / "times.xml"
            _test_mutations(tree_copy, drawn_mutations[options.skip :], times_path, limit_s=options.most)
        finally:
            tree_copy.remove()


def _test_mutations(tree_copy: TreeCopy, mutations: Sequence[Mutation], times_path: Path, *, limit_s: float) -> None:
    """Test mutations in turn, and print each result. If there is no file of times, measure the test files first."""
    if not times_path.exists():
        tests = {test for area in AREA_BY_NAME.values() for test in area.tests} | {*WIDER_TESTS}
        if failed_test := tree_copy.run(
            sorted(tests), f"--junitxml={times_path.absolute()}", "-o", "junit_family=xunit1"
        ):
            raise SystemExit(f"{failed_test} fails without a mutation. Correct this test first.")
    seconds_by_file = read_seconds(times_path)
    noticed_mutation_counts, tested_mutation_counts = Counter[str](), Counter[str]()
    for mutation in mutations:
        started_at = time.monotonic()
        stages = choose_stages(tree_copy.tree, mutation, seconds_by_file, limit_s)
        timeout_s = (
            _TIMEOUT_FACTOR * sum(seconds_by_file[file] for stage in stages for file in stage) + _EXTRA_TIMEOUT_S
        )
        noticing_test = find_noticing_test(tree_copy, mutation, stages, timeout_s)
        change_description = apply_mutation((tree_copy.tree / mutation.path).read_text(encoding="utf-8"), mutation)[1]
        tested_mutation_counts[mutation.area] += 1
        noticed_mutation_counts[mutation.area] += noticing_test is not None
        result = "SURVIVED" if noticing_test is None else f"noticed by {noticing_test}"
        print(
            f"{mutation.name}  {change_description}\n    {result} ({time.monotonic() - started_at:.0f} s)", flush=True
        )
    print()
    for area in tested_mutation_counts:
        print(f"{area:12} {noticed_mutation_counts[area]:4} of {tested_mutation_counts[area]:4}")
    print(f"{'all':12} {noticed_mutation_counts.total():4} of {tested_mutation_counts.total():4} noticed")


if __name__ == "__main__":
    main(sys.argv[1:])
