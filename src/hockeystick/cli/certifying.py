"""What ``epsilon`` and ``delta`` share: their options, and a certificate that is printed and saved."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hockeystick.cli import common, sampling

if TYPE_CHECKING:
    from hockeystick.mechanism import Mechanism
    from hockeystick.plan import Plan


@dataclass(frozen=True)
class CertifyOptions:
    """How a mechanism is certified, and where the certificate goes."""

    method: common.MethodOption = None
    budget: common.BudgetOption = None
    samples: sampling.SamplingOptions = sampling.NONE
    generator: common.GeneratorOption = None
    out: common.OutOption = None
    verbose: common.VerboseOption = False
    json: common.JsonOption = False

    def certify_and_report(
        self,
        mechanism: "Mechanism",
        plan: "Plan",
        path: str,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
    ) -> None:
        """Certify epsilon at delta, or delta at epsilon; the certificate states the plan's number of examples."""
        from hockeystick.bounds import Question
        from hockeystick.certificate import Statements
        from hockeystick.certification.description import state
        from hockeystick.certification.issue import certify

        Question(delta=delta, epsilon=epsilon)  # refuses bad input before anything is compiled
        common.check_method(self.method)
        common.check_generator(self.generator)
        if self.out is not None:
            common.check_output(self.out, path)
        with (
            self.samples.opened() as monte_carlo,
            common.working("certifying", self.budget, mechanism) as deadline,
        ):
            certificate = certify(
                mechanism,
                delta=delta,
                epsilon=epsilon,
                method=self.method,
                budget=common.budget_seconds(self.budget),
                deadline=deadline,
                monte_carlo=monte_carlo,
                generator=self.generator,
            )
            certificate = state(certificate, Statements(num_examples=plan.data.num_examples))
        sampled = monte_carlo is not None
        common.say_of_sampling(certificate, allowed=sampled)
        with common.saving(certificate, self.out):
            better = common.hints_of(certificate, sampling=sampled, method=self.method, budget=self.budget)
            if self.json:
                common.emit_json(common.claim_json(certificate, deadline.elapsed()) | {"hints": better})
                return
            common.say_hints(better)
            if self.verbose:  # before the answer, which is the last thing on the screen
                must = [f"  - {requirement}" for requirement in certificate.requirements]
                common.emit("\n".join(["the run must", *must]))
            common.emit(certificate.text(requirements=False))


DEFAULTS = CertifyOptions()
"""What none of the options changes."""
