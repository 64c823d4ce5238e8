"""The script that one writes by hand: pandas reads the file, requests posts it from 32 threads, urllib3 tries again.

`python by_hand.py FILE BASE_ID`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment; it prints how many
creates succeeded and how many did not. Retry-After is obeyed: that is urllib3's default.
"""
# mypy: ignore-errors
# It runs in an environment of its own: requests is not installed in the project's.

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

THREADS = 32


def open_session(base_url, token):
    """A session that keeps as many connections as there are threads, and repeats what failed with a pause between."""
    retry = Retry(total=5, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504], allowed_methods=["POST"])
    session = requests.Session()
    session.mount(base_url, HTTPAdapter(pool_maxsize=THREADS, max_retries=retry))
    session.headers["Authorization"] = token
    return session


def main():
    path, base_id = sys.argv[1], int(sys.argv[2])
    base_url = os.environ["CONNECTOR_BASE_URL"]
    url = base_url + "/api/subscribers/create-subscriber/"
    session = open_session(base_url, os.environ["CONNECTOR_TOKEN"])

    def create(row):
        subscriber = {
            "Base": {"Id": base_id},
            "IsActive": row["is_active"],
            "Email": row["email"],
            "FirstName": row["first_name"],
            "LastName": row["last_name"],
        }
        try:
            answer = session.post(url, json={"Subscriber": subscriber}, timeout=30)
            answer.raise_for_status()
        except requests.RequestException:
            return False
        return answer.json()["success"]

    rows = pd.read_csv(path).to_dict("records")
    with ThreadPoolExecutor(THREADS) as pool:
        created = sum(pool.map(create, rows))
    print(f"{created} created, {len(rows) - created} failed")


if __name__ == "__main__":
    main()
