"""What race.py and tables.py share: the Python of the peers, whole processes measured from outside, steps measured from inside, reports.

CPU is user + system, memory the peak of resident memory in MiB. Of a tree of processes (a JVM below Python) it is the sum over the tree.
"""
import atexit
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TICK = os.sysconf("SC_CLK_TCK")
sys.path.append(str(ROOT / "interop/readers"))
import peers  # noqa: E402


def enter():
    """Goes on in the Python that interop/readers/setup makes, made now if need be."""
    if Path(sys.prefix).resolve() != peers.HOME.resolve():
        subprocess.run([ROOT / "interop/readers/setup"], check=True, stdout=sys.stderr)
        peers.enter()


def tree(pid):
    """The process and all below it."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                todo += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            pass
    return found


def usage(pid):
    """CPU seconds and peak memory so far of those of the tree that live, and what they hold now besides mapped files."""
    cpu = peak = anonymous = 0
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
            status = Path(f"/proc/{each}/status").read_text()
            held, own = re.search(r"VmHWM:\s+(\d+)", status), re.search(r"RssAnon:\s+(\d+)", status)
        except OSError:
            continue
        cpu += (int(fields[11]) + int(fields[12])) / TICK
        peak += int(held[1]) / 1024 if held else 0
        anonymous += int(own[1]) / 1024 if own else 0
    return cpu, peak, anonymous


def run(command, until=None, env=None):
    """Runs to the end, or until the function says so and then by SIGTERM. Wall time, CPU seconds, peak MiB, with mapped files and (as far
    as looks every tenth of a second show) without, and what it printed.

    What the kernel accounts a finished child leaves out children that nobody waited for, so the tree is watched, too.
    """
    begin, seen, ended = time.time(), [0, 0, 0], threading.Event()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env and {**os.environ, **env})

    def watch():
        while not ended.wait(0.1):
            seen[:] = map(max, seen, usage(process.pid))

    printed = {}
    threads = [threading.Thread(target=watch, daemon=True)] + [
        threading.Thread(target=lambda f=f: printed.update({f: f.read().decode()}), daemon=True)
        for f in (process.stdout, process.stderr)]
    for thread in threads:
        thread.start()
    if until is not None:
        until(process)
        process.send_signal(signal.SIGTERM)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.time() - begin
    ended.set()
    for thread in threads:
        thread.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and (until is None or process.returncode != -signal.SIGTERM):
        sys.exit(f"{command}: exit {process.returncode}\n{printed[process.stderr][-3000:]}")
    return dict(wall=wall, cpu=max(seen[0], used.ru_utime + used.ru_stime), rss=max(seen[1], used.ru_maxrss / 1024),
                anonymous=seen[2], printed=printed[process.stdout])


def memory_of(got):
    """The figures of memory of a run."""
    return dict(rss_mib=got["rss"], anonymous_mib=got["anonymous"])


def steps(*command, env=None):
    """Runs a driver: the steps that it printed."""
    return steps_in(run(command, env=env)["printed"])


def steps_in(printed):
    """Steps by name: dicts of numbers."""
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {line.pop("step"): line for line in lines}


class step:
    """with step("merge") as s: … prints one JSON line with wall, CPU, peak memory and what was put into s.more."""

    def __init__(self, name):
        self.name, self.more = name, {}

    def __enter__(self):
        for pid in tree(os.getpid()):
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
            except OSError:
                pass
        self.cpu, self.begin = usage(os.getpid())[0], time.time()
        return self

    def __exit__(self, kind, *_):
        wall, (cpu, peak, _) = time.time() - self.begin, usage(os.getpid())
        if kind is None:
            print(json.dumps(dict(step=self.name, wall_s=round(wall, 3), cpu_s=round(cpu - self.cpu, 2), rss_mib=round(peak), **self.more)),
                  flush=True)


class Bench:
    """Options, the folder for what is made, and reports."""

    def __init__(self, args):
        self.args, self.dir = args, Path(args.dir).resolve()
        self.dir.mkdir(parents=True, exist_ok=True)
        self.freshet = os.environ.get("FRESHET", str(ROOT / "bin/freshet"))

    def report(self, name, figures):
        """figures: one dict a run, of numbers that all runs have."""
        with open(HERE / "results.jsonl", "a") as out:
            for f in figures:
                out.write(json.dumps({"what": name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **f}) + "\n")
        for key in figures[0]:
            values = [f[key] for f in figures]
            print(f"{name:32} {key:22} {statistics.median(values):12.2f}  ({min(values):.2f}..{max(values):.2f})", flush=True)

    def fresh(self, name="table"):
        """A path below the folder where nothing is. What was there is put aside and deleted when all is measured: ext4 does not use the
        inodes of deleted files again for minutes, and passes over all of them, one by one, for every file that is made meanwhile.
        """
        path = self.dir / name
        for old in (path, Path(f"{path}_quarantine"), Path(f"{path}.checkpoint")):
            if old.exists():
                aside = Path(tempfile.mkdtemp(prefix="aside-", dir=self.dir))
                atexit.register(shutil.rmtree, aside, ignore_errors=True)
                old.rename(aside / old.name)
        return path

    def main(self, parts):
        for part in parts if self.args.part == "all" else [self.args.part]:
            parts[part](self)


def added(table, versions=None):
    """Files, bytes and rows that commits of a table have added (all commits, or these), data files that got only a new vector left out."""
    files = stored = rows = 0
    for commit in sorted((table / "_delta_log").glob("*.json")):
        if versions is not None and int(commit.stem) not in versions:
            continue
        for line in commit.read_text().splitlines():
            add = json.loads(line).get("add")
            if add and not add.get("deletionVector"):
                files, stored = files + 1, stored + add["size"]
                rows += json.loads(add.get("stats") or "{}").get("numRecords", 0)
    return files, stored, rows


def rows_of(table, column):
    """Rows that the table has now, by our own scan of the column."""
    return steps_in(run([ROOT / "bin/bench-ours", "scan", table, column])["printed"])["scan"]["rows"]


def newest(table):
    return max(int(f.stem) for f in (table / "_delta_log").glob("*.json"))
