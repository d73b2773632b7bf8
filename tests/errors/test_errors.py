from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    IllegalArgumentException,
    UnsupportedOperationException,
)

from deltaflow import error_classes, errors


def all_errors() -> list[type[errors.DeltaError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DeltaError)
    ]


@pytest.mark.parametrize("error_type", all_errors(), ids=lambda error_type: error_type.__name__)
def test_every_error_survives_pickling(error_type: type[errors.DeltaError]) -> None:
    error = error_type("It broke.", table="/t", version=3, file="f.json", column="c", reason=7)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__
        assert twin.args == error.args


@pytest.mark.parametrize(
    ("error_type", "condition", "caught"),
    [
        (errors.DeltaIllegalArgumentException, "DELTA_ILLEGAL_OPTION", IllegalArgumentException),
        (
            errors.DeltaIllegalArgumentException,
            "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
            UnsupportedOperationException,
        ),
        (
            errors.DeltaUnsupportedOperationException,
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            UnsupportedOperationException,
        ),
        (errors.DeltaIllegalStateException, "DELTA_SOURCE_IGNORE_DELETE", UnsupportedOperationException),
        (
            errors.DeltaInvariantViolationException,
            "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            ArithmeticException,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_except_clause_for_delta_spark_catches_the_condition(
    error_type: type[errors.DeltaError], condition: str, caught: type[Exception]
) -> None:
    with pytest.raises(caught, match="It broke") as raised:
        raise error_type("It broke.", error_class=condition)
    assert isinstance(raised.value, error_type)
    assert type(raised.value).__name__ == error_type.__name__
    for twin in (pickle.loads(pickle.dumps(raised.value)), copy.deepcopy(raised.value)):
        assert type(twin) is type(raised.value)
        assert str(twin) == str(raised.value)


@pytest.mark.parametrize("error_type", all_errors(), ids=lambda error_type: error_type.__name__)
def test_every_error_answers_as_pysparks_do(error_type: type[errors.DeltaError]) -> None:
    error = error_type("It broke.", reason=7)
    assert str(error) == f"[{error_type.error_class}] It broke."
    assert error.getMessage() == str(error)
    assert error.getCondition() == error.getErrorClass() == error.error_class
    assert error.getSqlState() == error.sqlstate
    assert error.getMessageParameters() == {"reason": "7"}
    assert error.getQueryContext() == []
    assert error.getBreakingChangeInfo() is None


@pytest.mark.parametrize(
    "error_type",
    [
        errors.DeltaTableNotFoundError,
        errors.DeltaTableAlreadyExistsError,
        errors.SchemaMismatchError,
        errors.SchemaError,
        errors.UnsupportedFeatureError,
        errors.DeltaIllegalArgumentException,
        errors.DeltaUnsupportedOperationException,
    ],
)
def test_errors_that_spark_users_expect_are_analysis_exceptions(error_type: type[errors.DeltaError]) -> None:
    with pytest.raises(AnalysisException, match="It broke"):
        raise error_type("It broke.")


def test_every_catalogue_message_can_be_built_and_has_a_sqlstate() -> None:
    class AnyParameters(dict[str, object]):
        def __missing__(self, name: str) -> str:
            return f"<{name}>"

    for code, (sqlstate, template, *_) in error_classes.CATALOGUE.items():
        assert len(sqlstate) == 5, code
        assert "{" not in (template or "").format_map(AnyParameters()).replace(",;{}()", ""), code


def test_a_code_of_the_catalogue_brings_its_message_and_sqlstate() -> None:
    error = errors.DeltaIllegalArgumentException(
        error_class="DELTA_ILLEGAL_OPTION", input="x", name="maxFilesPerTrigger", explain="must be positive"
    )
    assert (
        str(error)
        == "[DELTA_ILLEGAL_OPTION] Invalid value 'x' for option 'maxFilesPerTrigger', must be positive."
    )
    assert error.sqlstate == "42616"


def test_places_that_the_message_does_not_name_are_added() -> None:
    error = errors.CorruptLogError("Broken in /t.", table="/t", version=4, file="00.json")
    assert str(error) == "[DELTA_LOG_CORRUPT] Broken in /t. (version 4, file 00.json)"


def test_a_code_without_a_message_is_refused() -> None:
    with pytest.raises(TypeError, match="DELTA_STORE_ERROR"):
        errors.StoreError()


def test_unsupported_features_are_named() -> None:
    error = pickle.loads(pickle.dumps(errors.UnsupportedFeatureError("No.", features=["a", "b"])))
    assert error.features == ("a", "b")


def test_every_text_of_the_catalogue_is_raised_somewhere() -> None:
    package = Path(errors.__file__).parent
    of_classes = {value.error_class for value in vars(errors).values() if hasattr(value, "error_class")}
    sources = [
        file.read_text()
        for folder in (package, package / "batch", package / "streaming")
        for file in folder.resolve().rglob("*")
        if file.suffix in (".py", ".java") and file.name != "errors.py"
    ]
    codes = error_classes.CATALOGUE.keys() - of_classes
    assert [code for code in sorted(codes) if not any(f'"{code}"' in source for source in sources)] == []


def test_a_message_made_where_it_is_raised_keeps_the_codes_sqlstate() -> None:
    wrong = errors.DeltaIllegalArgumentException(
        "delta.appendOnly is 'maybe'", error_class="DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED"
    )
    assert (wrong.message, wrong.getSqlState()) == ("delta.appendOnly is 'maybe'", "0A000")
    refused = errors.UnsupportedFeatureError(
        "no void", features=["void"], error_class="DELTA_UNSUPPORTED_DATA_TYPES"
    )
    assert refused.getSqlState() == "0AKDC"
    assert errors.UnsupportedFeatureError("no such", features=["x"]).getSqlState() == "56038"
