"""Runs the coroutine tests of a module that has `LOOPS` on each of these event loops."""

import asyncio

import pytest
import uvloop

FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if asyncio.iscoroutinefunction(metafunc.function) and hasattr(metafunc.module, "LOOPS"):
        metafunc.fixturenames.append("loop_factory")
        names = metafunc.module.LOOPS
        metafunc.parametrize("loop_factory", [FACTORIES[name] for name in names], ids=names)
