"""The errors of `table_changes` and `table_changes_by_path`, whose calls TableChanges.java reads."""

from __future__ import annotations

from deltaflow.errors import DeltaAnalysisException
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.messages import Message


class RefusedCallRequest(Message, frozen=True):
    """changes.refuse: what a call lacks."""

    function: str
    fault: str
    """number, table, delta, null, type, or the argument that is no constant: starting or ending."""
    given: str
    position: int
    """Of the argument, from 1."""


@dispatcher.handle("changes.refuse")
def refuse(request: RefusedCallRequest) -> None:
    """Raises the error of a call."""
    function, given = request.function, request.given
    match request.fault:
        case "number":
            raise DeltaAnalysisException(
                error_class="INCORRECT_NUMBER_OF_ARGUMENTS", function=function, given=given
            )
        case "delta":
            raise DeltaAnalysisException(
                f"{given} is not a Delta table. {function} reads only Delta tables.",
                error_class="DELTA_TABLE_ONLY_OPERATION",
            )
        case "null":
            raise DeltaAnalysisException(error_class="DELTA_CDC_READ_NULL_RANGE_BOUNDARY")
        case "table" | "type":
            raise DeltaAnalysisException(
                error_class="DELTA_UNSUPPORTED_EXPRESSION",
                position=request.position,
                function=function,
                given=given,
                allowed="a text" if request.fault == "table" else "a number, a text or a timestamp",
            )
    raise DeltaAnalysisException(
        error_class="DELTA_CDC_NON_CONSTANT_ARGUMENT",
        argument=request.fault,
        position=request.position,
        function=function,
        expression=given,
    )
