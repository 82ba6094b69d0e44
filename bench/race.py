#!/usr/bin/env python3
"""Measures freshet as a whole process, on a real broker, beside Spark and kafka-delta-ingest on the same topics.

race.py ingest   [--rows-narrow N] [--rows-wide N]   topic -> committed table: MB and messages per CPU-second, peak RSS, stored size
race.py memory   [--rows N]                          peak RSS while catching up on 4 partitions
race.py fresh    [--rate N] [--seconds S]            produce -> visible in the table at every: 1s
race.py start    [--runs N]                          exec -> first commit, warm broker
race.py upserts  [--table N] [--changes N]           changes of a topic -> a table of N rows by key, every: 2s: changes per CPU-second, bytes
                                                     written, what reading costs beside the compacted table, peak RSS; --pace N: that many changes
                                                     a second come in, else all are there and are caught up with
race.py all

Every figure is taken --runs times (3) and printed as median (min..max); raw results go to bench/results.jsonl.
FRESHET names the binary (bin/freshet), BROKER a running broker; without BROKER one is started in --dir at --port and stopped.
KAFKA_DELTA_INGEST names a binary of kafka-delta-ingest; without it that program is left out. --peers says who runs beside us.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

import measure
from measure import HERE, ROOT, added, memory_of, newest, run, steps_in

measure.enter()
import gen  # noqa: E402


class Race(measure.Bench):
    """A Bench with a broker and topics."""

    def __init__(self, args):
        super().__init__(args)
        self.owned, self.group = None, 0
        self.broker = os.environ.get("BROKER")

    def need_broker(self):
        if self.broker:
            return
        self.owned = self.dir / "kafka"
        out = subprocess.run([ROOT / "interop/servers/kafka", "start", self.owned, "--port", str(self.args.port)], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        self.broker = re.search("KAFKA_BROKERS=(.*)", out)[1]

    def close(self):
        if self.owned:
            subprocess.run([ROOT / "interop/servers/kafka", "stop", self.owned], check=True, stdout=subprocess.DEVNULL)

    def topic(self, kind, rows, partitions=4):
        """A topic with these rows, filled once; its name and bytes of JSON."""
        self.need_broker()
        name, note = f"{kind}{rows}", self.dir / f"{kind}{rows}.bytes"
        if not note.exists():
            out = subprocess.run([sys.executable, HERE / "gen.py", "kafka", kind, str(rows), name, str(partitions)], check=True,
                                 stdout=subprocess.PIPE, text=True, env={**os.environ, "BROKER": self.broker}).stdout
            note.write_text(re.search(r"(\d+) bytes of JSON", out)[1])
        return name, int(note.read_text())

    def ingest(self, topic, table, *more):
        self.group += 1  # a table made anew under a group that knows the topic is refused
        return [self.freshet, "ingest", f"kafka://{self.broker}/{topic}", table, "--progress", "off",
                "--group", f"race-{os.getpid()}-{self.group}", *more]


def caught_up(table, rows, size, got):
    """Figures of a program that brought this many rows and bytes of JSON into the table."""
    files, stored, found = added(table)
    if found != rows:
        sys.exit(f"{table}: {found} rows of {rows}")
    return dict(mb_per_cpu_s=size / 1e6 / got["cpu"], messages_per_cpu_s=rows / got["cpu"], mb_per_wall_s=size / 1e6 / got["wall"],
                **memory_of(got), cpu_s=got["cpu"], wall_s=got["wall"], stored_mb=stored / 1e6, files=files)


def by_freshet(race, kind, rows):
    topic, size = race.topic(kind, rows)
    table = race.fresh()
    return caught_up(table, rows, size, run(race.ingest(topic, table, "--until-caught-up")))


def by_spark(race, kind, rows):
    """Structured Streaming, availableNow; beside the whole process the query alone, without the start of the session."""
    topic, size = race.topic(kind, rows)
    table = race.fresh()
    got = run([sys.executable, HERE / "spark.py", "ingest", race.broker, topic, kind, table])
    query = steps_in(got["printed"])["ingest"]
    return caught_up(table, rows, size, got) | dict(query_cpu_s=query["cpu_s"], query_mb_per_cpu_s=size / 1e6 / query["cpu_s"])


def by_kafka_delta_ingest(race, kind, rows):
    """Stopped once the table has all rows; batches and files as large as Spark's, without which it is slower."""
    topic, size = race.topic(kind, rows)
    table = race.fresh()
    subprocess.run([sys.executable, HERE / "schemas.py", kind, table], check=True)
    race.group += 1

    def whole(process):
        known, seen = 0, -1
        while known < rows and process.poll() is None:
            if newest(table) != seen:
                seen, known = newest(table), added(table)[2]
            time.sleep(0.1)

    got = run([os.environ["KAFKA_DELTA_INGEST"], "ingest", topic, table, "--kafka", race.broker, "--json", "",
               "--consumer_group", f"kdi-{os.getpid()}-{race.group}", "--app_id", f"kdi-{race.group}", "--auto_offset_reset", "earliest",
               "--max_messages_per_batch", "100000", "--allowed_latency", "10"], until=whole)
    return caught_up(table, rows, size, got)


def ingest(race):
    a = race.args
    runners = {"freshet": by_freshet, "spark": by_spark, "kafka-delta-ingest": by_kafka_delta_ingest}
    if "kafka-delta-ingest" in a.peers and "KAFKA_DELTA_INGEST" not in os.environ:
        print("kafka-delta-ingest: left out, KAFKA_DELTA_INGEST names no binary", flush=True)
        del runners["kafka-delta-ingest"]
    for kind, rows in (("narrow", a.rows_narrow), ("wide", a.rows_wide)):
        for name, runner in runners.items():
            if rows and (name == "freshet" or name in a.peers):
                race.report(f"ingest {kind}, {name}", [runner(race, kind, rows) for _ in range(a.runs)])


def memory(race):
    race.report(f"memory {race.args.rows}", [by_freshet(race, "narrow", race.args.rows)])


def fresh(race):
    from confluent_kafka import Producer
    import pyarrow.parquet as pq
    a = race.args
    figures = []
    for turn in range(a.runs):
        topic, table = f"fresh{int(time.time())}", race.fresh()
        race.need_broker()
        make_topic(race.broker, topic)

        def feed(process):
            producer = Producer({"bootstrap.servers": race.broker, "linger.ms": 5})
            begin = time.time()
            for i, event in enumerate(gen.events("narrow", a.rate * a.seconds)):
                if i % 200 == 0:
                    late = begin + i / a.rate - time.time()
                    if late > 0:
                        time.sleep(late)
                    producer.poll(0)
                producer.produce(topic, event, partition=i % 4)
            producer.flush()
            deadline = time.time() + 30
            while added(table)[2] < a.rate * a.seconds and time.time() < deadline:
                time.sleep(0.1)

        got = run(race.ingest(topic, table, "--every", "1s", "--metadata", "timestamp"), until=feed)
        delays = []
        for commit in (table / "_delta_log").glob("*.json"):
            seen = commit.stat().st_mtime
            for line in commit.read_text().splitlines():
                if line.startswith('{"add"'):
                    times = pq.read_table(table / json.loads(line)["add"]["path"], columns=["_timestamp"]).column(0)
                    delays += [seen - t.timestamp() for t in times.to_pylist()]
        delays.sort()
        figures.append(dict(p50_s=delays[len(delays) // 2], p99_s=delays[int(len(delays) * .99)], max_s=delays[-1],
                            rows=len(delays), cpu_share=got["cpu"] / got["wall"], **memory_of(got)))
    race.report("freshness at every=1s", figures)


def make_topic(broker, name, partitions=4):
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result()


def start(race):
    topic, _ = race.topic("narrow", 100_000)
    figures = []
    for turn in range(max(race.args.runs, 5)):
        table, began, seen = race.fresh(), time.time(), []

        def first(process):
            while not seen and process.poll() is None:
                if added(table)[2]:
                    seen.append(time.time())
                time.sleep(0.002)

        run(race.ingest(topic, table, "--max-rows", "1000"), until=first)
        figures.append(dict(first_commit_ms=(seen[0] - began) * 1000))
    race.report("start", figures)


def upserts(race):
    race.report(f"upserts into {race.args.table}", [upserted(race) for _ in range(race.args.runs)])


def upserted(race):
    """The table is delta-rs's, whose key index a first run makes; nothing is vacuumed, so that what is there is what was written."""
    a = race.args
    race.need_broker()
    topic, lake, project = f"changes{int(time.time())}", race.fresh("upserts-lake"), race.fresh("upserts-project")
    table = lake / "b/orders"
    for command in (["make", table, a.table, max(a.table // 250_000, 1)], ["allow", table]):
        subprocess.run([sys.executable, HERE / "deltars.py", *map(str, command)], check=True)
    make_topic(race.broker, topic)
    project.mkdir()
    (project / "freshet.yaml").write_text(f"version: 1\nproject: {topic}\nlake: {{root: {lake}}}\n")
    file = project / "orders.yaml"
    file.write_text(f"""pipeline: orders
source:
  kafka: {{brokers: ["{race.broker}"], topics: [{topic}], format: json, changes: {{op: op, key: [order_id]}}}}
target:
  delta: {{table: b.orders, mode: mirror, key: [order_id], commit: {{every: 2s}}}}
""")
    command = [race.freshet, "run", file, "--progress", "off", "--until-caught-up"]
    send = [sys.executable, HERE / "gen.py", "changes", str(a.table)]
    env = {**os.environ, "BROKER": race.broker}
    subprocess.run([*send, "40", topic], check=True, env=env, stdout=subprocess.DEVNULL)
    run(command)
    before, version = held(lake), newest(table)
    send = [*send, str(a.changes), topic]
    if a.pace:
        got = run(command[:-1], until=lambda _: subprocess.run(send, check=True, env={**env, "PACE": str(a.pace)}, stdout=subprocess.DEVNULL))
        rest = run(command)
        got = {**got, **{what: got[what] + rest[what] for what in ("cpu", "wall")}, **{what: max(got[what], rest[what]) for what in ("rss", "anonymous")}}
    else:
        subprocess.run(send, check=True, env=env, stdout=subprocess.DEVNULL)
        got = run(command)
    written, commits = held(lake) - before, newest(table) - version
    packed = race.fresh("upserts-packed")
    shutil.copytree(table, packed, copy_function=lambda a, b: shutil.copy(a, b) if "_delta_log" in a else os.link(a, b))
    subprocess.run([race.freshet, "table", "optimize", packed, "--max-deleted", "1e-9"], check=True, stdout=subprocess.DEVNULL)
    scans = [[steps_in(run([ROOT / "bin/bench-ours", "scan", path])["printed"])["scan"] for path in (table, packed)] for _ in range(3)]
    rows = scans[0][1]["rows"]
    row_bytes = sum(f.stat().st_size for f in packed.glob("*.parquet") if f.stat().st_nlink == 1) / rows
    now, compacted = (min(pair[i]["cpu_s"] for pair in scans) for i in (0, 1))
    return dict(changes_per_cpu_s=a.changes / got["cpu"], written_per_changed=written / (0.9 * a.changes * row_bytes), commits=commits,
                read_per_compacted=now / compacted, **memory_of(got), cpu_s=got["cpu"], wall_s=got["wall"], rows=rows, row_bytes=row_bytes)


def held(folder):
    """Bytes of all files below the folder."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


PARTS = dict(ingest=ingest, memory=memory, fresh=fresh, start=start, upserts=upserts)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=[*PARTS, "all"])
    p.add_argument("--dir", default="/tmp/freshet-bench")
    p.add_argument("--port", type=int, default=29392)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--peers", default="spark,kafka-delta-ingest", type=lambda text: text.split(","))
    p.add_argument("--rows-narrow", type=int, default=2_000_000)
    p.add_argument("--rows-wide", type=int, default=400_000)
    p.add_argument("--rows", type=int, default=5_000_000)
    p.add_argument("--rate", type=int, default=20_000)
    p.add_argument("--seconds", type=int, default=20)
    p.add_argument("--table", type=int, default=10_000_000)
    p.add_argument("--changes", type=int, default=10_000_000)
    p.add_argument("--pace", type=int, default=0)
    race = Race(p.parse_args())
    try:
        race.main(PARTS)
    finally:
        race.close()


main()
