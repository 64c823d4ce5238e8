"""Each mutation changes one place of the code, and keeps its name when other functions change."""

from pathlib import Path

import pytest

from tests.draw_mutations import AREA_BY_NAME, ROOT, Mutation, apply_mutation, list_mutations

MODULE_TEXT = """
async def load(rows, *, is_full=False):
    for row in rows:
        if row.number < 3 and row.is_valid:
            continue
        await send(row)
    return is_full
""".strip()


@pytest.mark.parametrize(
    ("kind", "old_text", "new_text"),
    [
        ("comparison", "row.number < 3", "row.number >= 3"),
        ("bound", "row.number < 3", "row.number <= 3"),
        ("and-or", "and", "or"),
        ("condition", "row.number < 3 and row.is_valid", "not (row.number < 3 and row.is_valid)"),
        ("constant", "False", "True"),
        ("exit", "continue", "pass"),
        ("step", "await send(row)", "pass"),
    ],
)
def test_each_kind_of_mutation_changes_one_place(kind: str, old_text: str, new_text: str) -> None:
    mutated_text, _ = apply_mutation(MODULE_TEXT, Mutation("load", "connector/load/all.py", "load", kind, 0))
    assert mutated_text == MODULE_TEXT.replace(old_text, new_text)


def test_the_modules_of_each_area_exist() -> None:
    modules = [ROOT / module for area in AREA_BY_NAME.values() for module in area.modules]
    assert [module for module in modules if not (module.is_file() or any(module.glob("*.py")))] == []


def test_a_mutation_keeps_its_name_and_its_rank_when_another_function_is_added(tmp_path: Path) -> None:
    (tmp_path / "connector/load").mkdir(parents=True)
    module = tmp_path / "connector/load/all.py"
    for package in ("ledger", "listing", "paging", "subscribers", "sources", "warehouse", "mail"):
        (tmp_path / "connector" / package).mkdir()
    for name in ("states", "spooled_rows", "spool", "export", "sender"):
        (tmp_path / f"connector/{name}.py").touch()
    module.write_text(MODULE_TEXT)
    ranks_before = {mutation.name: mutation.rank(7) for mutation in list_mutations(tmp_path)}
    module.write_text("def other(row):\n    return row.number < 3 and row.is_valid\n\n\n" + MODULE_TEXT)
    ranks_after = {mutation.name: mutation.rank(7) for mutation in list_mutations(tmp_path)}
    assert len(ranks_before) == 7
    assert ranks_before.items() < ranks_after.items()
