#!/usr/bin/env python3
"""One history, written by Spark in four settings, for tests of row-level changes.

make.py OUT writes OUT/{feed,vectors,row-tracking,plain}.tar.gz, each a Delta table whose log and files are the entries.
It starts under any Python and goes on in the one of interop/readers, which its `setup` installs. The statements are the
same in all settings; what differs are the table's properties, and with them the files and actions that Spark leaves.
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "interop/readers"))
import peers  # noqa: E402

peers.enter()

SETTINGS = {
    "feed": {"delta.enableChangeDataFeed": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "row-tracking": {"delta.enableRowTracking": "true"},
    "plain": {},
}

COLUMNS = """id BIGINT, part STRING, name STRING, amount DECIMAL(9,2), weight DOUBLE, day DATE, at TIMESTAMP, ok BOOLEAN,
  bin BINARY, tags ARRAY<STRING>, attrs MAP<STRING, INT>, point STRUCT<x: INT, label: STRING>"""


def rows(low, high, note="row"):
    """SQL of the rows low to high - 1: nulls, NaN and signed zeroes among them, and one row that is there twice."""
    return f"""
      SELECT /*+ COALESCE(1) */ id, CASE WHEN id % 5 = 0 THEN NULL ELSE concat('p', id % 2) END part,
        concat('{note} ', id) name, CAST(id * 1.25 AS DECIMAL(9,2)) amount,
        CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN double('-0.0') WHEN 2 THEN 0.0D ELSE id / 3.0D END weight,
        date_add(DATE'2024-02-28', int(id)) day, timestamp_micros(id * 1000001) at,
        CASE id % 3 WHEN 0 THEN NULL ELSE id % 3 = 1 END ok, unhex(hex(id)) bin,
        CASE WHEN id % 7 = 0 THEN NULL ELSE array(string(id), NULL, '') END tags,
        CASE WHEN id % 6 = 0 THEN map() ELSE map('k', int(id), 'n', NULL) END attrs,
        CASE WHEN id % 8 = 0 THEN NULL ELSE named_struct('x', int(id), 'label', concat('l', id)) END point
      FROM (SELECT id FROM range({low}, {high}) UNION ALL SELECT {low} id)"""


HISTORY = [
    f"INSERT INTO {{t}} {rows(0, 40)}",
    f"INSERT INTO {{t}} {rows(100, 120)}",
    "UPDATE {t} SET name = 'changed', amount = amount + 1 WHERE id BETWEEN 3 AND 6",
    "DELETE FROM {t} WHERE id IN (7, 8, 101)",
    # changes nothing of the rows it touches
    "UPDATE {t} SET name = name WHERE id BETWEEN 20 AND 22",
    # of two rows that are alike, both
    "UPDATE {t} SET ok = true WHERE id = 0",
    f"""MERGE INTO {{t}} USING (SELECT * FROM ({rows(30, 45, 'merged')}) WHERE id > 30) s ON {{t}}.id = s.id
        WHEN MATCHED AND s.id = 31 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
    # finds nothing
    f"""MERGE INTO {{t}} USING (SELECT * FROM ({rows(900, 902)})) s ON {{t}}.id = s.id
        WHEN MATCHED THEN UPDATE SET *""",
    # whole files
    "DELETE FROM {t} WHERE part = 'p1' AND id >= 100",
    "OPTIMIZE {t}",
    # a row moves to another partition, and keys change
    "UPDATE {t} SET part = 'p9' WHERE id = 12",
    "UPDATE {t} SET id = id + 1000 WHERE id IN (14, 15)",
    "ALTER TABLE {t} ADD COLUMNS (extra INT)",
    "UPDATE {t} SET extra = int(id) WHERE id IN (16, 17)",
    f"INSERT INTO {{t}} REPLACE WHERE part = 'p0' SELECT *, 1 extra FROM ({rows(200, 206)}) WHERE part = 'p0'",
    "RESTORE TABLE {t} TO VERSION AS OF 13",
    f"INSERT OVERWRITE {{t}} SELECT *, CAST(NULL AS INT) extra FROM ({rows(10, 24)})",
    "DELETE FROM {t}",
]


def pack(table, out):
    """Without Hadoop's side files and Delta's version checksums, as if written at one moment a file."""
    with tarfile.open(out, "w:gz", compresslevel=9) as tar:
        for file in sorted(table.rglob("*")):
            if file.is_file() and not file.name.endswith(".crc"):
                tar.add(file, arcname=str(file.relative_to(table)))


def main(out):
    spark = peers.spark_session(spark__sql__shuffle__partitions="1", spark__databricks__delta__stats__collect="true",
                                spark__sql__parquet__outputTimestampType="TIMESTAMP_MICROS",
                                spark__sql__parquet__compression__codec="zstd")
    with tempfile.TemporaryDirectory() as scratch:
        for name, properties in SETTINGS.items():
            table = Path(scratch) / name
            clause = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
            spark.sql(f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta PARTITIONED BY (part)"
                      + (f" TBLPROPERTIES ({clause})" if clause else ""))
            for statement in HISTORY:
                print(name, statement[:70].strip(), flush=True)
                spark.sql(statement.replace("{t}", f"delta.`{table}`"))
            pack(table, Path(out) / f"{name}.tar.gz")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    main(sys.argv[1])
