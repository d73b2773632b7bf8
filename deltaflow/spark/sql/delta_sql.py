"""The statements that Delta adds to Spark's SQL, and how their texts are read.

The JVM asks with the words of Spark's own lexer, so comments, strings and backticks are as in any SQL. It
parses expressions and the table's name with Spark's own parser, and finds out whether it is a Delta table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from deltaflow.spark.bridge.messages import NoFields
from deltaflow.spark.sql.grammar import MismatchError, Reading, Token, compiled
from deltaflow.spark.sql.messages import ParseAnswer, ParsedStatement, ParseRequest, WordsAnswer

_AT = """[FOR] ( (VERSION | SYSTEM_VERSION) AS OF <version:literal>
               | (TIMESTAMP | SYSTEM_TIME) AS OF <timestamp:constant TBLPROPERTIES LOCATION> )"""
_COLUMNS = "<zOrderBy[]:column> (',' <zOrderBy[]:column>)*"

STATEMENTS: Mapping[str, str] = {
    "Vacuum": """VACUUM <table> ( FULL @full | LITE @lite | RETAIN <retentionHours:number> HOURS
        | DRY RUN @dryRun )*""",
    "VacuumInventory": """VACUUM <table> ( FULL | LITE | RETAIN <:number> HOURS | DRY RUN )*
        USING INVENTORY <:rest>""",
    "Optimize": f"""OPTIMIZE <table> [FULL @full] [WHERE <where[]:sql ZORDER>]
        [ZORDER BY ( '(' {_COLUMNS} ')' | {_COLUMNS} )]""",
    "DescribeHistory": "(DESCRIBE | DESC) HISTORY <table> [LIMIT <limit:number>]",
    "DescribeDetail": "(DESCRIBE | DESC) DETAIL <table>",
    "Restore": f"RESTORE [TABLE] <table> [TO] {_AT}",
    "Convert": """CONVERT TO DELTA <table> [NO STATISTICS @noStatistics]
        [PARTITIONED BY '(' <partitionedBy:text> ')']""",
    "Generate": "GENERATE <mode:word> FOR TABLE <table>",
    "Reorg": "REORG TABLE <table> <:rest>",
    "ShallowClone": f"""( CREATE [OR REPLACE @replace] | REPLACE @replace @mustExist ) TABLE
        [IF NOT EXISTS @ifNotExists] <target:name> SHALLOW CLONE <table> [{_AT}]
        [TBLPROPERTIES <properties:properties>] [LOCATION <location:literal>]""",
    "AddCheckConstraint": """ALTER TABLE <table> ADD CONSTRAINT <checkConstraint.userProvidedName:word>
        CHECK '(' <checkConstraint.condition:text> ')'""",
    "DropConstraint": "ALTER TABLE <table> DROP CONSTRAINT [IF EXISTS @ifExists] <name:word>",
    "DropFeature": "ALTER TABLE <table> DROP FEATURE <featureName:word> [TRUNCATE HISTORY @truncateHistory]",
}
"""By the kind of statement, the fields that its function gets (see deltaflow.spark.sql.grammar)."""

_PATTERNS = {kind: compiled(pattern) for kind, pattern in STATEMENTS.items()}
_BEFORE_SPARK = frozenset(("DESCRIBE", "DESC", "EXPLAIN"))
"""The first words of what Spark's parser would take for another statement; of all else it is asked first."""
_WITH_SPARKS_ERRORS = frozenset(("ALTER", "CREATE", "REPLACE"))
"""The first words of statements of which Spark has so many that only its parser can tell what is wrong."""
_EXPLAIN_MODES = frozenset(("LOGICAL", "FORMATTED", "EXTENDED", "CODEGEN", "COST"))


def first_words(request: NoFields) -> WordsAnswer:
    """The words that texts begin with of which `parse` is to be asked, before or after Spark's parser."""
    firsts = {re.findall(r"[A-Z]+", pattern)[0] for pattern in STATEMENTS.values()}
    return WordsAnswer(before=sorted(_BEFORE_SPARK), after=sorted(firsts | _WITH_SPARKS_ERRORS))


def parse(request: ParseRequest) -> ParseAnswer:
    """Reads a text, of which the JVM tells the tokens. Empty if it is none of Delta's statements."""
    text = request.text
    tokens = [Token(kind, start, end, text[start:end]) for kind, start, end in request.tokens]
    begin = _after_explain(tokens)
    wrong = ParseAnswer()
    for kind, pattern in _PATTERNS.items():
        reading = Reading(text, tokens, begin)
        try:
            reading.read_all(pattern)
        except MismatchError as mismatch:
            if reading.table is not None and tokens[begin].text.upper() not in _WITH_SPARKS_ERRORS:
                wrong = ParseAnswer(table=reading.table, mismatch=mismatch.at)
            continue
        statement = ParsedStatement(
            kind=kind,
            fields=reading.fields,
            values=reading.values,
            explain=text[: tokens[begin].start] if begin else None,
        )
        return ParseAnswer(table=reading.table, statement=statement)
    return wrong


def _after_explain(tokens: Sequence[Token]) -> int:
    """The number of the token behind EXPLAIN, which is that of the first one without it."""
    words = [token.text.upper() for token in tokens[:2]]
    if words[:1] != ["EXPLAIN"]:
        return 0
    return 2 if words[1:] and words[1] in _EXPLAIN_MODES else 1
