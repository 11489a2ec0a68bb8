"""What the explorer's workers compute, from plain data to plain data: quick answers, curves, certificates."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from hockeystick.accountants.registry import warm_up
from hockeystick.bounds import check_target
from hockeystick.calibration.search import calibrate_and_certify
from hockeystick.certificate import Certificate, Statements
from hockeystick.certification.description import state
from hockeystick.certification.issue import certify
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, InvalidInputError
from hockeystick.explorer.quick import UPPER, prefix_error, quick_epsilon, quick_noise, quick_profile
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import check_registered
from hockeystick.plan import Plan
from hockeystick.spec import LARGEST_NOISE, SMALLEST_NOISE, real_number

PATIENCE = {"hurried": 0.05, "moving": 0.15, "still": 3.0}
"""Seconds for a quick answer: while others wait for theirs, while a slider moves, and when it has stopped."""
CURVE_SECONDS = 2.0
ASKED = ("epsilon", "noise_multiplier")


def read_plan(values: object) -> Plan:
    """The plan of a request.

    Raises: InvalidInputError for what is no plan, and for a strategy in a file: a link must not open files.
    """
    plan = Plan.parse(values)
    if plan.strategy.kind == "custom":
        raise InvalidInputError(
            "The 'strategy.kind' field must not be 'custom' here, as the explorer opens no files; "
            "the other commands accept it."
        )
    return plan


def quick(request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    """Numbers that follow from the plan, and a quick answer or the reason why there is none."""
    plan, ask = read_plan(request.get("plan")), _asked(request)
    delta, target, mechanism = _question(plan, ask)
    warm_up(mechanism)
    limited = Deadline(PATIENCE.get(str(request.get("patience")), PATIENCE["moving"]), deadline.on_tick)
    numbers = plan.numbers()
    answered: dict[str, Any] = {
        "ask": ask,
        "delta": delta,
        "steps": numbers.steps,
        "expected_batch": numbers.expected_batch,
        "rate": numbers.rate,
        "participations": numbers.participations,
    }
    try:
        if target is None:
            answer = quick_epsilon(mechanism, delta, limited)
        else:
            near = request.get("near")
            answer = quick_noise(mechanism, target, delta, limited, None if near is None else _noise("near", near))
    except BudgetExceededError:
        return answered | {"answer": None, "complete": False}
    return answered | {
        "answer": {
            "noise_multiplier": answer.noise_multiplier,
            "epsilon": {"upper": answer.upper, "lower": answer.lower},
            "method": {"upper": answer.methods[0], "lower": answer.methods[1]},
        },
        "sensitivity": mechanism.matrix.max_column_norm,
        "complete": answer.complete,
    }


def details(request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    """The curve of an answer's upper bound, and the error of the prefix sums; what takes too long is None."""
    plan = read_plan(request.get("plan"))
    delta, _, mechanism = _question(plan, "noise_multiplier", needs_target=False)
    mechanism = mechanism.with_noise(_noise("noise_multiplier", request.get("noise_multiplier")))
    method = request.get("method")
    if method not in UPPER:
        raise InvalidInputError(f"The 'method' field must be one of {', '.join(UPPER)}.")
    warm_up(mechanism)
    try:
        points = quick_profile(mechanism, str(method), delta, Deadline(CURVE_SECONDS, deadline.on_tick))
    except BudgetExceededError:
        points = None
    return {"curve": points, "prefix_error": None if points is None else prefix_error(mechanism)}


def certificate(request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    """The certificate that ``hockeystick epsilon`` or ``hockeystick calibrate`` writes for the plan, byte for byte."""
    plan, ask = read_plan(request.get("plan")), _asked(request)
    delta, target, mechanism = _question(plan, ask)
    warm_up(mechanism)
    if target is None:
        issued = certify(mechanism, delta=delta, deadline=deadline)
    else:
        issued = calibrate_and_certify(mechanism, epsilon=target, delta=delta, deadline=deadline)
    return certificate_json(state(issued, Statements(num_examples=plan.data.num_examples)))


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    """What the page shows of a certificate, the text of its file, and the file of its matrix, where there is one."""
    content, matrix = certificate.model_dump(mode="json"), certificate.mechanism.companion_file()
    return {
        "noise_multiplier": certificate.mechanism.sigma,
        "epsilon": content["epsilon"],
        "delta": content["delta"],
        "method": content["method"],
        "sentence": certificate.sentence,
        "file": certificate.file_text(),
        "matrix": None if matrix is None else {"name": matrix[0], "base64": b64encode(matrix[1]).decode("ascii")},
    }


def prepare(request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    """Compile the kernels for the plan, or load them from the cache on disk."""
    mechanism = read_plan(request.get("plan")).mechanism()
    check_registered(mechanism)
    warm_up(mechanism)
    return {}


def plan_file(request: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
    """The plan as the text of a TOML file."""
    plan = read_plan(request.get("plan"))
    plan.mechanism()  # refuses data that do not suit the sampler
    return {"file": plan.file_text()}


TASKS: dict[str, Callable[[dict[str, Any], Deadline], dict[str, Any]]] = {
    "quick": quick,
    "details": details,
    "certificate": certificate,
    "plan_file": plan_file,
    "prepare": prepare,
}


def _asked(request: dict[str, Any]) -> str:
    ask = request.get("ask")
    if ask not in ASKED:
        raise InvalidInputError("The 'ask' field must be 'epsilon' or 'noise_multiplier'.")
    return str(ask)


def _question(plan: Plan, ask: str, *, needs_target: bool = True) -> tuple[float, float | None, Mechanism]:
    """delta, the target epsilon where the noise is asked for, and the mechanism."""
    delta, target, mechanism = plan.target.delta, plan.target.epsilon, plan.mechanism()
    check_registered(mechanism)
    if delta is None:
        raise InvalidInputError("The 'target.delta' field is missing and has to be given.")
    if ask == "noise_multiplier":
        if target is None and needs_target:
            raise InvalidInputError("The 'target.epsilon' field is missing and has to be given.")
        if target is not None:
            check_target(target)
        return delta, target, mechanism
    if mechanism.noise_multiplier is None:
        raise InvalidInputError("The 'noise_multiplier' field is missing and has to be given.")
    return delta, None, mechanism


def _noise(name: str, value: object) -> float:
    number = real_number(name, value)
    if not SMALLEST_NOISE <= number <= LARGEST_NOISE:
        allowed = f"from {SMALLEST_NOISE:g} to {LARGEST_NOISE:g}"
        raise InvalidInputError(f"The {name!r} field must be {allowed}. Got {number!r} instead.")
    return number
