r"""Parametrisations: functions θ → log-probability tables, one table a turn.

The claims of policy-optimisation theory depend on what the parameters can move.  A
`Parametrisation` is two functions, `init` (tables → θ) and `log_probs` (θ → tables), in log space
and differentiable:

* ``tabular``: independent logits a turn, :math:`\pi_t(a|o) \propto \exp\theta_t[o, a]`;
* ``shared``: one logit table, read by every turn through its observation map;
* ``log-linear``: :math:`\pi_t(a|o) \propto \exp(\phi_t(o, a) \cdot \theta)`, θ shared;
* ``network``: a two-layer tanh network on features of (turn, observation), θ shared;
* ``tokens``: independent logits a token, a turn's action being a sequence of L symbols.

A table is [O_t, A_t], or [O_t, A_t, L_t] where an action is a token sequence (the last axis holds
the log-probabilities of its tokens).  To add one, write a function that returns a
`Parametrisation` and add it to `PARAMETRISATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bandits.graph import DecisionGraph

__all__ = [
    "PARAMETRISATIONS",
    "Parametrisation",
    "log_linear",
    "make",
    "network",
    "one_hot_features",
    "random_features",
    "shared",
    "tabular",
    "tokens",
]

Tables = tuple[Array, ...]

AGREEMENT_ATOL = 1e-12
"""Two turns that share a row must give the same probabilities up to double rounding."""


@dataclass(frozen=True)
class Parametrisation:
    """A family of policies.

    Attributes:
        name: as shown in ledgers and traces.
        log_probs: θ → T tables [O_t, A_t] or [O_t, A_t, L_t] of log-probabilities.
        init: T tables of log-probabilities [O_t, A_t] → a θ that reproduces them; raises
            ValueError where the family cannot.
        independent: True when every turn has parameters of its own.
        replace: (θ, turn, log-probability table) → θ with that turn's rows replaced, for the
            closed-form ideal steps; None where the family has no such operation.
    """

    name: str
    log_probs: Callable[[Any], Tables]
    init: Callable[[Sequence[Array]], Any]
    independent: bool
    replace: Callable[[Any, int, Array], Any] | None = None


def _masks(graph: DecisionGraph) -> list[Array | None]:
    return [None if layer.mask is None else jnp.asarray(layer.mask) for layer in graph.layers]


def _log_softmax(logits: Array, mask: Array | None) -> Array:
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    return jax.nn.log_softmax(logits, axis=-1)


def tabular(graph: DecisionGraph) -> Parametrisation:
    """Independent softmax tables: θ is a tuple of T logit arrays [O_t, A_t]."""
    masks = _masks(graph)

    def log_probs(theta: Tables) -> Tables:
        return tuple(_log_softmax(x, m) for x, m in zip(theta, masks, strict=True))

    def replace(theta: Tables, turn: int, table: Array) -> Tables:
        return (*theta[:turn], table, *theta[turn + 1 :])

    return Parametrisation("tabular", log_probs, tuple, True, replace)


def shared(graph: DecisionGraph) -> Parametrisation:
    """One softmax table for all turns: θ is a logit array [O, A].

    Every turn reads the row that its observation map names, so equal observation numbers at
    different turns mean the same row (`bandits.alias(..., shared=True)` numbers them so).

    Raises:
        ValueError: turns differ in their number of actions.
    """
    widths = {layer.actions for layer in graph.layers}
    if len(widths) != 1:
        raise ValueError(
            f"a table shared by all turns needs equally many actions at each, not {graph.actions}"
        )
    rows = max(layer.observations for layer in graph.layers)
    masks = _masks(graph)
    sizes = [layer.observations for layer in graph.layers]

    def log_probs(theta: Array) -> Tables:
        return tuple(_log_softmax(theta[:n], m) for n, m in zip(sizes, masks, strict=True))

    def init(tables: Sequence[Array]) -> Array:
        theta = np.zeros((rows, widths.copy().pop()))
        written = np.zeros(rows, dtype=bool)
        for t, (layer, table) in enumerate(zip(graph.layers, tables, strict=True)):
            used = np.unique(
                np.arange(layer.nodes) if layer.observation is None else layer.observation
            )
            new = np.asarray(table, dtype=float)
            for row in used:
                if written[row] and not np.allclose(
                    np.exp(theta[row]), np.exp(new[row]), rtol=0, atol=AGREEMENT_ATOL
                ):
                    raise ValueError(
                        f"turn {t + 1} gives row {row} other probabilities than an earlier turn; a "
                        "table shared by all turns needs them equal"
                    )
                theta[row], written[row] = new[row], True
        return jnp.asarray(theta)

    def replace(theta: Array, turn: int, table: Array) -> Array:
        mask, head = masks[turn], theta[: sizes[turn]]
        kept = table if mask is None else jnp.where(mask, table, head)
        return jnp.concatenate([kept, theta[sizes[turn] :]])

    return Parametrisation("shared", log_probs, init, False, replace)


def _uniform_only(name: str, zero: Callable[[], Any]) -> Callable[[Sequence[Array]], Any]:
    def init(tables: Sequence[Array]) -> Any:
        for t, table in enumerate(tables):
            value = np.asarray(table)
            allowed = np.isfinite(value)
            uniform = np.where(allowed, -np.log(allowed.sum(axis=-1, keepdims=True)), -np.inf)
            if not np.allclose(value, uniform, rtol=0, atol=AGREEMENT_ATOL):
                raise ValueError(
                    f"the {name} parametrisation cannot reproduce the given policy of turn {t + 1}; "
                    "start from the uniform policy or pass theta"
                )
        return zero()

    return init


def log_linear(graph: DecisionGraph, features: Sequence[Any]) -> Parametrisation:
    """Log-linear policy: `features` are T arrays [O_t, A_t, d], θ is [d], shared by all turns."""
    phi = [jnp.asarray(f, dtype=float) for f in features]
    if len(phi) != graph.turns:
        raise ValueError(f"features has {len(phi)} arrays; the model has {graph.turns} turns")
    for t, (layer, f) in enumerate(zip(graph.layers, phi, strict=True)):
        expected = (layer.observations, layer.actions)
        if f.ndim != 3 or f.shape[:2] != expected or f.shape[2] != phi[0].shape[-1]:
            raise ValueError(
                f"features[{t}] has shape {f.shape}; expected {(*expected, phi[0].shape[-1])}"
            )
    masks = _masks(graph)

    def log_probs(theta: Array) -> Tables:
        return tuple(_log_softmax(f @ theta, m) for f, m in zip(phi, masks, strict=True))

    zero = _uniform_only("log-linear", lambda: jnp.zeros(phi[0].shape[-1]))
    return Parametrisation("log-linear", log_probs, zero, False)


def random_features(graph: DecisionGraph, dimension: int, seed: int = 0) -> list[np.ndarray]:
    """Standard normal features, T arrays [O_t, A_t, d]."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal((layer.observations, layer.actions, dimension))
        for layer in graph.layers
    ]


def one_hot_features(graph: DecisionGraph) -> list[np.ndarray]:
    """Inputs of `network`: the turn and the observation, one-hot, T arrays [O_t, T + max O]."""
    widest = max(layer.observations for layer in graph.layers)
    out = []
    for t, layer in enumerate(graph.layers):
        x = np.zeros((layer.observations, graph.turns + widest))
        x[:, t] = 1.0
        x[np.arange(layer.observations), graph.turns + np.arange(layer.observations)] = 1.0
        out.append(x)
    return out


def network(
    graph: DecisionGraph,
    hidden: int = 16,
    seed: int = 0,
    inputs: Sequence[Any] | None = None,
) -> Parametrisation:
    """A two-layer tanh network on `inputs` (T arrays [O_t, d]; default `one_hot_features`).

    θ is a dict of arrays shared by all turns; the output layer starts at 0, so that the first
    policy is uniform.
    """
    x = [jnp.asarray(f, dtype=float) for f in (inputs or one_hot_features(graph))]
    widest = max(layer.actions for layer in graph.layers)
    masks = _masks(graph)
    d = x[0].shape[-1]

    def log_probs(theta: dict[str, Array]) -> Tables:
        out = []
        for f, m, layer in zip(x, masks, graph.layers, strict=True):
            hidden_t = jnp.tanh(f @ theta["w_in"] + theta["b_in"])
            logits = hidden_t @ theta["w_out"] + theta["b_out"]
            out.append(_log_softmax(logits[:, : layer.actions], m))
        return tuple(out)

    def zero() -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {
            "w_in": jnp.asarray(rng.standard_normal((d, hidden)) / np.sqrt(d)),
            "b_in": jnp.zeros(hidden),
            "w_out": jnp.zeros((hidden, widest)),
            "b_out": jnp.zeros(widest),
        }

    return Parametrisation("network", log_probs, _uniform_only("network", zero), False)


def tokens(
    graph: DecisionGraph, vocabulary: Sequence[int], lengths: Sequence[int]
) -> Parametrisation:
    """Actions as token sequences: A_t = V_t^{L_t}, row-major, independent logits a prefix.

    θ is, a turn, a tuple of L_t logit arrays [O_t · V^l, V]; tables come out as [O_t, A_t, L_t].

    Raises:
        ValueError: a turn's actions are not V_t^{L_t} in number, or some are forbidden.
    """
    shape = list(zip(vocabulary, lengths, strict=True))
    if len(shape) != graph.turns:
        raise ValueError(f"lengths has {len(shape)} entries; the model has {graph.turns} turns")
    for t, (layer, (v, length)) in enumerate(zip(graph.layers, shape, strict=True)):
        if layer.mask is not None and not layer.mask.all():
            raise ValueError(f"turn {t + 1} forbids actions, which token tables cannot express")
        if v**length != layer.actions:
            raise ValueError(
                f"turn {t + 1} has {layer.actions} actions, not {v}^{length} token sequences"
            )

    def log_probs(theta: tuple[Tables, ...]) -> Tables:
        out = []
        for layer, (v, length), logits in zip(graph.layers, shape, theta, strict=True):
            columns = []
            for position in range(length):
                table = jax.nn.log_softmax(logits[position], axis=-1)
                table = jnp.reshape(table, (layer.observations, v ** (position + 1)))
                columns.append(jnp.repeat(table, v ** (length - position - 1), axis=1))
            out.append(jnp.stack(columns, axis=-1))
        return tuple(out)

    def init(tables: Sequence[Array]) -> tuple[Tables, ...]:
        theta = []
        for layer, (v, length), table in zip(graph.layers, shape, tables, strict=True):
            probs = jnp.reshape(jnp.exp(table), (layer.observations, *(v,) * length))
            turn = []
            for position in range(length):
                tail = tuple(range(position + 2, length + 1))
                prefix = jnp.reshape(jnp.sum(probs, axis=tail), (-1, v))
                written = jnp.sum(prefix, axis=1, keepdims=True) > 0
                turn.append(jnp.where(written, jnp.log(prefix), 0.0))  # else uniform
            theta.append(tuple(turn))
        return tuple(theta)

    return Parametrisation("tokens", log_probs, init, True)


PARAMETRISATIONS: dict[str, Callable[..., Parametrisation]] = {
    "tabular": tabular,
    "shared": shared,
    "log-linear": log_linear,
    "network": network,
    "tokens": tokens,
}


def make(name: str, graph: DecisionGraph, **options: Any) -> Parametrisation:
    """A parametrisation by name; options go to its function.

    Raises:
        ValueError: an unknown name (the message lists the known ones).
    """
    given = set(options)
    for key in ("dimension", "hidden"):
        if key in options and not (isinstance(options[key], int) and options[key] >= 1):
            raise ValueError(f"{key} is {options[key]!r}; expected a whole number of at least 1")
    if name not in PARAMETRISATIONS:
        raise ValueError(f"param is {name!r}; expected one of {sorted(PARAMETRISATIONS)}")
    if name == "log-linear" and "features" not in options:
        options = {"features": random_features(graph, **{"dimension": 2, **options})}
    known = set(signature(PARAMETRISATIONS[name]).parameters) - {"graph"}
    if name == "log-linear":
        known |= {"dimension", "seed"}
    for key in given:
        if key not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise ValueError(f"option {key!r} does not fit param {name!r}, which takes: {takes}")
    return PARAMETRISATIONS[name](graph, **options)
