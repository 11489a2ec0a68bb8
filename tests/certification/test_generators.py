"""Certificates about the noise of other libraries: false ones are refused, and the others say whose noise it is."""

import json
from pathlib import Path

import pytest

import hockeystick as hs
from hockeystick.certificate import FORMAT, FORMAT_2, Certificate, ForeignNoise
from hockeystick.certification import description
from hockeystick.certification.description import described
from hockeystick.errors import CannotCertifyError, InvalidInputError, VerificationError
from hockeystick.interop.deployments_registry import registry_entry
from hockeystick.noise import floor
from hockeystick.recomputed import recomputed
from hockeystick.report.certificate import markdown, shown
from hockeystick.training.record import RunRecord


def poisson(noise: float) -> hs.Mechanism:
    return hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=1000), noise_multiplier=noise)


def run(noise: float = 1.0) -> hs.Mechanism:
    """Five passes: its floor with float32 numbers of JAX is near 5 times 1.2e-5 at noise multiplier 1."""
    return hs.Mechanism(sampler=hs.Deterministic(bins=10, epochs=5), noise_multiplier=noise)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return hs.certify(run(), delta=2e-4, generator="jax-float32")


@pytest.mark.parametrize(
    ("name", "noise"), [("jax-float32", 1.0), ("jax-float32", 2.0), ("torch-cpu-float32", 0.5), ("jax-bfloat16", 1.0)]
)
def test_false_certificates_are_refused(name: str, noise: float) -> None:
    refused = f"1e-05 is too small for the noise of '{name}'.* at least .*more noise"
    with pytest.raises(CannotCertifyError, match=refused):
        hs.certify(poisson(noise), delta=1e-5, generator=name)
    with pytest.raises(CannotCertifyError, match="is too small for the noise"):
        hs.certify(poisson(noise), epsilon=20.0, generator=name)
    assert isinstance(hs.certify(poisson(noise), delta=1e-5), Certificate)


def test_noise_that_ends_further_out_is_certified_as_gaussian_noise_is() -> None:
    foreign, own = (hs.certify(run(), delta=1e-5, generator=name) for name in ("torch-cuda-float32", None))
    assert foreign.bounds == own.bounds
    assert foreign.numbers == own.numbers
    assert foreign.generator is not None
    assert foreign.format == own.format == FORMAT


def test_it_names_the_generator_and_the_floor(certificate: Certificate, tmp_path: Path) -> None:
    generator = certificate.generator
    assert generator is not None
    assert generator.floor == floor(run(), "jax-float32")
    assert generator.floor <= 2e-4
    assert hs.verify(certificate) is certificate
    certificate.save(tmp_path / "certificate.json")
    assert Certificate.load(tmp_path / "certificate.json") == certificate
    for text in (str(certificate), shown(certificate), markdown(certificate)):
        assert "jax-float32" in text
        assert "rounding is not covered" in text
    assert any("jax-float32" in said for said in certificate.not_covered)
    assert hs.state(certificate, hs.Statements(label="a run")).generator == generator
    assert recomputed(certificate).curve is None
    entry = registry_entry(certificate)["deployment"]["implementation"]["mechanisms"]
    assert "jax-float32" in entry


def test_without_a_generator_nothing_is_new() -> None:
    certificate = hs.certify(run(), delta=2e-4)
    assert "generator" not in certificate.content()
    assert "generator" not in json.loads(certificate.model_dump_json())
    assert not any("generator" in said for said in certificate.not_covered)


@pytest.mark.parametrize(
    "change",
    [
        {"floor": 1e-6},
        {"floor": 2e-4},
        {"name": "torch-cpu-float32"},
        {"name": "torch-cuda-float32"},
        {"highest": 6.0},
        {"lowest": -9.0},
    ],
    ids=str,
)
def test_what_it_says_of_the_generator_cannot_be_changed(certificate: Certificate, change: dict[str, object]) -> None:
    assert certificate.generator is not None
    forged = certificate.model_copy(update={"generator": certificate.generator.model_copy(update=change)}).sealed()
    with pytest.raises(VerificationError, match=r"'(generator|not_covered)' field claims"):
        hs.verify(forged)


def test_a_delta_below_the_floor_does_not_verify() -> None:
    """A certificate of Gaussian noise at 1e-5 that names JAX, with a floor that would allow it."""
    honest = hs.certify(run(), delta=1e-5)
    numbers = {name: getattr(honest, name) for name in description.NUMBERS}
    name = ForeignNoise(name="jax-float32", lowest=-5.419983174916868, highest=5.220113060600541, floor=1e-6)
    forged = described(honest.statements, **numbers | {"generator": name})
    with pytest.raises(VerificationError, match="1e-05 is too small for the noise of 'jax-float32'"):
        hs.verify(forged)
    with pytest.raises(VerificationError, match="'generator' argument must be one of"):
        hs.verify(forged.model_copy(update={"generator": name.model_copy(update={"name": "numpy"})}).sealed())


def test_a_generator_belongs_to_format_3(certificate: Certificate) -> None:
    content = certificate.content() | {"format": FORMAT_2, "digest": ""}
    with pytest.raises(InvalidInputError, match="'generator' field belongs to format"):
        Certificate.parse_json(json.dumps(content))


def test_no_number_is_below_what_the_floor_shows() -> None:
    """Much noise in few numbers: the attacks of the Gaussian gain less than the ends of bfloat16 show."""
    steps = hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=60), noise_multiplier=10.0)
    foreign = hs.certify(steps, delta=0.5, generator="jax-bfloat16")
    assert foreign.generator is not None
    least = foreign.generator.floor
    assert least > 0.3
    numbers, gaussian = foreign.numbers, hs.certify(steps, delta=0.5).numbers
    assert gaussian.advantage < least <= numbers.advantage
    assert numbers.bayes_success >= 0.5 + 0.5 * least
    assert numbers.tpr_at_fpr_0_001 >= least + 0.001 * (1.0 - least) > gaussian.tpr_at_fpr_0_001
    assert numbers.tpr_at_fpr_0_1 >= least + 0.1 * (1.0 - least)
    hs.verify(foreign)


def test_known_batches_show_more_than_secret_ones() -> None:
    """1,000 known steps have a floor near 1.2e-2, so no epsilon has delta = 2e-4 without amplification."""
    assert hs.certify(poisson(1.0), delta=2e-4, generator="jax-float32").without_amplification is None
    assert hs.certify(poisson(1.0), delta=0.02, generator="jax-float32").without_amplification is not None
    asked = hs.certify(poisson(9.0), epsilon=0.0, generator="jax-float32").without_amplification
    assert asked == hs.certify(poisson(9.0), epsilon=0.0).without_amplification  # above any floor


def test_calibration_finds_noise_whose_floor_is_below_delta() -> None:
    alone = hs.calibrate(run(), epsilon=8.0, delta=1e-5)
    found = hs.calibrate(run(), epsilon=8.0, delta=1e-5, generator="jax-float32")
    assert found.sigma > alone.sigma
    assert floor(found, "jax-float32") <= 1e-5 < floor(found.with_noise(found.sigma * (1.0 - 1e-3)), "jax-float32")
    assert hs.certify(found, delta=1e-5, generator="jax-float32").bounds.upper <= 8.0
    assert hs.calibrate(run(), epsilon=8.0, delta=1e-5, generator="torch-cuda-float32") == alone


def test_nothing_is_derived_from_it(certificate: Certificate) -> None:
    own = hs.certify(run(), delta=2e-4)
    with pytest.raises(InvalidInputError, match="number 2 is about that of 'jax-float32'"):
        hs.compose([own, certificate], delta=1e-3)
    with pytest.raises(InvalidInputError, match="number 1 is about that of 'jax-float32'"):
        hs.tuning(certificate, trials=3, delta=1e-3)


def test_a_run_of_ours_takes_no_certificate_of_other_noise() -> None:
    mechanism = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=2), noise_multiplier=5.0)
    ran = hs.training.Run(mechanism, num_examples=4, shape=(2,))
    foreign = hs.certify(mechanism, delta=1e-2, generator="torch-cuda-float32")
    with pytest.raises(InvalidInputError, match="about hockeystick's own noise"):
        ran.record(foreign)
    assert isinstance(ran.record(hs.certify(mechanism, delta=1e-2)), RunRecord)
