#!/usr/bin/env python3
"""Counts the rows of a table with columns id and s by writer: ours have ids below --first-id and are told apart by (s, id).

Prints {"Ours", "OursDistinct", "Theirs", "TheirsDistinct", "Orphaned"}; Orphaned is the number of rows in data files that no commit
of the log names: what is left when another process renames its commit over one that was there.
"""

import peers

peers.enter()

import argparse
import json
import os
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

import engines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--first-id", type=int, required=True)
    args = parser.parse_args()
    data, _ = engines.DeltaRs().read(os.path.abspath(args.table), None)
    ids = data.column("id").to_pylist()
    texts = data.column("s").to_pylist()
    ours = [(s, i) for s, i in zip(texts, ids) if i < args.first_id]
    theirs = [i for i in ids if i >= args.first_id]
    print(json.dumps({"Ours": len(ours), "OursDistinct": len(set(ours)), "Theirs": len(theirs),
                      "TheirsDistinct": len(set(theirs)), "Orphaned": orphaned(Path(args.table))}))
    sys.stdout.flush()
    os._exit(0)


def orphaned(table):
    named = set()
    for commit in (table / "_delta_log").glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            named |= {unquote(action[kind]["path"]) for kind in ("add", "remove") if kind in action}
    files = (f for f in table.rglob("*.parquet") if "_delta_log" not in f.parts)
    return sum(pq.read_metadata(f).num_rows for f in files if str(f.relative_to(table)) not in named)


main()
