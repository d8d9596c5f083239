# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From tables to transformers
#
# Everything so far moved probability tables. The question: **what is left of it when a transformer
# holds the policy, with all its weights shared by all turns, and the batch is finite?** The rules are
# the same objects, and on a game that is small enough J stays exact: the probability of every word
# after every conversation is computed from the model.

# %%
import copy
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import torch

import seeupo_theory as st
from llm_bridge import Config, TabularPolicy, TabularText, Trainer, collect, tiny_policy
from llm_bridge.exact import Exact
from llm_bridge.policies.warm import warm_start
from llm_bridge.rollouts import Sampling
from seeupo_theory.figures import look
from seeupo_theory.rules import objectives
from seeupo_theory.rules.presets import get

torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="IProgress")

# %% [markdown]
# ## One definition of a rule
#
# The clipped surrogate on NumPy, JAX and torch arrays is one function:

# %%
jax.config.update("jax_enable_x64", True)
log_prob, old, advantage = (
    np.log([0.5, 0.3, 0.2]),
    np.log([0.4, 0.4, 0.2]),
    np.array([1.0, 1.0, -1.0]),
)
values = {
    library: np.asarray(objectives.clip(*map(make, (log_prob, old, advantage))))
    for library, make in (("NumPy", np.asarray), ("JAX", jnp.asarray), ("torch", torch.tensor))
}
for library, result in values.items():
    print(f"{library:>6}: {result.round(6).tolist()}")
assert all(np.allclose(v, values["NumPy"], rtol=0, atol=1e-15) for v in values.values())

# %% [markdown]
# ## A game in words
#
# `TabularText` turns any bandit or MDP into a conversation. Two turns must differ; anything that is no
# word of the game ends the episode with reward 0.

# %%
game = TabularText("zoo:xor")
for message in game.conversations[1][1]:
    print(f"{message['role']:>9}: {message['content']}")
print("words of each turn:", game.action_words)

# %% [markdown]
# A random transformer (a Qwen3 of two layers, with characters as tokens) would hardly ever write a
# word. A warm start teaches it words, with random preferences among them, not the game.

# %%
policy = tiny_policy(0, characters="abcnext0123", dtype=torch.float64)
rng = np.random.default_rng(0)
wanted = [
    rng.dirichlet(np.full(len(words), 4.0), size=len(conversations))
    for words, conversations in zip(game.action_words, game.conversations, strict=True)
]
warm_start(policy, game, steps=150, max_tokens=2, tables=wanted)
exact = Exact(game, max_tokens=2)
print("parameters:", sum(p.numel() for p in policy.parameters()))
for turn, table in enumerate(exact.tables(policy), start=1):
    print(f"turn {turn}: probability of each word, then of anything else", table.round(3).tolist())
start = exact.value(policy)
print(f"exact J {start:.4f}")
assert 0.2 < start < 0.8

# %% [markdown]
# An independent route to the same number: the mean return of a thousand conversations.

# %%
batch = collect(policy, game, [0], 1000, 1, Sampling(max_turns=2, max_tokens=2))
mean, error = float(batch.returns.mean()), float(batch.returns.std()) / 1000**0.5
print(f"Monte Carlo {mean:.3f} ± {error:.3f} (standard error), exact {start:.3f}")
assert abs(mean - start) < 4 * error

# %% [markdown]
# ## The same update on both
#
# Each algorithm trains the transformer, and a table policy that starts at the transformer's own
# probabilities, on rollouts of its own: 8 groups of 16. A step of a table's logits moves it less than
# a step of weights; the tables take 30 times the step.

# %%
RUN = {"iterations": 6, "tasks": 8, "group": 16, "epochs": 4, "optimiser": "sgd", "max_turns": 2,
       "max_tokens": 2, "max_grad_norm": None, "importance_cap": None, "critic": "exact",
       "kl_reference": "behaviour", "progress": False, "tensorboard": False}  # fmt: skip
FAMILIES = {"transformer": 0.01, "tables": 0.3}


def path(name, family, lr=None):
    """J before, and after every update of a run; whether each iteration lowered it."""
    tables = exact.tables(policy)
    model = copy.deepcopy(policy) if family == "transformer" else TabularPolicy(game, tables)
    records = []
    lr = FAMILIES[family] if lr is None else lr
    config = Config(preset=name, lr=lr, **RUN)
    trainer = Trainer(config, model, game, callbacks=[records.append])
    assert trainer.updater.algorithm == get(name).replace(epochs=4, lr=lr)
    trainer.train()
    turns = [r for r in records if r["kind"] == "turn"]
    whole = [r for r in records if r["kind"] == "iteration"]
    return [turns[0]["J_before"], *(r["J"] for r in turns)], [r["verdict"] for r in whole]


NAMES = ("seeupo", "grpo", "rloo", "trajectory-ppo")
paths = {(n, f): path(n, f) for n in NAMES for f in FAMILIES}
figure, panels = plt.subplots(1, 2, figsize=(7.4, 2.9), sharey=True, layout="constrained")
for ax, family in zip(panels, FAMILIES, strict=True):
    for name in NAMES:
        values, _ = paths[name, family]
        at = np.linspace(0, RUN["iterations"], len(values))
        ax.plot(at, values, label=name, **look(name).line())
    ax.set(title=family, xlabel="iteration")
panels[0].set_ylabel("exact J after every update")
panels[1].legend(frameon=False)
plt.show()

# %%
for (name, family), (values, verdicts) in paths.items():
    falls = int((np.diff(values) < -1e-6).sum())
    print(
        f"{name:>14}, {family:>11}: J {values[0]:.3f} -> {values[-1]:.3f}, "
        f"{falls} of {len(values) - 1} updates and {verdicts.count('lowered')} of {len(verdicts)} "
        "iterations lowered J"
    )
for name in NAMES:
    assert abs(paths[name, "transformer"][0][0] - paths[name, "tables"][0][0]) < 1e-6
    assert paths[name, "tables"][0][-1] > start, "tables learn"
    assert "lowered" not in paths[name, "tables"][1], "no iteration of the tables fell"
assert "lowered" not in paths["trajectory-ppo", "transformer"][1]

# %% [markdown]
# SeeUPO's transformer ends near J = 0: after one update it hardly ever wins any more. With a third of
# the step it learns:

# %%
values, verdicts = path("seeupo", "transformer", lr=FAMILIES["transformer"] / 3)
print(
    f"J {values[0]:.3f} -> {values[-1]:.3f}; iterations that lowered J: {verdicts.count('lowered')}"
)
print("after every update:", np.round(values[1:], 3).tolist())
assert values[-1] > start

# %% [markdown]
# Both families start at the same probabilities. What differs is that the transformer's turns share weights:
# the update of one turn moves the other. How often that lowers J, over seeds, games and step sizes, is
# counted by `seeupo audit-llm`, whose result is in `docs/llm`.
#
# ## The tabular simulator beside it
#
# The same preset in exact expectation, without any sample, from the same start:

# %%
run = st.run(game.graph, exact.tables(policy), algorithm="seeupo", iterations=6, epochs=4, lr=0.3)
print("simulator, exact expectation:", run.values[0].round(4).tolist())
sampled = paths["seeupo", "tables"][0][::2]
print("bridge, 128 rollouts        :", np.round(sampled, 4).tolist())
assert np.diff(run.values[0]).min() > 0

# %% [markdown]
# The one has samples, the other none. On the *same* batch, bridge and simulator take the
# same path to nine digits, for every preset (`tests/llm_bridge/test_cornerstone.py`).
#
# ## What to change next
#
# * **The game**: `TabularText("zoo:team-2x2x2")`, or rewards of your own, with words of your own.
# * **The model**: `smollm2_policy()` is a real language model
#   (`seeupo train examples/smollm2-two-turns.toml`); any path or hub id with `CausalPolicy`.
# * **The step**: `FAMILIES`; where do the transformer's updates begin to fall?
# * **The environment**: two functions are enough (`FunctionEnvironment`); J is then sampled.
