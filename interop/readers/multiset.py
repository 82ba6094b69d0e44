#!/usr/bin/env python3
"""Counts the rows of a table with columns id and s by writer: ours have ids below --first-id and are told apart by (s, id).

Prints {"Ours", "OursDistinct", "Theirs", "TheirsDistinct"}.
"""

import peers

peers.enter()

import argparse
import json
import os
import sys

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
                      "TheirsDistinct": len(set(theirs))}))
    sys.stdout.flush()
    os._exit(0)


main()
