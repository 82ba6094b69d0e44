"""DuckDB on one core over the live files of a table. Each command prints its steps (measure.step).

duck.py scan TABLE [COLUMN...]   rows as Arrow batches ("scan"), and only their largest values, which need no Arrow ("max")
"""
import sys

import duckdb
from deltalake import DeltaTable

from measure import step
from schemas import NARROW


def scan(table, *columns):
    files = DeltaTable(table).file_uris()
    run = duckdb.connect().execute
    run("SET threads = 1")
    columns = columns or NARROW.names
    run("SELECT 1").fetch_record_batch()  # what this imports is no part of a scan
    with step("scan") as s:
        s.more["rows"] = sum(batch.num_rows for batch in run(f"SELECT {','.join(columns)} FROM read_parquet($1)", [files])
                             .fetch_record_batch(32_768))
    with step("max"):
        run(f"SELECT {','.join(f'max({c})' for c in columns)} FROM read_parquet($1)", [files]).fetchall()


dict(scan=scan)[sys.argv[1]](*sys.argv[2:])
