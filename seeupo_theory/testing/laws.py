"""Laws as assertions, each usable on a user's own estimator, objective or algorithm.

========================================= =======================================================
of a step                                 `assert_monotone`: J does not fall
of an estimator, on a model               `assert_unbiased`, `assert_sign`: E[Â | h, a] against A^π
of an estimator, on returns               `assert_permutation_equivariant`, `assert_shift_invariant`
of an objective                           `assert_lower_bound`: f(ρ, A) ≤ ρA
of any rule on arrays                     `assert_same_rule` (JAX and torch), `assert_no_nan`,
                                          `assert_does_not_write`
========================================= =======================================================

All raise AssertionError with what rebuilds the failure as code, and ValueError for an argument that
does not fit.  Where the default tolerance is not stated as relative to something else, it is a
multiple of the rounding of the dtype that the rule itself computes in.
"""

from seeupo_theory.testing._enumerate import Expected, expected_advantages
from seeupo_theory.testing._estimators import (
    BATCHES,
    assert_permutation_equivariant,
    assert_shift_invariant,
    assert_sign,
    assert_unbiased,
)
from seeupo_theory.testing._rules import (
    assert_does_not_write,
    assert_lower_bound,
    assert_no_nan,
    assert_same_rule,
)
from seeupo_theory.testing._steps import Overshoot, assert_monotone

__all__ = [
    "BATCHES",
    "Expected",
    "Overshoot",
    "assert_does_not_write",
    "assert_lower_bound",
    "assert_monotone",
    "assert_no_nan",
    "assert_permutation_equivariant",
    "assert_same_rule",
    "assert_shift_invariant",
    "assert_sign",
    "assert_unbiased",
    "expected_advantages",
]
