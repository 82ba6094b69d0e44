#!/usr/bin/env python3
"""Measures freshet on a real PostgreSQL server, as a whole process, beside what the server itself takes.

postgres.py load        [--rows N]               rows that are there -> mirror: rows per CPU-second, peak RSS; COPY beside it
postgres.py stream      [--rows N]               N/4 inserts, N/4 updates, N/8 deletes -> mirror; pg_recvlogical beside it
postgres.py transaction [--transaction N]        one transaction of N rows -> mirror: peak RSS, commits
postgres.py fresh       [--seconds S]            commit -> visible at every: 1s under pgbench, and its TPS with and without us
postgres.py tables      [--tables N] [--rate N] [--seconds S]   many tables, Zipf's activity: freshness, memory, CPU; then idle
postgres.py all

Every figure is taken --runs times and printed as median (min..max); raw results go to bench/results.jsonl. FRESHET names the
binary (bin/freshet). The server is started in --dir at --port, and stopped; its CPU is not in our figures.
"""
import argparse
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import time

import measure
from measure import ROOT, added, memory_of, newest, rows_of, run

measure.enter()

SERVER = ROOT / "interop/servers/postgres"
CLIENTS = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
# The trips of New York's taxis: 29 columns, all but the key and the times numeric.
NUMBERS = """cab_type_id vendor_id rate_code_id pickup_longitude pickup_latitude dropoff_longitude dropoff_latitude
passenger_count trip_distance fare_amount extra mta_tax tip_amount tolls_amount ehail_fee improvement_surcharge
congestion_surcharge airport_fee total_amount payment_type trip_type pickup_nyct2010_gid dropoff_nyct2010_gid
pickup_location_id dropoff_location_id""".split()
COLUMNS = ["id bigint PRIMARY KEY", "pickup_datetime timestamp", "dropoff_datetime timestamp", "store_and_fwd_flag text"] + [
    name + " numeric" for name in NUMBERS]


def value(name, i="i"):
    """A value of the column of row i, in SQL: as many digits as the real ones have."""
    if name.endswith(("itude",)):
        return f"({-73 if 'long' in name else 40} - (({i} * 7919) % 100000) / 1000000.0)::numeric(18,6)"
    if name.endswith(("amount", "fee", "distance", "tax", "extra", "surcharge")):
        return f"((({i} * 31) % 9973) / 100.0)::numeric(10,2)"
    return f"(({i} * 17) % 263)::numeric"


def trips(first, last):
    """A SELECT of such rows."""
    return ("SELECT i, timestamp '2024-01-01' + i * interval '1 second', timestamp '2024-01-01 00:11' + i * interval '1 second', "
            "CASE WHEN i % 9 = 0 THEN 'Y' ELSE 'N' END, " + ", ".join(map(value, NUMBERS)) +
            f" FROM generate_series({first}::bigint, {last}::bigint) i")


class Race(measure.Bench):
    """A Bench with a server, and a database for each figure."""

    def __init__(self, args):
        super().__init__(args)
        self.home = self.dir / "postgres"
        subprocess.run([SERVER, "stop", self.home], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)
        subprocess.run([SERVER, "start", self.home, "--port", str(args.port), "max_wal_size=8GB", "shared_buffers=512MB",
                        "checkpoint_timeout=30min"], check=True, stdout=subprocess.DEVNULL)
        self.made = 0

    def close(self):
        subprocess.run([SERVER, "stop", self.home], stdout=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)

    def psql(self, *statements, into=subprocess.DEVNULL):
        command = [SERVER, "psql", self.home, "-q", "-v", "ON_ERROR_STOP=1", self.database]
        for s in statements:
            command += ["-c", s]
        subprocess.run(command, check=True, stdout=into)

    def asked(self, statement):
        return subprocess.run([SERVER, "psql", self.home, "-qAt", self.database, "-c", statement], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()

    def start(self):
        """A database where nothing is."""
        self.made += 1
        self.database = "postgres"
        self.psql(f"CREATE DATABASE bench{self.made}")
        self.database = f"bench{self.made}"

    def end(self):
        """Drops the database, with its slots."""
        for slot in self.asked("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()").split():
            for _ in range(100):
                if self.asked(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") != "t":
                    break
                time.sleep(0.1)
            self.psql(f"SELECT pg_drop_replication_slot('{slot}')")
        gone, self.database = self.database, "postgres"
        self.psql(f"DROP DATABASE {gone} WITH (FORCE)")

    def client(self, name, *more, **kwargs):
        return subprocess.Popen([os.path.join(CLIENTS[0], name), *more], env={
            **os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.args.port), "PGUSER": "postgres", "PGDATABASE": self.database},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **kwargs)

    def pipeline(self, mode, every="1s", more="", tables="public.*", change_columns=False):
        """A pipeline file for the database, and the folder of its tables."""
        project, lake = self.fresh("pg-project"), self.fresh("pg-lake")
        (project / "pipelines").mkdir(parents=True)
        (project / "freshet.yaml").write_text(f"version: 1\nproject: bench\nlake: {{root: {lake}}}\n")
        file = project / "pipelines/bench.yaml"
        columns = ", change_columns: all" if change_columns else ""
        file.write_text(f"""pipeline: bench{self.made}
source:
  postgres: {{url: "postgres://postgres@127.0.0.1:{self.args.port}/{self.database}", tables: ["{tables}"]{more}}}
target:
  delta: {{table: "b.{{table}}", mode: {mode}, commit: {{every: {every}}}{columns}}}
""")
        return file, lake / "b"

    def run(self, file, *more, **kwargs):
        return run([self.freshet, "run", file, "--progress", "off", *more], **kwargs)


def load(race):
    figures = []
    for _ in range(race.args.runs):
        race.start()
        race.psql(f"CREATE TABLE trips ({', '.join(COLUMNS)})", f"INSERT INTO trips {trips(1, race.args.rows)}", "VACUUM ANALYZE trips")
        begin = time.time()
        with open(os.devnull, "w") as nothing:
            race.psql("COPY (SELECT * FROM trips) TO STDOUT", into=nothing)
        copied = time.time() - begin
        file, lake = race.pipeline("mirror")
        got = race.run(file, "--until-caught-up")
        (files, stored, _), rows = added(lake / "trips"), rows_of(lake / "trips", "id")
        if rows != race.args.rows:
            sys.exit(f"{rows} rows, wanted {race.args.rows}")
        figures.append(dict(rows_per_cpu_s=rows / got["cpu"], rows_per_s=rows / got["wall"], copy_rows_per_s=rows / copied,
                            **memory_of(got), cpu_s=got["cpu"], wall_s=got["wall"], stored_mb=stored / 1e6, files=files))
        race.end()
    race.report(f"load of {race.args.rows} trips", figures)


def stream(race):
    figures, n = [], race.args.rows // 4
    for _ in range(race.args.runs):
        race.start()
        race.psql(f"CREATE TABLE trips ({', '.join(COLUMNS)})")
        file, lake = race.pipeline("mirror")
        race.run(file, "--until-caught-up")
        race.psql("SELECT pg_create_logical_replication_slot('floor', 'pgoutput')")
        race.psql(f"INSERT INTO trips {trips(1, n)}", "UPDATE trips SET fare_amount = fare_amount + 1, tip_amount = 2.5",
                  "DELETE FROM trips WHERE id % 2 = 0")
        changes = n + n + n // 2
        publication = race.asked("SELECT pubname FROM pg_publication LIMIT 1")
        end = race.asked("SELECT pg_current_wal_flush_lsn()")
        begin = time.time()
        race.client("pg_recvlogical", "-S", "floor", "-d", race.database, "--start", "-o", "proto_version=1", "-o",
                    f"publication_names={publication}", "--endpos", end, "-f", os.devnull).wait()
        floor = time.time() - begin
        got = race.run(file, "--until-caught-up")
        left = rows_of(lake / "trips", "id")
        if left != n // 2:
            sys.exit(f"{left} rows, wanted {n // 2}")
        figures.append(dict(changes_per_s=changes / got["wall"], changes_per_cpu_s=changes / got["cpu"], server_changes_per_s=changes / floor,
                            cpu_share=got["cpu"] / got["wall"], **memory_of(got), cpu_s=got["cpu"], wall_s=got["wall"]))
        race.end()
    race.report(f"stream of {n} inserts, {n} updates, {n // 2} deletes", figures)


def transaction(race):
    figures, n = [], race.args.transaction
    for _ in range(race.args.runs):
        race.start()
        race.psql(f"CREATE TABLE trips ({', '.join(COLUMNS)})")
        file, lake = race.pipeline("mirror", more=f', spill_dir: "{race.dir}"')
        race.run(file, "--until-caught-up")
        before = newest(lake / "trips")
        race.psql(f"INSERT INTO trips {trips(1, n)}")
        got = race.run(file, "--until-caught-up")
        commits = {v for v in range(before + 1, newest(lake / "trips") + 1) if added(lake / "trips", {v})[2]}
        rows = rows_of(lake / "trips", "id")
        if rows != n:
            sys.exit(f"{rows} rows, wanted {n}")
        figures.append(dict(commits=len(commits), **memory_of(got), cpu_s=got["cpu"], wall_s=got["wall"], rows_per_cpu_s=n / got["cpu"]))
        race.end()
    race.report(f"one transaction of {n} rows", figures)


def tps(text):
    return float(next(line for line in text.splitlines() if line.startswith("tps")).split()[2])


def fresh(race):
    figures = []
    for _ in range(race.args.runs):
        race.start()
        race.client("pgbench", "-i", "-s", "10", "-q").wait()
        race.psql("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")  # it has no key, and is published only so
        bench = ["-c", "4", "-T", str(race.args.seconds), "-n"]
        alone = tps(race.client("pgbench", *bench).communicate()[0])
        file, lake = race.pipeline("append", change_columns=True)
        race.run(file, "--until-caught-up")
        before, seen = newest(lake / "pgbench_history"), []

        def drive(process):
            time.sleep(2)
            seen.append(tps(race.client("pgbench", *bench).communicate()[0]))
            want, deadline = int(race.asked("SELECT count(*) FROM pgbench_history")), time.time() + 60
            while added(lake / "pgbench_history")[2] < want and time.time() < deadline and process.poll() is None:
                time.sleep(0.2)

        got = race.run(file, until=drive)
        late = delays(lake / "pgbench_history", before)
        figures.append(dict(p50_s=late[len(late) // 2], p99_s=late[int(len(late) * .99)], max_s=late[-1], rows=len(late), tps=seen[0],
                            tps_alone=alone, cpu_share=got["cpu"] / got["wall"], **memory_of(got)))
        race.end()
    race.report("pgbench, commit to visible at every=1s", figures)


def delays(table, before):
    """How long after its commit in the source each row of the later commits was visible, in order."""
    import pyarrow.parquet as pq
    late = []
    for commit in (table / "_delta_log").glob("*.json"):
        if int(commit.stem) <= before:
            continue
        at = commit.stat().st_mtime
        for line in commit.read_text().splitlines():
            if line.startswith('{"add"'):
                times = pq.read_table(table / json.loads(line)["add"]["path"], columns=["_committed_at"]).column(0)
                late += [at - t.timestamp() for t in times.to_pylist()]
    return sorted(late)


def tables(race):
    """Writes in batches of a thousand rows to tables drawn by Zipf's law, at a rate, while one process mirrors all of them."""
    a, figures = race.args, []
    for _ in range(race.args.runs):
        race.start()
        race.psql(*[f"CREATE TABLE t{i} (id bigint PRIMARY KEY, n bigint, note text)" for i in range(a.tables)])
        file, lake = race.pipeline("append", change_columns=True)
        race.run(file, "--until-caught-up")
        before = {i: newest(lake / f"t{i}") for i in range(a.tables) if (lake / f"t{i}").exists()}
        weights = [1 / (i + 1) ** 1.1 for i in range(a.tables)]
        used = {}

        def drive(process):
            begin = time.time()
            while race.asked("SELECT bool_or(active) FROM pg_replication_slots WHERE database = current_database()") != "t":
                time.sleep(0.1)
            used["start_s"] = time.time() - begin
            draw, begin, sent = random.Random(7), time.time(), 0
            writer = subprocess.Popen([SERVER, "psql", race.home, "-q", race.database], stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.DEVNULL)
            while time.time() < begin + a.seconds:
                i = draw.choices(range(a.tables), weights)[0]
                writer.stdin.write(f"INSERT INTO t{i} SELECT {sent}+g, g, 'note ' || g FROM generate_series(1,1000) g;\n")
                writer.stdin.flush()
                sent += 1000
                late = begin + sent / a.rate - time.time()
                if late > 0:
                    time.sleep(late)
            writer.stdin.close()
            writer.wait()
            used["changes_per_s"] = sent / (time.time() - begin)
            time.sleep(10)
            cpu, since = measure.usage(process.pid)[0], time.time()
            used["open_files"], used["threads"] = (len(os.listdir(f"/proc/{process.pid}/{what}")) for what in ("fd", "task"))
            time.sleep(a.idle)
            used["idle_cpu_share"] = (measure.usage(process.pid)[0] - cpu) / (time.time() - since)

        got = race.run(file, until=drive)
        late = sorted(sum((delays(lake / f"t{i}", v) for i, v in before.items()), []))
        figures.append(dict(p50_s=late[len(late) // 2], p99_s=late[int(len(late) * .99)], max_s=late[-1], rows=len(late),
                            cpu_s=got["cpu"], **memory_of(got), **used))
        race.end()
    race.report(f"{a.tables} tables", figures)


PARTS = dict(load=load, stream=stream, transaction=transaction, fresh=fresh, tables=tables)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=[*PARTS, "all"])
    p.add_argument("--dir", default="/tmp/freshet-bench")
    p.add_argument("--port", type=int, default=29492)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--rows", type=int, default=4_000_000)
    p.add_argument("--transaction", type=int, default=10_000_000)
    p.add_argument("--tables", type=int, default=600)
    p.add_argument("--rate", type=int, default=58_000)
    p.add_argument("--seconds", type=int, default=60, help="of load, of fresh and tables; tables is wanted for 600")
    p.add_argument("--idle", type=int, default=30, help="seconds without changes at the end of tables")
    race = Race(p.parse_args())
    try:
        race.main(PARTS)
    finally:
        race.close()


main()
