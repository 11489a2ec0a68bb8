"""Methods of the literature that are never the best in hockeystick, which runs them to be compared.

They bound what they say they bound, with proofs and tests as the library's own have, and use its engines. ``certify``
and ``calibrate`` run them only when they are named.
"""

from hockeystick.accountants.base import Accountant
from hockeystick_papers import analytic, bin_renyi, decomposition, generalized_mmcc, mmcc, renyi, shuffled_tree

ACCOUNTANTS: dict[str, Accountant] = {
    module.ACCOUNTANT.name: module.ACCOUNTANT
    for module in (renyi, analytic, decomposition, bin_renyi, mmcc, generalized_mmcc, shuffled_tree)
}
