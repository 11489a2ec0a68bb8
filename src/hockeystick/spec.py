"""Frozen, validated descriptions: the base class of samplers, strategies, mechanisms and plans."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hockeystick.errors import InvalidInputError

Count = Annotated[int, Field(ge=1, le=10**9)]
"""A number of examples, steps, bins or epochs."""
Probability = Annotated[float, Field(gt=0.0, le=1.0)]
"""A sampling rate."""
NoiseMultiplier = Annotated[float, Field(ge=1e-2, le=1e6)]
"""Standard deviation of the noise in units of the clipping norm."""


class Spec(BaseModel):
    """A frozen, keyword-only description that validates once, at the boundary.

    Raises :class:`~hockeystick.errors.InvalidInputError` with one sentence that names the field, the value and
    what is allowed. Unknown keys, wrong types, NaN and infinities are refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error)) from None

    # Without this mark pydantic would call this constructor for nested fields too, and wrap our error in its own.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def parse(cls, values: object) -> Self:
        """Validate plain data (from TOML, JSON or Python) into this description."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error)) from None

    @classmethod
    def parse_json(cls, text: str | bytes) -> Self:
        """Validate a JSON document into this description."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error)) from None


def one_sentence(error: ValidationError) -> str:
    """Say the first problem of a validation error in one sentence: field, value, what is allowed."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"] if part not in _union_tags(error))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    value = problem.get("input")
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"The {where!r} field is not known here; remove it or correct its name."
    if kind == "missing":
        return f"The {where!r} field is missing and has to be given."
    if kind == "json_invalid":
        return f"The document is not valid JSON: {message}."
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        expected = problem.get("ctx", {}).get("expected_tags", "")
        got = problem.get("ctx", {}).get("tag", "nothing")
        return f"The '{where + '.' if where else ''}kind' field must be one of {expected}. Got {got!r} instead."
    if kind == "value_error":
        return f"{message}." if not where or message.startswith("The ") else f"The {where!r} field: {message}."
    allowed = message[0].lower() + message[1:]
    allowed = allowed.removeprefix("input should ")
    allowed = "must " + allowed if not allowed.startswith("must") else allowed
    return f"The {where or 'whole'!r} field {allowed}. Got {_short(value)} instead."


def _union_tags(error: ValidationError) -> set[str]:
    """Names that pydantic inserts into a location to say which member of a union it tried."""
    tags = set()
    for problem in error.errors(include_url=False):
        for outer, inner in zip(problem["loc"], problem["loc"][1:], strict=False):
            if outer in ("sampler", "strategy"):
                tags.add(str(inner))
    return tags - {"kind"}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
