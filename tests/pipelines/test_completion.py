"""The shell completes commands, options and files."""

import pytest

from tests.pipelines.conftest import Connector


@pytest.mark.parametrize(
    ("line", "completed"),
    [("connector rec", "plain,reconcile"), ("connector sync --ti", "plain,--time-limit"), ("connector sync ", "file,"),
     ("connector export ", "file,"), ("connector ledger ba", "plain,backup")],
)  # fmt: skip
def test_what_is_begun_is_completed(connector: Connector, line: str, completed: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ended = connector.run(environ={"_CONNECTOR_COMPLETE": "bash_complete", **words})
    assert ended.stdout.splitlines() == [completed]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["imprt"], "import"), (["ledger", "bakup"], "backup"), (["import", "x.csv", "--bse-id", "3"], "--base-id")],
)
def test_what_is_mistyped_is_answered_with_what_may_be_meant(
    connector: Connector, arguments: list[str], meant: str
) -> None:
    refused = connector.run(*arguments)
    assert refused.code == 2
    assert meant in refused.stderr.split("Did you mean")[1]
