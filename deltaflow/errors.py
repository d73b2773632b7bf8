"""Every error that deltaflow raises, in one tree by what a handler does; * is an `AnalysisException` of
PySpark too, + a `PySparkException`.

An `except` clause that was written for delta-spark catches them as well. Therefore
`DeltaIllegalArgumentException` is an `IllegalArgumentException` of PySpark too, and
`DeltaUnsupportedOperationException` an `UnsupportedOperationException`. Where delta-spark raises a condition
by a class that is not a base of the class that is raised here, the condition's entry in the catalogue names
that class, and the error gets it as a further base.

    DeltaError
      DeltaConcurrentModificationException +  another writer won: run the operation again
        ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException,
        ConcurrentTransactionException, ConcurrentWriteException, MetadataChangedException,
        ProtocolChangedException
      CommitOutcomeUnknownError             the commit may have landed: delete nothing, look at the table
      CommitReplacedError                   an earlier commit was lost to a writer that replaced it
      PostCommitHookError                   the commit is in the log; work that follows it failed
      DeltaTableNotFoundError *             there is no Delta table
      VersionNotFoundError *                the table has no such version
      DeltaTableAlreadyExistsError *        there is a table where none may be
      UnsupportedFeatureError *             the table needs what deltaflow lacks: `.features`
      CorruptLogError                       the log itself is broken
      DeltaAnalysisException *              the request does not fit the table
        SchemaError *                       a schema that cannot be written, or partitioning that is wrong
          SchemaMismatchError *             the data's schema is not the table's
      DeltaIllegalArgumentException *       an option or argument has a wrong value
      DeltaInvariantViolationException      a row breaks a rule of the table
      DeltaIllegalStateException            a stream, its checkpoint and its source do not fit together
      DeltaUnsupportedOperationException *  an operation that deltaflow or the table does not allow
      StoreError                            the storage failed, or cannot give what a log needs
        WriteRefusedError                   nothing was written, nor will it be
      OperationCancelledError               the caller stopped it before the commit
      SetupError                            the session or the machine is not ready
        RegistrationError, JavaNotFoundError

An error gets its bases of PySpark when it is made, so that PySpark need not be imported before.

After any error of a commit except `CommitOutcomeUnknownError` and `PostCommitHookError`, the commit is not in
the log.
"""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

from deltaflow.error_classes import CATALOGUE

# Both are searched in linear time: whoever writes a log chooses much of a message.
_PASSWORD = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://[^/@:\s]*):[^/@\s]+@")
_SIGNATURE = re.compile(
    r"([?&](?:sig|signature|token|delegation|password|secret|x-amz-[a-z-]+)=)[^&\s\"']+", re.IGNORECASE
)


def without_secrets(text: str) -> str:
    """The text with *** in place of the passwords and signatures of its URLs."""
    if "://" not in text and "=" not in text:
        return text
    return _SIGNATURE.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def traceback_text(error: BaseException) -> str:
    """The traceback of an error, and of those that it came from, without secrets."""
    return without_secrets(_traceback(error)).rstrip()


def cause_without_secrets(error: Exception) -> Exception | None:
    """The error, as the cause of another; None if its traceback tells a secret."""
    text = _traceback(error)
    return error if without_secrets(text) == text else None


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _rebuild(cls: type[DeltaError], state: dict[str, Any]) -> DeltaError:
    error = cls.__new__(cls, error_class=state.get("error_class"))
    error.__dict__.update(state)
    error.args = (str(error),)
    return error


def error_of_server(name: str, condition: str, message: str) -> DeltaError | None:
    """An error that another process raised, by its `name`, condition and text; None for an unknown name.

    The message names its table and other places, and the error's attributes do not.
    """
    cls = globals().get(name)
    if not (isinstance(cls, type) and issubclass(cls, DeltaError)):
        return None
    state = dict.fromkeys(("table", "version", "file", "column"))
    text = message.removeprefix(f"[{condition}] ")
    return _rebuild(
        cls,
        {
            **state,
            "error_class": condition,
            "sqlstate": CATALOGUE.get(condition, (cls.sqlstate,))[0],
            "message": text,
            "parameters": {},
        },
    )


@functools.cache
def _class_of_condition(cls: Any, error_class: str) -> Any:
    """`cls`, or a subclass with its name that also has the bases of PySpark for it and for the condition."""
    names = [*cls.spark_bases, *CATALOGUE.get(error_class, ())[2:]]
    if not names:
        return cls
    from pyspark import errors as of_spark

    found = [getattr(of_spark, name) for name in names]
    missing = [
        base
        for base in found
        if not issubclass(cls, base) and not any(issubclass(o, base) for o in found if o is not base)
    ]
    if not missing:
        return cls
    namespace = {"__doc__": cls.__doc__, "__module__": cls.__module__, "_raised_as": cls}
    return type(cls.__name__, (cls, *missing), namespace)


class DeltaError(Exception):
    """What happened, where, and what helps; `error_class` is stable, str() is "[CODE] message".

    Without `message` the text is that of `error_class` in the catalogue, filled from `parameters`.
    Answers what PySpark's exceptions answer (`getCondition`, `getSqlState`, …).
    """

    error_class: str = "DELTA_ERROR"
    sqlstate: str | None = None
    spark_bases: ClassVar[tuple[str, ...]] = ()
    """The classes of pyspark.errors, by their names, that an error of the class is an instance of, too."""
    _raised_as: type[DeltaError] | None = None
    """For a class that was made for one condition: the class of this module that it extends."""

    def __new__(cls, *_: object, error_class: str | None = None, **__: object) -> Self:
        """An error of the class, with its bases of PySpark and the one that the catalogue names."""
        declared: Any = cls
        raised: type[Self] = _class_of_condition(declared, error_class or cls.error_class)
        return super().__new__(raised)

    def __init__(
        self,
        message: str | None = None,
        *,
        error_class: str | None = None,
        table: str | None = None,
        version: int | None = None,
        file: str | None = None,
        column: str | None = None,
        **parameters: object,
    ) -> None:
        if error_class is not None:
            self.error_class = error_class
        self.sqlstate, template = CATALOGUE.get(self.error_class, (self.sqlstate, None))[:2]
        if message is None:
            if template is None:
                raise TypeError(f"{self.error_class} has no message in the catalogue: give one")
            message = template.format_map(parameters)
        self.table, self.version, self.file, self.column = table, version, file, column
        self.parameters = {name: without_secrets(str(value)) for name, value in parameters.items()}
        self.message = without_secrets(message + self._where(message))
        # A program may print these: the command line does, with --json.
        self.table, self.file = (None if place is None else without_secrets(place) for place in (table, file))
        Exception.__init__(self, str(self))

    def _where(self, message: str) -> str:
        """Table, version, file and column, as far as the message does not name them."""
        places = {"table": self.table, "version": self.version, "file": self.file, "column": self.column}
        named = [
            f"{name} {value}"
            for name, value in places.items()
            if value is not None and (f"{name} {value}" if name == "version" else str(value)) not in message
        ]
        return f" ({', '.join(named)})" if named else ""

    def __str__(self) -> str:
        return f"[{self.error_class}] {self.message}"

    @property
    def name(self) -> str:
        """The name of its class in this module."""
        return (self._raised_as or type(self)).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._raised_as or type(self), dict(self.__dict__))

    def getCondition(self) -> str:
        """`error_class`, by PySpark's name."""
        return self.error_class

    def getErrorClass(self) -> str:
        """`error_class`, by PySpark's older name."""
        return self.error_class

    def getSqlState(self) -> str | None:
        """`sqlstate`, by PySpark's name."""
        return self.sqlstate

    def getMessage(self) -> str:
        """str(), by PySpark's name."""
        return str(self)

    def getMessageParameters(self) -> dict[str, str]:
        """The parameters of the message, as texts."""
        return self.parameters

    def getQueryContext(self) -> list[Any]:
        """Always empty: no piece of SQL text is to blame."""
        return []

    def getBreakingChangeInfo(self) -> None:
        """Always None."""
        return


class DeltaConcurrentModificationException(DeltaError):
    """Another writer committed first; nothing of this operation is in the log, it may be run again."""

    spark_bases = ("PySparkException",)
    error_class = "DELTA_CONCURRENT_MODIFICATION"
    sqlstate = "2D521"


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """The table has new data since it was read."""

    error_class = "DELTA_CONCURRENT_WRITE"


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Files were added that this operation would have read."""

    error_class = "DELTA_CONCURRENT_APPEND"


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Files were removed that this operation read."""

    error_class = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Files were removed that this operation removes."""

    error_class = "DELTA_CONCURRENT_DELETE_DELETE"


class MetadataChangedException(DeltaConcurrentModificationException):
    """The table's metadata changed."""

    error_class = "DELTA_METADATA_CHANGED"


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """Another commit has the same application id."""

    error_class = "DELTA_CONCURRENT_TRANSACTION"


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The protocol changed, or the table was created meanwhile."""

    error_class = "DELTA_PROTOCOL_CHANGED"


class CommitOutcomeUnknownError(DeltaError):
    """The commit may or may not be in the log: delete none of its files before that is known."""

    error_class = "DELTA_COMMIT_OUTCOME_UNKNOWN"


class CommitReplacedError(DeltaError):
    """A commit of this process succeeded, and another writer's has taken its place in the log since."""

    error_class = "DELTA_COMMIT_REPLACED"
    sqlstate = "XXKDS"


class PostCommitHookError(DeltaError):
    """The commit is in the log, and work that follows it failed: do not run the operation again."""

    error_class = "DELTA_POST_COMMIT_HOOK_FAILED"
    sqlstate = "2DKD0"


@contextmanager
def after_commit(failure: str, advice: str, *, table: str, version: int) -> Iterator[None]:
    """Work that follows the commit of `version`: whatever it raises is a PostCommitHookError. `failure` says
    what is not as it should be then."""
    try:
        yield
    except Exception as error:
        raise PostCommitHookError(
            f"Version {version} of {table} is committed, but {failure}: {error}. {advice}",
            table=table,
            version=version,
        ) from error


class DeltaTableNotFoundError(DeltaError):
    """There is no Delta table at the path."""

    spark_bases = ("AnalysisException",)
    error_class = "DELTA_MISSING_DELTA_TABLE"
    sqlstate = "42P01"


class VersionNotFoundError(DeltaError):
    """The table has no such version, or its log no longer has it."""

    spark_bases = ("AnalysisException",)
    error_class = "DELTA_VERSION_NOT_FOUND"
    sqlstate = "22003"


class DeltaTableAlreadyExistsError(DeltaError):
    """There is a table, or a directory with other data, where none may be."""

    spark_bases = ("AnalysisException",)
    error_class = "DELTA_PATH_EXISTS"


class UnsupportedFeatureError(DeltaError):
    """The table needs features that deltaflow lacks: `features` names them."""

    spark_bases = ("AnalysisException",)
    error_class = "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
    sqlstate = "56038"
    features: tuple[str, ...] = ()

    def __init__(
        self,
        message: str | None = None,
        *,
        features: Sequence[str] = (),
        error_class: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message, error_class=error_class, **context)
        self.features = tuple(features)


class CorruptLogError(DeltaError):
    """The transaction log is broken: a file cannot be understood, or is missing."""

    error_class = "DELTA_LOG_CORRUPT"
    sqlstate = "XXKDS"


class DeltaAnalysisException(DeltaError):
    """The request does not fit the table."""

    spark_bases = ("AnalysisException",)
    error_class = "DELTA_ANALYSIS_ERROR"


class SchemaError(DeltaAnalysisException):
    """A schema that cannot be written, or partition columns that do not fit it."""

    error_class = "DELTA_INVALID_SCHEMA"


class SchemaMismatchError(SchemaError):
    """The data's schema is not the table's."""

    error_class = "DELTA_METADATA_MISMATCH"
    sqlstate = "42KDG"


class DeltaIllegalArgumentException(DeltaError):
    """An option or argument has a wrong value."""

    spark_bases = ("AnalysisException", "IllegalArgumentException")
    error_class = "DELTA_ILLEGAL_OPTION"


class DeltaInvariantViolationException(DeltaError):
    """A row breaks a rule of the table: NOT NULL, an invariant, a CHECK constraint, the length of a CHAR."""

    error_class = "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"


class DeltaIllegalStateException(DeltaError):
    """A stream, its checkpoint and its source do not fit together."""

    error_class = "DELTA_ILLEGAL_STATE"


class DeltaUnsupportedOperationException(DeltaError):
    """An operation that deltaflow, or the table, does not allow."""

    spark_bases = ("AnalysisException", "UnsupportedOperationException")
    error_class = "DELTA_UNSUPPORTED_OPERATION"
    sqlstate = "0AKDC"


class StoreError(DeltaError):
    """The storage failed, or cannot give what a log needs."""

    error_class = "DELTA_STORE_ERROR"


class WriteRefusedError(StoreError):
    """The storage refused a write, or it was not begun: nothing was written, nor will it appear later."""


class OperationCancelledError(DeltaError):
    """The caller stopped the operation before its commit: nothing of it is in the log."""

    error_class = "DELTA_OPERATION_CANCELLED"
    sqlstate = "57014"


class SetupError(DeltaError):
    """The session or the machine is not ready for deltaflow."""

    error_class = "DELTA_SETUP_ERROR"


class RegistrationError(SetupError):
    """The delta format cannot be registered in this session."""

    error_class = "DELTA_REGISTRATION_FAILED"


class JavaNotFoundError(SetupError):
    """No Java that Spark can run on was found."""

    error_class = "DELTA_JAVA_NOT_FOUND"
