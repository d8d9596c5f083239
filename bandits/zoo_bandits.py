"""The zoo's sequential bandits: one turn, two turns, more."""

import numpy as np

from .aliasing import alias
from .exact import parse_integer
from .limits import require_array_fits
from .rewards import reward
from .sequential import SequentialBandit
from .zoo_entry import ZooEntry, entry, make, require_tree

# One turn ---------------------------------------------------------------------------------------


@entry("wrong-sign")
def _wrong_sign() -> ZooEntry:
    arms = ["1/2", reward((0, "3/5"), ("3/2", "2/5"))]
    return make(
        SequentialBandit([arms], name="wrong-sign"),
        "3/5",
        "dividing by the group's std turns the sign of the expected advantage: the rare large reward "
        "wins on average and loses most comparisons; centring alone does not",
        policy=[[["1/2", "1/2"]]],
    )


@entry("needle")
def _needle(arms: int = 16) -> ZooEntry:
    count = parse_integer("arms", arms, least=1)
    require_array_fits((count,), f"rewards of {count} arms")
    rewards = np.zeros((1, count))
    rewards[0, count // 2] = 1.0
    return make(
        SequentialBandit(rewards, name="needle"),
        1,
        "one arm pays, the others pay nothing: most groups have equal rewards and no signal at all",
    )


@entry("plateau")
def _plateau() -> ZooEntry:
    return make(
        SequentialBandit([[1, "9/10", 0]], name="plateau"),
        1,
        "softmax gradient steps from a policy near the second-best arm first stay on a plateau: the "
        "gradient of the best arm is of the order of its probability times 1/10",
        policy=[[["1/100", "98/100", "1/100"]]],
    )


@entry("shared-logit")
def _shared_logit() -> ZooEntry:
    model = SequentialBandit([[0, 1], [0, -2]], ["3/5", "2/5"], name="shared-logit")
    return make(
        alias(model, "none"),
        0,
        "one logit for two contexts with gaps +1 and −2: the true derivative at 1/2 is −1/20, that "
        "of advantages divided by each context's std is +1/10",
        full="3/5",
        policy=[[["1/2", "1/2"]]],
    )


# Two turns --------------------------------------------------------------------------------------


@entry("two-turn-std")
def _two_turn_std() -> ZooEntry:
    return make(
        SequentialBandit([[["1/4", "1/4"], [1, 0]]], name="two-turn-std"),
        1,
        "the wrong sign of group std with deterministic rewards: under this policy the first turn's "
        "action 1 is worth 1/3, action 0 is worth 1/4, and the std-normalised advantage prefers 0",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"], ["1/3", "2/3"]]],
    )


@entry("two-turn-std-uniform")
def _two_turn_std_uniform() -> ZooEntry:
    rewards = [[["1/4", "1/4", "1/4"], [1, 0, 0]]]
    return make(
        SequentialBandit(rewards, name="two-turn-std-uniform"),
        1,
        "as two-turn-std, with three second actions, so that the uniform policy shows it",
        policy=[[["1/2", "1/2"]], [["1/3", "1/3", "1/3"]] * 2],
    )


@entry("stuck-tree")
def _stuck_tree() -> ZooEntry:
    return make(
        SequentialBandit([[["1/2", "1/2"], [0, 1]]], name="stuck-tree"),
        1,
        "argmax steps on reached histories only: forward order leaves action 1 before its second "
        "turn has improved and never comes back, reverse order needs one sweep",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"], ["9/10", "1/10"]]],
    )


@entry("xor")
def _xor() -> ZooEntry:
    return make(
        SequentialBandit([[[0, 1], [1, 0]]], name="xor"),
        1,
        "two turns must differ; easy where the second sees the first",
    )


@entry("xor-blind")
def _xor_blind() -> ZooEntry:
    model = SequentialBandit([[[0, 1], [1, 0]]], name="xor-blind")
    return make(
        alias(model, "turn"),
        1,
        "the second turn does not see the first: the uniform policy, of value 1/2, is a stationary "
        "point and a fixed point of every best response",
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"]]],
    )


@entry("xor-shared")
def _xor_shared() -> ZooEntry:
    model = SequentialBandit([[[0, 1], [1, 0]]], name="xor-shared")
    return make(
        alias(model, "none", shared=True),
        "1/2",
        "both turns share one row that sees nothing: no fixed point reaches the value 1 of full "
        "history, the best policy is stochastic, and best responses to it oscillate",
        full=1,
        policy=[[["1/2", "1/2"]], [["1/2", "1/2"]]],
    )


@entry("xor-aliased")
def _xor_aliased() -> ZooEntry:
    model = SequentialBandit([[[0, "1/2"], [1, 0]]], name="xor-aliased")
    return make(
        alias(model, "turn"),
        1,
        "the turns must differ, (1, 0) pays more than (0, 1), and the second does not see the first: "
        "(0, 1) is a strict Nash point of value 1/2, reached by best responses from this policy in "
        "every order",
        policy=[[["7/10", "3/10"]], [["3/10", "7/10"]]],
    )


@entry("climbing")
def _climbing() -> ZooEntry:
    payoff = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
    return make(
        alias(SequentialBandit([payoff], name="climbing"), "turn"),
        11,
        "the climbing game of Claus and Boutilier (1998): from the uniform policy best responses "
        "that do not see the partner end in the strict Nash point of value 7",
        policy=[[["1/3", "1/3", "1/3"]]] * 2,
    )


@entry("tokens")
def _tokens() -> ZooEntry:
    reversed_pair = [0, 2, 1, 3]  # two binary tokens, read backwards
    rewards = np.zeros((1, 4, 4))
    rewards[0, np.arange(4), reversed_pair] = 1.0
    return make(
        SequentialBandit(rewards, name="tokens"),
        1,
        "two turns of two binary tokens (TokenView with lengths=2, vocab=2); the second turn must "
        "repeat the first backwards: sequence-level and token-level updates on the same rewards",
    )


# More turns -------------------------------------------------------------------------------------


@entry("team-2x2x2")
def _team() -> ZooEntry:
    rewards = [[[["5/8", "1/2"], ["5/8", "1/2"]], [[0, "1/8"], [1, 0]]]]
    return make(
        SequentialBandit(rewards, name="team-2x2x2"),
        1,
        "three turns; the best leaf lies in the branch that is worse on average, so an early turn "
        "is first pushed the wrong way unless later turns are improved before it",
    )


@entry("mixed")
def _mixed() -> ZooEntry:
    coin = reward((0, "1/2"), (2, "1/2"))
    rare = reward((-1, "1/4"), (0, "1/4"), (3, "1/2"))
    rewards = [[[0, "1/3", 1], [coin, rare, "1/2"]], [[coin, -1, 0], ["3/2", rare, coin]]]
    return make(
        SequentialBandit(rewards, ["1/3", "2/3"], name="mixed"),
        "17/12",
        "unequal contexts, unequal numbers of actions and leaves with one, two and three atoms: "
        "whatever holds only for uniform, rectangular or deterministic models fails here",
    )


@entry("lock")
def _lock(turns: int = 4, actions: int = 2) -> ZooEntry:
    depth = parse_integer("turns", turns, least=1)
    count = parse_integer("actions", actions, least=1)
    require_tree("turns", depth, count)
    rewards = np.zeros((1, *(count,) * depth))
    rewards[0][tuple((t + 1) % count for t in range(depth))] = 1.0
    return make(
        SequentialBandit(rewards, name="lock"),
        1,
        "a combination lock: one of A^T sequences pays, so that the signal falls off exponentially "
        "with the depth",
    )


@entry("forward-staircase")
def _staircase(turns: int = 4) -> ZooEntry:
    depth = parse_integer("turns", turns, least=2)
    require_tree("turns", depth, 2)
    rewards = np.zeros((2,) * depth)
    for t in range(depth - 1):  # leaving at turn t pays 1 − (t + 1) / 2T
        rewards[(1,) * t + (0,)] = 1.0 - (t + 1) / (2 * depth)
    rewards[(1,) * depth] = 1.0
    return make(
        SequentialBandit(rewards[None], name="forward-staircase"),
        1,
        "greedy sweeps from the uniform policy: reverse order needs one, forward order needs T, "
        "because leaving looks better at every turn until the turn after it has been corrected",
        policy=[[["1/2", "1/2"]] * 2**t for t in range(depth)],
    )
