"""Tables of PostgreSQL with all types that Debezium and Spark know, too, and random transactions on them."""

from __future__ import annotations

import functools
import json
import random
import string
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.streaming.cdc.postgres.server import Server

LARGE = 9_000
"""Characters of a value that is stored out of line."""


class SourceColumn(NamedTuple):
    """A column that is no key."""

    name: str
    type: str
    shown: str
    """An SQL expression for the text that the value in the Delta table has, too; `{}` is the column."""


def _random_text(chance: random.Random, length: int) -> str:
    letters = string.ascii_letters + string.digits + "äß€漢😀'\"\\ {},\t\n"
    return "".join(chance.choices(letters, k=length))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


BASE64 = "translate(encode({}, 'base64'), E'\\n', '')"
ISO_INTERVAL = (
    "'P' || extract(year from {0}) || 'Y' || extract(month from {0}) || 'M' || extract(day from {0}) || "
    "'DT' || extract(hour from {0}) || 'H' || extract(minute from {0}) || 'M' || "
    "extract(second from {0})::int || 'S'"
)
COLUMNS = [
    SourceColumn("a_smallint", "smallint", "{}::text"),
    SourceColumn("an_int", "int", "{}::text"),
    SourceColumn("a_bigint", "bigint", "{}::text"),
    SourceColumn("a_real", "real", "{}::text"),
    SourceColumn("a_double", "double precision", "{}::text"),
    SourceColumn("a_decimal", "numeric(12,3)", "{}::text"),
    SourceColumn("a_long_decimal", "numeric(38,10)", "{}::text"),
    # Debezium tells a zero without its scale.
    SourceColumn("a_numeric", "numeric", "CASE WHEN {0} = 0 THEN '0' ELSE {0}::text END"),
    SourceColumn("some_money", "money", "{}::numeric::text"),
    SourceColumn("a_bool", "boolean", "{}::text"),
    SourceColumn("a_char", "char(5)", "rpad({}, 5)"),
    SourceColumn("a_varchar", "varchar(20)", "{}"),
    SourceColumn("a_citext", "citext", "{}::text"),
    SourceColumn("a_date", "date", "{}::text"),
    SourceColumn("a_timestamp", "timestamp", "to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')"),
    SourceColumn("a_short_timestamp", "timestamp(3)", "to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')"),
    SourceColumn("an_instant", "timestamptz", "to_char({} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"),
    SourceColumn(
        "a_time",
        "time",
        "case when {0} = '24:00' then '24:00:00.000000' else to_char({0}, 'HH24:MI:SS.US') end",
    ),
    SourceColumn("a_short_time", "time(3)", "to_char({}, 'HH24:MI:SS.US')"),
    SourceColumn("an_interval", "interval", ISO_INTERVAL),
    SourceColumn("a_uuid", "uuid", "{}::text"),
    SourceColumn("a_jsonb", "jsonb", "{}::text"),
    SourceColumn("a_json", "json", "{}::text"),
    SourceColumn("an_xml", "xml", "{}::text"),
    SourceColumn("an_inet", "inet", "abbrev({})"),
    SourceColumn("a_cidr", "cidr", "{}::text"),
    SourceColumn("a_macaddr", "macaddr", "{}::text"),
    SourceColumn("a_mood", "mood", "{}::text"),
    SourceColumn("a_range", "int4range", "{}::text"),
    SourceColumn("a_tree", "ltree", "{}::text"),
    SourceColumn("a_bit", "bit(1)", "({} = B'1')::text"),
    SourceColumn("an_oid", "oid", "{}::text"),
    SourceColumn("a_point", "point", "{0}[0] || ',' || {0}[1]"),
    SourceColumn("some_ints", "int[]", "to_json({})::text"),
    SourceColumn("some_bigints", "bigint[]", "to_json({})::text"),
    SourceColumn("some_texts", "text[]", "to_json({})::text"),
    SourceColumn("some_decimals", "numeric(10,2)[]", "array_to_string({}, ',', 'null')"),
    SourceColumn("some_dates", "date[]", "array_to_string({}, ',', 'null')"),
    SourceColumn("some_uuids", "uuid[]", "array_to_string({}, ',', 'null')"),
    SourceColumn("a_text", "text", "{}"),
    SourceColumn("some_bytes", "bytea", BASE64),
]
LARGE_COLUMNS = {"a_text", "some_bytes", "a_jsonb", "some_texts", "some_ints"}
"""Their values may be stored out of line."""


def literal(column: SourceColumn, chance: random.Random) -> str:
    """A random value as SQL; sometimes null, sometimes the last or first of its kind."""
    if chance.random() < 0.15:
        return "NULL"
    name, pick = column.name, chance.choice
    day = f"{chance.randint(2, 2500):04d}-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}"
    clock = f"{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:{chance.randint(0, 59):02d}"
    micros = f"{chance.randint(0, 999_999):06d}"
    large = name in LARGE_COLUMNS and chance.random() < 0.6
    values = {
        "a_smallint": lambda: pick([-(2**15), 2**15 - 1, chance.randint(-9, 9)]),
        "an_int": lambda: pick([-(2**31), 2**31 - 1, chance.randint(-99, 99)]),
        "a_bigint": lambda: f"'{pick([-(2**63), 2**63 - 1, chance.randint(-99, 99)])}'",
        "a_real": lambda: pick(["'NaN'", "'Infinity'", "'-Infinity'", "0.1", "-1.5e30", "1e-40"]),
        "a_double": lambda: pick(
            ["'NaN'", "'-Infinity'", "0.1", "1.7976931348623157e308", str(chance.gauss(0, 1e6))]
        ),
        "a_decimal": lambda: pick(
            ["-999999999.999", "999999999.999", "0", "-0.001", f"{chance.gauss(0, 999):.3f}"]
        ),
        "a_long_decimal": lambda: pick(
            [
                "9" * 28 + "." + "9" * 10,
                "-" + "9" * 28 + "." + "9" * 10,
                "0.0000000001",
                f"{chance.gauss(0, 9e9):.5f}",
            ]
        ),
        "a_numeric": lambda: pick(
            [
                "0",
                "0.00",
                "-1200",
                "1e20",
                "123456789012345678901234567890.12345678",
                f"{chance.gauss(0, 9):.12f}",
            ]
        ),
        "some_money": lambda: f"{chance.randint(-99999, 99999) / 100}::numeric::money",
        "a_bool": lambda: pick(["true", "false"]),
        "a_char": lambda: _quoted(_random_text(chance, chance.randint(0, 5)).strip()),
        "a_varchar": lambda: _quoted(_random_text(chance, chance.randint(0, 20))),
        "a_citext": lambda: _quoted(_random_text(chance, 5)),
        "a_date": lambda: f"'{day}'",
        "a_timestamp": lambda: f"'{day} {clock}.{micros}'",
        "a_short_timestamp": lambda: f"'{day} {clock}.{micros[:3]}'",
        "an_instant": lambda: f"'{day} {clock}.{micros}{pick(['+00', '+05:30', '-08'])}'",
        "a_time": lambda: pick(["'24:00'", "'00:00'", f"'{clock}.{micros}'"]),
        "a_short_time": lambda: f"'{clock}.{micros[:3]}'",
        "an_interval": lambda: f"'{chance.randint(-9, 9)} months {chance.randint(-40, 40)} days {clock}'",
        "a_uuid": lambda: f"md5('{chance.random()}')::uuid",
        "an_xml": lambda: "'<a b=\"1\">text</a>'",
        "an_inet": lambda: pick(["'10.0.0.1'", "'::1'", "'192.168.0.0/24'"]),
        "a_cidr": lambda: pick(["'10.0.0.0/8'", "'::/0'"]),
        "a_macaddr": lambda: "'08:00:2b:01:02:03'",
        "a_mood": lambda: pick(["'sad'", "'happy'"]),
        "a_range": lambda: pick(["'[1,5)'", "'empty'", "'(,3]'"]),
        "a_tree": lambda: pick(["'a.b.c'", "'x'"]),
        "a_bit": lambda: pick(["B'0'", "B'1'"]),
        "an_oid": lambda: chance.randint(0, 2**32 - 1),
        "a_point": lambda: f"'({chance.randint(-9, 9)}.5,{chance.randint(-9, 9)}.25)'",
        "some_bigints": lambda: pick(["'{}'", f"'{{{chance.randint(-9, 9)},NULL,{2**62}}}'"]),
        "some_decimals": lambda: pick(["'{}'", f"'{{{chance.randint(-9, 9)}.25,NULL}}'"]),
        "some_dates": lambda: pick(["'{}'", f"'{{{day},NULL}}'"]),
        "some_uuids": lambda: pick(["'{}'", f"ARRAY[md5('{chance.random()}')::uuid, NULL]"]),
    }
    if name in values:
        return str(values[name]())
    length = LARGE if large else chance.randint(0, 30)
    text = _random_text(chance, length)
    if name == "a_text" or column.type == "text":
        return _quoted(text)
    if name == "some_bytes":
        return f"'\\x{chance.randbytes(length).hex()}'"
    if name in ("a_jsonb", "a_json"):
        return _quoted(json.dumps({"key": text, "n": [1, None, 2.5, True]}, ensure_ascii=False))
    if name == "some_texts":
        return "ARRAY[" + ",".join(_quoted(text[i : i + 500]) for i in range(0, length, 500)) + "]::text[]"
    if name == "some_ints":
        return f"'{{{','.join(str(chance.randint(-(2**31), 2**31 - 1)) for _ in range(length // 3))}}}'"
    others = {
        "int": str(chance.randint(-9, 9)),
        "date": f"'{day}'",
        "numeric(12,3)": f"{chance.gauss(0, 9):.3f}",
    }
    return others[column.type]


class SourceTable(NamedTuple):
    """A table of the workload."""

    name: str
    keys: tuple[str, ...]
    columns: list[SourceColumn]
    """Without the keys; additions are appended."""


EXTENSIONS = ("hstore", "citext", "ltree")
ADDED = [
    SourceColumn("added_int", "int", "{}::text"),
    SourceColumn("added_text", "text", "{}"),
    SourceColumn("added_date", "date", "{}::text"),
    SourceColumn("added_decimal", "numeric(12,3)", "{}::text"),
]
SENTINEL = "sentinel"


def make_tables(server: Server) -> list[SourceTable]:
    """Creates the tables; in one of them PostgreSQL tells large values that stay as they are."""
    by_name = {column.name: column for column in COLUMNS}
    tables = [
        SourceTable("every_type", ("id",), list(COLUMNS)),
        SourceTable(
            "full_identity", ("id",), [by_name[n] for n in ("an_int", "a_text", "some_bytes", "some_texts")]
        ),
        SourceTable(
            "two_keys", ("id", "region"), [by_name[n] for n in ("a_decimal", "a_varchar", "an_instant")]
        ),
    ]
    statements = [f"CREATE EXTENSION {name};" for name in EXTENSIONS]
    statements.append("CREATE TYPE mood AS ENUM ('sad', 'happy');")
    statements.append(f"CREATE TABLE {SENTINEL} (id int PRIMARY KEY);")
    for table in tables:
        columns = [f"{c.name} {c.type}" for c in table.columns]
        keys = [f"{key} {'int' if key == 'id' else 'text'}" for key in table.keys]
        primary = f"PRIMARY KEY ({', '.join(table.keys)})"
        statements.append(f"CREATE TABLE {table.name} ({', '.join([*keys, *columns, primary])});")
        statements += [
            f"ALTER TABLE {table.name} ALTER {c.name} SET STORAGE EXTERNAL;"
            for c in table.columns
            if c.name in LARGE_COLUMNS
        ]
    statements.append("ALTER TABLE full_identity REPLICA IDENTITY FULL;")
    server.sql("\n".join(statements))
    return tables


def shown_rows(server: Server, table: SourceTable) -> list[list[str | None]]:
    """The rows of a table, each value as the text that it is compared by."""
    shown = [f"{key}::text" for key in table.keys]
    shown += [column.shown.format(f'"{column.name}"') for column in table.columns]
    # A row of text[] has no limit of a hundred arguments.
    lines = server.sql(f"SELECT to_json(ARRAY[{', '.join(shown)}]::text[]) FROM {table.name};")
    return [json.loads(line) for line in lines]


class Session:
    """A client that runs one transaction after the other."""

    def __init__(self, server: Server) -> None:
        self._process = subprocess.Popen(
            server.psql(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=server.environment,
        )

    def run(self, statements: Sequence[str]) -> None:
        """Runs statements in a transaction, which an error or a deadlock rolls back; returns at its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in ("BEGIN;", *statements, "COMMIT;", "\\echo done"):
            self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        while (line := self._process.stdout.readline()) != "done\n":
            if not line:
                raise RuntimeError("psql has ended")

    def close(self) -> None:
        """Ends the client."""
        self._process.communicate(timeout=60)


class Workload:
    """Random transactions of several sessions at once; the same seed gives the same statements."""

    def __init__(self, server: Server, tables: Sequence[SourceTable], seed: int) -> None:
        self._server = server
        self._tables = tables
        self._seed = seed

    def run(self, transactions: int, *, sessions: int = 3, round_: int = 0) -> None:
        """Runs so many transactions in all, then adds the column of this round."""
        with ThreadPoolExecutor(sessions) as pool:
            seeds = [f"{self._seed} {round_} {number}" for number in range(sessions)]
            list(pool.map(functools.partial(self._session, transactions // sessions), seeds))
        if 0 <= round_ < len(ADDED):
            for table in self._tables:
                column = ADDED[round_]
                self._server.sql(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {column.type};")
                table.columns.append(column)

    def _session(self, transactions: int, seed: str) -> None:
        chance = random.Random(seed)
        session = Session(self._server)
        for _ in range(transactions):
            statements = [line for _ in range(chance.randint(1, 5)) for line in self._statements(chance)]
            session.run([*statements, "ROLLBACK;"] if chance.random() < 0.1 else statements)
        session.close()

    def _statements(self, chance: random.Random) -> Iterator[str]:
        table = chance.choice(self._tables)
        columns = list(table.columns)
        known = [self._key(table, chance) for _ in range(2)]
        is_row = " AND ".join(f"{key} = {value}" for key, value in known[0].items())
        kind = chance.random()
        if kind < 0.45:
            values = {**known[0], **{c.name: literal(c, chance) for c in columns}}
            changed = self._some(columns, chance)
            updates = ", ".join(f"{c.name} = excluded.{c.name}" for c in changed)
            yield (
                f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({', '.join(values.values())}) "
                f"ON CONFLICT ({', '.join(table.keys)}) DO UPDATE SET {updates};"
            )
        elif kind < 0.75:
            changed = self._some(columns, chance)
            updates = ", ".join(f"{c.name} = {literal(c, chance)}" for c in changed)
            where = is_row if chance.random() < 0.7 else f"id % 7 = {chance.randint(0, 6)}"
            yield f"UPDATE {table.name} SET {updates} WHERE {where};"
        elif kind < 0.87:
            yield f"DELETE FROM {table.name} WHERE {is_row};"
        elif kind < 0.995:
            moved = [f"{key} = {value}" for key, value in known[1].items()]
            if table.name != "full_identity":
                # Otherwise Debezium would not tell the values of the new row: see the test of that.
                moved += [f"{c.name} = {literal(c, chance)}" for c in columns if c.name in LARGE_COLUMNS]
            is_other = " AND ".join(f"a.{key} = {value}" for key, value in known[0].items())
            free = " AND ".join(f"b.{key} = {value}" for key, value in known[1].items())
            yield (
                f"UPDATE {table.name} a SET {', '.join(moved)} WHERE {is_other} AND NOT EXISTS "
                f"(SELECT 1 FROM {table.name} b WHERE {free});"
            )
        else:
            yield f"TRUNCATE {table.name};"

    @staticmethod
    def _key(table: SourceTable, chance: random.Random) -> dict[str, str]:
        values = {"id": str(chance.randint(1, 60)), "region": chance.choice(["'north'", "'süd'"])}
        return {key: values[key] for key in table.keys}

    @staticmethod
    def _some(columns: Sequence[SourceColumn], chance: random.Random) -> list[SourceColumn]:
        return chance.sample(list(columns), chance.randint(1, 3))
