#!/usr/bin/env python3
"""Has Spark validate the checksums (.crc) of tables against their logs, and append to each.

checksum.py TABLE [TABLE...]

Each table, whose first two columns are a long and a string, is validated as it stands; then Spark appends a row,
which makes it write a checksum of its own on the ground of ours, and validates again. Prints a JSON object a table:
{"table", "before", "after"}, each the version that was validated, or what is wrong with it.
"""

import peers

peers.enter()

import json
import os
import sys


def main():
    spark = peers.spark_session(spark__databricks__delta__checksum__dvMetricsEnabled="false")
    for table in sys.argv[1:]:
        path = os.path.abspath(table)
        found = {"table": table, "before": validated(spark, path)}
        spark.sql(f"INSERT INTO delta.`{path}` VALUES (-1, 'spark')")
        found["after"] = validated(spark, path)
        print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def validated(spark, path):
    jvm = spark._jvm
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()
    log = logs.forTable(spark._jsparkSession, path)
    snapshot = log.unsafeVolatileSnapshot()
    if snapshot.checksumOpt().isEmpty():
        return f"version {snapshot.version()} has no checksum"
    try:
        whole = snapshot.validateChecksum(jvm.scala.Predef.Map().empty())
    except Exception as e:  # an exception of Spark's, by way of py4j
        return str(e).splitlines()[0] if not hasattr(e, "java_exception") else e.java_exception.toString()
    return snapshot.version() if whole else f"version {snapshot.version()} is not validated"


main()
