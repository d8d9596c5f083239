"""The rules of policy optimisation, each written once against the Python array API.

A rule is a small pure function of arrays.  NumPy, JAX (under ``jit``, ``vmap`` and ``grad``) and
torch (with autograd) run the same lines, so what is proved of the tabular simulator is proved of
the code that trains a network.  Nothing here imports JAX or torch.

================  ==================================================================
module            question it answers
================  ==================================================================
`advantages`      how much better was a trajectory than its comparison?
`returns`         what did a trajectory earn, step by step?
`ratios`          how much likelier has an action become?
`objectives`      what is ascended?
`kl`              how is distance to a reference charged?
`orders`          in which sequence are the turns updated?
`factor`          what do updated turns do to the next turn's advantage?
`improvement`     what is the ideal step, in closed form?
`bounds`          what do samples say about the improvement of a step?
`presets`         which switches make which published algorithm?
`rows`            which advantage belongs to which trajectory?
================  ==================================================================
"""

from seeupo_theory.rules import (
    advantages,
    bounds,
    factor,
    improvement,
    kl,
    objectives,
    orders,
    presets,
    ratios,
    returns,
    rows,
)

__all__ = [
    "advantages",
    "bounds",
    "factor",
    "improvement",
    "kl",
    "objectives",
    "orders",
    "presets",
    "ratios",
    "returns",
    "rows",
]
