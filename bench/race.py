#!/usr/bin/env python3
"""Measures freshet as a whole process, on a real broker, beside what limits it.

race.py ingest   [--rows-narrow N] [--rows-wide N]   topic -> committed table: MB and messages per CPU-second, peak RSS, stored size
race.py memory   [--rows N]                          peak RSS while catching up on 4 partitions
race.py fresh    [--rate N] [--seconds S]            produce -> visible in the table at every: 1s
race.py start    [--runs N]                          exec -> first commit, warm broker
race.py snapshot [--files N]                         opening a table of N files, beside delta-rs
race.py all

Every figure is taken --runs times (3) and printed as median (min..max); raw results go to bench/results.jsonl.
CPU is user + system of the whole process, RSS its peak, both as the kernel accounts a finished child.
FRESHET names the binary (bin/freshet), BROKER a running broker; without BROKER one is started in --dir and stopped.
"""
import argparse, json, os, re, shutil, signal, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = Path(os.environ.get("FRESHET_PEERS") or Path.home() / ".cache/freshet-peers")
VENV = CACHE / "bench"


def enter():
    """Goes on in the Python that has the clients of requirements.txt, installing it once."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    wanted, made = (HERE / "requirements.txt").read_text(), VENV / "made-from"
    if not made.exists() or made.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
        made.write_text(wanted)
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])


enter()
import gen  # noqa: E402


def run(command, until=None, **kw):
    """Runs to the end, or until the function says so and then by SIGTERM; wall, CPU seconds and peak RSS in MiB."""
    t = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **kw)
    if until is not None:
        until(process)
        process.send_signal(signal.SIGTERM)
    err = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: exit {process.returncode}\n{err.decode()[-2000:]}")
    return dict(wall=time.time() - t, cpu=used.ru_utime + used.ru_stime, rss=used.ru_maxrss / 1024)


class Bench:
    def __init__(self, args):
        self.args, self.dir = args, Path(args.dir).resolve()
        self.dir.mkdir(parents=True, exist_ok=True)
        self.freshet = os.environ.get("FRESHET", str(ROOT / "bin/freshet"))
        self.owned, self.group = None, 0
        self.broker = os.environ.get("BROKER")

    def need_broker(self):
        if self.broker:
            return
        self.owned = self.dir / "kafka"
        out = subprocess.run([ROOT / "interop/servers/kafka", "start", self.owned, "--port", "29392"], check=True,
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
            gen.BROKER = self.broker
            out = subprocess.run([sys.executable, HERE / "gen.py", "kafka", kind, str(rows), name, str(partitions)], check=True,
                                 stdout=subprocess.PIPE, text=True, env={**os.environ, "BROKER": self.broker}).stdout
            note.write_text(re.search(r"(\d+) bytes of JSON", out)[1])
        return name, int(note.read_text())

    def table(self):
        path = self.dir / "table"
        for old in (path, Path(str(path) + "_quarantine")):
            shutil.rmtree(old, ignore_errors=True)
        return path

    def ingest(self, topic, table, *more):
        self.group += 1  # a table made anew under a group that knows the topic is refused
        return [self.freshet, "ingest", f"kafka://{self.broker}/{topic}", str(table), "--progress", "off",
                "--group", f"race-{os.getpid()}-{self.group}", *more]

    def catch_up(self, kind, rows):
        topic, size = self.topic(kind, rows)
        table = self.table()
        got = run(self.ingest(topic, table, "--until-caught-up"))
        files, stored, found = live(table)
        if found != rows:
            sys.exit(f"{table}: {found} rows of {rows}")
        return dict(mb_per_cpu_s=size / 1e6 / got["cpu"], messages_per_cpu_s=rows / got["cpu"], mb_per_wall_s=size / 1e6 / got["wall"],
                    rss_mib=got["rss"], cpu_s=got["cpu"], wall_s=got["wall"], stored_mb=stored / 1e6, files=files)

    def report(self, name, figures):
        """figures: one dict a run."""
        with open(HERE / "results.jsonl", "a") as out:
            for f in figures:
                out.write(json.dumps({"what": name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **f}) + "\n")
        for key in figures[0]:
            values = [f[key] for f in figures]
            print(f"{name:24} {key:22} {statistics.median(values):12.2f}  ({min(values):.2f}..{max(values):.2f})", flush=True)


def live(table):
    """Files, bytes and rows that the log of a table we just made has added."""
    files = stored = rows = 0
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            if line.startswith('{"add"'):
                add = json.loads(line)["add"]
                files, stored, rows = files + 1, stored + add["size"], rows + json.loads(add["stats"])["numRecords"]
    return files, stored, rows


def ingest(bench):
    a = bench.args
    for kind, rows in (("narrow", a.rows_narrow), ("wide", a.rows_wide)):
        bench.report(f"ingest {kind}", [bench.catch_up(kind, rows) for _ in range(a.runs)])


def memory(bench):
    bench.report(f"memory {bench.args.rows}", [bench.catch_up("narrow", bench.args.rows)])


def fresh(bench):
    from confluent_kafka import Producer
    import pyarrow.parquet as pq
    a = bench.args
    figures = []
    for turn in range(a.runs):
        topic, table = f"fresh{int(time.time())}", bench.table()
        bench.need_broker()
        make_topic(bench.broker, topic)

        def feed(process):
            producer = Producer({"bootstrap.servers": bench.broker, "linger.ms": 5})
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
            while live(table)[2] < a.rate * a.seconds and time.time() < deadline:
                time.sleep(0.1)

        got = run(bench.ingest(topic, table, "--every", "1s", "--metadata", "timestamp"), until=feed)
        delays = []
        for commit in (table / "_delta_log").glob("*.json"):
            seen = commit.stat().st_mtime
            for line in commit.read_text().splitlines():
                if line.startswith('{"add"'):
                    times = pq.read_table(table / json.loads(line)["add"]["path"], columns=["_timestamp"]).column(0)
                    delays += [seen - t.timestamp() for t in times.to_pylist()]
        delays.sort()
        figures.append(dict(p50_s=delays[len(delays) // 2], p99_s=delays[int(len(delays) * .99)], max_s=delays[-1],
                            rows=len(delays), cpu_share=got["cpu"] / got["wall"], rss_mib=got["rss"]))
    bench.report("freshness at every=1s", figures)


def make_topic(broker, name, partitions=4):
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result()


def start(bench):
    topic, _ = bench.topic("narrow", 100_000)
    figures = []
    for turn in range(max(bench.args.runs, 5)):
        table, began, seen = bench.table(), time.time(), []

        def first(process):
            while not seen and process.poll() is None:
                if live(table)[2]:
                    seen.append(time.time())
                time.sleep(0.002)

        run(bench.ingest(topic, table, "--max-rows", "1000"), until=first)
        figures.append(dict(first_commit_ms=(seen[0] - began) * 1000))
    bench.report("start", figures)


def snapshot(bench):
    path = bench.dir / f"log{bench.args.files}"
    if not path.exists():
        subprocess.run([sys.executable, HERE / "mklog.py", path, str(bench.args.files)], check=True, stdout=subprocess.DEVNULL)
    ours = [run([bench.freshet, "table", "describe", str(path)])["cpu"] for _ in range(bench.args.runs)]
    idle = [run([bench.freshet, "version"])["cpu"] for _ in range(bench.args.runs)]
    code = ("import time; from deltalake import DeltaTable; t = time.process_time(); "
            f"DeltaTable({str(path)!r}); print(time.process_time() - t)")
    theirs = [float(subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout)
              for _ in range(bench.args.runs)]
    bench.report(f"snapshot of {bench.args.files}", [dict(cpu_s=o, cpu_s_without_start=o - i, delta_rs_cpu_s=t)
                                                     for o, i, t in zip(ours, idle, theirs)])


PARTS = dict(ingest=ingest, memory=memory, fresh=fresh, start=start, snapshot=snapshot)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=[*PARTS, "all"])
    p.add_argument("--dir", default="/tmp/freshet-bench")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--rows-narrow", type=int, default=2_000_000)
    p.add_argument("--rows-wide", type=int, default=400_000)
    p.add_argument("--rows", type=int, default=5_000_000)
    p.add_argument("--rate", type=int, default=20_000)
    p.add_argument("--seconds", type=int, default=20)
    p.add_argument("--files", type=int, default=100_000)
    bench = Bench(p.parse_args())
    try:
        for part in PARTS if bench.args.part == "all" else [bench.args.part]:
            PARTS[part](bench)
    finally:
        bench.close()


main()
