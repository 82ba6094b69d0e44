#!/usr/bin/env python3
"""Reads mirrors, and plays their change logs back, with DuckDB: what both come to.

mirror.py < REQUEST > ANSWER

The request is a JSON array of {"table": DIR, "log": DIR, "key": [COLUMN…], "columns": [COLUMN…]}, the answer one of {"rows": [LINE…],
"played": [LINE…], "faults": [TEXT…]}. Lines are canonical rows (README.md) of these columns, sorted; a column that is not there is
null, and decimals have six digits behind the point. A change that finds no row, or one where there must be none, is a fault. Without a
key a table is a multiset: rows may be alike.
"""

import peers

peers.enter()

import collections
import json
import os
import sys

import pyarrow as pa

import canonical
import engines

LOG = ["_commit_version", "_ordinal", "_change_type", "_unsent", "_committed_at", "_position"]


def main():
    engine = engines.DuckDB()
    print(json.dumps([answer(engine, request) for request in json.load(sys.stdin)]))
    sys.stdout.flush()
    os._exit(0)


def answer(engine, request):
    key, columns = request["key"], request["columns"]
    table, log = (engine.read(request[of], None)[0] for of in ("table", "log"))
    faults = []
    played = (play if key else count)(log, key, columns, faults)
    return {"rows": sorted(lines(texts(table, columns), columns), key=str.encode),
            "played": sorted(lines(played, columns), key=str.encode), "faults": faults}


def lines(rows, columns):
    return [canonical._object(columns, row) for row in rows]


def texts(table, columns):
    """The rows of a table: one canonical text for each of the columns."""
    return list(zip(*(column(table, name) for name in columns)))


def column(table, name):
    if name not in table.column_names:
        return ["null"] * table.num_rows
    values = table.column(name)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.decimal128(38, 6))
    return [text for chunk in values.chunks for text in canonical._texts(chunk)]


def play(log, key, columns, faults):
    """The rows that are left by the changes of the log."""
    changes = list(zip(*(log.column(name).to_pylist() for name in LOG), texts(log, columns)))
    # The old row of an update stands before the new one of the same place.
    changes.sort(key=lambda c: (c[0], c[1], c[2] != "update_preimage"))
    at = [columns.index(name) for name in key]
    rows, read, moved = {}, {}, None
    for _, _, kind, unsent, when, position, row in changes:
        of = tuple(row[i] for i in at)
        there = of in rows
        if kind == "truncate":
            # Rows that were read from the table later than that stand before it: the log of a table's history comes first.
            rows = {k: r for k, r in rows.items() if read.get(k) and read[k] >= when}
        elif kind == "delete":
            if not there:
                faults.append(f"{position} deletes {of}, which is not there")
            rows.pop(of, None)
        elif kind == "update_preimage":
            if not there:
                faults.append(f"{position} updates {of}, which is not there")
            moved = rows.pop(of, None)
        else:
            old, moved = moved or rows.get(of), None
            if kind == "insert" and there or kind != "insert" and old is None:
                faults.append(f"{position}: the {kind} of {of} finds {rows.get(of)}")
            if old is not None:
                row = [o if name in (unsent or []) else r for name, o, r in zip(columns, old, row)]
            rows[of] = row
            read[of] = when if "[0]@" not in position else None
    return rows.values()


def count(log, _, columns, faults):
    """The rows that are left where there is no key: each change brings a whole row, or takes one away."""
    changes = list(zip(*(log.column(name).to_pylist() for name in LOG), texts(log, columns)))
    changes.sort(key=lambda c: (c[0], c[1], c[2] != "update_preimage"))
    left = collections.Counter()
    for _, _, kind, unsent, _, position, row in changes:
        if kind == "truncate":
            left.clear()
            continue
        if unsent:
            faults.append(f"{position}: a {kind} without all columns: {unsent}")
        if kind in ("delete", "update_preimage"):
            if left[row] == 0:
                faults.append(f"{position}: a {kind} of {row}, which is not there")
                continue
            left[row] -= 1
        else:
            left[row] += 1
    return list(left.elements())


main()
