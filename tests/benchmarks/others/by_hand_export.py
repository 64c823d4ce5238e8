"""A simple handwritten export: `requests` reads pages up to TotalCount, and pandas or DuckDB writes the rows.

`python by_hand_export.py TARGET`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment. TARGET is a path that
ends in .parquet or .duckdb, or a URL of SQLAlchemy.
"""
# mypy: ignore-errors
# The script runs in its own environment, because the project does not install the package `requests`.

import os
import sys

import pandas as pd
import requests

PAGE_SIZE = 1000


def fetch_subscribers():
    session = requests.Session()
    session.headers["Authorization"] = os.environ["CONNECTOR_TOKEN"]
    url = os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/subscribers-list/"
    subscribers, total_count = [], 1
    while len(subscribers) < total_count:
        answer = session.get(url, params={"offset": len(subscribers), "limit": PAGE_SIZE}, timeout=30)
        answer.raise_for_status()
        page = answer.json()["SubscribersList"]
        subscribers += page["Subscribers"]
        total_count = page["TotalCount"]
    return subscribers


def main():
    target = sys.argv[1]
    frame = pd.json_normalize(fetch_subscribers())
    frame.columns = [name.replace(".", "_").lower() for name in frame.columns]
    frame["birthday"] = pd.to_datetime(frame["birthday"], errors="coerce")
    if target.endswith(".parquet"):
        frame.to_parquet(target, index=False)
    elif target.endswith(".duckdb"):
        import duckdb

        with duckdb.connect(target) as connection:
            connection.register("people", frame)
            connection.execute("create table subscribers as select * from people")
    else:
        import sqlalchemy as sa

        frame["tags"] = frame["tags"].map(",".join)
        frame.to_sql("subscribers", sa.create_engine(target), if_exists="replace", index=False, chunksize=10_000)
    print(len(frame))


if __name__ == "__main__":
    main()
