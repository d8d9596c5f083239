r"""Property-based testing for users: strategies that draw problems, laws that judge rules.

A law such as "the expected advantage has the right sign" is a statement about *all* models and
policies.  `Hypothesis <https://hypothesis.readthedocs.io>`_ looks for one that breaks it and
shrinks what it found; the strategies here draw models whose numbers are small fractions, and the
laws report what fails as code, so that the outcome of a search is a model that can be read.

Suppose you wrote an estimator that divides by the standard deviation of the group:

>>> from hypothesis import given, settings
>>> from seeupo_theory.testing import assert_sign, bandits
>>> def whitened(returns):
...     centred = returns - returns.mean(axis=-1, keepdims=True)
...     return centred / (returns.std(axis=-1, keepdims=True) + 1e-6)
>>> @settings(max_examples=300, deadline=None, derandomize=True)
... @given(bandits(turns=1, actions=2))
... def test_whitened_advantages_point_the_right_way(model):
...     assert_sign(whitened, model, group_size=2)

Ten lines; ``pytest`` runs them as any test.  It fails within a few seconds, and the message holds
the smallest bandit that Hypothesis could find:

>>> try:
...     test_whitened_advantages_point_the_right_way()
... except AssertionError as failure:
...     print(failure)  # doctest: +ELLIPSIS
whitened has the wrong sign at turn 1 after context 0, action ...; group_size=2
model = SequentialBandit([[...{'values': [...], 'probs': [...]}...]])
policy = None  # uniform

One action pays a sure amount, the other a little less most of the time and much more at times: it
is better, but it loses most comparisons, and the standard deviation makes all comparisons count the
same.  Take ``rewards=st.sampled_from([0, 1])``, and the law holds: for binary rewards it is a
theorem.

**Strategies** (`strategies`; they need Hypothesis): `bandits`, `mdps`, `policies` of a model,
`problems` (model and policy), `returns` and `groups` for estimators, `ratios` for objectives,
`algorithms`, and the parts they are made of: `values`, `simplices`, `leaves`.

**Laws** (`laws`): `assert_monotone` (one step of an algorithm does not lower J), `assert_unbiased`,
`assert_sign`, `assert_permutation_equivariant`, `assert_shift_invariant`, `assert_lower_bound`,
`assert_same_rule` (JAX and torch), `assert_no_nan`, `assert_does_not_write`.  They are plain
functions: they work in any test, and on an estimator or objective of your own:

>>> from seeupo_theory import Algorithm
>>> from seeupo_theory.testing import assert_monotone
>>> from bandits import SequentialBandit
>>> model = SequentialBandit([[[0, 1], ["1/2", "1/2"]]])
>>> assert_monotone(Algorithm(estimator=whitened, epochs=5), model, group_size=2)

*What costs time.*  The laws on estimators enumerate groups in NumPy: milliseconds, as long as
returns and group are few.  `assert_monotone` compiles one program for each shape of a bandit,
each algorithm and each size of group (a few seconds, then a millisecond an example): draw models
of one or two shapes, and as many rewards, policies and step sizes as you like, under
``settings(deadline=None)``, since the first example takes longer than Hypothesis allows.  MDPs,
shared parameters and observation maps compile for every model; draw few.

*What a passed test means.*  That Hypothesis found nothing among some hundred examples.
"""

from importlib import import_module
from typing import Any

_LAWS = (
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
)
_STRATEGIES = (
    "algorithms",
    "bandits",
    "groups",
    "leaves",
    "mdps",
    "policies",
    "problems",
    "ratios",
    "returns",
    "simplices",
    "values",
)

_HOME = {
    "Policy": "_policy",
    **dict.fromkeys(_LAWS, "laws"),
    **dict.fromkeys(_STRATEGIES, "strategies"),
}

__all__ = ["laws", "strategies", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    """Load the module that owns `name` on first use."""
    home = name if name in ("laws", "strategies") else _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {__all__}")
    try:
        module = import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs Hypothesis, which is not installed; install it with "
            "pip install hypothesis",
            name="hypothesis",
        ) from error
    value = module if home == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
