#!/usr/bin/env python3
"""What Arrow C++ and DuckDB read from the files of parquet-testing, in the canonical form of interop/readers.

Prints one line a file: path, then rows and digest of each engine, or what it says. Usage: parquet_digests.py FOLDER
"""

import pathlib
import re
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "interop" / "readers"))
import canonical


def arrow(path):
    return pq.ParquetFile(path, page_checksum_verification=True, coerce_int96_timestamp_unit="us").read()


def duck(path):
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    return db.execute("select * from read_parquet(?, binary_as_string = false)", [str(path)]).fetch_arrow_table()


def instants(table, path):
    """INT96 is an instant in Delta, whatever an engine makes of it."""
    meta = pq.ParquetFile(path).schema
    for i in range(len(meta)):
        if meta.column(i).physical_type == "INT96":
            at = table.column_names.index(meta.column(i).path)
            table = table.set_column(at, table.column_names[at], table.column(at).cast(pa.timestamp("us", "UTC")))
    return table


def summary(read, path):
    """Rows and digest of the columns of types that Delta has a form of."""
    try:
        table = instants(read(path), path)
        table = table.select([f.name for f in table.schema if not re.search("halffloat|time32|time64", str(f.type))])
        lines = canonical.rows(table)
        return f"{len(lines)} {canonical.digest(lines)}"
    except Exception as e:
        return f"{type(e).__name__}: {e}".replace("\n", " ")[:100]


root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.parquet*")):
    if path.suffix in (".parquet", ".encrypted") and path.name != "large_string_map.brotli.parquet":  # 2 GiB of text
        print(path.relative_to(root), summary(arrow, path), summary(duck, path), sep="\t", flush=True)
