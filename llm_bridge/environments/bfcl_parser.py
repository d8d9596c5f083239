"""Tool calls out of a model's text, literals only; nothing of the text is ever executed.

Two forms are read:

- a Python list of calls, or one call, and nothing else: `[cd(folder="docs"), ls()]` (also inside
  one fenced block);
- blocks `<tool_call>{"name": "cd", "arguments": {"folder": "docs"}}</tool_call>` anywhere in the
  text, as many chat templates teach them.

An argument is a literal: None, a truth value, a number (a sign is allowed), a text, or a list,
tuple or dictionary of literals. Names, attributes, operators, calls inside arguments, f-strings,
starred or repeated arguments are errors, and so is a callee that is not a plain public name. The
tokens are checked before `ast.parse` sees the text: what it parses is short, shallow, and made of
brackets, commas, names, numbers and texts.

A text that does not look like a call holds no calls: `parse_calls` returns []. One that does and
cannot be read raises `CallError`, whose message may be shown to the model. `format_calls` writes
calls as text: `parse_calls(format_calls(calls)) == calls`.
"""

import ast
import io
import json
import keyword
import math
import re
import tokenize
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "CallError", "format_calls", "parse_calls"]

MAX_CHARS = 20_000
MAX_CALLS = 64
MAX_DEPTH = 24  # brackets inside brackets; tool schemas use four at most
MAX_BITS = 1_024  # of an integer: what a float can hold

_START = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(|[A-Za-z_][\w.]*\(")
_FENCE = re.compile(r"```[A-Za-z_]*\n(.*?)\n?```", re.DOTALL)
_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OPEN = {"(", "[", "{"}
_SHUT = {")", "]", "}"}
_PLAIN = {",", ":", "="}
_BEFORE_VALUE = _OPEN | _PLAIN
_CONSTANTS = {"True", "False", "None"}
_SHOWN = 160  # characters of a reason that a message repeats
_SKIPPED = {
    tokenize.ENCODING,
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class CallError(ValueError):
    """A text that looks like a tool call cannot be read as one."""


@dataclass(frozen=True)
class Call:
    """One tool call: a function's name, its arguments by position and by name.

    >>> str(Call("cp", ("a", ), {"destination": "b"}))
    "cp('a', destination='b')"
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [_literal_text(value) for value in self.args]
        parts += [f"{key}={_literal_text(value)}" for key, value in self.kwargs.items()]
        return f"{self.name}({', '.join(parts)})"


def format_calls(calls: Sequence[Call]) -> str:
    """Write calls in the first form.

    >>> format_calls([Call("ls"), Call("cd", (), {"folder": "a'b"})])
    '[ls(), cd(folder="a\\'b")]'
    """
    return "[" + ", ".join(str(call) for call in calls) + "]"


def parse_calls(text: str, *, max_chars: int = MAX_CHARS, max_calls: int = MAX_CALLS) -> list[Call]:
    """Return the tool calls of a text, [] where it holds none; raise `CallError` where they are wrong.

    >>> parse_calls('[add(a=1, b=-2.5), ls()]')
    [Call(name='add', args=(), kwargs={'a': 1, 'b': -2.5}), Call(name='ls', args=(), kwargs={})]
    >>> parse_calls("All done.")
    []
    >>> parse_calls("add(a=x, b=2)")
    Traceback (most recent call last):
    ...
    llm_bridge.environments.bfcl_parser.CallError: add: argument a is not a literal value
    """
    if len(text) > max_chars:
        raise CallError(f"the text has {len(text)} characters; at most {max_chars} are read")
    if "<tool_call>" in text:
        calls = _parse_blocks(text)
    else:
        source = text.strip()
        fence = _FENCE.fullmatch(source)
        source = fence.group(1).strip() if fence else source
        if not _START.match(source) or (source[0] != "[" and source[-1] != ")"):
            return []
        calls = _parse_python(source)
    if len(calls) > max_calls:
        raise CallError(f"{len(calls)} calls in one text; at most {max_calls} are allowed")
    return calls


def _parse_python(source: str) -> list[Call]:
    _check_tokens(source)
    try:
        with (
            warnings.catch_warnings()
        ):  # "\d" in a text warns; a filter must not change the reading
            warnings.simplefilter("ignore")
            body = ast.parse(source, "<tool call>", "eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise CallError(f"the calls could not be read: {reason[:_SHOWN]}") from None
    nodes = body.elts if isinstance(body, ast.List) else [body]
    return [_call(node) for node in nodes]


def _check_tokens(source: str) -> None:
    """Let through only what a list of calls with literal arguments is made of."""
    depth = 0
    before = ","
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in _SKIPPED:
                continue
            if not _allowed(token, before):
                raise CallError(
                    f"the calls could not be read: {token.string[:20]!r} is not allowed here; "
                    "arguments are literal values, functions plain names"
                )
            before = token.string
            if before in _OPEN:
                depth += 1
            elif before in _SHUT:
                depth -= 1
            if depth > MAX_DEPTH:
                raise CallError(
                    f"the calls could not be read: more than {MAX_DEPTH} levels of brackets"
                )
    except CallError:
        raise
    except (tokenize.TokenError, SyntaxError, ValueError) as error:
        raise CallError(f"the calls could not be read: {str(error.args[0])[:_SHOWN]}") from None


def _allowed(token: tokenize.TokenInfo, before: str) -> bool:
    """Say whether a token may stand after another: signs before numbers only, no formatted texts."""
    text = token.string
    if token.type == tokenize.NAME:
        return text.isascii() and (text in _CONSTANTS or not keyword.iskeyword(text))
    if token.type == tokenize.STRING:
        return not set(text[: text.index(text[-1])].lower()) & {"f", "b", "t"}
    if token.type == tokenize.NUMBER:
        return True
    if token.type != tokenize.OP:
        return False
    if text in ("+", "-"):
        return before in _BEFORE_VALUE
    return text in _OPEN or text in _SHUT or text in _PLAIN


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise CallError("a list of calls should hold nothing but calls such as name(argument=1)")
    if not isinstance(node.func, ast.Name):
        raise CallError("a function should be called by its plain name")
    name = _public(node.func.id)
    args = tuple(_literal(item, f"{name}: argument {i + 1}") for i, item in enumerate(node.args))
    kwargs: dict[str, Any] = {}
    for item in node.keywords:
        if item.arg is None:
            raise CallError(f"{name}: ** is not allowed")
        if not _NAME.fullmatch(item.arg):
            raise CallError(f"{name}: {item.arg[:60]!r} is not the name of an argument")
        if item.arg in kwargs:
            raise CallError(f"{name}: argument {item.arg} is given twice")
        kwargs[item.arg] = _literal(item.value, f"{name}: argument {item.arg}")
    return Call(name, args, kwargs)


def _public(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise CallError(f"{str(name)[:60]!r} is not the name of a function")
    return name


def _literal(node: ast.expr, where: str) -> Any:
    """Return the value of a literal, by the types of nodes alone."""
    if isinstance(node, ast.Constant):
        return _scalar(node.value, where)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = node.operand
        if isinstance(operand, ast.Constant) and type(operand.value) in (int, float):
            value = _scalar(operand.value, where)
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.List):
        return [_literal(item, where) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item, where) for item in node.elts)
    if isinstance(node, ast.Dict):
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant | ast.UnaryOp):
                raise CallError(f"{where}: the keys of a dictionary should be texts or numbers")
            out[_literal(key, where)] = _literal(value, where)
        return out
    raise CallError(f"{where} is not a literal value")


def _scalar(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise CallError(f"{where} has more than {MAX_BITS} bits")
        return value
    raise CallError(f"{where} is not a literal value")


def _literal_text(value: Any) -> str:
    """Write a literal so that it reads back as itself: repr, but for infinities."""
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal_text, value)) + "]"
    if isinstance(value, tuple):
        inside = ", ".join(map(_literal_text, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_literal_text(k)}: {_literal_text(v)}" for k, v in value.items())
            + "}"
        )
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    raise CallError(f"{type(value).__name__} is not a literal value")


def _parse_blocks(text: str) -> list[Call]:
    blocks = _BLOCK.findall(text)
    if len(blocks) != text.count("<tool_call>"):
        raise CallError("a <tool_call> is not closed by </tool_call>")
    return [_json_call(block) for block in blocks]


def _json_call(block: str) -> Call:
    try:
        data = json.loads(block, object_pairs_hook=_unique, parse_constant=_no_constant)
    except CallError:
        raise
    except (ValueError, RecursionError) as error:
        raise CallError(f"a tool call is not valid JSON: {str(error)[:_SHOWN]}") from None
    if not isinstance(data, dict) or not {"name"} <= set(data) <= {"name", "arguments"}:
        raise CallError('a tool call should be {"name": ..., "arguments": {...}}')
    name = _public(data["name"])
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict):
        raise CallError(f"{name}: arguments should be an object")
    for key, value in arguments.items():
        if not _NAME.fullmatch(key) or keyword.iskeyword(key):
            raise CallError(f"{name}: {key[:60]!r} is not the name of an argument")
        _check_json(value, f"{name}: argument {key}", MAX_DEPTH)
    return Call(name, (), arguments)


def _check_json(value: Any, where: str, depth: int) -> None:
    if depth < 0:
        raise CallError(f"{where} has more than {MAX_DEPTH} levels of brackets")
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _check_json(item, where, depth - 1)
    else:
        _scalar(value, where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise CallError("a tool call has a repeated key")
    return out


def _no_constant(name: str) -> Any:
    raise CallError(f"a tool call is not valid JSON: {name} is not a number")
