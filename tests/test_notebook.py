"""What notebooks show is plain HTML in which every string is escaped."""

from html import unescape

import hockeystick as hs
from hockeystick.notebook import preformatted, table


def test_strings_are_escaped() -> None:
    text = "<script>alert('x')</script> & \"y\""
    for shown in (preformatted(text), table(text, [(text, text)])):
        assert "<script" not in shown
        assert "'" not in shown
        assert '"' not in shown
        assert text in unescape(shown)


def test_certificates_are_shown_as_their_text() -> None:
    run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)
    certificate = hs.certify(run, delta=1e-5)
    assert certificate._repr_html_() == preformatted(str(certificate))
    assert "is certified" in certificate._repr_html_()
