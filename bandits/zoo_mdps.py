"""The zoo's Markov decision processes: tool use, early stopping, discounting."""

import numpy as np

from .aliasing import alias
from .exact import parse_integer
from .limits import require_array_fits
from .mdp import TabularMDP
from .rewards import reward
from .zoo_entry import ZooEntry, entry, make


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


@entry("tool-use")
def _tool_use() -> ZooEntry:
    return make(
        _tool_mdp("tool-use"),
        "231/320",
        "search, verify or answer, with random replies of the environment, a cost for each call and "
        "an episode that ends with the answer: search until informed, answer at the last turn",
    )


@entry("tool-use-aliased")
def _tool_use_aliased() -> ZooEntry:
    return make(
        alias(_tool_mdp("tool-use-aliased"), [0, 1, 1, 2]),
        "159/256",
        "tool-use where a wrong reply looks like a right one: verifying now has a use",
        full="231/320",
    )


@entry("early-stop")
def _early_stop(turns: int = 4) -> ZooEntry:
    horizon = parse_integer("turns", turns, least=1)
    require_array_fits((horizon, 2, 2), f"rewards of turns = {horizon}")
    stop = np.arange(1, horizon + 1) / horizon
    rewards = np.zeros((horizon, 2, 2))
    rewards[:, 0, 0] = stop
    running = [[0, 1], [1, 0]]  # stop, go on
    return make(
        TabularMDP([running, [[0, 1], [0, 1]]], rewards, [1, 0], horizon, name="early-stop"),
        1,
        "stopping at turn t pays t/T and ends the episode: trajectories of every length, the rest "
        "padded with no-op turns",
    )


@entry("discount-trap")
def _discount_trap() -> ZooEntry:
    table = [[[0, 1], [0, 1]], [[0, 1], [0, 1]]]
    model = TabularMDP(
        table, [[0, "3/4"], [1, 0]], [1, 0], horizon=2, discount="1/2", name="discount-trap"
    )
    return make(
        alias(model, "none", shared=True),
        "3/4",
        "two states share one row; action 1 pays 3/4 in the first, action 0 pays 1 in the second, a "
        "turn later at discount 1/2: the gradient without the factor γ^t leads to value 1/2",
        full="5/4",
        policy=[[["1/2", "1/2"]]] * 2,
    )
