"""A program in place of `docker`, which runs an image as a process of this machine.

`docker build` reads the Dockerfile. `docker run` gives the program of the image only the variables of the image and of
`-e`. In arguments and variables, the paths of mounts become paths of this machine.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path


def build(arguments: list[str]) -> None:
    """Record the image. End with an error if a file that the Dockerfile copies does not exist."""
    parser = argparse.ArgumentParser("docker build", allow_abbrev=False)
    parser.add_argument("-f", dest="dockerfile", type=Path, required=True)
    parser.add_argument("-t", dest="image", required=True)
    parser.add_argument("context", type=Path)
    options = parser.parse_args(arguments)
    for line in options.dockerfile.read_text().splitlines():
        for name in line.split()[1:-1] if line.startswith("COPY") else ():
            (options.context / name).stat()
    _find_images().write_text(json.dumps({options.image: str(options.dockerfile.resolve())}))


def run(arguments: list[str]) -> None:
    """Replace this process by the program of the image."""
    parser = argparse.ArgumentParser("docker run", allow_abbrev=False)
    parser.add_argument("--rm", action="store_true", required=True)
    parser.add_argument("--user", choices=[f"{os.getuid()}:{os.getgid()}"], required=True)
    parser.add_argument("-v", dest="mounts", action="append")
    parser.add_argument("-e", dest="variables", action="append")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    dockerfile = Path(json.loads(_find_images().read_text())[options.image]).read_text()
    environ = dict(pair.split("=", 1) for pair in re.findall(r"^ENV (.*)", dockerfile, re.MULTILINE)[0].split())
    for variable in options.variables:
        name, separator, value = variable.partition("=")
        if separator or name in os.environ:
            environ[name] = value if separator else os.environ[name]
    paths = dict(mount.removesuffix(":ro").split(":")[::-1] for mount in options.mounts)
    for path in paths.values():
        Path(path).stat()

    def translate(text: str) -> str:
        mount = next((mount for mount in paths if text == mount or text.startswith(f"{mount}/")), None)
        return text if mount is None else paths[mount] + text.removeprefix(mount)

    (entry_point,) = json.loads(re.findall(r"^ENTRYPOINT (.*)", dockerfile, re.MULTILINE)[0])
    program = Path(os.environ["DOCKER_PROGRAMS"], entry_point)
    command = [str(program), *map(translate, options.command)]
    os.execve(program, command, {"HOME": "/"} | {name: translate(value) for name, value in environ.items()})


def _find_images() -> Path:
    """Return the path of the file that maps each image to its Dockerfile."""
    return Path(os.environ["DOCKER_IMAGES"])


if __name__ == "__main__":
    {"build": build, "run": run}[sys.argv[1]](sys.argv[2:])
