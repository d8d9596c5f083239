"""Option types and groups of options that several commands share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


class Count(click.ParamType):
    """A count of at least 1, or ``inf``."""

    name = "count|inf"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            number = float(value)
        except ValueError:
            self.fail(f"is {value!r}; expected a whole number of at least 1, or inf", param, ctx)
        infinite = str(value).strip().lower() in ("inf", "infinity")
        if not (
            number >= 1 and ((number == math.inf) == infinite) and (infinite or number.is_integer())
        ):
            self.fail(f"is {value}; expected a whole number of at least 1, or inf", param, ctx)
        return number


class Clip(click.ParamType):
    """One width, or LOW,HIGH."""

    name = "eps|low,high"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | tuple[float, float]:
        if not isinstance(value, str):
            return value
        try:
            parts = [float(part) for part in value.split(",")]
        except ValueError:
            parts = []
        if len(parts) not in (1, 2):
            self.fail(f"is {value!r}; expected one number, or LOW,HIGH", param, ctx)
        return parts[0] if len(parts) == 1 else (parts[0], parts[1])


class Order(click.ParamType):
    """A named order, or a permutation such as 3,1,2 of the turns."""

    name = "order"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str) or not value.replace(",", "").isdigit():
            return value
        turns = [int(part) for part in value.split(",") if part]
        if sorted(turns) != list(range(1, len(turns) + 1)):
            self.fail(f"is {value}; expected every turn from 1 to T exactly once", param, ctx)
        return tuple(turn - 1 for turn in turns)


def emit(result: dict[str, Any], as_json: bool, table: Callable[[Any], None]) -> None:
    """Print the result: as JSON and nothing else, or as the command's table."""
    if as_json:
        click.echo(json.dumps(result, allow_nan=False))
    else:
        from rich.console import Console

        table(Console())


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several option decorators as one, in the order of the help."""

    def apply(function: Command) -> Command:
        """Put the options on a command."""
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


as_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object and no more."
)
policy_option = click.option(
    "--policy", default="uniform", help="'uniform', 'zoo' (the entry's own) or a policy file."
)
size_options = options(
    click.option(
        "--group-size",
        type=Count(),
        help="Members of a group, or inf (default: inf; 8 for advantage and sampled runs).",
    ),
    click.option(
        "--contexts-per-batch",
        type=Count(),
        help="Contexts of a batch, or inf (default: inf; 32 for sampled runs).",
    ),
)
switch_options = options(
    click.option("--algorithm", default="seeupo", show_default=True, help="A preset, or module:name."),
    click.option("--lr", type=float, help="Step size."),
    click.option("--epochs", type=int, help="Gradient steps an update."),
    click.option("--clip", type=Clip(), help="Clip width, or LOW,HIGH."),
    click.option("--order", type=Order(), help="reverse, forward, random, simultaneous, or 3,1,2."),
    click.option("--baseline", help="mean, loo, batch or none."),
    click.option("--normalise", help="none, group or batch."),
    click.option("--std-eps", type=float, help="Added to every standard deviation."),
    click.option("--level", help="sequence, length-normalised or token."),
    click.option("--objective", help="clip, reinforce, greedy, mirror or clip-argmax."),
    click.option("--reference", help="behaviour or current."),
    click.option("--advantage-clip", type=float, help="Clamp of the advantage."),
    click.option("--factor-clip", type=float, help="Clamp of each factor of M."),
    click.option("--product-clip", type=float, help="Clamp of the running product."),
    click.option("--dual-clip", type=float, help="Dual clip constant, above 1."),
    click.option("--kl-coef", type=float, help="Weight of the KL penalty."),
    click.option("--gae-lambda", type=float, help="λ of GAE."),
    click.option("--param", default="tabular", show_default=True,
                 help="tabular, shared, log-linear or network."),
    click.option("--observe", help="Observation map: turn, none, context, last-action, state, full."),
    click.option("--support", help="all or reached histories (ideal steps)."),
    click.option("--parameters", help="File with features and theta (log-linear)."),
    click.option("--features", "dimension", type=int, help="Random features (log-linear)."),
    click.option("--hidden", type=int, help="Hidden units (network)."),
    click.option("--param-seed", type=int, help="Seed of features or of the network."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of random numbers."),
)  # fmt: skip

_OPTION_NAMES = {"dimension": "dimension", "hidden": "hidden", "param_seed": "seed"}


def split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Given switches, and options of the policy family."""
    given = {k: v for k, v in arguments.items() if v is not None}
    options = {_OPTION_NAMES[k]: given.pop(k) for k in list(given) if k in _OPTION_NAMES}
    if "parameters" in given:
        from seeupo_theory import api

        if given["param"] != "log-linear":
            raise click.BadParameter("needs --param log-linear", param_hint="--parameters")
        options["features"], given["theta"] = api.load_parameters(given.pop("parameters"))
    return given, options
