#!/usr/bin/env python3
"""Looks at a table that has one row a key, with delta-rs: its rows, each of its versions, and what its change feed replays to.

keyed.py TABLE [--key id] [--feed]

Prints one JSON object: {"rows", "sha256", "version", "twice", "feed"}. sha256 is over the canonical rows (README.md), twice the
versions in which a key has more than one row, and feed, with --feed, the sha256 of the rows to which the changes since version 0
lead; it is an error when a change takes out a row that is not there.
"""

import peers

peers.enter()

import argparse
import json
import os
import sys

import pyarrow as pa
from deltalake import DeltaTable

import canonical


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--key", default="id")
    parser.add_argument("--feed", action="store_true")
    args = parser.parse_args()
    path = os.path.abspath(args.table)
    table = DeltaTable(path)
    data = pa.table(table.scan())
    told = {"rows": data.num_rows, "sha256": canonical.digest(canonical.rows(data)), "version": table.version(),
            "twice": [v for v in range(table.version() + 1) if twice(path, v, args.key)]}
    if args.feed:
        told["feed"] = canonical.digest(replayed(table))
    print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)


def twice(path, version, key):
    keys = pa.table(DeltaTable(path, version=version).scan()).column(key).to_pylist()
    return len(keys) != len(set(keys))


def replayed(table):
    """The canonical rows, in order, that the changes of all versions leave."""
    feed = pa.table(table.load_cdf(starting_version=0))
    lines = canonical.unsorted(feed.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"]))
    changes = list(zip(feed.column("_commit_version").to_pylist(), feed.column("_change_type").to_pylist(), lines))
    left = set()
    by_version = {}
    for version, kind, line in changes:
        gone, came = by_version.setdefault(version, (set(), set()))
        (gone if kind in ("delete", "update_preimage") else came).add(line)
    for version in sorted(by_version):
        gone, came = by_version[version]
        if not gone <= left:
            sys.exit(f"version {version} takes out {gone - left}, which is not there")
        left = left - gone | came
    return sorted(left, key=str.encode)


main()
