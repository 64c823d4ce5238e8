"""Runs the coroutine tests of a module on each event loop that the constant `LOOPS` of the module names."""

import asyncio

import pytest
import uvloop

LOOP_FACTORY_BY_NAME = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if asyncio.iscoroutinefunction(metafunc.function) and hasattr(metafunc.module, "LOOPS"):
        metafunc.fixturenames.append("loop_factory")
        loop_names = metafunc.module.LOOPS
        metafunc.parametrize("loop_factory", [LOOP_FACTORY_BY_NAME[name] for name in loop_names], ids=loop_names)
