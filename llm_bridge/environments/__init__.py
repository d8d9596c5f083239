"""Multi-turn environments as text: one small Protocol, and adapters that load on first use.

- `TabularText`: any bandit or MDP of `bandits`, in words.
- `FunctionEnvironment`: two functions of yours.
- `BFCLMultiTurn`: tool calling of BFCL v4, in a process of its own.
- `GymnasiumText`, `TextArenaGame`, `AppWorldTasks`: adapters of packages that may be installed.
- `IsolatedEnvironment`: any of them in a process with limits of time and memory.

`load_environment("bfcl", category="base")` builds one by name, or by `"module:attribute"`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .base import (
    Environment,
    EnvironmentFault,
    Message,
    NotInstalledError,
    StateError,
    StepResult,
    TaskError,
    tasks_of,
    tools_of,
)
from .limits import Limits

if TYPE_CHECKING:
    from .appworld import AppWorldTasks
    from .bfcl import BFCLMultiTurn
    from .functions import FunctionEnvironment
    from .gymnasium_text import GymnasiumText
    from .isolated import IsolatedEnvironment
    from .tabular_text import TabularText
    from .textarena_game import TextArenaGame

__all__ = [
    "NAMES",
    "AppWorldTasks",
    "BFCLMultiTurn",
    "Environment",
    "EnvironmentFault",
    "FunctionEnvironment",
    "GymnasiumText",
    "IsolatedEnvironment",
    "Limits",
    "Message",
    "NotInstalledError",
    "StateError",
    "StepResult",
    "TabularText",
    "TaskError",
    "TextArenaGame",
    "load_environment",
    "tasks_of",
    "tools_of",
]

_LAZY = {
    "AppWorldTasks": "appworld",
    "BFCLMultiTurn": "bfcl",
    "FunctionEnvironment": "functions",
    "GymnasiumText": "gymnasium_text",
    "IsolatedEnvironment": "isolated",
    "TabularText": "tabular_text",
    "TextArenaGame": "textarena_game",
}

NAMES = {
    "appworld": "AppWorldTasks",
    "bfcl": "BFCLMultiTurn",
    "function": "FunctionEnvironment",
    "gymnasium": "GymnasiumText",
    "tabular": "TabularText",
    "textarena": "TextArenaGame",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def load_environment(spec: str, **options: Any) -> Environment:
    """Build an environment from a name of `NAMES`, or from `"module:attribute"`, with its options.

    >>> load_environment("bfc")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.EnvironmentFault: environment 'bfc': should be one of appworld, ...
    """
    if spec in NAMES:
        build = __getattr__(NAMES[spec])
    elif isinstance(spec, str) and spec.count(":") == 1 and all(spec.split(":")):
        module, attribute = spec.split(":")
        try:
            build = importlib.import_module(module)
            for part in attribute.split("."):
                build = getattr(build, part)
        except (ImportError, AttributeError) as error:
            raise EnvironmentFault(f"environment {spec!r}: {error}") from error
    else:
        raise EnvironmentFault(
            f'environment {spec!r}: should be one of {", ".join(NAMES)}, or "module:attribute"'
        )
    environment = build(**options)
    for method in ("reset", "step", "close"):
        if not callable(getattr(environment, method, None)):
            raise EnvironmentFault(
                f"environment {spec!r}: a {type(environment).__name__} has no method {method}; "
                "should have reset(task, seed), step(text) and close()"
            )
    return environment
