"""Spark with Delta Lake's own library. Each command prints its steps (measure.step); the start of the session and a warm-up lie before them.

spark.py ingest BROKER TOPIC narrow|wide TABLE   Kafka JSON -> Delta append, Structured Streaming, availableNow
spark.py append TABLE SOURCE.arrow               batches that the JVM holds as Arrow already -> one append
spark.py scan TABLE [COLUMN...]                  rows in the engine's own form, which nobody takes
spark.py merge TABLE SOURCE.parquet              upsert by order_id
spark.py update TABLE                            adds 1 to the amount of every second row
spark.py optimize TABLE
spark.py open TABLE KEY                          describe detail (all files), then a plan for one key
spark.py changes TABLE FROM
spark.py small TABLE N                           N appends of 10 rows
"""
import os
import sys
import tempfile
import time

from measure import peers, step
from schemas import spark_ddl


def session():
    """Two cores and both compilers of the JVM, unlike the readers' small one."""
    jars = [*peers.HOME.glob("jars/*.jar"), *peers.HOME.glob("jars/kafka/*.jar")]
    return peers.spark_session(
        spark__master="local[2]", spark__driver__memory=os.environ.get("FRESHET_SPARK_HEAP", "6g"),
        spark__driver__extraJavaOptions="-Duser.timezone=UTC", spark__jars=",".join(map(str, jars)),
        spark__sql__shuffle__partitions="4", spark__databricks__delta__snapshotPartitions="4")


def ingest(spark, broker, topic, kind, table):
    from pyspark.sql.functions import col, from_json
    source = spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": broker, "subscribe": topic,
                                                         "startingOffsets": "earliest"}).load()
    rows = source.select(from_json(col("value").cast("string"), spark_ddl(kind)).alias("row")).select("row.*")
    with step("ingest"):
        rows.writeStream.format("delta").option("checkpointLocation", table + ".checkpoint").trigger(availableNow=True) \
            .start(table).awaitTermination()


def append(spark, table, source):
    import pyarrow as pa
    with pa.OSFile(source) as file:
        rows = spark.createDataFrame(pa.ipc.open_file(file).read_all())
    with step("append"):
        rows.write.format("delta").mode("append").save(table)


def scan(spark, table, *columns):
    with step("scan"):
        spark.read.format("delta").load(table).select(*columns or "*").write.format("noop").mode("overwrite").save()


def merge(spark, table, source):
    with step("merge"):
        spark.read.parquet(source).createOrReplaceTempView("source")
        spark.sql(f"MERGE INTO delta.`{table}` t USING source s ON t.order_id = s.order_id "
                  "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")


def update(spark, table):
    with step("update"):
        spark.sql(f"UPDATE delta.`{table}` SET amount = amount + 1 WHERE order_id % 2 = 0")


def optimize(spark, table):
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", 128 << 20)
    with step("optimize"):
        spark.sql(f"OPTIMIZE delta.`{table}`")


def open_table(spark, table, key):
    with step("open") as s:
        s.more["files"] = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]["numFiles"]
    with step("plan") as s:
        s.more["files"] = len(spark.read.format("delta").load(table).where(f"order_id = {key}").inputFiles())


def changes(spark, table, first):
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first).load(table)
    with step("changes"):
        feed.write.format("noop").mode("overwrite").save()
    with step("count") as s:
        s.more["rows"] = feed.count()


def small(spark, table, n):
    rows = [(j, f"C{j:08d}", 1.5) for j in range(10)]
    ten = spark.createDataFrame(rows, "order_id bigint, customer_id string, amount double").coalesce(1)
    ten.write.format("delta").mode("append").save(table)
    taken = []
    with step("small") as s:
        for _ in range(int(n)):
            begin = time.perf_counter()
            ten.write.format("delta").mode("append").save(table)
            taken.append((time.perf_counter() - begin) * 1000)
        s.more.update(first_ms=median(taken[:100]), last_ms=median(taken[-100:]))


def median(values):
    return sorted(values)[len(values) // 2]


def warm(spark):
    with tempfile.TemporaryDirectory() as folder:
        spark.range(1000).write.format("delta").save(folder + "/warm")
        spark.read.format("delta").load(folder + "/warm").count()


COMMANDS = dict(ingest=ingest, append=append, scan=scan, merge=merge, update=update, optimize=optimize, open=open_table, changes=changes,
                small=small)


def main():
    command, *args = sys.argv[1:]
    spark = session()
    if command != "ingest":
        warm(spark)
    COMMANDS[command](spark, *args)


main()
