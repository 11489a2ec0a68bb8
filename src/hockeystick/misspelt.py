"""Names in a description that nobody knows, each with the known name that it resembles."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from hockeystick.errors import InvalidInputError, shortened

OTHER_WORDS = {
    "bandinvmf": "banded_inverse",
    "bandmf": "column_normalized_banded",
    "batch": "batch_size",
    "bifr": "banded_inverse_fractional_root",
    "bisr": "banded_inverse_square_root",
    "blt": "buffered_toeplitz",
    "bsr": "banded_square_root",
    "dataset_size": "num_examples",
    "k_out_of_t": "random_allocation",
    "n": "num_examples",
    "noise": "noise_multiplier",
    "q": "sampling_prob",
    "rate": "sampling_prob",
    "sample_rate": "sampling_prob",
    "sample_size": "num_examples",
    "sampling_rate": "sampling_prob",
    "sigma": "noise_multiplier",
    "without_replacement": "fixed_size",
}
"""What other libraries and papers call our fields and kinds, where the spelling is too far away to be recognised."""

MOST = 5
"""Clauses in a message; fields after them are named without a clause of their own."""
MOST_NAMED = 20
"""Fields without a clause of their own that are named; a document of another kind may have thousands."""
MOST_NEARBY = 3
"""Names that are proposed in place of one that is not known."""
SHORTEST_PART = 3
"""Letters of a part of a name that tells which name is meant."""
LONGEST = 8
"""Names of fields in a clause."""
LISTING = "the fields are"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one resembles, or means in other libraries; None where there is none."""
    names = sorted(known)
    if OTHER_WORDS.get(name.lower()) in names:
        return OTHER_WORDS[name.lower()]
    return next(iter(get_close_matches(name.lower(), names, n=1)), None)


def nearby(name: str, known: Iterable[str]) -> list[str]:
    """The known name that is meant, and those that a name is a part of: ``MOST_NEARBY`` at most, maybe none.

    >>> nearby("windows", ["row_filter", "participation_windows", "separated_windows"])
    ['participation_windows', 'separated_windows']
    """
    names = sorted(known)
    parts = [other for other in names if len(name) >= SHORTEST_PART and name.lower() in other]
    return list(dict.fromkeys(filter(None, [nearest(name, names), *parts])))[:MOST_NEARBY]


def one_of(field: str, given: object, known: Collection[str], noun: str = "field") -> str:
    """The given name, if it is one of those that are known.

    Raises: InvalidInputError, which lists them, and says which one may be meant.

    >>> one_of("measure", "mean", ("mean", "max"))
    'mean'
    """
    if isinstance(given, str) and given in known:
        return given
    near = nearest(given, known) if isinstance(given, str) else None
    hint = "" if near is None else f" (did you mean {near!r}?)"
    raise InvalidInputError(
        f"The {field!r} {noun} must be one of {', '.join(known)}. Got {shortened(given)} instead{hint}."
    )


def not_known(where: str, known: Iterable[str], listing: bool = True, model: type[BaseModel] | None = None) -> str:
    """A clause about a field that is not known, such as "the 'data.num_exampels' field is not known here (did ...)".

    Args:
        known: the names that may be used there, which are listed where none is near, if ``listing``.
        model: the whole description, which may have that field in another place.
    """
    names = sorted(known)
    name = where.rpartition(".")[2]
    place = None if model is None else _place(model, name)
    meant = nearest(name, names) if place in (None, where) else place
    if meant is not None:
        hint = f" (did you mean {meant!r}?)"
    else:
        hint = f" ({LISTING} {', '.join(map(repr, names))})" if listing and 0 < len(names) <= LONGEST else ""
    return f"the {where!r} field is not known here{hint}"


def clauses(model: type[BaseModel] | None, problems: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """What is wrong with names, in the order of the description: unknown fields, and kinds that do not exist.

    Args:
        model: the description that was validated; None where it is not known, and nothing is said then.
        problems: pydantic's problems, each with the dotted name of its field.
    """
    if any(where == "format" for where, _ in problems):
        return []  # another kind of document, whose fields are others
    said: dict[str, str] = {}
    listed: set[type[BaseModel]] = set()
    for where, problem in problems:
        if problem["type"] == "extra_forbidden":
            owner = None if model is None else _owner(model, problem["loc"])
            if owner is not None:
                clause = not_known(where, field_names(owner), owner not in listed, model)
                said.setdefault(clause, where)
                if LISTING in clause:
                    listed.add(owner)
        elif problem["type"] == "union_tag_invalid" and isinstance(problem["input"], Mapping) and model is not None:
            for clause, field in _of_a_wrong_kind(where, problem, _members(model, problem["loc"])).items():
                said.setdefault(clause, field)
    rest = list(map(repr, said.values()))[MOST:]
    if not rest:
        return list(said)
    more = "" if len(rest) <= MOST_NAMED else f" and {len(rest) - MOST_NAMED} others"
    return [*list(said)[:MOST], f"not known here either: {', '.join(rest[:MOST_NAMED])}{more}"]


def field_names(model: type[BaseModel]) -> list[str]:
    """The names that a description has for its fields."""
    return [field.alias or name for name, field in model.model_fields.items()]


def meant(word: object, known: Sequence[str]) -> str | None:
    """The known name that is or resembles a word; None where it is none."""
    return None if not isinstance(word, str) else word if word in known else nearest(word, known)


def expected_at(model: type[BaseModel], where: str) -> tuple[list[str], list[str]]:
    """What a field may hold, by its dotted name: kinds of tables, or the names of the fields of the one table.

    No names where they are too many for a message.
    """
    members = _members(model, where.split("."))
    fields = [name for member in members.values() for name in field_names(member)] if "" in members else []
    return [kind for kind in members if kind], fields if len(fields) <= LONGEST else []


def _of_a_wrong_kind(where: str, problem: Mapping[str, Any], members: Mapping[str, type[BaseModel]]) -> dict[str, str]:
    """That the kind is not known, and the unknown fields beside it, if it is clear which kind was meant.

    Clauses, each with its field.
    """
    kind = problem["input"]["kind"]
    meant = nearest(kind, members) if isinstance(kind, str) else None
    dot = f"{where}." if where else ""
    hint = "" if meant is None else f" (did you mean {meant!r}?)"
    allowed = f"the '{dot}kind' field must be one of {problem['ctx']['expected_tags']}"
    said = {f"{allowed}. Got {shortened(kind)} instead{hint}": f"{dot}kind"}
    if meant is not None:
        names = field_names(members[meant])
        said |= {not_known(f"{dot}{name}", names): f"{dot}{name}" for name in problem["input"] if name not in names}
    return said


def _owner(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """The description that has no field of the last name; None inside of a union that is not told apart by kind."""
    here: dict[str, type[BaseModel]] = {"": model}
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        if part in here:
            here = {"": here[part]}
        elif len(here) == 1:
            here = _models_of(next(iter(here.values())), part)
        else:
            return None
    return next(iter(here.values())) if len(here) == 1 else None


def _place(model: type[BaseModel], name: str) -> str | None:
    """Where a description has a field of this name, or of the one that it means: itself, or the first of its tables."""
    for word in (name, OTHER_WORDS.get(name.lower())):
        if word in field_names(model):
            return word
        for table in field_names(model):
            if any(word in field_names(member) for member in _models_of(model, table).values()):
                return f"{table}.{word}"
    return None


def _members(model: type[BaseModel], path: Sequence[str | int]) -> dict[str, type[BaseModel]]:
    """The descriptions of a union that is told apart by kind, at a path."""
    owner = _owner(model, path) if path else None
    return {} if owner is None else _models_of(owner, str(path[-1]))


def _models_of(model: type[BaseModel], name: str) -> dict[str, type[BaseModel]]:
    """The descriptions that a field may hold, by their kinds."""
    field = next((field for own, field in model.model_fields.items() if name in (own, field.alias)), None)
    models = [] if field is None else _in_annotation(field.annotation)
    if len(models) == 1:
        return {"": models[0]}
    kinds = [(member.model_fields["kind"].default, member) for member in models if "kind" in member.model_fields]
    return {kind: member for kind, member in kinds if isinstance(kind, str)}


def _in_annotation(annotation: Any) -> list[type[BaseModel]]:
    """The descriptions that an annotation names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _in_annotation(part)]
