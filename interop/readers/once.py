#!/usr/bin/env python3
"""Counts the records of a table by lane, with an engine that is not ours.

once.py TABLE [--engine delta-rs] [--partition _partition] [--offset _offset] [--topic COLUMN] [--value COLUMN]

Prints one JSON object: {"rows", "distinct", "version", "lanes": {"<partition>": {"rows", "distinct", "min", "max", "sha256"}}}.
sha256 is over the sorted distinct offsets, each followed by a line feed: two readers that saw the same offsets agree.
With --value, each offset is followed by a blank and the value of that column. With --list the lanes and offsets themselves
are printed in place of the object, a line a row.
"""

import peers

peers.enter()

import argparse
import hashlib
import json
import os
import sys

import engines


def main():
    args = arguments()
    data, version = engines.ALL[args.engine]().read(os.path.abspath(args.table), None)
    names = [args.topic] * bool(args.topic) + [args.partition, args.offset] + [args.value] * bool(args.value)
    rows = list(zip(*(data.column(name).to_pylist() for name in names)))
    if args.list:
        sys.stdout.writelines(" ".join(map(str, row)) + "\n" for row in rows)
        sys.stdout.flush()
        os._exit(0)
    lanes = {}
    for row in rows:
        head, tail = (row[:2], row[2:]) if args.topic else (row[:1], row[1:])
        lanes.setdefault("/".join(map(str, head)), []).append(tail)
    told = {lane: describe(found) for lane, found in sorted(lanes.items())}
    print(json.dumps({"rows": len(rows), "distinct": sum(lane["distinct"] for lane in told.values()),
                      "version": version, "lanes": told}))
    sys.stdout.flush()
    os._exit(0)


def describe(found):
    """Counts of one lane; found holds (offset) or (offset, value) for each row."""
    by_offset = dict((f[0], f[1:]) for f in found)
    text = "".join(f"{offset}{''.join(f' {v}' for v in by_offset[offset])}\n" for offset in sorted(by_offset))
    return {"rows": len(found), "distinct": len(by_offset), "min": min(by_offset), "max": max(by_offset),
            "sha256": hashlib.sha256(text.encode()).hexdigest()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--engine", choices=engines.ALL, default="delta-rs")
    parser.add_argument("--partition", default="_partition", metavar="COLUMN")
    parser.add_argument("--offset", default="_offset", metavar="COLUMN")
    parser.add_argument("--topic", metavar="COLUMN")
    parser.add_argument("--value", metavar="COLUMN")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


main()
