"""The rules of `seeupo_theory.rules` on language models: environments, rollouts, updates, training.

The same functions that the tabular simulator runs are called here on the token log-probabilities of
a transformer; nothing of them is written again.  Where an environment is small enough to enumerate
(`TabularText`), `exact` reports the expected return itself after every turn's update.

================  ==================================================================
module            what is in it
================  ==================================================================
`environments`    reset, step, close: text in, messages and reward out
`policies`        causal language models, tables, a tiny model built on the spot
`turns`           a batch: trajectories with ids, and their turns
`rollouts`        policy × environments → batch
`update`          one iteration: turns in order, running factor, micro-batches
`exact`           probabilities of all actions of a language model, hence J
`trainer`         the loop: logs, checkpoints, exact J
`config`          a run as a TOML file
`engines.trl`     the same updates in TRL's trainer, over several processes
`audit_llm`       does a transformer's update improve it? presets on small games
================  ==================================================================
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm_bridge.config import Config
    from llm_bridge.environments import FunctionEnvironment, StepResult, TabularText
    from llm_bridge.policies import CausalPolicy, TabularPolicy, Turn, smollm2_policy, tiny_policy
    from llm_bridge.rollouts import collect
    from llm_bridge.trainer import Trainer
    from llm_bridge.turns import TurnBatch
    from llm_bridge.update import Updater

__all__ = [
    "CausalPolicy",
    "Config",
    "FunctionEnvironment",
    "StepResult",
    "TabularPolicy",
    "TabularText",
    "Trainer",
    "Turn",
    "TurnBatch",
    "Updater",
    "collect",
    "smollm2_policy",
    "tiny_policy",
]

_LAZY = {
    "CausalPolicy": "policies",
    "Config": "config",
    "FunctionEnvironment": "environments",
    "StepResult": "environments",
    "TabularPolicy": "policies",
    "TabularText": "environments",
    "Trainer": "trainer",
    "Turn": "policies",
    "TurnBatch": "turns",
    "Updater": "update",
    "collect": "rollouts",
    "smollm2_policy": "policies",
    "tiny_policy": "policies",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
