"""BFCL multi-turn: all ground truths, wrong last calls, limits, and what texts cannot reach."""

import dataclasses
import importlib.util
import json

import pytest

from llm_bridge.environments import NotInstalledError, StateError, TaskError
from llm_bridge.environments.base import EnvironmentFault
from llm_bridge.environments.bfcl import (
    OUTPUT_CHARS,
    STEPS_PER_TURN,
    BFCLMultiTurn,
    ground_truth_texts,
)
from llm_bridge.environments.bfcl_backend import Episode
from llm_bridge.environments.bfcl_check import check_ground_truths, play, with_last_call
from llm_bridge.environments.bfcl_data import CATEGORIES, function_schema, load_tasks
from llm_bridge.environments.bfcl_parser import Call, format_calls
from llm_bridge.environments.process import _HOSTS

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("bfcl_eval") is None, reason="bfcl-eval is not installed"
)

SAMPLE = 25  # every 25th task of a category is played through the environment and its process


def failure(task, played):
    """Play calls against a task's tools in this process, as the worker does; "" where right."""
    episode = Episode(task.initial_config, task.methods, task.category == "long_context")
    verdict = "?"
    for turn, calls in enumerate(played.ground_truth):
        for call in calls:
            out = episode.handle({"call": str(call), "chars": OUTPUT_CHARS})
            assert out["chars"] <= OUTPUT_CHARS
        truth = format_calls(task.ground_truth[turn])
        verdict = episode.handle({"turn": turn, "truth": truth, "called": bool(calls)})["failure"]
    return verdict


@pytest.mark.parametrize("category", CATEGORIES)
def test_all_ground_truths_are_right_and_without_their_last_call_wrong(category):
    tasks = load_tasks(category)
    assert len(tasks) == 200
    assert [name for name, task in tasks.items() if failure(task, task) != ""] == []
    accepted = [name for name, t in tasks.items() if failure(t, with_last_call(t, ())) == ""]
    assert accepted == []


@pytest.mark.parametrize("category", CATEGORIES)
def test_ground_truths_through_the_environment(category):
    report = check_ground_truths(category, list(load_tasks(category))[::SAMPLE])
    assert report.tasks == 200 // SAMPLE
    assert report.holds, report
    assert not _HOSTS


def altered(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, dict):
        return {**value, "x": 1}
    return value + ("x" if isinstance(value, str) else ["x"])


def test_an_altered_last_argument_is_wrong_where_it_changes_state_or_result():
    """The checkers cannot see the others: twelve base tasks end with an argument of that kind."""
    blind = []
    for name, task in load_tasks("base").items():
        last = [call for calls in task.ground_truth for call in calls][-1]
        for key, value in last.kwargs.items():
            other = dataclasses.replace(last, kwargs=last.kwargs | {key: altered(value)})
            if failure(task, with_last_call(task, (other,))) == "":
                blind.append((int(name.rsplit("_", 1)[1]), last.name, key))
    assert blind == [
        (1, "tail", "lines"),  # the file is shorter
        (36, "grep", "pattern"),  # no line has it
        (38, "ls", "a"),  # no hidden files
        (63, "estimate_drive_feasibility_by_mileage", "distance"),  # too far either way
        (155, "purchase_insurance", "insurance_type"),
        (157, "get_flight_cost", "travel_date"),
        (159, "purchase_insurance", "insurance_type"),
        (165, "contact_customer_support", "message"),
        (166, "contact_customer_support", "message"),
        (169, "contact_customer_support", "message"),
        (179, "contact_customer_support", "message"),
        (197, "contact_customer_support", "message"),
    ]


# -- the environment ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root():
    environment = BFCLMultiTurn(CATEGORIES)
    environment.spawn().close()
    yield environment
    environment.close()
    assert not _HOSTS


@pytest.fixture
def environment(root):
    spawned = root.spawn()
    yield spawned
    spawned.close()


def test_tasks_are_those_of_the_categories(root):
    assert len(root.tasks) == len(set(root.tasks)) == 800
    one = BFCLMultiTurn("base", tasks=["multi_turn_base_7", "multi_turn_base_3"])
    assert one.tasks == ["multi_turn_base_7", "multi_turn_base_3"]


def test_reset_shows_tools_and_the_first_question(environment):
    system, question = environment.reset("multi_turn_base_0", seed=3)
    task = load_tasks("base")["multi_turn_base_0"]
    functions = json.loads(system["content"].split("as JSON:\n")[1])
    assert {f["name"] for f in functions} == set(task.schemas)
    assert question == task.questions[0][0]
    assert environment.tools == []


def test_a_text_with_calls_is_answered_and_one_without_ends_the_turn(environment):
    environment.reset("multi_turn_base_0")
    result = environment.step("[ls(a=True), cd(folder='document'), pwd()]")
    assert [m["role"] for m in result.messages] == ["tool"] * 3
    assert [m["name"] for m in result.messages] == ["ls", "cd", "pwd"]
    assert json.loads(result.messages[2]["content"]) == {
        "current_working_directory": "/workspace/document"
    }
    assert (result.reward, result.done, result.info["calls"]) == (0.0, False, 3)
    after = environment.step("I have looked around.")
    assert after.messages == [load_tasks("base")["multi_turn_base_0"].questions[1][0]]
    assert after.info["failure"] == "state"  # that was not what the user wanted


def test_calls_as_blocks_and_results_for_the_user_role():
    environment = BFCLMultiTurn("base", tools_in="template", result_role="user")
    try:
        assert [m["role"] for m in environment.reset("multi_turn_base_0")] == ["user"]
        assert {t["function"]["name"] for t in environment.tools} >= {"ls", "mv"}
        text = '<tool_call>{"name": "pwd", "arguments": {}}</tool_call>'
        result = environment.step(f"I look. {text}{text}")
        assert len(result.messages) == 1
        assert result.messages[0]["content"].count("Result of pwd:") == 2
    finally:
        environment.close()


@pytest.mark.parametrize("tools_in", ["prompt", "template"])
def test_functions_held_out_appear_at_their_turn(tools_in):
    environment = BFCLMultiTurn("miss_func", tools_in=tools_in)
    try:
        for index in (0, 2, 3):
            task = load_tasks("miss_func")[environment.tasks[index]]
            ((turn, names),) = task.held_out.items()
            assert turn > 0 and task.questions[turn] == ()

            def shown(messages, tools=tools_in, task=task):
                if tools == "template":
                    return {tool["function"]["name"] for tool in environment.tools}
                found = set()
                for item in messages:
                    for name in task.schemas:
                        if f'"name": "{name}"' in item["content"]:
                            found.add(name)
                return found

            seen = shown(environment.reset(index))
            assert seen == set(task.schemas) - set(names)
            for now in range(1, turn + 1):
                messages = environment.step("Done.").messages
                assert bool(shown(messages) & set(names)) == (now == turn)
            assert len(messages) == 1 and "More functions" in messages[0]["content"]
    finally:
        environment.close()


def test_no_held_out_function_is_visible_early():
    for task in load_tasks("miss_func").values():
        ((turn, names),) = task.held_out.items()
        assert set(names) <= set(task.visible(turn)) == set(task.schemas)
        assert not set(names) & set(task.visible(turn - 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[no_such_function()]", "no function"),
        ("[_load_scenario(scenario={})]", "not the name"),
        ("[__init__()]", "not the name"),
        ("[long_context()]", "no function"),
        ("[root()]", "no function"),
        ("[cd(self=1)]", "no argument self"),
        ("[cd(folder='document', extra=1)]", "no argument extra"),
        ("[ls(1, 2, 3)]", "at most 1 arguments"),
        ("[cd(folder=pwd())]", "not a literal"),
        ("[__import__('os').system('true')]", "not allowed"),
        ("[cd()]", "missing 1 required"),
        ("[cd(folder=3)]", "no attribute"),
        ("[ls(]", "could not be read"),
        ("[" + "ls()," * 65 + "]", "at most 64"),
        ("[echo(content='" + "x" * 30_000 + "')]", "at most 20000"),
    ],
)
def test_wrong_calls_are_answered_by_errors_and_change_nothing(environment, text, reason):
    environment.reset("multi_turn_base_0")
    result = environment.step(text)
    assert not result.done and len(result.messages) == 1
    content = result.messages[0]["content"]
    assert content.startswith("Error") and reason in content and len(content) < 500
    texts = ground_truth_texts(load_tasks("base")["multi_turn_base_0"])
    assert sum(environment.step(t).reward for t in texts) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        "power(base=7, exponent=1000000000)",
        "logarithm(value=2, base=3, precision=1000000000)",
        "round_number(number=7, decimal_places=-3000000000)",
    ],
)
def test_a_computation_without_end_ends_the_episode_and_not_the_next(call):
    name = next(n for n, t in load_tasks("base").items() if "power" in t.schemas)
    environment = BFCLMultiTurn("base", limits={"seconds": 1.0})
    try:
        environment.reset(name)
        result = environment.step(f"[{call}]")
        assert result.reward == 0.0
        assert result.done and result.info["truncated"] and result.info["failure"] == "time limit"
        with pytest.raises(StateError):
            environment.step("Done.")
        environment.limits = environment.limits.replace(seconds=30.0)
        assert play(environment, name, ground_truth_texts(load_tasks("base")[name])) == 1.0
    finally:
        environment.close()


def test_directories_copied_into_themselves_do_not_break_the_check(environment):
    environment.reset("multi_turn_base_0")
    environment.step("[cp(source='document', destination='document')]")
    result = environment.step("[find(path='.')]")
    assert not result.done and "recursion" in result.messages[0]["content"]
    assert environment.step("Done.").info["failure"] == "state"


def test_long_results_are_cut():
    environment = BFCLMultiTurn("base", limits={"output_chars": 100})
    try:
        environment.reset("multi_turn_base_0")
        text = "x" * 5_000
        result = environment.step(f"[echo(content='{text}'), pwd()]")
        first, second = (m["content"] for m in result.messages)
        assert len(first) == 100 and "left out" in first
        assert json.loads(second)
    finally:
        environment.close()


def test_the_step_limit_ends_the_episode(environment):
    environment.reset("multi_turn_base_0")
    for _ in range(STEPS_PER_TURN):
        assert not environment.step("[pwd()]").done
    result = environment.step("[pwd(]")
    assert result.done and result.reward == 0.0
    assert result.info["truncated"] and result.info["failure"] == "step limit"


def test_the_episode_time_is_limited(environment):
    environment.reset("multi_turn_base_0")
    environment._spent = environment.limits.episode_seconds
    result = environment.step("[pwd()]")
    assert result.done and result.info["failure"] == "time limit"


def test_stop_early_ends_at_the_first_wrong_turn():
    name = "multi_turn_base_0"
    for early, steps in ((True, 1), (False, load_tasks("base")[name].turns)):
        environment = BFCLMultiTurn("base", stop_early=early)
        environment.reset(name)
        taken = 1
        while not (result := environment.step("No.")).done:
            taken += 1
        environment.close()
        assert taken == steps
        assert result.reward == 0.0 and result.info["success"] is False
        assert "truncated" not in result.info


def test_two_environments_share_no_state_and_episodes_begin_anew(root):
    first, second = root.spawn(), root.spawn()
    name = "multi_turn_base_0"
    begun = [e.reset(name, seed) for e, seed in ((first, 1), (second, 2))]
    assert begun[0] == begun[1]
    before = second.step("[ls(a=True)]").messages
    first.step("[mkdir(dir_name='mine')]")
    assert "mine" in first.step("[ls()]").messages[0]["content"]
    assert second.step("[ls(a=True)]").messages == before
    first.reset(name, 1)
    assert first.step("[ls(a=True)]").messages == before
    texts = ["[lockDoors(unlock=True, door=['driver'])]", "[displayCarStatus(option='doors')]"]
    runs = []
    for environment in (first, second):
        environment.reset("multi_turn_base_55")
        runs.append([environment.step(text) for text in texts])
    assert runs[0] == runs[1]
    for environment in (first, second):
        worker = environment._worker
        environment.close()
        environment.close()
        assert not worker.alive
        with pytest.raises(StateError):
            environment.step("[ls()]")


def test_more_memory_than_allowed_is_an_error_of_the_call():
    name = next(n for n, t in load_tasks("base").items() if "square_root" in t.schemas)
    environment = BFCLMultiTurn("base", limits={"seconds": 30.0, "memory_mb": 100})
    try:
        environment.reset(name)
        result = environment.step("[square_root(number=2, precision=1000000000)]")
        assert result.messages[0]["content"] == "Error during execution: MemoryError"
        assert not environment.step("[mean(numbers=[1, 2])]").done
    finally:
        environment.close()


@pytest.mark.parametrize("task", ["multi_turn_base_200", "x", -1, 800, True, None, 1.0])
def test_unknown_tasks_are_errors(environment, task):
    with pytest.raises(TaskError, match="task = "):
        environment.reset(task)


@pytest.mark.parametrize(
    "options",
    [
        {"category": "hard"},
        {"tasks": ["multi_turn_base_900"]},
        {"tools_in": "nowhere"},
        {"result_role": "assistant"},
        {"steps_per_turn": 0},
        {"limits": {"second": 1}},
    ],
)
def test_wrong_options_are_errors(options):
    with pytest.raises(EnvironmentFault, match="should be"):
        BFCLMultiTurn(**options)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    load_tasks.cache_clear()
    try:
        with pytest.raises(NotInstalledError, match="pip install --no-deps bfcl-eval"):
            BFCLMultiTurn("base")
    finally:
        load_tasks.cache_clear()


def test_schemas_have_types_of_json_schema():
    known = {"object", "number", "integer", "string", "boolean", "array"}

    def types(node, properties=False):
        for key, value in node.items() if isinstance(node, dict) else ():
            if key == "type" and not properties:
                yield value
            else:
                yield from types(value, properties=key == "properties" and not properties)

    for category in CATEGORIES:
        for task in load_tasks(category).values():
            for name, schema in task.schemas.items():
                assert schema["function"]["name"] == name
                assert set(types(schema["function"]["parameters"])) <= known


def test_a_parameter_called_type_keeps_its_name():
    schema = function_schema(
        {
            "name": "f",
            "description": "",
            "parameters": {
                "type": "dict",
                "properties": {"type": {"type": "dict", "properties": {}}},
            },
        }
    )
    assert schema["function"]["parameters"]["properties"]["type"]["type"] == "object"


def test_ground_truth_texts_hold_the_calls_of_every_turn():
    task = load_tasks("miss_param")["multi_turn_miss_param_3"]
    assert ground_truth_texts(task) == [
        "[find(path='.', name='test')]",
        "Done.",
        "Done.",  # here the user says too little, and nothing should be called
        "[cd(folder='projects'), cd(folder='photography'), "
        "cp(source='test_image1.jpg', destination='backup_tests'), "
        "cp(source='test_document.txt', destination='backup_tests')]",
        "Done.",
    ]
    assert with_last_call(task, (Call("ls"),)).ground_truth[2][-1] == Call("ls")
