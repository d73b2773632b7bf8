"""The statements that Delta adds to Spark's SQL, and how their texts are read.

The JVM sends the tokens of Spark's own lexer, so that comments, strings and backticks mean what they mean in
any SQL. Then it parses the expressions and the table's name with Spark's own parser, and finds out whether
the table is a Delta table.
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
        | DRY RUN @dryRun
        | USING INVENTORY ( '(' <inventory.query:text> ')' | <inventory.table:name> ) )*""",
    "Fsck": "FSCK REPAIR TABLE <table> [DRY RUN @dryRun]",
    "Optimize": f"""OPTIMIZE <table> [FULL @full] [WHERE <where[]:sql ZORDER>]
        [ZORDER BY ( '(' {_COLUMNS} ')' | {_COLUMNS} )]""",
    "DescribeHistory": "(DESCRIBE | DESC) HISTORY <table> [LIMIT <limit:number>]",
    "DescribeDetail": "(DESCRIBE | DESC) DETAIL <table>",
    "Restore": f"RESTORE [TABLE] <table> [TO] {_AT}",
    "Convert": """CONVERT TO DELTA <table> [NO STATISTICS @noStatistics]
        [PARTITIONED BY '(' <partitionedBy:text> ')']""",
    "Generate": "GENERATE <mode:word> FOR TABLE <table>",
    "Reorg": "REORG TABLE <table> [WHERE <where[]:sql APPLY>] APPLY '(' PURGE ')'",
    "ReorgUniform": "REORG TABLE <table> APPLY '(' UPGRADE <:rest>",
    "Clone": f"""( CREATE [OR REPLACE @replace] | REPLACE @replace @mustExist ) TABLE
        [IF NOT EXISTS @ifNotExists] <target:name> [SHALLOW @isShallow | DEEP] CLONE <table> [{_AT}]
        [TBLPROPERTIES <properties:properties>] [LOCATION <location:literal>]""",
    "AddCheckConstraint": """ALTER TABLE <table> ADD CONSTRAINT <checkConstraint.userProvidedName:word>
        CHECK '(' <checkConstraint.condition:text> ')'""",
    "DropConstraint": "ALTER TABLE <table> DROP CONSTRAINT [IF EXISTS @ifExists] <name:word>",
    "SyncIdentity": "ALTER TABLE <table> (ALTER | CHANGE) [COLUMN] <column:name> SYNC IDENTITY",
    "DropFeature": "ALTER TABLE <table> DROP FEATURE <featureName:word> [TRUNCATE HISTORY @truncateHistory]",
}
"""By the name of the statement, its pattern, which says what fields its function gets (see
deltaflow.spark.sql.grammar)."""

_PATTERNS = {name: compiled(pattern) for name, pattern in STATEMENTS.items()}
_BEFORE_SPARK = frozenset(("DESCRIBE", "DESC", "EXPLAIN"))
"""First words of texts that Spark's parser would misread. All other texts go to Spark's parser first."""
_WITH_SPARKS_ERRORS = frozenset(("ALTER", "CREATE", "REPLACE"))
"""First words that so many of Spark's statements share that only Spark's parser can tell what is wrong."""
_SPARKS_TOO = frozenset(("AddCheckConstraint", "DropConstraint"))
"""Statements that Spark has since 4.1."""
_EXPLAIN_MODES = frozenset(("LOGICAL", "FORMATTED", "EXTENDED", "CODEGEN", "COST"))


def first_words(request: NoFields) -> WordsAnswer:
    """The first words of the texts that `parse` may read, before or after Spark's parser has tried."""
    firsts = {re.findall(r"[A-Z]+", pattern)[0] for pattern in STATEMENTS.values()}
    return WordsAnswer(before=sorted(_BEFORE_SPARK), after=sorted(firsts | _WITH_SPARKS_ERRORS))


def parse(request: ParseRequest) -> ParseAnswer:
    """Reads a text by its tokens. The answer is empty if the text is none of Delta's statements."""
    text = request.text
    tokens = [Token(token_type, start, end, text[start:end]) for token_type, start, end in request.tokens]
    begin = _after_explain(tokens)
    wrong = ParseAnswer()
    for name, pattern in _PATTERNS.items():
        reading = Reading(text, tokens, begin)
        try:
            reading.read_all(pattern)
        except MismatchError as mismatch:
            if reading.table is not None and tokens[begin].text.upper() not in _WITH_SPARKS_ERRORS:
                wrong = ParseAnswer(table=reading.table, mismatch=mismatch.at)
            continue
        statement = ParsedStatement(
            name=name,
            fields=reading.fields,
            values=reading.values,
            explain=text[: tokens[begin].start] if begin else None,
            is_sparks_too=name in _SPARKS_TOO,
        )
        return ParseAnswer(table=reading.table, statement=statement)
    return wrong


def _after_explain(tokens: Sequence[Token]) -> int:
    """The number of the statement's first token: 0, or the one behind EXPLAIN and its mode."""
    words = [token.text.upper() for token in tokens[:2]]
    if words[:1] != ["EXPLAIN"]:
        return 0
    return 2 if words[1:] and words[1] in _EXPLAIN_MODES else 1
