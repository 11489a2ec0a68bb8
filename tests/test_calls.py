"""Whoever calls a public function wrongly hears a call that is right, in one sentence."""

import ast
import inspect
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest

import hockeystick as hs
from hockeystick.calls import OTHER_ARGUMENTS, WrongCallError, called
from hockeystick.errors import InvalidInputError

ROOMS = ("hockeystick", "hockeystick.attacks", "hockeystick.audit", "hockeystick.noise", "hockeystick.training")
NEED_TORCH = ("invariance",)
"""Names that import torch where they are looked up."""


def public_names() -> dict[str, Any]:
    """What the rooms that need no framework have, by the names that users have for it."""
    rooms = {room: import_module(room) for room in ROOMS}
    return {
        f"{room.replace('hockeystick', 'hs', 1)}.{name}": getattr(module, name)
        for room, module in rooms.items()
        for name in module.__all__
        if name not in NEED_TORCH
    }


FUNCTIONS = {name: value for name, value in public_names().items() if inspect.isfunction(value)}
CLASSES = {
    name: value
    for name, value in public_names().items()
    if inspect.isclass(value)
    and not issubclass(value, Enum)
    and not inspect.isabstract(value)
    and value.__init__ is not object.__init__
}
"""Those that anybody may make: of words there are only the members, and one class takes nothing."""


def refusal(function: Callable[..., Any], *values: object, **named: object) -> str:
    with pytest.raises(WrongCallError) as raised:
        function(*values, **named)
    said = str(raised.value)
    assert isinstance(raised.value, InvalidInputError | TypeError)
    assert "\n" not in said
    assert said.endswith(".")
    return said


def bound_call(example: str, whole: inspect.Signature) -> str:
    """The name that an example calls; raises TypeError where its arguments do not fit the signature."""
    call = ast.parse(example, mode="eval").body
    assert isinstance(call, ast.Call)
    whole.bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None})
    return ast.unparse(call.func)


def test_there_are_such_functions() -> None:
    assert {"hs.certify", "hs.audit.sampler", "hs.noise.stream", "hs.training.exact_sum"} <= FUNCTIONS.keys()
    assert len(FUNCTIONS) > 30


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_says_a_call_that_fits_it(name: str) -> None:
    function = FUNCTIONS[name]
    whole = inspect.signature(function)
    assert whole == inspect.signature(inspect.unwrap(function))
    assert function.__doc__
    example = function.example  # type: ignore[attr-defined]
    assert bound_call(example, whole) == name
    assert refusal(function, *[None] * 20).endswith(f"; for example: {example}.")
    assert "'xyzzy' argument is not known here (" in refusal(function, xyzzy=1)
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda: hs.get_noise_multiplier(2.0, 1e-5),  # type: ignore[call-arg, misc]
            "All arguments of get_noise_multiplier must be given by name. Got get_noise_multiplier(2.0, 1e-05) ",
        ),
        (
            lambda: hs.certify(None, 1e-5),  # type: ignore[arg-type, misc]
            "Only the first argument of certify may go without a name. Got certify(None, 1e-05) instead;",
        ),
        (
            lambda: hs.noise.stream(1, 2, 3, 4, 5, 6),  # type: ignore[arg-type, misc]
            "Only the first 2 arguments of stream may go without a name. Got stream(1, 2, 3, 4, ...) instead;",
        ),
        (
            lambda: hs.attacks.advantage(1, 2),  # type: ignore[arg-type, call-arg]
            "The function advantage takes at most 1 argument. Got advantage(1, 2) instead;",
        ),
        (
            lambda: hs.calibrate(None, eps=2),  # type: ignore[arg-type, call-arg]
            "The 'eps' argument is not known here (did you mean 'epsilon'?); for example: hs.calibrate(run, ",
        ),
        (
            lambda: hs.calibrate(None, target_delta=1e-5),  # type: ignore[arg-type, call-arg]
            "The 'target_delta' argument is not known here (did you mean 'delta'?)",
        ),
        (
            lambda: hs.profile(None, xyzzy=2),  # type: ignore[arg-type, call-arg]
            "'xyzzy' argument is not known here (the arguments are mechanism, smallest_delta, budget, deadline); for",
        ),
        (lambda: hs.certify(), "The 'mechanism' argument has to be given; for example: hs.certify(run, delta="),  # type: ignore[call-arg]
        (lambda: hs.tuning(None), "The 'trials' argument has to be given; for example: hs.tuning("),  # type: ignore[arg-type, call-arg]
        (lambda: hs.certify(None, mechanism=None), "The 'mechanism' argument is given twice; "),  # type: ignore[arg-type, misc]
    ],
)
def test_what_it_says(wrong: Callable[[], Any], said: str) -> None:
    assert said in refusal(wrong)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_class_answers_a_wrong_call(name: str) -> None:
    described = CLASSES[name]
    example = getattr(described.__init__, "example", None)  # fields of descriptions are answered with their names
    wrong: list[tuple[list[object], dict[str, object]]] = [([None] * 20, {}), ([], {"xyzzy": 1})]
    needs = [key for key, value in inspect.signature(described).parameters.items() if value.default is value.empty]
    if example is not None and needs:
        wrong.append(([], {}))
    for values, named in wrong:
        with pytest.raises(InvalidInputError, match=r"^[^\n]*\.$") as raised:
            described(*values, **named)
        if example is not None:
            assert str(raised.value).endswith(f"; for example: {example}.")
    if example is not None and "(" in example:
        called_name = ast.unparse(ast.parse(example, mode="eval").body.func)  # type: ignore[attr-defined]
        bound_call(example, inspect.signature(eval(called_name, {"hs": hs})))


def test_public_classes_are_looked_at() -> None:
    assert {"hs.Bound", "hs.Phases", "hs.Attribution", "hs.training.ScaledAdam", "hs.noise.Memory"} <= CLASSES.keys()
    with pytest.raises(InvalidInputError, match=r"^The class Bound takes at most 8 arguments\. Got Bound"):
        hs.Bound(*[None] * 9)  # type: ignore[arg-type, call-arg]
    said = "^The 'plans' argument has to be given; for example: hs.Phases.load"
    with pytest.raises(InvalidInputError, match=said):
        hs.Phases()  # type: ignore[call-arg]
    with pytest.raises(
        InvalidInputError, match=r"^The 'secnods' argument is not known here \(did you mean 'seconds'\?"
    ):
        hs.Deadline(secnods=3)  # type: ignore[call-arg]


class Half:
    """A class with a method."""

    @called("half.of(3)")
    def of(self, number: float, *, digits: int = 1, **options: object) -> float:
        """Half of a number; other options are taken."""
        return round(number / 2, digits)


def test_the_object_of_a_method_is_no_argument() -> None:
    half = Half()
    assert half.of(3, other=1) == 1.5
    assert refusal(half.of) == "The 'number' argument has to be given; for example: half.of(3)."
    assert refusal(half.of, 3, 1).startswith("Only the first argument of of may go without a name. Got of(3, 1) ")


def of_training() -> list[Callable[..., Any]]:
    """Constructors and methods that users of samplers and runs call."""
    return [hs.training.Run.__init__, hs.Poisson.batches, hs.MultiAttribution.batches]


def of_files_and_bounds() -> list[Callable[..., Any]]:
    """Methods that most scripts call."""
    loads: list[Callable[..., Any]] = [
        hs.Plan.load,
        hs.Phases.load,
        hs.Composition.load,
        hs.Attribution.from_pairs,
        hs.Attribution.from_csr,
    ]
    return [*loads, hs.Certificate.save, hs.Composition.save, hs.Bound.epsilon, hs.Bound.delta, hs.Mechanism.with_noise]


def of_torch() -> list[Callable[..., Any]]:
    """Those for Opacus, without ``make_private_with_epsilon``, whose example leaves the rest to ``make_private``."""
    pytest.importorskip("opacus")
    engine = hs.torch.PrivacyEngine
    kinds = [
        hs.torch.Accountant,
        hs.torch.BatchSampler,
        hs.torch.IndependentAdam,
        hs.torch.Noise,
        hs.torch.OnDevice,
        hs.torch.ScaledAdam,
    ]
    made: list[Callable[..., Any]] = [kind.__init__ for kind in kinds]
    return [engine.__init__, engine.make_private, engine.get_epsilon, hs.torch.Noise.of, *made]


def of_huggingface() -> list[Callable[..., Any]]:
    """That for the Trainer."""
    pytest.importorskip("transformers")
    pytest.importorskip("opacus")
    return [hs.huggingface.Trainer.__init__]


def of_jax() -> list[Callable[..., Any]]:
    """Those for JAX."""
    pytest.importorskip("jax_privacy")
    made = [kind.__init__ for kind in (hs.jax.Accountant, hs.jax.BatchSampler, hs.jax.MechanismDpEvent)]
    return [hs.jax.ExecutionPlanConfig.__init__, hs.jax.Noise.__new__, hs.jax.Noise.of, *made]


def of_flower() -> list[Callable[..., Any]]:
    """Those for Flower."""
    pytest.importorskip("flwr")
    return [hs.flower.Strategy.__init__]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("methods", [of_files_and_bounds, of_training, of_torch, of_huggingface, of_jax, of_flower])
def test_methods_say_calls_that_fit_them(methods: Callable[[], list[Callable[..., Any]]]) -> None:
    for method in methods():
        whole = inspect.signature(method)
        own = [] if inspect.ismethod(method) else [None]  # the object, for functions that are looked up on the class
        example = method.example  # type: ignore[attr-defined]
        bound_call(example, whole.replace(parameters=list(whole.parameters.values())[len(own) :]))
        said = refusal(method, *own, *[None] * 20)
        assert said.endswith(f"; for example: {example}.")
        assert "None, None, None, None, ...) instead;" in said


def test_batches_without_a_generator_are_answered_with_one() -> None:
    said = refusal(hs.Poisson(sampling_prob=0.1, steps=3).batches, 10)
    assert said.startswith("The 'rng' argument has to be given; for example: sampler.batches(num_examples=50_000, rng=")


def test_errors_of_the_body_are_left_alone() -> None:
    with pytest.raises(TypeError, match="unsupported operand") as raised:
        Half().of("3")  # type: ignore[arg-type]
    assert not isinstance(raised.value, WrongCallError)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("certfy", "certify"),
        ("Certify", "certify"),
        ("BallsInBin", "BallsInBins"),
        ("PrivacyEngine", "torch.PrivacyEngine"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_one_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(hs, name)
    assert str(raised.value) == f"module 'hockeystick' has no attribute {name!r} (did you mean 'hockeystick.{meant}'?)"


def test_a_seed_in_place_of_a_generator() -> None:
    said = refusal(hs.noise.stream, None, (3,), seed=0)
    assert said.startswith("The 'seed' argument is not known here (did you mean 'rng'?)")


def test_files_in_place_of_what_they_hold() -> None:
    assert refusal(hs.Certificate.load).startswith(
        "The 'path' argument has to be given; for example: hs.Certificate.load("
    )
    with pytest.raises(InvalidInputError, match=r"Got 'plan\.toml' instead; hs\.Plan\.load reads a file\.$"):
        hs.recommend("plan.toml")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"must be a table of fields\. Got 3 instead\.$"):
        hs.Phases.parse(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("room", "name", "meant"),
    [
        (hs.audit, "samplers", "sampler"),
        (hs.noise, "NoiseStreams", "NoiseStream"),
        (hs.training, "Records", "RunRecord"),
        (hs.interop, "from_opacs", "from_opacus"),
        (hs.attacks, "true_positives", "true_positive_rate"),
        (hs.samplers, "Poison", "Poisson"),
        (hs.strategies, "SquareRoots", "SquareRoot"),
    ],
)
def test_a_name_that_is_not_in_a_room_is_answered_with_the_one_that_is_meant(room, name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(room, name)
    hint = f"(did you mean '{room.__name__}.{meant}'?)"
    assert str(raised.value) == f"module {room.__name__!r} has no attribute {name!r} {hint}"


@pytest.mark.parametrize(
    ("room", "name", "meant"),
    [("torch", "PrivacyEngin", "PrivacyEngine"), ("jax", "ExecutionPlan", "ExecutionPlanConfig")],
)
def test_a_name_that_is_not_in_the_room_of_a_framework(room: str, name: str, meant: str) -> None:
    pytest.importorskip({"torch": "opacus", "jax": "jax_privacy"}[room])
    with pytest.raises(AttributeError, match=rf"no attribute '{name}' \(did you mean '[\w.]+\.{meant}'\?\)$"):
        getattr(getattr(hs, room), name)


@pytest.mark.parametrize("room", [hs, hs.audit, hs.noise, hs.training, hs.interop, hs.samplers])
def test_names_that_resemble_nothing_are_left_alone(room) -> None:
    for name in ("xyzzy", "__wrapped__", "_certify"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
            getattr(room, name)


def test_what_is_elsewhere_is_there() -> None:
    for name, place in hs._ELSEWHERE.items():
        assert not hasattr(hs, name)
        with suppress(ImportError):
            assert callable(attrgetter(place)(hs))


def test_other_words_mean_arguments_that_there_are() -> None:
    known = {name for function in FUNCTIONS.values() for name in inspect.signature(function).parameters}
    assert set(OTHER_ARGUMENTS.values()) <= known


def test_warnings_point_at_the_line_of_the_user() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hs.get_noise_multiplier(target_epsilon=8.0, target_delta=1e-3, sample_rate=0.5, steps=1, accountant="rdp")
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("rdp", "'rdp' instead (did you mean 'renyi' or 'bin_renyi'?)."),
        ("pld", "'pld' instead (did you mean 'direct'?)."),
        ("monte", "'monte' instead (did you mean 'monte_carlo'?)."),
        ("windows", "'windows' instead (did you mean 'participation_windows' or 'separated_windows'?)."),
        ("xyzzy", "'xyzzy' instead."),
        (3, " Got 3 instead."),
        (["direct"], " instead (did you mean 'direct'?)."),
    ],
)
def test_a_method_that_is_not_known_is_answered_with_the_one_that_is_meant(name: Any, end: str) -> None:
    if "'renyi'" in end:
        pytest.importorskip("hockeystick_papers")
    with pytest.raises(InvalidInputError, match="'method' field must be the name of an accountant, as ") as raised:
        hs.bound(hs.Mechanism(sampler=hs.Deterministic(bins=8), noise_multiplier=2.0), name)
    assert str(raised.value).endswith(end)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("function", [hs.bound, hs.certify, hs.profile, hs.noise.floor, hs.last_iterate])
def test_an_example_runs_with_the_library_alone(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of the papers, which a wheel does not have, would be no help."""
    monkeypatch.setattr("hockeystick.accountants.registry.published", dict)
    run = hs.Mechanism(sampler=hs.Deterministic(bins=8), noise_multiplier=2.0)
    assert eval(function.example, {"hs": hs, "run": run}) is not None
