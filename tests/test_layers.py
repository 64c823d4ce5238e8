"""Imports run downward only (architecture 5): read from the source with Python's own parser."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the ground up. Rooms of one line do not import each other; a room may import from any line below its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("connector.fields", "connector.units", "connector.choices", "connector.outcomes", "connector.errors",
     "connector.clock", "connector.texts", "connector.progress", "connector.driver_errors",
     "connector.rows", "connector.shards"),
    ("connector.settings", "connector.templates", "connector.control", "connector.pace"),
    (
        "connector.subscribers", "connector.states",
        "connector.service", "connector.paging", "connector.databases", "connector.stores", "connector.spool",
        "connector.atomic_file", "connector.sheet_file",
    ),
    ("connector.settings", "connector.spooled_rows"),
    ("connector.warehouse",),
    ("connector.sources", "connector.ledger", "connector.limiter"),
    ("connector.listing", "connector.sender"),
    ("connector.load", "connector.reconcile"),
    ("connector.runs",),
    ("connector.imports", "connector.export"),
    ("connector.mail",),
    ("connector.jobs",),
    ("connector.notifications",),
    ("connector.library",),
    ("connector.records",),
    ("connector.singer", "connector.dlt"),
    ("pipelines.report",),
    ("pipelines.flows",),
    ("pipelines",),
)  # fmt: skip
APART = "connector.sandbox"
MAY_START_THE_SANDBOX = ("pipelines",)
MOST_FLOORS = {
    "connector.service": 3, "connector.subscribers": 3, "connector.mail": 5,
    "connector.listing": 5, "connector.sources": 3, "connector.ledger": 4, "connector.paging": 3, "connector.load": 4,
    "connector.warehouse": 5, "connector.pace": 3, "connector.imports": 3, "connector.runs": 4,
    "connector.library": 3, "connector.sandbox": 7, "connector.jobs": 5,
    "pipelines.report": 3, "pipelines.flows": 3, "pipelines.cli": 4,
}  # fmt: skip
"""The largest number of floors that the modules of each package stand on."""

HOMES = {  # each third-party library has its one home (house style, layout)
    "chardet": ("connector.sources.encoding",),
    "filelock": ("connector.ledger.sqlite",),
    "fsspec": ("connector.stores",),
    "tenacity": ("connector.service.retry",),
    "aiohttp": ("connector.service", "connector.sandbox"),
    "click": ("pipelines",),
    "rich": ("pipelines",),
    "pydantic": ("connector.sandbox", "connector.jobs"),
    "yaml": ("connector.jobs",),
    "sqlalchemy": ("connector.databases", "connector.ledger", "connector.sources", "connector.warehouse"),
    "pandera": ("connector.subscribers.validation",),
    "jinja2": ("connector.templates", "connector.sandbox.server", "pipelines.report.page"),
    "phonenumbers": ("connector.subscribers.rules",),
    "pycountry": ("connector.subscribers.countries",),
    "python_calamine": ("connector.sources.workbook",),
    "dlt": ("connector.dlt",),
    "singer_sdk": ("connector.singer",),
    "deltalake": ("connector.warehouse.delta",),
    "dask": ("pipelines.flows.engine",),
    "distributed": ("pipelines.flows.engine",),
    "duckdb": ("connector.reconcile", "connector.sources", "connector.warehouse", "pipelines.demo"),
}


def read_modules() -> list[tuple[str, Path]]:
    """Every module of the project by its dotted name."""
    files = [path for top in ("connector", "pipelines") for path in sorted((ROOT / top).rglob("*.py"))]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in files]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def read_imports(path: Path) -> list[str]:
    """The dotted names that a module imports, once for all tests."""
    names = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a thing comes from"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def is_inside(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def find_room(name: str) -> tuple[int, str] | None:
    """The layer (0 = ground) and the room that a dotted name is in; the longest room wins."""
    rooms = [(len(room), level, room) for level, layer in enumerate(LAYERS) for room in layer if is_inside(name, room)]
    return max(rooms)[1:] if rooms else None


def find_fault(importer: str, imported: str) -> str | None:
    if not imported.startswith(("connector", "pipelines")) or imported.startswith("connector.__version__"):
        return None
    if is_inside(importer, APART) != is_inside(imported, APART):
        return None if importer.startswith(MAY_START_THE_SANDBOX) else "the sandbox stands apart"
    here, there = find_room(importer), find_room(imported)
    if here is None or there is None or here[1] == there[1]:
        return None
    return None if there[0] < here[0] else f"{here[1]} may not import from {there[1]}"


def test_imports_run_downward_only() -> None:
    faults = [
        f"{name} imports {imported}: {fault}"
        for name, path in read_modules()
        for imported in read_imports(path)
        if (fault := find_fault(name, imported))
    ]
    assert faults == []


def test_every_module_has_a_room() -> None:
    rooms = {name: find_room(name) for name, _ in read_modules() if not is_inside(name, APART) and name != "connector"}
    assert [name for name, room in rooms.items() if room is None] == []


def test_each_library_is_imported_only_at_its_home() -> None:
    strays = [
        f"{name} imports {imported}"
        for name, path in read_modules()
        for imported in read_imports(path)
        for library, homes in HOMES.items()
        if is_inside(imported, library) and not any(is_inside(name, home) for home in homes)
    ]
    assert strays == []


@pytest.mark.parametrize("package", MOST_FLOORS)
def test_the_modules_of_a_package_stand_on_few_floors_and_in_no_circle(package: str) -> None:
    modules = {name: path for name, path in read_modules() if is_inside(name, package) and name != package}
    below = {
        name: {inner for imported in read_imports(path) for inner in modules if is_inside(imported, inner)}
        for name, path in modules.items()
    }
    floors = 0
    while below:
        lowest = {name for name, others in below.items() if not others & below.keys()}
        assert lowest, f"a circle among {sorted(below)}"
        below = {name: others for name, others in below.items() if name not in lowest}
        floors += 1
    assert 0 < floors <= MOST_FLOORS[package]


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("connector.subscribers.identity", "connector.ledger.store"),
        ("connector.subscribers.rules", "connector.service.wire"),
        ("connector.load.base_load", "connector.runs.frame"),
        ("connector.load.base_load", "connector.export"),
        ("connector.sandbox.store", "connector.fields"),
        ("connector.service.client", "connector.sandbox"),
        ("connector.warehouse.files", "connector.listing.columns"),
    ],
)
def test_the_check_sees_an_import_that_runs_upward(importer: str, imported: str) -> None:
    assert find_fault(importer, imported) is not None


def test_package_inits_contain_only_a_docstring() -> None:
    """Names are imported from the module that defines them; only `connector` itself re-exports its public names."""
    inits = [path for name, path in read_modules() if path.name == "__init__.py" and name not in ("connector", APART)]
    assert [path for path in inits if len(parse(path).body) > 1 and path.parent.name != "cli"] == []


def test_no_two_public_types_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in read_modules():
        if not is_inside(module, APART):
            for node in parse(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
