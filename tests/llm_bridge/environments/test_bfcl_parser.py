"""The parser of tool calls: literal calls survive a round trip, and nothing is ever executed."""

import json
import keyword
import sys
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llm_bridge.environments.bfcl_parser import Call, CallError, format_calls, parse_calls

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name.isascii() and not keyword.iskeyword(name)
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**1000), 2**1000)
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=12)
)
LITERALS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(SCALARS, inner, max_size=3)
    ),
    max_leaves=8,
)
CALLS = st.builds(
    Call,
    NAMES,
    st.lists(LITERALS, max_size=3).map(tuple),
    st.dictionaries(NAMES, LITERALS, max_size=3),
)
JSON_VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(left, right):
    """Equal in type too: True is not 1, and 1 is not 1.0."""
    return repr(left) == repr(right)


@settings(max_examples=60)
@given(st.lists(CALLS, max_size=3))
def test_literal_calls_survive_a_round_trip(calls):
    assert same(parse_calls(format_calls(calls)), calls)


@given(CALLS)
def test_a_single_call_needs_no_brackets_and_may_be_fenced(call):
    assert same(parse_calls(str(call)), [call])
    assert same(parse_calls(f"```python\n[{call}]\n```"), [call])


@given(NAMES, st.dictionaries(NAMES, JSON_VALUES, max_size=3))
def test_calls_as_json_survive_a_round_trip(name, arguments):
    block = json.dumps({"name": name, "arguments": arguments})
    text = f"I look.\n<tool_call>\n{block}\n</tool_call>\n<tool_call>{block}</tool_call>"
    assert same(parse_calls(text), [Call(name, (), arguments)] * 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Done.",
        "I have moved the file (twice).",
        "file(s) were moved.",
        "[1, 2]",
        "[see below] it works",
        "ls",
        "{'a': 1}",
        "import os",
        "x = ls()",
        "I call ls()",
        "().__class__.__bases__[0]()",
    ],
)
def test_words_hold_no_calls(text):
    assert parse_calls(text) == []


WRONG = [
    "f(x)",
    "f(a=x)",
    "f(g())",
    "f(a=1, a=2)",
    "f(**{'a': 1})",
    "f(*[1])",
    "f({**{}})",
    "f(1 + 1)",
    "f(1-1)",
    "f(--1)",
    "f(-True)",
    "f(-'x')",
    "f(not 1)",
    "f(1j)",
    "f(b'x')",
    "f(f'{1}')",
    "f(rf'{1}')",
    "f(...)",
    "f({1, 2})",
    "f({[1]: 2})",
    "f([x for x in (1,)])",
    "f(lambda: 1)",
    "f(a := 1)",
    "f(1 if 2 else 3)",
    "f(x.y)",
    "f(x[0])",
    "f(1)(2)",
    "f(1).g(2)",
    "os.system('true')",
    "__import__('os')",
    "_private()",
    "f(__class__=1)",
    "f(_hidden=1)",
    "f(class=1)",
    "await(1)",
    "[f(), 3]",
    "[f(), [g()]]",
    "[f() for _ in (1,)]",
    "[f(",
    "[f()] and [g()]",
    "f(0x" + "f" * 300 + ")",
    "f(1" + "0" * 5000 + ")",
    "f('\x00')",
    "f('\ud800')",
    "f(\x00)",
    "f(𝐱=1)",
    "f(a=1); g()",
    "f(#\n)",
    "f(" + "-" * 9000 + "1)",
    "f(" + "not " * 4000 + "1)",
    "f(" + "1+" * 9000 + "1)",
    "f(a" + ".b" * 9000 + ")",
    "f(" + "(" * 9000 + ")",
    "[f(" + "[" * 500 + "]" * 500 + ")]",
    "[f(" + "{1:" * 100 + "1" + "}" * 100 + ")]",
    "[" + "f()," * 100 + "]",
    "f('" + "x" * 20_000 + "')",
    "<tool_call>",
    "<tool_call>{}</tool_call>",
    "<tool_call>[]</tool_call>",
    "<tool_call>ls()</tool_call>",
    '<tool_call>{"name": "f"}</tool_call><tool_call>',
    '<tool_call>{"name": 3}</tool_call>',
    '<tool_call>{"name": "os.system"}</tool_call>',
    '<tool_call>{"name": "__init__"}</tool_call>',
    '<tool_call>{"name": "f", "arguments": []}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"__class__": 1}}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a b": 1}}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
    '<tool_call>{"name": "f", "more": 1}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 40 + "]" * 40 + "}}</tool_call>",
    '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 9000 + "]" * 9000 + "}}</tool_call>",
    '<tool_call>{"name": "f", "arguments": {"a": 1' + "0" * 5000 + "}}</tool_call>",
]


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_whatever_is_not_a_literal_call_is_an_error_with_a_short_message(text):
    with pytest.raises(CallError) as caught:
        parse_calls(text)
    assert 0 < len(str(caught.value)) < 400


_EVENTS: list[str] = []
_WATCHING = [False]
_DANGEROUS = (
    "exec",
    "import",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "pty.",
    "shutil.",
)


def _watch(event, args):
    if _WATCHING[0] and event.startswith(_DANGEROUS):
        _EVENTS.append(event)


sys.addaudithook(_watch)  # cannot be removed again, so it looks only while a test wants it to

FRAGMENTS = st.sampled_from(
    [
        *("__import__('os').system('true')", "exec('1')", "eval(", "open('/tmp/x','w')", "f("),
        *("getattr(", "__class__", "lambda", "f'{", "}'", "b'", "r'", "'''", "not ", "for x in "),
        *("<tool_call>", "</tool_call>", "```python\n", "\x00", "\ud800", "é", "\n", "\\"),
        *("True", "None", "1", "0x", "1e9", "if ", ":=", "**"),
        *"()[]{},=:'\"a.-+*#@;`",
    ]
)


@given(st.lists(FRAGMENTS, max_size=14).map("".join) | st.text(max_size=40))
@example("__import__('os').system('true')")
@example("[f(__import__('os'))]")
@example("f(a=open('/tmp/x', 'w'))")
@example("f(f'{__import__(\"os\")}')")
@example("print(1)")
def test_no_text_makes_the_parser_execute_or_raise_anything_else(text):
    parse_calls("f(a=1)")  # what a first parse imports is not the text's doing
    _EVENTS.clear()
    _WATCHING[0] = True
    try:
        calls = parse_calls(text)
    except CallError:
        calls = []
    finally:
        _WATCHING[0] = False
    assert _EVENTS == []
    assert same(parse_calls(format_calls(calls)), calls)


def test_the_watch_above_sees_execution():
    _EVENTS.clear()
    _WATCHING[0] = True
    try:
        eval("1 + 1")
    finally:
        _WATCHING[0] = False
    assert "exec" in _EVENTS


def test_warning_filters_do_not_change_the_reading():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_calls(r"f('\d')") == [Call("f", ("\\d",))]


def test_only_literals_are_written():
    with pytest.raises(CallError, match="object"):
        format_calls([Call("f", (object(),))])
