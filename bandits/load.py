"""Models by name: the MODEL strings of the command line.

* a path of a JSON file (see `files`)
* zoo:NAME, with parameters as in zoo:lock?turns=6
* gym:FrozenLake-v1?horizon=12&is_slippery=false
* openspiel:tiny_hanabi

Options follow a question mark, separated by &: numbers, true, false, or text.
"""

from collections.abc import Callable
from typing import Any

from . import files, imports, zoo
from .aliasing import AliasedModel
from .errors import ModelError, fail
from .imports import ImportedGame
from .mdp import TabularMDP
from .sequential import SequentialBandit

Model = SequentialBandit | TabularMDP | AliasedModel | ImportedGame

_KINDS: dict[str, Callable[..., Model]] = {
    "zoo": lambda name, **options: zoo.get(name, **options).model,
    "gym": imports.from_gym,
    "openspiel": imports.from_openspiel,
}
_HELP = "a JSON file, zoo:NAME, gym:ENVIRONMENT?horizon=T or openspiel:GAME"


def load(text: str) -> Model:
    """Return the model that a MODEL string names; all models have `.graph()`.

    Raises ModelError, one line.

    >>> load("zoo:xor")
    SequentialBandit([[[0, 1], [1, 0]]], name='xor')
    >>> load("zoo:lock?turns=2&actions=3").actions
    (3, 3)
    """
    if not isinstance(text, str) or not text.strip():
        fail(f"MODEL = {text!r}", f"should be {_HELP}")
    kind, _, rest = text.partition(":")
    if kind in _KINDS:
        name, options = split_options(rest)
        if not name:
            fail(f"MODEL = {text!r}", f"has no name after the colon, should be {_HELP}")
        try:
            return _KINDS[kind](name, **options)
        except ModelError:
            raise
        except TypeError as error:  # an option of the wrong name or kind
            raise ModelError(f"{text}: {str(error).splitlines()[0]}") from None
    if kind.isalpha() and len(kind) > 1 and rest and not text.endswith(".json"):
        fail(f"MODEL = {text!r}", f"has the unknown kind {kind!r}, should be {_HELP}")
    return files.load_model(text)


def load_entry(text: str) -> zoo.ZooEntry | None:
    """Return the zoo entry (optimum, reason, policy) of a string zoo:NAME; None for other models."""
    kind, _, rest = text.partition(":")
    if kind != "zoo":
        return None
    name, options = split_options(rest)
    return zoo.get(name, **options)


def split_options(text: str) -> tuple[str, dict[str, Any]]:
    """Split "name?key=value&…" into the name and its options.

    >>> split_options("FrozenLake-v1?horizon=12&is_slippery=false&discount=0.9&map_name=4x4")
    ('FrozenLake-v1', {'horizon': 12, 'is_slippery': False, 'discount': 0.9, 'map_name': '4x4'})
    """
    name, mark, query = text.partition("?")
    options: dict[str, Any] = {}
    for part in query.split("&") if mark else []:
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier() or not value:
            fail(f"option {part!r}", "should be key=value")
        if key in options:
            fail(f"option {key!r}", "is given twice, should be given once")
        options[key] = _value(value)
    return name, options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
