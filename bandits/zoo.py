"""Named instances, each with its optimum and the reason why it is here.

`optimum` is the value of the best policy that the entry's observation map allows, stochastic ones
included; `full_optimum` that of the best policy with the full history. Where an entry is about a
particular policy, `policy` holds its tables [O_t][A_t]. Numbers are fractions; the tests find
every optimum again by enumeration.

>>> entry = get("lock", turns=3)
>>> entry.optimum, entry.model.actions
(Fraction(1, 1), (2, 2, 2))
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from .aliasing import AliasedModel, alias
from .errors import ModelError, fail
from .exact import ExactArray, FloatArray, ObjectArray, parse_integer, parse_probabilities
from .graph import DecisionGraph
from .limits import MAX_NODES, require_array_fits
from .mdp import TabularMDP
from .rewards import reward
from .sequential import SequentialBandit

Model = SequentialBandit | TabularMDP | AliasedModel


@dataclass(frozen=True)
class ZooEntry:
    """A named instance. Fields: see the module's text; `tables` are the policy's, if it has one."""

    name: str
    model: Model
    optimum: Fraction
    reason: str
    full_optimum: Fraction
    tables: tuple[ExactArray, ...] | None = field(default=None, repr=False)

    @property
    def policy(self) -> list[FloatArray] | None:
        """The policy that the entry is about, tables [O_t, A_t], or None."""
        return None if self.tables is None else [table.values for table in self.tables]

    def exact_policy(self) -> list[ObjectArray] | None:
        """Return the policy as fractions."""
        return None if self.tables is None else [table.exact() for table in self.tables]

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Return the model's decision graph."""
        return self.model.graph(merge, max_nodes)


_BUILDERS: dict[str, Callable[..., ZooEntry]] = {}


def names() -> list[str]:
    """Return the names of all entries, sorted.

    >>> "wrong-sign" in names()
    True
    """
    return sorted(_BUILDERS)


def get(name: str, **params: Any) -> ZooEntry:
    """Build the entry of that name; `params` are those of its builder (see `parameters`).

    Raises ModelError for an unknown name or parameter, or a model too large to fit.
    """
    if name not in _BUILDERS:
        fail(f"zoo:{name}", f"is unknown, should be one of {', '.join(names())}")
    known = parameters(name)
    for key in params:
        if key not in known:
            has = f"has the parameters {', '.join(known)}" if known else "has no parameters"
            raise ModelError(f"zoo:{name} {has}: {key!r} should be left out")
    return _BUILDERS[name](**params)


def parameters(name: str) -> dict[str, int]:
    """Return the parameters of an entry with their defaults.

    >>> parameters("needle")
    {'arms': 16}
    """
    return {k: p.default for k, p in inspect.signature(_BUILDERS[name]).parameters.items()}


def entries() -> list[ZooEntry]:
    """Return all entries with their default parameters."""
    return [get(name) for name in names()]


def _entry(name: str) -> Callable[[Callable[..., ZooEntry]], Callable[..., ZooEntry]]:
    def register(build: Callable[..., ZooEntry]) -> Callable[..., ZooEntry]:
        _BUILDERS[name] = build
        return build

    return register


def _make(
    model: Model,
    optimum: int | str,
    reason: str,
    *,
    full: int | str | None = None,
    policy: list[Any] | None = None,
) -> ZooEntry:
    tables = None
    if policy is not None:
        tables = tuple(parse_probabilities(f"policy[{t}]", p) for t, p in enumerate(policy))
    best = Fraction(optimum)
    whole = best if full is None else Fraction(full)
    return ZooEntry(model.name, model, best, reason, whole, tables)


# One turn ---------------------------------------------------------------------------------------


@_entry("wrong-sign")
def _wrong_sign() -> ZooEntry:
    arms = ["1/2", reward((0, "3/5"), ("3/2", "2/5"))]
    return _make(
        SequentialBandit([arms], name="wrong-sign"),
        "3/5",
        "dividing by the group's std turns the sign of the expected advantage: the rare large reward "
        "wins on average and loses most comparisons; centring alone does not",
        policy=[[["1/2", "1/2"]]],
    )


@_entry("needle")
def _needle(arms: int = 16) -> ZooEntry:
    count = parse_integer("arms", arms, least=1)
    require_array_fits((count,), f"rewards of {count} arms")
    rewards = np.zeros((1, count))
    rewards[0, count // 2] = 1.0
    return _make(
        SequentialBandit(rewards, name="needle"),
        1,
        "one arm pays, the others pay nothing: most groups have equal rewards and no signal at all",
    )


@_entry("plateau")
def _plateau() -> ZooEntry:
    return _make(
        SequentialBandit([[1, "9/10", 0]], name="plateau"),
        1,
        "softmax gradient steps from a policy near the second-best arm first stay on a plateau: the "
        "gradient of the best arm is of the order of its probability times 1/10",
        policy=[[["1/100", "98/100", "1/100"]]],
    )


@_entry("shared-logit")
def _shared_logit() -> ZooEntry:
    model = SequentialBandit([[0, 1], [0, -2]], ["3/5", "2/5"], name="shared-logit")
    return _make(
        alias(model, "none"),
        0,
        "one logit for two contexts with gaps +1 and −2: the true derivative at 1/2 is −1/20, that "
        "of advantages divided by each context's std is +1/10",
        full="3/5",
        policy=[[["1/2", "1/2"]]],
    )


# Two turns --------------------------------------------------------------------------------------


@_entry("two-turn-std")
def _two_turn_std() -> ZooEntry:
    return _make(
        SequentialBandit([[["1/4", "1/4"], [1, 0]]], name="two-turn-std"),
        1,
        "the wrong sign of group std with deterministic rewards: under this policy the first turn's "
        "action 1 is worth 1/3, action 0 is worth 1/4, and the std-normalised advantage prefers 0",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"], ["1/3", "2/3"]]],
    )


@_entry("two-turn-std-uniform")
def _two_turn_std_uniform() -> ZooEntry:
    rewards = [[["1/4", "1/4", "1/4"], [1, 0, 0]]]
    return _make(
        SequentialBandit(rewards, name="two-turn-std-uniform"),
        1,
        "as two-turn-std, with three second actions, so that the uniform policy shows it",
        policy=[[["1/2", "1/2"]], [["1/3", "1/3", "1/3"]] * 2],
    )


@_entry("stuck-tree")
def _stuck_tree() -> ZooEntry:
    return _make(
        SequentialBandit([[["1/2", "1/2"], [0, 1]]], name="stuck-tree"),
        1,
        "argmax steps on reached histories only: forward order leaves action 1 before its second "
        "turn has improved and never comes back, reverse order needs one sweep",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"], ["9/10", "1/10"]]],
    )


@_entry("xor")
def _xor() -> ZooEntry:
    return _make(
        SequentialBandit([[[0, 1], [1, 0]]], name="xor"),
        1,
        "two turns must differ; easy where the second sees the first",
    )


@_entry("xor-blind")
def _xor_blind() -> ZooEntry:
    model = SequentialBandit([[[0, 1], [1, 0]]], name="xor-blind")
    return _make(
        alias(model, "turn"),
        1,
        "the second turn does not see the first: the uniform policy, of value 1/2, is a stationary "
        "point and a fixed point of every best response",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"]]],
    )


@_entry("xor-shared")
def _xor_shared() -> ZooEntry:
    model = SequentialBandit([[[0, 1], [1, 0]]], name="xor-shared")
    return _make(
        alias(model, "none", shared=True),
        "1/2",
        "both turns share one row that sees nothing: no fixed point reaches the value 1 of full "
        "history, the best policy is stochastic, and best responses to it oscillate",
        full=1,
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"]]],
    )


@_entry("xor-aliased")
def _xor_aliased() -> ZooEntry:
    model = SequentialBandit([[[0, "1/2"], [1, 0]]], name="xor-aliased")
    return _make(
        alias(model, "turn"),
        1,
        "the turns must differ, (1, 0) pays more than (0, 1), and the second does not see the first: "
        "(0, 1) is a strict Nash point of value 1/2, reached by best responses from this policy in "
        "every order",
        policy=[[["7/10", "3/10"]], [["3/10", "7/10"]]],
    )


@_entry("climbing")
def _climbing() -> ZooEntry:
    payoff = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
    return _make(
        alias(SequentialBandit([payoff], name="climbing"), "turn"),
        11,
        "the climbing game of Claus and Boutilier (1998): from the uniform policy best responses "
        "that do not see the partner end in the strict Nash point of value 7",
        policy=[[["1/3", "1/3", "1/3"]]] * 2,
    )


@_entry("tokens")
def _tokens() -> ZooEntry:
    reversed_pair = [0, 2, 1, 3]  # two binary tokens, read backwards
    rewards = np.zeros((1, 4, 4))
    rewards[0, np.arange(4), reversed_pair] = 1.0
    return _make(
        SequentialBandit(rewards, name="tokens"),
        1,
        "two turns of two binary tokens (TokenView with lengths=2, vocab=2); the second turn must "
        "repeat the first backwards: sequence-level and token-level updates on the same rewards",
    )


# More turns -------------------------------------------------------------------------------------


@_entry("team-2x2x2")
def _team() -> ZooEntry:
    rewards = [[[["5/8", "1/2"], ["5/8", "1/2"]], [[0, "1/8"], [1, 0]]]]
    return _make(
        SequentialBandit(rewards, name="team-2x2x2"),
        1,
        "three turns; the best leaf lies in the branch that is worse on average, so an early turn "
        "is first pushed the wrong way unless later turns are improved before it",
    )


@_entry("mixed")
def _mixed() -> ZooEntry:
    coin = reward((0, "1/2"), (2, "1/2"))
    rare = reward((-1, "1/4"), (0, "1/4"), (3, "1/2"))
    rewards = [[[0, "1/3", 1], [coin, rare, "1/2"]], [[coin, -1, 0], ["3/2", rare, coin]]]
    return _make(
        SequentialBandit(rewards, ["1/3", "2/3"], name="mixed"),
        "17/12",
        "unequal contexts, unequal numbers of actions and leaves with one, two and three atoms: "
        "whatever holds only for uniform, rectangular or deterministic models fails here",
    )


@_entry("lock")
def _lock(turns: int = 4, actions: int = 2) -> ZooEntry:
    depth = parse_integer("turns", turns, least=1)
    count = parse_integer("actions", actions, least=1)
    _require_tree("turns", depth, count)
    rewards = np.zeros((1, *(count,) * depth))
    rewards[0][tuple((t + 1) % count for t in range(depth))] = 1.0
    return _make(
        SequentialBandit(rewards, name="lock"),
        1,
        "a combination lock: one of A^T sequences pays, so that the signal falls off exponentially "
        "with the depth",
    )


@_entry("forward-staircase")
def _staircase(turns: int = 4) -> ZooEntry:
    depth = parse_integer("turns", turns, least=2)
    _require_tree("turns", depth, 2)
    rewards = np.zeros((2,) * depth)
    for t in range(depth - 1):  # leaving at turn t pays 1 − (t + 1) / 2T
        rewards[(1,) * t + (0,)] = 1.0 - (t + 1) / (2 * depth)
    rewards[(1,) * depth] = 1.0
    return _make(
        SequentialBandit(rewards[None], name="forward-staircase"),
        1,
        "greedy sweeps from the uniform policy: reverse order needs one, forward order needs T, "
        "because leaving looks better at every turn until the turn after it has been corrected",
        policy=[[["1/2", "1/2"]] * 2**t for t in range(depth)],
    )


# Markov decision processes ----------------------------------------------------------------------


def _tool_mdp(name: str) -> TabularMDP:
    start, informed, misled, done = range(4)
    answer, search, verify = range(3)
    table = np.zeros((4, 3, 4))
    table[[start, informed, misled], answer, done] = 1.0
    for state in (start, informed, misled):
        table[state, search, [informed, misled, start]] = (0.5, 0.25, 0.25)
    table[informed, verify, informed] = table[misled, verify, start] = table[
        start, verify, start
    ] = 1
    table[done, :, done] = 1.0
    cost = "-1/20"
    right = [
        reward((0, p), (1, q)) for p, q in (("3/4", "1/4"), ("1/10", "9/10"), ("9/10", "1/10"))
    ]
    rewards = [[right[s], cost, cost] for s in (start, informed, misled)] + [[0, 0, 0]]
    mask = np.ones((4, 3), dtype=bool)
    mask[start, verify] = False  # nothing to verify yet
    return TabularMDP(table, rewards, [1, 0, 0, 0], horizon=4, mask=mask, name=name)


@_entry("tool-use")
def _tool_use() -> ZooEntry:
    return _make(
        _tool_mdp("tool-use"),
        "231/320",
        "search, verify or answer, with random replies of the environment, a cost for each call and "
        "an episode that ends with the answer: search until informed, answer at the last turn",
    )


@_entry("tool-use-aliased")
def _tool_use_aliased() -> ZooEntry:
    return _make(
        alias(_tool_mdp("tool-use-aliased"), [0, 1, 1, 2]),
        "159/256",
        "tool-use where a wrong reply looks like a right one: verifying now has a use",
        full="231/320",
    )


@_entry("early-stop")
def _early_stop(turns: int = 4) -> ZooEntry:
    horizon = parse_integer("turns", turns, least=1)
    require_array_fits((horizon, 2, 2), f"rewards of turns = {horizon}")
    stop = np.arange(1, horizon + 1) / horizon
    rewards = np.zeros((horizon, 2, 2))
    rewards[:, 0, 0] = stop
    running = [[0, 1], [1, 0]]  # stop, go on
    return _make(
        TabularMDP([running, [[0, 1], [0, 1]]], rewards, [1, 0], horizon, name="early-stop"),
        1,
        "stopping at turn t pays t/T and ends the episode: trajectories of every length, the rest "
        "padded with no-op turns",
    )


@_entry("discount-trap")
def _discount_trap() -> ZooEntry:
    table = [[[0, 1], [0, 1]], [[0, 1], [0, 1]]]
    model = TabularMDP(
        table, [[0, "3/4"], [1, 0]], [1, 0], horizon=2, discount="1/2", name="discount-trap"
    )
    return _make(
        alias(model, "none", shared=True),
        "3/4",
        "two states share one row; action 1 pays 3/4 in the first, action 0 pays 1 in the second, a "
        "turn later at discount 1/2: the gradient without the factor γ^t leads to value 1/2",
        full="5/4",
        policy=[[["1/2", "1/2"]]] * 2,
    )


def _require_tree(what: str, depth: int, actions: int) -> None:
    leaves = actions ** min(depth, 64)
    require_array_fits((leaves,), f"{what} = {depth} with {actions} actions")
    if depth > 60:
        fail(f"{what} = {depth}", "should be at most 60")
