"""Commands, options and job keys that earlier versions had: the error names the replacement."""

from pipelines.removed import REMOVED_COMMANDS, REMOVED_KEYS, REMOVED_OPTIONS
from tests.pipelines.conftest import Connector


def test_a_removed_command_is_refused_with_its_replacement(connector: Connector) -> None:
    for command, replacement in REMOVED_COMMANDS.items():
        result = connector.run(command)
        assert (result.code, replacement in result.stderr) == (2, True), (command, result.stderr)


def test_a_removed_option_is_refused_with_its_replacement(connector: Connector) -> None:
    for (command, option), replacement in REMOVED_OPTIONS.items():
        result = connector.run(command, option)
        assert (result.code, replacement in result.stderr) == (2, True), (command, option, result.stderr)


def test_a_removed_job_key_is_refused_with_its_replacement(connector: Connector) -> None:
    for key, replacement in REMOVED_KEYS.items():
        *above, name = key.replace("*", "first_name").split(".")
        text = "job: old\n" + "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(above))
        path = connector.folder / "old.yaml"
        path.write_text(text + f"{'  ' * len(above)}{name}: x\n", encoding="utf-8")
        result = connector.run("sync", path)
        assert (result.code, replacement in result.stderr) == (2, True), (key, result.stderr)
