#!/usr/bin/env python3
"""One engine, kept running, that answers requests: what starts Spark once for many tables.

serve.py ENGINE reads a JSON object a line and answers each with one before it reads the next; it ends with its input.

{"do": "read", "table": DIR, "version": N}            rows; version is optional
{"do": "changes", "table": DIR, "from": N, "to": N}   the change data feed, both included; "to" is optional
{"do": "files", "files": [...]}                       rows of Parquet files that are no table (DuckDB)
{"do": "double", "table": DIR}                        appends each row that there is once more
{"do": "sql", "statements": [...]}                    Spark only
{"do": "create", "table": DIR, "properties": {…}}     a table with `id BIGINT, s STRING`, and for such tables (DIR or s3://…):
{"do": "append", "rows": {ID: S}, "mark": TEXT}       mark goes into commitInfo
{"do": "update"|"delete", "ids": [...], "mark": …}    an update appends "+" to s
{"do": "merge", "rows": …}                            rows whose id is there are changed, others come
{"do": "overwrite", "rows": …}, {"do": "optimize"}
{"do": "open", "table": DIR}                          the writes that follow build upon the version that there is now (delta-rs)

An answer to read, changes and files is the summary of read.py, to all else {}; {"error": TEXT} where the engine gave up.
"""

import peers

peers.enter()

import json
import os
import sys

import engines
import writers

LOOK = {
    "read": lambda engine, r, path: engine.read(path, r.get("version")),
    "changes": lambda engine, r, path: engine.changes(path, r["from"], r.get("to")),
    "files": lambda engine, r, _: (engine.files(r["files"]), None),
}


def main():
    engine = engines.ALL[sys.argv[1]]()
    writer = writers.ALL.get(sys.argv[1], writers.Writer)(engine)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(engine, writer, request), ensure_ascii=False), flush=True)
    os._exit(0)


def answer(engine, writer, request):
    do = request["do"]
    if do in LOOK:
        return engines.look(engine, request.get("table", "files"), lambda path: LOOK[do](engine, request, path))[1]
    try:
        getattr(writer, do)(**{k: v for k, v in request.items() if k != "do"})
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a panic of Rust is no Exception
        return {"error": engines.reason(e)}
    return {}


main()
