"""The engines that write: what serve.py has them do to a table. Each method is a request of the same name."""

import pyarrow as pa

import engines


class Writer:
    """An engine that writes nothing."""

    def __init__(self, engine):
        self.engine = engine

    def __getattr__(self, name):
        raise engines.Unsupported(f"it does not {name} tables")


class Spark(Writer):
    def double(self, table):
        self.engine.session.sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}`")

    def sql(self, statements):
        for statement in statements:
            self.engine.session.sql(statement)

    def create(self, table, properties=()):
        listed = ", ".join(f"'{k}' = '{v}'" for k, v in dict(properties).items())
        self.sql([f"CREATE TABLE delta.`{table}` (id BIGINT, s STRING) USING delta"
                  + (f" TBLPROPERTIES ({listed})" if listed else "")])

    def append(self, table, rows, mark):
        self._marked(mark, f"INSERT INTO delta.`{table}` {values(rows)}")

    def overwrite(self, table, rows, mark):
        self._marked(mark, f"INSERT OVERWRITE delta.`{table}` {values(rows)}")

    def update(self, table, ids, mark):
        self._marked(mark, f"UPDATE delta.`{table}` SET s = concat(s, '+') WHERE {among(ids)}")

    def delete(self, table, ids, mark):
        self._marked(mark, f"DELETE FROM delta.`{table}` WHERE {among(ids)}")

    def merge(self, table, rows, mark):
        self._marked(mark, f"MERGE INTO delta.`{table}` t USING ({values(rows)} AS s(id, s)) s ON t.id = s.id "
                     "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def optimize(self, table, mark):
        self._marked(mark, f"OPTIMIZE delta.`{table}`")

    def _marked(self, mark, statement):
        self.engine.session.conf.set("spark.databricks.delta.commitInfo.userMetadata", mark)
        try:
            self.sql([statement])
        finally:
            self.engine.session.conf.unset("spark.databricks.delta.commitInfo.userMetadata")


class DeltaRs(Writer):
    """Each write opens the table, unless `open` has done so before."""

    def __init__(self, engine):
        super().__init__(engine)
        self.opened = {}

    def double(self, table):
        from deltalake import DeltaTable, write_deltalake
        write_deltalake(table, pa.table(DeltaTable(table).scan()), mode="append")

    def create(self, table, properties=()):
        from deltalake import DeltaTable
        DeltaTable.create(table, arrow({}).schema, configuration=dict(properties), storage_options=options(table))

    def open(self, table):
        from deltalake import DeltaTable
        self.opened[table] = DeltaTable(table, storage_options=options(table))

    def append(self, table, rows, mark):
        from deltalake import write_deltalake
        write_deltalake(self._take(table), arrow(rows), mode="append", commit_properties=marked(mark))

    def overwrite(self, table, rows, mark):
        from deltalake import write_deltalake
        write_deltalake(self._take(table), arrow(rows), mode="overwrite", commit_properties=marked(mark))

    def update(self, table, ids, mark):
        self._take(table).update({"s": "s || '+'"}, predicate=among(ids), commit_properties=marked(mark))

    def delete(self, table, ids, mark):
        self._take(table).delete(among(ids), commit_properties=marked(mark))

    def merge(self, table, rows, mark):
        (self._take(table).merge(arrow(rows), "t.id = s.id", source_alias="s", target_alias="t", commit_properties=marked(mark))
         .when_matched_update_all().when_not_matched_insert_all().execute())

    def optimize(self, table, mark):
        self._take(table).optimize.compact(commit_properties=marked(mark))

    def _take(self, table):
        if table not in self.opened:
            self.open(table)
        return self.opened.pop(table)


class DuckDB(Writer):
    def double(self, table):
        run, quoted = self.engine.connect(), table.replace("'", "''")
        run(f"ATTACH '{quoted}' AS doubled (TYPE delta)")
        run("INSERT INTO doubled SELECT * FROM doubled")


def options(table):
    return {"allow_http": "true"} if table.startswith("s3:") else None


def marked(mark):
    from deltalake import CommitProperties
    return CommitProperties(custom_metadata={"mark": mark})


def arrow(rows):
    return pa.table({"id": pa.array(map(int, rows), pa.int64()), "s": pa.array(rows.values(), pa.string())})


def values(rows):
    quoted = (s.replace("'", "''") for s in rows.values())
    return "VALUES " + ", ".join(f"({i}, '{s}')" for i, s in zip(rows, quoted))


def among(ids):
    return f"id IN ({', '.join(map(str, ids))})"


ALL = {"spark": Spark, "delta-rs": DeltaRs, "duckdb": DuckDB}
