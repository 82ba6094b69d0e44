#!/usr/bin/env python3
"""Writes spark.txt anew: the same rows and expressions, with what the Spark of this Python makes of them."""
import json
import pathlib

from pyspark.sql import SparkSession, functions

FILE = pathlib.Path(__file__).with_name("spark.txt")
SCHEMA = ("id int,i8 tinyint,i32 int,i64 bigint,f32 float,f64 double,dec decimal(10,2),big decimal(20,5),s string,"
          "d date,ts timestamp,arr array<int>,b boolean")

spark = (SparkSession.builder.master("local[1]").config("spark.sql.ansi.enabled", "true")
         .config("spark.sql.session.timeZone", "UTC").getOrCreate())
lines = FILE.read_text().splitlines()
head = [line for line in lines if line.startswith(("#", "row\t"))]
rows = [line.split("\t", 1)[1] for line in head if line.startswith("row\t")]
table = spark.createDataFrame([(r,) for r in rows], ["j"]).select(functions.from_json("j", SCHEMA).alias("r")).select("r.*")
table.coalesce(1).cache().createOrReplaceTempView("t")


def results(expression):
    query = f"select cast(({expression}) as string) from t"
    try:
        return [r[0] for r in spark.sql(query + " order by id").collect()]
    except Exception:
        pass
    out = []
    for i in range(len(rows)):
        try:
            out.append(spark.sql(f"{query} where id = {i}").collect()[0][0])
        except Exception:
            out.append("!")
    return out


for line in lines[len(head):]:
    expression = line.split("\t")[0]
    cells = ["null" if v is None else v.replace("\t", "\\t") for v in results(expression)]
    head.append("\t".join([expression, *cells]))
FILE.write_text("\n".join(head) + "\n")
