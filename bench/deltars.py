"""delta-rs (the Python package deltalake), one operation a process. Each command prints its steps (measure.step).

deltars.py make TABLE ROWS FILES [PROPERTY=VALUE...]   rows of data.py, order_id ascending
deltars.py allow TABLE [PROPERTY=VALUE...]             deletion vectors, and properties
deltars.py append TABLE SOURCE.arrow                   batches already in memory -> one append
deltars.py merge TABLE SOURCE.arrow                    upsert by order_id
deltars.py update TABLE                                adds 1 to the amount of every second row
deltars.py optimize TABLE
deltars.py open TABLE KEY                              open, list all files
deltars.py changes TABLE FROM
deltars.py small TABLE N                               N appends of 10 rows
"""
import sys
import time

import pyarrow as pa
from deltalake import DeltaTable, TableFeatures, write_deltalake

import data
from measure import step


def make(table, rows, files, *properties):
    a_file = int(rows) // int(files)
    conf = dict(p.split("=", 1) for p in properties) or None
    for i in range(int(files)):
        write_deltalake(table, data.batch(i * a_file, a_file), mode="append", configuration=None if i else conf)


def allow(table, *properties):
    alter = DeltaTable(table).alter
    alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    alter.set_table_properties({"delta.enableDeletionVectors": "true"} | dict(p.split("=", 1) for p in properties))


def source(path):
    """The whole file, not a mapping of it."""
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).read_all()


def append(table, path):
    rows = source(path)
    with step("append") as s:
        write_deltalake(table, rows, mode="append")
        s.more["rows"] = rows.num_rows


def merge(table, path):
    rows = source(path)
    with step("merge"):
        (DeltaTable(table).merge(rows, "t.order_id = s.order_id", source_alias="s", target_alias="t")
         .when_matched_update_all().when_not_matched_insert_all().execute())


def update(table):
    with step("update"):
        DeltaTable(table).update(predicate="order_id % 2 = 0", updates={"amount": "amount + 1"})


def optimize(table):
    with step("optimize"):
        DeltaTable(table).optimize.compact(target_size=128 << 20)


def open_table(table, key):
    with step("open"):
        opened = DeltaTable(table)
    with step("files") as s:
        s.more["files"] = len(opened.file_uris())


def changes(table, first):
    with step("changes") as s:
        s.more["rows"] = sum(batch.num_rows for batch in DeltaTable(table).load_cdf(starting_version=int(first)))


def small(table, n):
    taken = []
    write_deltalake(table, data.batch(0, 10), mode="append")
    with step("small") as s:
        for i in range(1, int(n) + 1):
            rows = data.batch(i * 10, 10)
            begin = time.perf_counter()
            write_deltalake(table, rows, mode="append")
            taken.append((time.perf_counter() - begin) * 1000)
        s.more.update(first_ms=data.median(taken[:100]), last_ms=data.median(taken[-100:]))


COMMANDS = dict(make=make, allow=allow, append=append, merge=merge, update=update, optimize=optimize, open=open_table, changes=changes, small=small)
COMMANDS[sys.argv[1]](*sys.argv[2:])
