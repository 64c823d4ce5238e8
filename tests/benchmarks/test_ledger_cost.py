"""The comparison still runs: a ledger that keeps nothing must go on looking like one."""

import json

import pytest

from tests.benchmarks import ledger_cost


def test_both_ledgers_load_everybody(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["ledger_cost", "--rows", "300", "--rounds", "1"])
    ledger_cost.main()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: round(each["creates_per_s"] * each["wall_s"]) for name, each in told["figures"].items()} == {
        "on disk": 300,
        "keeps nothing": 300,
    }
