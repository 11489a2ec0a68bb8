"""Every bad input gets one sentence with the field, the value and what is allowed, and writes nothing."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.files import check_writable

COUNTS = ("data.num_examples", "data.steps")
BAD_COUNTS = {
    "0": "at least 1",
    "-3": "at least 1",
    "1.5": "whole number",
    "20.0": "whole number",
    "true": "whole number",
    '"3"': "whole number",
    "[]": "whole number",
    "{}": "whole number",
    "nan": "whole number",
    "inf": "whole number",
    "-0.0": "whole number",
    "1e400": "whole number",
    "600000000000": "at most 1000000000",
    "1979-05-27": "whole number",
}
BAD_NUMBERS = {"true": "a number", "{}": "a number", '"3"': "a number", "[]": "a number", "07:32:00": "a number"}
NOT_FINITE = {"nan": "finite", "inf": "finite", "-inf": "finite", "1e400": "finite"}
BAD_REALS = {
    "target.epsilon": {"0": "above 0", "-1.0": "above 0", "-0.0": "above 0", "701.0": "at most 700"},
    "target.delta": {"0.0": "at least 1e-30", "-1e-5": "at least 1e-30", "1e-31": "at least 1e-30", "1": "below 1"},
    "data.batch_size": {"0": "at least 1e-09", "-1.0": "at least 1e-09", "6000000000": "at most 1000000000"},
    "data.epochs": {"0": "at least 1e-09", "-1.0": "at least 1e-09", "6000000000": "at most 1000000000"},
    "mechanism.noise_multiplier": {"0": "at least 0.01", "-1.0": "at least 0.01", "1e7": "at most 1000000"},
}
GOT = {"nan": "nan", "1e400": "inf", "1979-05-27": "'1979-05-27'", "07:32:00": "'07:32:00'", "true": "True"}


def got(toml: str) -> str:
    """How a message shows a TOML value."""
    return f"Got {GOT.get(toml, toml.replace(chr(34), chr(39)))}".replace("'1979-05-27'", "1979-05-27").replace(
        "'07:32:00'", "07:32:00"
    )


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", BAD_COUNTS)
def test_counts_are_whole_numbers_in_range(cli: Any, field: str, value: str) -> None:
    cli.write_plan({field: value})
    cli.refuses("epsilon", "plan.toml", says=(f"'{field}'", BAD_COUNTS[value], got(value)))


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        (field, value, allowed)
        for field, own in BAD_REALS.items()
        for value, allowed in (own | BAD_NUMBERS | NOT_FINITE).items()
    ],
)
def test_reals_are_finite_and_in_range(cli: Any, field: str, value: str, allowed: str) -> None:
    cli.write_plan({field: value})
    sentence = cli.refuses("delta", "plan.toml", says=(f"'{field}'", allowed))
    assert value.startswith(("-1e-5", "1e7")) or got(value) in sentence


@pytest.mark.parametrize("value", ["0", "true", "[]", '"x"', '"Poisson"', '""'])
def test_kinds_are_known(cli: Any, value: str) -> None:
    cli.write_plan({"sampler.kind": value})
    cli.refuses("epsilon", "plan.toml", says=("'sampler.kind'", "'balls_in_bins'", "'poisson'", got(value)))
    cli.write_plan({"strategy.kind": value})
    cli.refuses("epsilon", "plan.toml", says=("'strategy.kind'", "'identity'", got(value)))


def test_missing_kind(cli: Any) -> None:
    cli.write_plan({"sampler.kind": None})
    cli.refuses("epsilon", "plan.toml", says=("'sampler.kind'", "missing"))


@pytest.mark.parametrize(
    "field", ["data.foo", "sampler.foo", "target.eps", "mechanism.sigma", "strategy.bands", "nothing.x"]
)
def test_unknown_keys(cli: Any, field: str) -> None:
    changes = {"strategy.kind": '"identity"'} if field.startswith("strategy") else {}
    cli.write_plan(changes | {field: "1"})
    cli.refuses("epsilon", "plan.toml", says=(f"'{field if 'nothing' not in field else 'nothing'}'", "not known"))


def test_option_of_another_scheme(cli: Any) -> None:
    cli.write_plan({"sampler.participations": "3"})
    cli.refuses("epsilon", "plan.toml", says=("'sampler.participations'", "not known"))


def test_key_named_like_its_kind(cli: Any) -> None:
    cli.write_plan({"sampler.balls_in_bins": "3"})
    cli.refuses("epsilon", "plan.toml", says=("'sampler.balls_in_bins'", "not known"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data.batch_size": "7000"}, ("'data.batch_size'", "at most num_examples = 6000", "Got 7000")),
        ({"data.batch_size": "7", "sampler.kind": '"shuffle"'}, ("'data.batch_size'", "'shuffle'", "Got 7", "6 or 8")),
        (
            {"data.batch_size": "7", "sampler.kind": '"deterministic"'},
            ("'data.batch_size'", "must divide num_examples = 6000", "Got 7", "sampler.remainder = 'drop' or 'short'."),
        ),
        ({"data.batch_size": None}, ("'data.batch_size'", "'data.batches_per_epoch'", "'data.sampling_prob'")),
        ({"data.sampling_prob": "0.1"}, ("'data.sampling_prob'", "left out", "'data.batch_size'")),
        ({"data.epochs": "1.5"}, ("'data.epochs'", "whole number for kind = 'balls_in_bins'", "data.epochs = 1 or 2")),
        ({"data.epochs": None}, ("'data.epochs'", "'data.steps'", "given")),
        ({"data.steps": "5"}, ("'data.steps'", "epochs = 1", "Got 5")),
        ({"data.epochs": None, "data.steps": "5"}, ("'data.steps'", "multiple of the 300", "Got 5")),
        ({"data.epochs": "1000000000"}, ("'data.epochs'", "1000000000 steps", "Got 1000000000")),
        (
            {"sampler.kind": '"random_allocation"', "sampler.participations": "301"},
            ("participations", "at most the 300 steps", "Got 301", "sampler.participations = 300 would do."),
        ),
        ({"sampler.kind": '"random_allocation"', "sampler.participations": "0"}, ("'sampler.participations'", "Got 0")),
        (
            {"sampler.kind": '"poisson"', "sampler.truncated_batch_size": "7000"},
            ("truncated_batch_size", "at most num_examples = 6000", "Got 7000"),
        ),
        ({"data.num_examples": None}, ("'data.num_examples'", "missing")),
    ],
)
def test_values_that_do_not_fit_together(cli: Any, changes: dict[str, str | None], says: tuple[str, ...]) -> None:
    cli.write_plan(changes)
    cli.refuses("epsilon", "plan.toml", says=says)


def test_noise_multiplier_given_twice(cli: Any) -> None:
    cli.write_plan(top="noise_multiplier = 1.0")
    cli.refuses("epsilon", "plan.toml", says=("'noise_multiplier'", "once"))


@pytest.mark.parametrize("table", ["data", "sampler", "target", "mechanism"])
@pytest.mark.parametrize(("form", "shown"), [("5", "5"), ("[]", "[]"), ('"x"', "'x'"), ("1979-05-27", "1979-05-27")])
def test_a_table_has_to_be_a_table(cli: Any, table: str, form: str, shown: str) -> None:
    cli.write_plan()
    text = Path("plan.toml").read_text()
    Path("plan.toml").write_text(f"{table} = {form}\n" + re.sub(rf"\[{table}\]\n([^[\n].*\n)+", "", text))
    cli.refuses("epsilon", "plan.toml", says=(f"'{table}'", "table", f"Got {shown}"))


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("epsilon", "--noise", "--noise-multiplier"),
        ("epsilon", "--sigma", "--noise-multiplier"),
        ("calibrate", "--eps", "--epsilon"),
        ("audit", "--sample", "--samples"),
        ("audit", "--frobnicate", None),
    ],
)
def test_an_option_that_is_not_known_has_the_one_that_is_meant(
    cli: Any, command: str, option: str, meant: str | None
) -> None:
    hint = "" if meant is None else f" (did you mean {meant!r}?)"
    said = cli.refuses(command, "plan.toml", option, "1")
    assert said == f"No such option: {option}{hint}; see 'hockeystick {command} --help'."


def test_an_option_without_its_value_leads_to_the_help_of_its_command(cli: Any) -> None:
    said = cli.refuses("epsilon", "plan.toml", "--delta")
    assert said == "Option '--delta' requires an argument; see 'hockeystick epsilon --help'."


@pytest.mark.parametrize("table", ["data", "sampler"])
def test_missing_tables(cli: Any, table: str) -> None:
    text = Path("plan.toml").read_text()
    Path("plan.toml").write_text(text.replace(f"[{table}]", f"[x{table}]"))
    cli.refuses("epsilon", "plan.toml", says=(f"'x{table}' field is not known here (did you mean '{table}'?)",))
    Path("plan.toml").write_text(re.sub(rf"\[{table}\]\n([^[\n].*\n)+", "", text))
    cli.refuses("epsilon", "plan.toml", says=(f"'{table}'", "missing"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\0\0", "TOML"),
        (bytes(range(256)), "UTF-8"),
        (b"x = '\xe9'", "UTF-8"),
        ("[data]".encode("utf-16"), "UTF-8"),
        (b"#" * (2 << 20), "at most 1048576 bytes"),
        (b"this is no plan", "TOML"),
        (b"[data]\n[data]\n", "twice"),
        (b"a = 1\na = 2\n", "a name is given twice"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"a = 1" + b"0" * 5000, "digits"),
        (b"a = [1, 2", "Unclosed"),
    ],
)
def test_files_that_are_no_toml(cli: Any, content: bytes, says: str) -> None:
    Path("plan.toml").write_bytes(content)
    cli.refuses("epsilon", "plan.toml", says=("'plan.toml'", says))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"{", "JSON"),
        (b"[]", "table"),
        (b"3", "table"),
        (b"null", "table"),
        (b"{}", "'data' field is missing"),
        (b"{} x", "JSON"),
        (b'{"x": "\xe9"}', "UTF-8"),
        (b'{"\\ud800": 1}', "JSON"),
        (b'{"data": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"data": 1' + b"0" * 5000 + b"}", "digits"),
        (b'{"data": {"epochs": 1, "epochs": 2}}', "'epochs' is given twice"),
        (b'{"data": {"num_examples": NaN, "batch_size": 1}}', "'data.num_examples' field must be a whole number"),
        (b'{"data": {"num_examples": null, "batch_size": 1}}', "Got None"),
        (b'{"data": {"num_examples": 9, "batch_size": 1, "steps": 1}, "sampler": null}', "'sampler'"),
        (b'{"data": {"num_examples": 9, "batch_size": 1, "steps": 1}, "sampler": {"kind": null}}', "'sampler.kind'"),
    ],
)
def test_files_that_are_no_json(cli: Any, content: bytes, says: str) -> None:
    Path("plan.json").write_bytes(content)
    cli.refuses("epsilon", "plan.json", says=(says,))


@pytest.mark.parametrize("path", ["nothing.toml", ".", "", "plan.toml/x", "x" * 5000, "a\0b", "-", "\udcff.toml"])
@pytest.mark.parametrize("command", ["calibrate", "epsilon", "verify"])
def test_unreadable_paths(cli: Any, command: str, path: str) -> None:
    sentence = cli.refuses(command, path, says=("cannot be read",))
    assert len(sentence) < 200


@pytest.mark.parametrize("value", ["abc", "", "1,5", "0x10", "true"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("calibrate", "--epsilon"),
        ("calibrate", "--delta"),
        ("epsilon", "--delta"),
        ("epsilon", "--noise-multiplier"),
        ("epsilon", "--budget"),
        ("delta", "--epsilon"),
        ("compare", "--delta"),
        ("compare", "--budget"),
        ("verify", "--budget"),
    ],
)
def test_options_that_are_no_number(cli: Any, command: str, option: str, value: str) -> None:
    file = "plan.toml"
    if command == "verify":
        file = "cert.json"
        assert cli("epsilon", "plan.toml", "--method", "gaussian", "--out", file).code == 0
    cli.refuses(command, file, f"{option}={value}", says=(f"'{option}'", "a number", f"Got {value!r}"))


@pytest.mark.parametrize(
    ("command", "option", "value", "allowed"),
    [
        *(("calibrate", "--epsilon", value, "above 0 and at most 700") for value in ("nan", "inf", "-1", "0", "701")),
        *(("delta", "--epsilon", value, "from 0 to 700") for value in ("nan", "inf", "-1", "1e300")),
        *((c, "--delta", v, "from 1e-30 to below 1") for c in ("epsilon", "calibrate") for v in ("nan", "-1", "0")),
        *(("compare", "--delta", value, "from 1e-30 to below 1") for value in ("inf", "1", "2", "1e-31")),
        *((c, "--noise-multiplier", v, "0.01") for c in ("epsilon", "delta", "compare") for v in ("-1", "0", "1e-3")),
        *(("epsilon", "--noise-multiplier", value, "finite") for value in ("nan", "inf", "1e400")),
        ("epsilon", "--noise-multiplier", "1e7", "at most 1000000"),
        *((c, "--budget", v, "above 0") for c in ("epsilon", "calibrate", "compare") for v in ("nan", "-1", "0")),
        ("epsilon", "--budget", "inf", "at most 1e6"),
        *((c, "--method", v, "accountant") for c in ("epsilon", "delta", "calibrate") for v in ("foo", "")),
    ],
)
def test_options_out_of_range(cli: Any, command: str, option: str, value: str, allowed: str) -> None:
    field = option[2:].replace("-", "_")
    sentence = cli.refuses(command, "plan.toml", f"{option}={value}", says=(f"'{field}'", allowed))
    assert f"Got {float(value) if option != '--method' else value!r} " in sentence


@pytest.mark.parametrize("command", ["epsilon", "calibrate"])
def test_method_that_does_not_apply(cli: Any, command: str) -> None:
    cli.write_plan({"sampler.kind": '"shuffle"'})
    cli.refuses(
        command,
        "plan.toml",
        "--method",
        "direct",
        says=("'direct'", "does not apply", "combination of strategy and sampler"),
    )


@pytest.mark.parametrize(
    ("command", "field", "option"),
    [
        ("epsilon", "target.delta", "--delta"),
        ("compare", "target.delta", "--delta"),
        ("calibrate", "target.delta", "--delta"),
        ("calibrate", "target.epsilon", "--epsilon"),
        ("delta", "target.epsilon", "--epsilon"),
        ("epsilon", "mechanism.noise_multiplier", "--noise-multiplier"),
        ("delta", "mechanism.noise_multiplier", "calibrate"),
        ("compare", "mechanism.noise_multiplier", "--noise-multiplier"),
    ],
)
def test_missing_target_or_noise(cli: Any, command: str, field: str, option: str) -> None:
    cli.write_plan({field: None})
    cli.refuses(command, "plan.toml", says=(f"{field.removeprefix('mechanism.')}'", "missing", option))


def test_commands_that_do_not_exist(cli: Any) -> None:
    cli.refuses("certify", "plan.toml", says=("'certify'", "'hockeystick epsilon PLAN'", "'calibrate'"))
    assert "?;" not in cli.refuses("calibrat", "plan.toml", says=("'calibrat'", "'calibrate'? See", "--help"))


@pytest.mark.parametrize("command", ["calibrate", "epsilon", "delta"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nothing/x.json", "No such file or directory"),
        ("folder", "not an ordinary file"),
        ("folder/", "not an ordinary file"),
        (".", "not an ordinary file"),
        (os.devnull, "not an ordinary file"),
        ("plan.toml/x", "parent is not a directory"),
        ("", "empty"),
        ("a\0b", "null byte"),
        ("x" * 300, "too long"),
    ],
)
def test_places_that_cannot_be_written(cli: Any, command: str, path: str, why: str) -> None:
    Path("folder").mkdir()
    cli.refuses(command, "plan.toml", "--out", path, says=("output path", why))
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("epsilon", ("--out", "plan.toml")),
        ("delta", ("--epsilon", "1", "--out", "../{here}/plan.toml")),
        ("calibrate", ("--out", "link.toml")),
        ("tune", ("--trials", "2", "--out", "plan.toml")),
        ("report", ("--out", "plan.toml")),
        ("sweep", ("--out", "plan.toml")),
        ("recommend", ("--write", "plan.toml")),
        ("recommend", ("--results", "plan.toml")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-2].strip("-") + value[-1][:2],
)
def test_no_command_replaces_what_it_reads(cli: Any, command: str, options: tuple[str, ...]) -> None:
    Path("link.toml").symlink_to("plan.toml")
    before = Path("plan.toml").read_text()
    given = [option.format(here=Path.cwd().name) for option in options]
    cli.refuses(command, "plan.toml", *given, says=(f"'{given[-2]}'", "must name another file"))
    assert Path("plan.toml").read_text() == before


@contextmanager
def not_root() -> Iterator[None]:
    """Root may write everywhere: be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_read_only_places() -> None:
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder, old = Path(place, "folder"), Path(place, "old.json")
        folder.mkdir()
        folder.chmod(0o555)
        old.write_text("old")
        old.chmod(0o444)
        with not_root():
            for path in (folder / "x.json", old):
                with pytest.raises(InvalidInputError, match="no permission"):
                    check_writable(path)
        assert list(folder.iterdir()) == []
        assert old.read_text() == "old"


@pytest.mark.parametrize("path", ["x.foo", "x", "", ".png", "folder"])
def test_plots_in_an_unknown_format(cli: Any, path: str) -> None:
    cli.refuses("compare", "plan.toml", "--plot", path, says=(".png, .pdf or .svg", f"Got {path!r}"))


def test_plots_that_cannot_be_written(cli: Any) -> None:
    cli.refuses("compare", "plan.toml", "--plot", "nothing/x.png", says=("'nothing/x.png'", "No such file"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("foo",), "'foo'"),
        (("--foo",), "--foo"),
        (("epsilon",), "PLAN"),
        (("epsilon", "plan.toml", "extra"), "extra"),
        (("epsilon", "plan.toml", "--foo"), "--foo"),
        (("epsilon", "plan.toml", "--delta"), "--delta"),
        (("epsilon", "plan.toml", "--json=1"), "--json"),
        (("epsilon", "-1"), "-1"),
        (("list",), "samplers"),
        (("list", "Samplers"), "The 'topic' argument must be one of strategies, samplers, accountants, support"),
        (("list", "strategie"), "(did you mean 'strategies'?)."),
        (("list", "samplers", "x"), "x"),
        (("verify",), "CERTIFICATE"),
        (("reproduce", "no-such-paper"), "'no-such-paper'"),
        (("reproduce", "chua-2024", "numbers", "--out", ""), "The output path '' cannot be written: it is empty."),
    ],
)
def test_command_lines_that_say_nothing_known(cli: Any, arguments: tuple[str, ...], says: str) -> None:
    cli.refuses(*arguments, says=(says,))


def test_a_problem_that_is_far_too_large(cli: Any) -> None:
    cli.write_plan({"data.num_examples": "1000000000000", "data.batch_size": "1"})
    cli.refuses("calibrate", "plan.toml", says=("'data.num_examples'", "1000000000", "Got 1000000000000"))


def test_what_cannot_be_certified_exits_with_one(cli: Any) -> None:
    cli.write_plan({"mechanism.noise_multiplier": "0.01", "data.epochs": "1000", "sampler.kind": '"deterministic"'})
    cli.refuses("epsilon", "plan.toml", code=1, says=("noise_multiplier = 0.01", "more noise"))


def test_calibration_beyond_the_largest_noise_exits_with_one(cli: Any) -> None:
    cli.write_plan({"target.epsilon": "1e-9", "target.delta": "1e-12", "sampler.kind": '"deterministic"'})
    cli.refuses("calibrate", "plan.toml", code=1, says=("1e+06", "epsilon = 1e-09"))


def spoiled(certificate: dict[str, Any], path: tuple[str, ...], value: Any) -> str:
    """The certificate as JSON with one value replaced, its digest as it was."""
    inner = certificate
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(certificate)


@pytest.mark.parametrize(
    ("path", "value", "code", "says"),
    [
        (("epsilon", "upper"), 0.1, 2, "'epsilon.lower' field must be at most upper = 0.1"),
        (("epsilon", "upper"), 9.0, 1, "altered"),
        (("epsilon", "lower"), 0.0, 1, "altered"),
        (("mechanism", "noise_multiplier"), 0.5, 1, "altered"),
        (("mechanism", "noise_multiplier"), None, 2, "'mechanism.noise_multiplier'"),
        (("mechanism", "sampler", "bins"), 1000, 1, "altered"),
        (("mechanism", "sampler", "bins"), -1, 2, "'mechanism.sampler.bins' field must be at least 1"),
        (("mechanism", "sampler", "kind"), "foo", 2, "'mechanism.sampler.kind'"),
        (("assumptions",), [], 1, "altered"),
        (("confidence",), 2.0, 2, "'confidence' field must be at most 1"),
        (("confidence",), 0.5, 1, "altered"),
        (("kind",), "guess", 2, "'kind' field must be 'deterministic' or 'monte_carlo'"),
        (("adjacency",), "other", 2, "'adjacency'"),
        (("digest",), "", 1, "altered"),
        (("epsilon",), "2", 2, "'epsilon'"),
        (("epsilon",), {"lower": None}, 2, "'epsilon.upper' field is missing"),
        (("epsilon",), {"lower": None, "upper": "x"}, 2, "'epsilon.upper' field must be a number"),
        (("epsilon",), 1.0, 2, "one number and one interval"),
        (("format",), "other/1", 2, "'format'"),
        (("extra",), 1, 2, "'extra' field is not known"),
    ],
)
def test_tampered_certificates(cli: Any, path: tuple[str, ...], value: Any, code: int, says: str) -> None:
    assert cli("epsilon", "plan.toml", "--method", "gaussian", "--out", "cert.json").code == 0
    certificate = json.loads(Path("cert.json").read_text())
    certificate["epsilon"]["lower"] = certificate["epsilon"]["lower"] or 0.2
    Path("cert.json").write_text(spoiled(certificate, path, value))
    cli.refuses("verify", "cert.json", code=code, says=(says,))
    cli.refuses("verify", "cert.json", "--json", code=code, says=(says,))


@pytest.mark.parametrize(("content", "says"), [(b"", "JSON"), (b"[]", "table"), (b"{}", "missing"), (b"\xff", "UTF-8")])
def test_files_that_are_no_certificate(cli: Any, content: bytes, says: str) -> None:
    Path("cert.json").write_bytes(content)
    cli.refuses("verify", "cert.json", says=(says,))


def test_the_third_relation_of_neighbours_is_explained(cli: Any) -> None:
    cli.write_plan({"unit.neighbours": '"add_remove"'})
    cli.refuses("epsilon", "plan.toml", says=("'zero_out' or 'replace'", "says where it also holds for add_remove"))
    cli.write_plan({"unit.neighbours": '"remove"'})
    cli.refuses("epsilon", "plan.toml", says=("'zero_out' or 'replace'", "Got 'remove' instead"))


@pytest.mark.parametrize("arguments", [("verify",), ("state", "--label", "a run"), ("verify", "--json")])
def test_a_plan_in_place_of_a_certificate_is_told_apart(cli: Any, arguments: tuple[str, ...]) -> None:
    cli.write_plan({})
    command, *options = arguments
    cli.refuses(command, "plan.toml", *options, says=("'plan.toml' is a plan", "'hockeystick calibrate'"))
