"""A module imports only modules of lower layers (architecture 5). Python's own parser reads the imports."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Packages and modules by layer. The first layer is the lowest. A package may import from any lower layer, but not from
# another package of its own layer.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("connector.fields", "connector.states", "connector.units", "connector.choices", "connector.outcomes",
     "connector.errors", "connector.clock", "connector.texts", "connector.progress", "connector.driver_errors",
     "connector.rows", "connector.shards", "connector.sheet_file"),
    ("connector.arrow", "connector.templates", "connector.control", "connector.tally", "connector.databases",
     "connector.stores", "connector.spool", "connector.atomic_file", "connector.pace"),
    ("connector.subscribers", "connector.service", "connector.paging"),
    ("connector.settings", "connector.spooled_rows"),
    ("connector.sources", "connector.ledger", "connector.limiter"),
    ("connector.listing", "connector.sender", "connector.warehouse"),
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
SANDBOX_PACKAGE = "connector.sandbox"
SANDBOX_IMPORTERS = ("pipelines",)
MAX_LAYER_COUNT_BY_PACKAGE = {
    "connector.service": 3, "connector.subscribers": 3, "connector.mail": 5,
    "connector.listing": 5, "connector.sources": 3, "connector.ledger": 4, "connector.paging": 3, "connector.load": 4,
    "connector.warehouse": 5, "connector.pace": 3, "connector.imports": 3, "connector.runs": 4,
    "connector.library": 3, "connector.sandbox": 7, "connector.jobs": 5,
    "pipelines.report": 3, "pipelines.flows": 3, "pipelines.cli": 4,
}  # fmt: skip
"""The largest number of layers that the imports between the modules of a package may form, by package."""

IMPORTERS_BY_LIBRARY = {  # the only modules that may import each third-party library
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
    "pycountry": ("connector.subscribers.countries", "connector.sandbox.subscriber"),
    "python_calamine": ("connector.sources.workbook",),
    "dlt": ("connector.dlt",),
    "singer_sdk": ("connector.singer",),
    "deltalake": ("connector.warehouse.delta",),
    "dask": ("pipelines.flows.engine",),
    "distributed": ("pipelines.flows.engine",),
    "duckdb": ("connector.reconcile", "connector.sources", "connector.warehouse", "pipelines.demo"),
}


def read_modules() -> list[tuple[str, Path]]:
    """Return the dotted name and the path of every module of the project."""
    files = [path for top_folder in ("connector", "pipelines") for path in sorted((ROOT / top_folder).rglob("*.py"))]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in files]


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def read_imports(path: Path) -> list[str]:
    """Return the dotted names that a module imports. Because of the cache, all tests together parse a module once."""
    imported_names = []
    for node in ast.walk(parse_module(path)):
        if isinstance(node, ast.Import):
            imported_names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import: write the full name of the module"
            imported_names += [f"{node.module}.{alias.name}" for alias in node.names]
    return imported_names


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def find_layer(name: str) -> tuple[int, str] | None:
    """Return the layer (0 = lowest) of a dotted name, and the entry of LAYERS with the longest name that matches."""
    matching_layers = [
        (len(package), layer_number, package)
        for layer_number, layer in enumerate(LAYERS)
        for package in layer
        if is_inside(name, package)
    ]
    return max(matching_layers)[1:] if matching_layers else None


def find_import_fault(importer: str, imported_name: str) -> str | None:
    if not imported_name.startswith(("connector", "pipelines")) or imported_name.startswith("connector.__version__"):
        return None
    if is_inside(importer, SANDBOX_PACKAGE) != is_inside(imported_name, SANDBOX_PACKAGE):
        return None if importer.startswith(SANDBOX_IMPORTERS) else "the sandbox shares no code with the product"
    importer_layer, imported_layer = find_layer(importer), find_layer(imported_name)
    if importer_layer is None or imported_layer is None or importer_layer[1] == imported_layer[1]:
        return None
    if imported_layer[0] >= importer_layer[0]:
        return f"{importer_layer[1]} may not import from {imported_layer[1]}"
    return None


def test_a_module_imports_only_modules_of_lower_layers() -> None:
    faults = [
        f"{name} imports {imported_name}: {fault}"
        for name, path in read_modules()
        for imported_name in read_imports(path)
        if (fault := find_import_fault(name, imported_name))
    ]
    assert faults == []


def test_every_module_has_a_layer() -> None:
    layer_by_module = {
        name: find_layer(name)
        for name, _ in read_modules()
        if not is_inside(name, SANDBOX_PACKAGE) and name != "connector"
    }
    assert [name for name, layer in layer_by_module.items() if layer is None] == []


def test_only_the_listed_modules_import_each_library() -> None:
    faults = [
        f"{name} imports {imported_name}"
        for name, path in read_modules()
        for imported_name in read_imports(path)
        for library, importers in IMPORTERS_BY_LIBRARY.items()
        if is_inside(imported_name, library) and not any(is_inside(name, importer) for importer in importers)
    ]
    assert faults == []


@pytest.mark.parametrize("package", MAX_LAYER_COUNT_BY_PACKAGE)
def test_the_modules_of_a_package_have_few_layers_and_no_import_cycle(package: str) -> None:
    modules = {name: path for name, path in read_modules() if is_inside(name, package) and name != package}
    imports_by_module = {
        name: {
            imported_module
            for imported_name in read_imports(path)
            for imported_module in modules
            if is_inside(imported_name, imported_module)
        }
        for name, path in modules.items()
    }
    layer_count = 0
    while imports_by_module:
        lowest_modules = {
            name
            for name, imported_modules in imports_by_module.items()
            if not imported_modules & imports_by_module.keys()
        }
        assert lowest_modules, f"these modules import each other: {sorted(imports_by_module)}"
        imports_by_module = {
            name: imported_modules for name, imported_modules in imports_by_module.items() if name not in lowest_modules
        }
        layer_count += 1
    assert 0 < layer_count <= MAX_LAYER_COUNT_BY_PACKAGE[package]


@pytest.mark.parametrize(
    ("importer", "imported_name"),
    [("connector.subscribers.identity", "connector.ledger.store"), ("connector.service.client", "connector.sandbox")],
)
def test_the_check_finds_an_import_from_a_higher_layer(importer: str, imported_name: str) -> None:
    assert find_import_fault(importer, imported_name) is not None


def test_the_init_files_of_packages_contain_only_a_docstring() -> None:
    """Other modules import a name from the module that defines it. The exceptions are `connector` and its sandbox,
    which re-export their public names, and `pipelines/cli`."""
    init_files = [
        path
        for name, path in read_modules()
        if path.name == "__init__.py" and name not in ("connector", SANDBOX_PACKAGE)
    ]
    assert [path for path in init_files if len(parse_module(path).body) > 1 and path.parent.name != "cli"] == []


def test_public_classes_have_different_names() -> None:
    modules_by_type: dict[str, list[str]] = {}
    for module, path in read_modules():
        if not is_inside(module, SANDBOX_PACKAGE):
            for node in parse_module(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules_by_type.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in modules_by_type.items() if len(modules) > 1} == {}
