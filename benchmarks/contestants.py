"""Who competes. Nothing heavy is imported here: a contestant's module is, in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec


@dataclass(frozen=True)
class Answer:
    """What a contestant says. ``lower`` and ``upper`` are its own claims; a bare estimate is neither."""

    lower: float | None = None
    upper: float | None = None
    estimate: float | None = None
    note: str = ""


class NotApplicableError(Exception):
    """The contestant has no function for this workload; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One way to answer.

    Attributes:
        package: the top-level module that has to be installed.
        module: of this folder, with a function ``answer(workload, **options) -> Answer``.
        kinds: of workloads it is asked.
        options: passed on to ``answer``.
        note: its settings, printed below the table.
    """

    name: str
    package: str
    module: str
    kinds: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def installed(self) -> bool:
        """Whether the package can be found, without importing it."""
        return find_spec(self.package) is not None


OURS = "hockeystick"

_ALL = [
    Contestant(
        name=OURS,
        package="hockeystick",
        module="ours",
        kinds=("allocation", "poisson", "poisson calibration", "calibration", "sampling"),
        note="certify(mechanism), both sides; calibrate(mechanism)",
    ),
    Contestant(
        name="hockeystick bounds",
        package="hockeystick",
        module="our_bounds",
        kinds=("poisson",),
        note="bound(mechanism, 'direct') from both sides: no certificate, no numbers about attackers",
    ),
    Contestant(
        name="PLD-accounting",
        package="PLD_accounting",
        module="pld_accounting",
        kinds=("allocation", "calibration"),
        note="gaussian_allocation_*_configurable at its defaults, both bound types; calibration by our bisection",
    ),
    *(
        Contestant(
            name=f"random-allocation {method}",
            package="random_allocation",
            module="random_allocation",
            kinds=("allocation", "calibration") if method == "combined" else ("allocation",),
            options={"method": method},
            note=note,
        )
        for method, note in {
            "analytic": "defaults",
            "RDP_DCO": "defaults",
            "decomposition": "defaults",
            "direct": "RDP with orders 2 to 60, as in its paper_experiments",
            "recursive": "orders 2 to 60",
            "combined": "orders 2 to 60; calibration by our bisection",
            "lower_bound": "defaults; of shuffling, which it takes for a lower bound of allocation",
        }.items()
    ),
    Contestant(
        name="dp-accounting PLD",
        package="dp_accounting",
        module="dp_accounting",
        kinds=("poisson", "poisson calibration"),
        options={"method": "pld"},
        note="interval 1e-4, connect the dots; upper is its pessimistic estimate, lower its optimistic one; "
        "calibrate_dp_mechanism to .1 percent",
    ),
    Contestant(
        name="dp-accounting RDP",
        package="dp_accounting",
        module="dp_accounting",
        kinds=("poisson",),
        options={"method": "rdp"},
        note="default orders",
    ),
    Contestant(
        name="opake",
        package="opake",
        module="opake",
        kinds=("poisson", "poisson calibration"),
        note="defaults; calibrate with tolerance 1e-3, between noise multipliers .3 and 10",
    ),
    Contestant(
        name="prv-accountant",
        package="prv_accountant",
        module="prv",
        kinds=("poisson",),
        note="eps_error 0.01, delta_error delta / 1000 (1e-12 where delta is asked)",
    ),
    Contestant(
        name="jax-privacy",
        package="jax_privacy",
        module="jax_privacy",
        kinds=("sampling",),
        note="batch_selection; balls-in-bins and Poisson only",
    ),
]

CONTESTANTS: dict[str, Contestant] = {contestant.name: contestant for contestant in _ALL}
