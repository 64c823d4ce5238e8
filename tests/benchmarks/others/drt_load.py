"""drt's sync to a REST API as its template has it: a table, a model, one request a row.

`python drt_load.py FILE BASE_ID`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment, makes a drt project
in the folder that it is run in, with the file as a table of SQLite, and runs it. drt paces itself at 10 requests/s when
nothing else is said: here that is turned off.
"""
# mypy: ignore-errors
# It runs in an environment of its own: drt is not installed in the project's.

import csv
import os
import sqlite3
import sys
from pathlib import Path

from drt.cli.main import app

PROJECT = """
name: people
profile: default
"""

PROFILES = """
default:
  type: sqlite
  database: people.sqlite
"""

SYNC = """
name: people
model: select email, first_name, last_name from people
destination:
  type: rest_api
  url: "%(url)s"
  method: POST
  headers:
    Content-Type: "application/json"
  auth:
    type: api_key
    header: Authorization
    value_env: CONNECTOR_TOKEN
  body_template: |
    {"Subscriber": {"Base": {"Id": %(base_id)s}, "IsActive": true, "Email": "{{ row.email }}",
     "FirstName": "{{ row.first_name }}", "LastName": "{{ row.last_name }}"}}
sync:
  mode: full
  rate_limit:
    requests_per_second: 0
"""


def write_table(path):
    """The file's columns and rows as a table."""
    with Path(path).open(encoding="utf-8", newline="") as file, sqlite3.connect("people.sqlite") as connection:
        header, *rows = csv.reader(file)
        connection.execute(f"create table people ({', '.join(header)})")
        connection.executemany(f"insert into people values ({', '.join('?' * len(header))})", rows)


def main():
    write_table(sys.argv[1])
    url = os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/create-subscriber/"
    Path("drt_project.yml").write_text(PROJECT, encoding="utf-8")
    profiles = Path.home() / ".drt" / "profiles.yml"
    profiles.parent.mkdir(parents=True)
    profiles.write_text(PROFILES, encoding="utf-8")
    Path("syncs").mkdir()
    Path("syncs/people.yml").write_text(SYNC % {"url": url, "base_id": sys.argv[2]}, encoding="utf-8")
    app(["run"])


if __name__ == "__main__":
    main()
