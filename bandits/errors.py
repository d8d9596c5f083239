"""The one error that describes a wrong model: a `ValueError` whose single line names the field.

A message has four parts, as far as they apply: the field, the index in it, the value found there,
and what it should be. It is raised before any work is done with the model.
"""

from typing import NoReturn

_SHOWN = 60  # characters of an offending value that a one-line message repeats


class ModelError(ValueError):
    """A model, a policy or a file that describes one is wrong.

    >>> raise ModelError("horizon = 0: should be an integer of at least 1")
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: horizon = 0: should be an integer of at least 1
    """


def show(value: object) -> str:
    """Repeat an offending value on one line, shortened where it is long.

    >>> show("a\\nb"), show(0.25), show([0] * 100)[-3:]
    ("'a\\\\nb'", '0.25', '...')
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer too long to print
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def fail(field: str, should: str) -> NoReturn:
    """Raise the one-line error about `field`: what it is or has (if it says so), what it should be.

    >>> fail("rewards[0]", "should be a list")
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: rewards[0]: should be a list
    """
    raise ModelError(f"{field}{':' if should.startswith('should') else ''} {should}")


def path(field: str, index: object = ()) -> str:
    """Write an index the way a reader would look it up.

    >>> path("rewards", (0, 1))
    'rewards[0][1]'
    """
    return field + "".join(f"[{int(i)}]" for i in index)  # type: ignore[attr-defined]


def missing(package: str, extra: str) -> ModelError:
    """Return the error for an optional package that is not there.

    >>> missing("gymnasium", "gym")
    ModelError("gymnasium is not installed: pip install 'seeupo[gym]'")
    """
    return ModelError(f"{package} is not installed: pip install 'seeupo[{extra}]'")


def first_line(error: Exception) -> str:
    """Return the first line of another package's error, with its class where that says more.

    >>> first_line(KeyError("9x9")), first_line(ValueError("no way"))
    ("KeyError: '9x9'", 'no way')
    """
    text = str(error).strip()
    if isinstance(error, LookupError) or not text:
        text = f"{type(error).__name__}: {text}"
    return text.splitlines()[0]
