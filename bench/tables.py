#!/usr/bin/env python3
"""Measures operations on tables: the delta package beside delta-rs, Spark and DuckDB, on the same tables and rows, in one sitting.

tables.py snapshot    open, list all files, plan for one key: 100 k, 300 k and 1 M files in a checkpoint, 300 k in commits
tables.py commits     1,000 appends of 10 rows: the first hundred, the last hundred, CPU
tables.py scan        10 M rows, all columns and one of ten, one core
tables.py upserts     100 k random keys into 1 M, 10 M, 100 M rows (--millions): a pipeline's commit by key, beside MERGE of delta-rs, and of Spark
                      with and without deletion vectors, on the same keys; --millions 10 --modes "" is that and nothing else
tables.py merge       1 % random keys into 10 M rows (90 % there): CPU, bytes written
tables.py optimize    10 M rows in 400 files
tables.py append      5 M rows that lie in memory as Arrow
tables.py feed        2 M change rows: from change data files, from pairs of deletion vectors
tables.py all

Each operation is one process that tells what it took without its start (ours/, deltars.py, spark.py, duck.py), --runs times (3), printed as
median (min..max); raw results go to bench/results.jsonl. Tables are made once in --dir, by delta-rs; an operation that changes
one gets a copy. --peers says who runs beside us. --scale 0.1 makes everything that much smaller, to try it out.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
from functools import partial

import measure
from measure import HERE, ROOT, added, newest, run, steps, steps_in

measure.enter()

MILLION = 1_000_000
OURS = partial(steps, ROOT / "bin/bench-ours", env={"GOMAXPROCS": "2"})
ON_ONE = partial(steps, ROOT / "bin/bench-ours", env={"GOMAXPROCS": "1"})
DELTA_RS = partial(steps, sys.executable, HERE / "deltars.py")
SPARK = partial(steps, sys.executable, HERE / "spark.py")
DUCKDB = partial(steps, sys.executable, HERE / "duck.py")


class Tables(measure.Bench):
    """A Bench with tables and rows to measure on."""

    def rows(self, millions):
        return int(millions * MILLION * self.args.scale)

    def made(self, name, command):
        """A path below the folder that the command, given the path, fills once."""
        path = self.dir / f"{name}-{self.args.scale:g}"
        if not path.exists():
            subprocess.run([sys.executable, HERE / command[0], *(str(path) if c is Ellipsis else str(c) for c in command[1:])],
                           check=True, stdout=subprocess.DEVNULL)
        return path

    def table(self, name, millions, files, *properties):
        return self.made(name, ["deltars.py", "make", ..., self.rows(millions), files, *properties])

    def twin(self, table, name="twin"):
        """A table that may be changed: its log is copied, its data files, which nobody changes, are linked."""
        path = self.fresh(name)
        shutil.copytree(table, path, copy_function=lambda a, b: shutil.copy(a, b) if "_delta_log" in a else os.link(a, b))
        return path

    def with_vectors(self, table, name, *properties):
        """A twin that may have deletion vectors, and these properties."""
        path = self.twin(table, name)
        DELTA_RS("allow", path, *properties)
        return path

    def merged(self, table, source, run, wanted):
        """Runs a MERGE on a copy that must have so many rows after it; what was written besides the log."""
        copy = self.twin(table)
        before = newest(copy)
        figures = run("merge", copy, source)["merge"]
        self.count(copy, wanted)
        new = added(copy, range(before + 1, newest(copy) + 1))
        vector_bytes = sum(f.stat().st_size for f in copy.rglob("deletion_vector*.bin"))
        return figures | dict(files=new[0], written_mb=(new[1] + vector_bytes) / 1e6)

    def count(self, table, wanted):
        found = OURS("scan", table, "order_id")["scan"]["rows"]
        if found != wanted:
            sys.exit(f"{table}: {found} rows, wanted {wanted}")

    def race(self, what, cpu="cpu_s", **runners):
        """Runs each runner that is wanted, ours always, and reports its figures; of a peer, in the same sitting, also how many times ours its
        CPU-seconds are, by the figure of ours that cpu names."""
        ours = None
        for name, runner in runners.items():
            name = name.replace("_", "-")
            if not name.startswith("ours") and name.split("+")[0] not in self.args.peers:
                continue
            figures = [runner() for _ in range(self.args.runs)]
            if name == "ours":
                ours = statistics.median(f[cpu] for f in figures) if cpu in figures[0] else None
            elif ours and "cpu_s" in figures[0]:
                figures = [f | dict(times_ours=f["cpu_s"] / ours) for f in figures]
            self.report(f"{what}, {name}", figures)


def flat(found):
    """Steps of one process as one dict."""
    return {f"{name}_{key}": value for name, figures in found.items() for key, value in figures.items()}


def per_cpu(step, rows):
    if step.get("rows", rows) != rows:
        sys.exit(f"found {step['rows']} rows, wanted {rows}")
    return {k: v for k, v in step.items() if k != "rows"} | dict(million_rows_per_cpu_s=rows / 1e6 / step["cpu_s"])


def snapshot(bench):
    for files, kind in ((100_000, ""), (300_000, ""), (300_000, "json"), (MILLION, "")):
        n = int(files * bench.args.scale)
        log = bench.made(f"log{files}{kind}", ["mklog.py", ..., n, *([kind] if kind else [])])
        key = n // 2 * 250_000 + 500  # in one file
        bench.race(f"snapshot of {n} {kind or 'checkpointed'}", ours=lambda: flat(OURS("open", log, f"order_id = {key}")),
                   delta_rs=lambda: flat(DELTA_RS("open", log, key)), spark=lambda: flat(SPARK("open", log, key)))


def commits(bench):
    n = int(1000 * bench.args.scale)
    rows = bench.made("rows10k.arrow", ["data.py", "rows", 10_010, ...])
    bench.race(f"{n} appends of 10 rows", ours=lambda: OURS("small", bench.fresh(), rows, n)["small"],
               delta_rs=lambda: DELTA_RS("small", bench.fresh(), n)["small"],
               spark=lambda: SPARK("small", bench.fresh(), n // 10)["small"] | dict(appends=n // 10))


def scan(bench):
    table, rows = bench.table("rows10", 10, 40), bench.rows(10)
    for name, columns in (("all columns", []), ("one of ten columns", ["amount"])):
        bench.race(f"scan {name}", ours=lambda: per_cpu(ON_ONE("scan", table, *columns)["scan"], rows),
                   duckdb=lambda: duckdb(DUCKDB("scan", table, *columns), rows),
                   spark=lambda: per_cpu(SPARK("scan", table, *columns)["scan"], rows))


def duckdb(found, rows):
    return per_cpu(found["scan"], rows) | dict(max_cpu_s=found["max"]["cpu_s"])


def merges(bench, table, vectors, source, wanted):
    """MERGE of a source by the peers."""
    parquet = str(source).replace(".arrow", ".parquet")
    return {"delta_rs+rewrite": lambda: bench.merged(table, source, DELTA_RS, wanted),
            "spark+rewrite": lambda: bench.merged(table, parquet, SPARK, wanted),
            "spark+vectors": lambda: bench.merged(vectors, parquet, SPARK, wanted)}


def merge(bench):
    n = bench.rows(10)
    source = bench.made("merge.arrow", ["data.py", "merge", n, n // 100, ...])
    plain = bench.table("rows10", 10, 40)
    vectors = bench.with_vectors(plain, "rows10-with-vectors")
    wanted = n + n // 1000
    bench.race("merge of 1 %", ours=lambda: bench.merged(vectors, source, OURS, wanted),
               **merges(bench, plain, vectors, source, wanted))


MODES = ("sequence", "mask", "soft", "log", "scd2", "feed")  # of ours, beside mirror


def upserts(bench):
    k = bench.rows(0.1)
    for millions in bench.args.millions:
        n = bench.rows(millions)
        source = bench.made(f"upsert{millions}.arrow", ["data.py", "merge", n, k, ...])
        plain = bench.table(f"rows{millions}", millions, 4 * millions)
        vectors = bench.with_vectors(plain, f"rows{millions}-with-vectors")
        runners = {"ours": partial(upserted, bench, vectors, source, "mirror", n, k)}
        if millions <= bench.args.peers_up_to:
            for mode in bench.args.modes:
                table = vectors
                if mode == "feed":
                    table = bench.with_vectors(plain, f"rows{millions}-with-feed", "delta.enableChangeDataFeed=true")
                runners[f"ours+{mode}"] = partial(upserted, bench, table, source, "mirror" if mode == "feed" else mode, n, k)
            runners |= merges(bench, plain, vectors, source, n + k // 10)
        bench.race(f"upsert into {millions} M", cpu="stream_cpu_s", **runners)


def upserted(bench, table, source, mode, n, k):
    """A pipeline that makes its index, commits the source and goes on; then one that finds the index there."""
    copy = bench.fresh("history") if mode == "scd2" else bench.twin(table)
    bench.fresh(copy.name + "_log")
    index = bench.fresh("index")
    whole = run(["env", "GOMAXPROCS=2", ROOT / "bin/bench-ours", "upsert", copy, source, index, mode, n])
    found = steps_in(whole["printed"])
    if mode not in ("soft", "scd2"):
        bench.count(copy, n + k // 10 + 10 * k)
    found["again"] = OURS("upsert", copy, source, index, mode, n)["start"]
    for figures in found.values():
        commits = figures.pop("commits")
        figures |= {key: value / commits for key, value in figures.items() if not key.endswith("mib")}
    size = sum(f.stat().st_size for f in index.rglob("*.run"))
    return flat(found) | dict(process_cpu_s=whole["cpu"], process_rss_mib=whole["rss"], index_bytes_a_key=size / (n + k // 10 + 10 * k))


def optimize(bench):
    table = bench.table("many", 10, 400)

    def packed(run):
        copy = bench.twin(table)
        before = newest(copy)
        figures = run("optimize", copy)["optimize"]
        files, stored, rows = added(copy, range(before + 1, newest(copy) + 1))
        if rows != bench.rows(10):
            sys.exit(f"{copy}: {rows} rows after optimize")
        return figures | dict(files=files, stored_mb=stored / 1e6)

    bench.race("optimize of 400 files", ours=lambda: packed(OURS), delta_rs=lambda: packed(DELTA_RS), spark=lambda: packed(SPARK))


def append(bench):
    rows = bench.made("five.arrow", ["data.py", "rows", bench.rows(5), ...])

    def appended(run):
        table = bench.fresh()
        figures = per_cpu(run("append", table, rows)["append"], bench.rows(5))
        return figures | dict(stored_mb=added(table)[1] / 1e6)

    bench.race("append of Arrow", ours=lambda: appended(OURS), delta_rs=lambda: appended(DELTA_RS), spark=lambda: appended(SPARK))


def feed(bench):
    rows = bench.rows(2)
    files = updated(bench, "fed", "delta.enableChangeDataFeed=true", DELTA_RS)
    bench.race("feed from files", ours=lambda: per_cpu(OURS("changes", files, newest(files), "feed")["changes"], rows),
               delta_rs=lambda: per_cpu(DELTA_RS("changes", files, newest(files))["changes"], rows),
               spark=lambda: spark_feed(files, rows))
    vectors = updated(bench, "marked", "delta.enableDeletionVectors=true", OURS)
    bench.race("feed from vectors", ours=lambda: per_cpu(OURS("changes", vectors, newest(vectors), "vectors")["changes"], rows))


def updated(bench, name, prop, by):
    """A table of 2 M rows of which half were updated in its newest version."""
    table = bench.table(name, 2, 8, prop)
    if newest(table) == 7:
        by("update", table)
    return table


def spark_feed(table, rows):
    found = SPARK("changes", table, newest(table))
    if found["count"]["rows"] != rows:
        sys.exit(f"{table}: {found['count']['rows']} change rows, wanted {rows}")
    return per_cpu(found["changes"], rows)


PARTS = dict(snapshot=snapshot, commits=commits, scan=scan, merge=merge, upserts=upserts, optimize=optimize, append=append, feed=feed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=[*PARTS, "all"])
    p.add_argument("--dir", default="/tmp/freshet-bench/tables")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--peers", default="delta-rs,spark,duckdb", type=lambda text: text.split(","))
    p.add_argument("--millions", default="1,10,100", type=lambda text: [int(n) for n in text.split(",")])
    p.add_argument("--peers-up-to", type=int, default=10, help="millions of rows that peers run at: what they take grows with the table")
    p.add_argument("--modes", default=",".join(MODES), type=lambda text: [m for m in text.split(",") if m],
                   help="of ours beside mirror, in upserts: " + ", ".join(MODES))
    p.add_argument("--scale", type=float, default=1)
    Tables(p.parse_args()).main(PARTS)


main()
