"""Arrow batches shaped like the narrow events, made with numpy: order_id ascending, all else random, seeded by the first id.

data.py rows N OUT.arrow          N rows
data.py merge ROWS K OUT.arrow    K rows for a table of ROWS: 90 % of the keys are there, spread evenly; also as OUT.parquet
"""
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gen import CITY, STATUS, WORDS
from schemas import NARROW

BLOCK = 500_000
BEGIN = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z in µs
CUSTOMERS, SKUS, STATES, NOTES, CITIES, ZIPS = map(pa.array, (
    [f"C{k:08d}" for k in range(200_000)], [f"SKU-{k:06d}" for k in range(50_000)], STATUS,
    [f"{a} {b} {k}" for a in WORDS for b in WORDS for k in range(0, 1000, 10)], CITY, [f"{k:05d}" for k in range(100_000)]))


def batch(first, rows):
    return of_keys(np.arange(first, first + rows, dtype=np.int64), first)


def of_keys(ids, seed):
    r, n = np.random.default_rng(seed), len(ids)

    def some(pool):
        return pool.take(pa.array(r.integers(0, len(pool), n)))

    shipping = pa.StructArray.from_arrays([some(CITIES), some(ZIPS), pa.array(r.random(n) < .5)],
                                          fields=list(NARROW.field("shipping").type))
    return pa.Table.from_arrays([
        pa.array(ids), some(CUSTOMERS), some(SKUS), some(STATES), pa.array(r.integers(1, 10, n)), pa.array(np.round(r.random(n) * 900, 2)),
        pa.array(BEGIN + ids * 7000 + r.integers(0, 4000, n), pa.timestamp("us", tz="UTC")), pa.array(r.random(n) < .5), some(NOTES),
        shipping], schema=NARROW)


def merge_keys(table_rows, k):
    """k distinct keys in random order, one in ten of them beyond the table's."""
    r = np.random.default_rng(7)
    there = r.choice(table_rows, k * 9 // 10, replace=False)
    return r.permutation(np.concatenate([there, np.arange(table_rows, table_rows + k - len(there))]))


def write(path, batches):
    with pa.ipc.new_file(path, NARROW) as out:
        for each in batches:
            out.write_table(each, max_chunksize=65_536)


def median(values):
    return sorted(values)[len(values) // 2]


def main():
    command, *args = sys.argv[1:]
    if command == "rows":
        n = int(args[0])
        write(args[1], (batch(i, min(BLOCK, n - i)) for i in range(0, n, BLOCK)))
    else:
        rows = of_keys(merge_keys(int(args[0]), int(args[1])), 99)
        write(args[2], [rows])
        pq.write_table(rows, args[2].replace(".arrow", ".parquet"))


if __name__ == "__main__":
    main()
