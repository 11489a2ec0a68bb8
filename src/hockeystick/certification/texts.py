"""The sentences of certificates that formats word differently: a certificate is verified with the words it was issued
with. Other words need another format; the former ones never change."""

from typing import NamedTuple

from hockeystick.certificate import FORMAT


class Texts(NamedTuple):
    """Sentences, of one format or several.

    Attributes:
        normaliser, one_seed: assumptions.
        limited_gradients: what bounds are proved for where methods assume something.
        prefixes: of runs that stop early, with a place for the steps.
        releases: what the claim is not about, with a place for what the user states.
        generator: what is not covered of a generator, with a place for its name.
        seeds: a caveat.
        path: why a field is private.
        names_companions: whether the command to verify names the file of a matrix that does not fit in.
    """

    normaliser: str
    one_seed: str
    limited_gradients: str
    prefixes: str
    releases: str
    generator: str
    seeds: str
    path: str
    names_companions: bool


CURRENT = Texts(
    normaliser=(
        "Divide by a number fixed before the run, such as the expected batch size, not by the drawn batch's size."
    ),
    one_seed="Draw the seed of the accounting samples once: a seed that was chosen among several proves nothing.",
    limited_gradients="the gradients that the assumptions describe",
    prefixes="The guarantee covers runs that stop after any of the {steps}, even if the outputs decide when.",
    releases="Other releases from the same data{others}, whose privacy loss adds to the loss of this run.",
    generator=(
        "Floating-point noise: the bounds are for Gaussian noise. Only the smallest and the largest number of the "
        "generator {name} were checked against the claim; numbers between them that the generator never draws cost "
        "privacy too."
    ),
    seeds=(
        "The seeds here are of accounting samples and may be published; keep the seeds of batches and noise secret."
    ),
    path="the path belongs to the machine that trains",
    names_companions=True,
)
FORMER = Texts(
    normaliser=(
        "Divide by a number fixed beforehand, such as the expected batch size, not by the size of the batch drawn."
    ),
    one_seed="Draw the seed of the samples once: one that was chosen among several proves nothing.",
    limited_gradients="gradients of that kind only",
    prefixes="The same numbers cover every prefix of the {steps}, even if the outputs decide when to stop.",
    releases="Other releases from the data{others}, whose privacy loss adds to this one.",
    generator=(
        "Floating point: the bounds are those of Gaussian noise. Of the generator {name} only the ends were held "
        "against the claim, and what is missing between them costs privacy too."
    ),
    seeds="The seeds here are of accounting samples and may be published; those of batches and noise must not be.",
    path="it is a path on the machine of whoever trains",
    names_companions=False,
)
"""Of formats 1 and 2."""


def texts_of(form: str) -> Texts:
    """Those of a format."""
    return CURRENT if form == FORMAT else FORMER
