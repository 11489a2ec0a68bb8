"""Frozen, validated descriptions: the base class of samplers, strategies, mechanisms and plans."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from threading import RLock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from hockeystick.by_name import named_only
from hockeystick.errors import InvalidInputError, shortened
from hockeystick.misspelt import clauses, expected_at, meant, not_known

Count = Annotated[int, Field(ge=1, le=10**9)]
"""A number of steps, bins, epochs, or examples of a batch."""
MAX_EXAMPLES = 10**11
"""The largest dataset. Its size and all smaller numbers are exact as doubles."""
Examples = Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
"""The size of a dataset."""
Positive = Annotated[float | int, Field(ge=1e-9, le=1e9)]
"""An expected batch size or a number of epochs, whole or not."""
Probability = Annotated[float, Field(gt=0.0, le=1.0)]
"""A sampling rate."""
SMALLEST_NOISE, LARGEST_NOISE = 1e-2, 1e6
LARGEST_EPSILON = 700.0
"""No larger epsilon is bounded: e^epsilon leaves the range of doubles at 709."""
NoiseMultiplier = Annotated[float, Field(ge=SMALLEST_NOISE, le=LARGEST_NOISE)]
"""Standard deviation of the noise in units of the clipping norm."""

DEEPEST = 40
"""How deep tables and lists may be nested; nothing that is read is half as deep."""

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that stay as they are; ``isinstance`` of an abstract class takes ten times as long."""
_BUILDING = RLock()


class Spec(BaseModel):
    """A frozen, keyword-only description that validates once, at the boundary.

    Raises :class:`~hockeystick.errors.InvalidInputError` with one sentence that names the field, the value and
    what is allowed. Values without names, unknown keys, wrong types, NaN and infinities are refused.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # most commands read a few of the descriptions, and building the others takes a while
    )

    @named_only
    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**plain(values))
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error, values, model=type(self))) from None

    OBJECTS: ClassVar[Mapping[str, str]] = {}
    """What errors ask for in fields that hold one of several descriptions, where these are objects of Python."""

    # Without this mark pydantic would call this constructor for nested fields too, and wrap our error in its own.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    if not TYPE_CHECKING:  # by which type checkers would take any attribute

        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError:
                kind = type(self).__name__
                raise InvalidInputError(
                    f"The {name!r} field of this {kind} cannot be changed; make another {kind}."
                ) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values in some fields. Names are checked; values are taken as they are, as by pydantic.

        Raises: InvalidInputError for a name that is no field.
        """
        known = type(self).model_fields
        unknown = [not_known(name, known) for name in update or () if name not in known]
        if unknown:
            raise InvalidInputError(f"T{'; '.join(unknown)[1:]}.")
        return super().model_copy(update=update, deep=deep)

    @classmethod
    def model_rebuild(cls, *, _parent_namespace_depth: int = 2, **options: Any) -> bool | None:
        """Build what was deferred, in one thread at a time; older versions of pydantic have no lock of their own."""
        with _BUILDING:
            return super().model_rebuild(_parent_namespace_depth=_parent_namespace_depth + 1, **options)

    @classmethod
    def parse(cls, values: object) -> Self:
        """Validate plain data (from TOML, JSON or Python) into this description."""
        try:
            return cls.model_validate(plain(values))
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error, values, model=cls)) from None

    @classmethod
    def parse_json(cls, document: str | bytes, name: str = "document") -> Self:
        """Validate a JSON document into this description; ``name`` is what errors call it."""
        text, values = _parsed(document, name)
        try:
            return cls.model_validate_json(text)  # strict in the way of JSON: arrays are tuples, names are enum members
        except ValidationError as error:
            raise InvalidInputError(one_sentence(error, values, name, cls)) from None


class Extended(Spec):
    """A description that got more fields after some were stored, in certificates or as digests.

    The fields named in ``LATER`` are left out of the serialised form while they are None, so that what was stored
    before they existed is still serialised as it was.
    """

    LATER: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unused_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if value is not None or name not in self.LATER}


class Sealed(Spec):
    """A description with a 'digest' field, which shows accidents and naive edits; it is not a signature."""

    def hashed(self) -> dict[str, Any]:
        """The content that the digest is over."""
        return self.model_dump(mode="json", exclude={"digest"})

    def sealed(self) -> Self:
        """The same with its digest filled in."""
        return self.model_copy(update={"digest": self.content_digest()})

    def content_digest(self) -> str:
        """SHA-256 over the canonical JSON of everything but the digest."""
        return hashlib.sha256(json.dumps(self.hashed(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _parsed(document: str | bytes, name: str) -> tuple[str, Any]:
    """A JSON document as text and as plain data; raises InvalidInputError in one sentence when it is not one."""
    try:
        text = document if isinstance(document, str) else document.decode("utf-8-sig")
        return text, json.loads(text, object_pairs_hook=_object_with_distinct_names)
    except UnicodeDecodeError:
        raise InvalidInputError(f"The {name} must be UTF-8 text.") from None
    except RecursionError:
        raise InvalidInputError(f"The {name} is not valid JSON: it is nested too deeply.") from None
    except InvalidInputError as error:
        raise InvalidInputError(f"The {name} is not valid JSON: {error}.") from None
    except ValueError as error:
        raise InvalidInputError(f"The {name} is not valid JSON: {_first_clause(error)}.") from None


def parsed_object(document: str | bytes, name: str) -> dict[str, Any]:
    """The fields of a JSON document that is an object, unchecked; none for a document that is not one."""
    values = _parsed(document, name)[1]
    return values if isinstance(values, dict) else {}


def plain(value: Any, name: str = "input", room: int = DEEPEST) -> Any:
    """The value with numpy's integers, floats and booleans, also inside of tables and lists, as Python's.

    Everything else stays as it is: arrays are not numbers here, and neither are booleans.

    Args:
        name: what errors call the whole.
        room: how many levels of tables and lists are left.

    Raises: InvalidInputError where they are nested deeper.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, Mapping) or type(value) in (list, tuple):
        if not room:
            raise InvalidInputError(f"The {name} must nest tables and lists at most {DEEPEST} deep.")
        if isinstance(value, Mapping):
            return {key: plain(inner, name, room - 1) for key, inner in value.items()}
        return type(value)(plain(inner, name, room - 1) for inner in value)
    if type(value).__module__ != "numpy":
        return value
    if type(value).__name__ in ("bool", "bool_"):  # which pydantic takes for the number 1 or 0
        return bool(value)
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value


def real_number(name: str, value: object) -> float:
    """The value as a float; raises InvalidInputError for anything but one number."""
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InvalidInputError(f"The {name!r} field must be a number. Got {shortened(value)} instead.")
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def checked_count(name: str, value: object, most: int = MAX_EXAMPLES, noun: str = "argument") -> int:
    """``value`` as an integer of Python's, which does not overflow; raises InvalidInputError unless it is a count."""
    count = plain(value)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
        raise InvalidInputError(
            f"The {name!r} {noun} must be a whole number from 1 to {most}. Got {shortened(value)} instead."
        )
    return count


def expect_kind(name: str, given: object, kind: type | tuple[type, ...], wanted: str, *, optional: bool = True) -> None:
    """Raise InvalidInputError unless an argument is of this kind, or left out where it is optional.

    Args:
        wanted: what to give.
    """
    if not (optional and given is None) and not isinstance(given, kind):
        raise InvalidInputError(f"The {name!r} argument must be {wanted}. Got {shortened(given)} instead.")


def one_sentence(
    error: ValidationError, values: object, name: str = "input", model: type[BaseModel] | None = None
) -> str:
    """Say what is wrong in one sentence: all names that are not known, or else the first problem.

    A misspelt name is often why another field is missing, so names come first.

    Args:
        values: the data that were validated, to tell the names of fields from those that pydantic gives to members
            of unions.
        name: what to call the data as a whole.
        model: what the data were to describe.
    """
    problems = [(_field(problem, values), problem) for problem in error.errors(include_url=False)]
    if names := clauses(model, problems):
        text = "; ".join(names)
        return f"{text[0].upper()}{text[1:]}."
    first = problems[0][0]
    # Of the members of a union that were tried, the one that got furthest is the one that was meant.
    where, problem = max((tried for tried in problems if f"{tried[0]}.".startswith(f"{first}.")), key=_how_far)
    kind, message, value = problem["type"], problem["msg"], problem.get("input")
    context = problem.get("ctx", {})
    if kind == "value_error":
        message = message.removeprefix("Value error, ").rstrip(".")
        return (
            f"{_placed(message, where)}."
            if not where or message.startswith("The ")
            else f"The {where!r} field{' ' if message.startswith('must ') else ': '}{message}."
        )
    if kind == "extra_forbidden":
        return f"The {where!r} field is not known here; remove it or correct its name."
    if kind == "missing":
        return f"The {where!r} field is missing and has to be given{_expected(where, model)}."
    if kind == "json_invalid":
        return f"The {name} is not valid JSON: {message.removeprefix('Invalid JSON: ')}."
    if kind in ("union_tag_invalid", "union_tag_not_found", "model_attributes_type"):
        if not isinstance(value, Mapping):
            return _no_table(where, value, model)
        where = f"{where}.kind" if where else "kind"
        if "kind" not in value:
            return f"The {where!r} field is missing and has to be given."
        expected, got = context.get("expected_tags"), shortened(value["kind"])
        return f"The {where!r} field must be one of {expected}. Got {got} instead."
    if kind in ("model_type", "dict_type") and where:
        return _no_table(where, value, model)
    subject = f"The {where!r} field" if where else f"The {name}"
    return f"{subject} must be {_allowed(kind, message, context)}. Got {shortened(value)} instead."


def _expected(where: str, model: type[BaseModel] | None) -> str:
    """What to give for a missing field that holds one of several descriptions; nothing is said of others."""
    if model is None:
        return ""
    if where in _objects(model):
        return f": {_objects(model)[where]}"
    kinds = expected_at(model, where)[0]
    return f", with a 'kind': {', '.join(map(repr, kinds))}" if kinds else ""


def _objects(model: type[BaseModel]) -> Mapping[str, str]:
    """The fields that hold objects of Python, each with what errors ask for."""
    return model.OBJECTS if issubclass(model, Spec) else {}


def _no_table(where: str, value: object, model: type[BaseModel] | None) -> str:
    """That a field holds a table, or an object of Python: one of several, which say their kind, or of known fields."""
    objects = {} if model is None else _objects(model)
    described = value if isinstance(value, type) else type(value)
    own = described.model_fields.get("kind") if issubclass(described, BaseModel) else None
    kinds, fields = ([], []) if model is None else expected_at(model, where)
    kind = meant(value if own is None else own.default, kinds) or (value if isinstance(value, str) else None)
    hint = f", such as {where}.kind = {shortened(kind)}" if kind else ""
    names = f" ({', '.join(map(repr, fields))})" if fields else ""
    wanted = objects.get(where, f"a table of fields with a 'kind'{hint}" if kinds else f"a table of fields{names}")
    rest = "; hs.Mechanism takes samplers and strategies as objects" if own and where not in objects else ""
    return f"The {where!r} field must be {wanted}. Got {shortened(value)} instead{rest}."


def _placed(message: str, where: str) -> str:
    """A message of a description that is a field of another, with the whole name of the field that it starts with."""
    named = re.match(r"The '(\w+)' field", message)
    if named is None or not where:
        return message
    whole = where if where.rpartition(".")[2] == named[1] else f"{where}.{named[1]}"
    return f"The {whole!r} field{message[named.end() :]}"


def _how_far(place: tuple[str, Mapping[str, Any]]) -> tuple[int, bool]:
    """How far a member of a union got: deeper is further, and a table that is no number is one that was meant."""
    field, problem = place
    return len(field), not (isinstance(problem.get("input"), Mapping) and problem["type"] in ("float_type", "int_type"))


_ALLOWED = {
    "greater_than": "above {gt:.10g}",
    "greater_than_equal": "at least {ge:.10g}",
    "less_than": "below {lt:.10g}",
    "less_than_equal": "at most {le:.12g}",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of reasonable size",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length} item(s)",
    "model_type": "a table of fields",
    "dict_type": "a table of fields",
}


def _allowed(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind in _ALLOWED:
        return _ALLOWED[kind].format(**context)
    return message.removeprefix("Input should be ").rstrip(".")


def _field(problem: Mapping[str, Any], values: object) -> str:
    """The dotted name of the field that a problem is about, without the names of members of unions."""
    names: list[str] = []
    here, path = values, problem["loc"]
    for position, part in enumerate(path):
        last = position == len(path) - 1
        if isinstance(here, Mapping):
            own = here.get("kind")
            tag = part not in here or (isinstance(own, str) and part == own and part != "kind" and not last)
            inside = here.get(part)
            if tag and not last and isinstance(inside, Mapping) and path[position + 1] in inside:
                tag = False  # a field that happens to be named as the kind
            if last and problem["type"] in ("missing", "extra_forbidden"):
                tag = False
            if tag:
                continue
            here = here.get(part)
        elif isinstance(here, Sequence) and not isinstance(here, str | bytes) and isinstance(part, int):
            here = here[part] if part < len(here) else None
        else:
            continue
        names.append(str(part))
    return ".".join(names)


def _object_with_distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise InvalidInputError(f"the name {shortened(name)} is given twice in one object")
        table[name] = value
    return table


def _first_clause(error: ValueError) -> str:
    """What is wrong, without Python's advice on its own settings."""
    text = str(error).split(";")[0]
    return text[0].lower() + text[1:]


def identified(schema: dict[str, Any], format: str) -> dict[str, Any]:
    """A JSON schema that says its dialect, and which version of which format it describes."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "$id": f"urn:hockeystick:{format.replace('/', ':')}", **schema}
