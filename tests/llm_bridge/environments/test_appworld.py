"""The AppWorld adapter against a stand-in for its server.

The stand-in follows the interface of `appworld.serve.environment` 0.1.3 (paths, bodies, answers); it
has one app and executes nothing: a line "say X" prints X, "complete X" ends the task.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from llm_bridge.environments import EnvironmentFault, StateError, TaskError
from llm_bridge.environments.appworld import AppWorldTasks

ANSWERS = {"task_1": "42", "task_2": "7"}


class StandIn(BaseHTTPRequestHandler):
    """One world at a time, as in the real server."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        world = self.server.world
        path = self.path.strip("/")
        self.server.requests.append((path, body))
        if path == "initialize":
            if body["task_id"] not in ANSWERS:
                return self.send(500, {"detail": "no such task"})
            self.server.world = {"task_id": body["task_id"], "answer": None}
            return self.send(
                200,
                {
                    "output": {
                        "task_id": body["task_id"],
                        "instruction": f"Find the number of {body['task_id']}.",
                        "supervisor": {
                            "first_name": "Ann",
                            "last_name": "Lee",
                            "email": "ann@example.org",
                            "phone_number": "555",
                        },
                        "datetime": "2023-05-18T12:00:00",
                    }
                },
            )
        if world is None or world["task_id"] != body["task_id"]:
            return self.send(500, {"detail": "not the active world"})
        return self.send(200, {"output": getattr(self, path)(world, body)})

    def execute(self, world, body):
        word, _, rest = body["code"].strip().partition(" ")
        if word == "complete":
            world["answer"] = rest
        if word == "sleep":
            time.sleep(float(rest))
        if word == "spam":
            return "x" * int(rest)
        return rest if word == "say" else "Execution successful."

    def task_completed(self, world, body):
        return world["answer"] is not None

    def evaluate(self, world, body):
        right = world["answer"] == ANSWERS[world["task_id"]]
        tests = [{"requirement": "answer", "label": "no_op_fail"}]
        always = [{"requirement": "nothing else changed", "label": "no_op_pass"}]
        return {
            "success": right,
            "difficulty": 1,
            "num_tests": 2,
            "passes": always + (tests if right else []),
            "failures": [] if right else tests,
        }

    def close(self, world, body):
        self.server.world = None

    def send(self, code, answer):
        data = json.dumps(answer).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):  # the client has given up
            pass


@pytest.fixture
def servers():
    started = []
    for _ in range(2):
        server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
        server.world, server.requests = None, []
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
    yield started
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def urls(servers):
    return [f"http://127.0.0.1:{server.server_port}" for server in servers]


def test_an_episode(servers, urls):
    world = AppWorldTasks(urls[0], tasks=["task_1"])
    system, user = world.reset("task_1", seed=5)
    assert "Ann Lee" in system["content"] and user["content"] == "Find the number of task_1."
    assert servers[0].requests[0][1]["random_seed"] == 5
    result = world.step("I look.\n```python\nsay hello\n```")
    assert (result.messages[0]["content"], result.reward, result.done) == ("hello", 0.0, False)
    result = world.step("complete 42")
    assert (result.reward, result.done, result.info["truncated"]) == (1.0, True, False)
    assert result.info["success"] and result.info["passed"] == 1.0
    assert servers[0].world is None  # closed there
    with pytest.raises(StateError):
        world.step("say x")
    world.close()


def test_a_wrong_answer_pays_nothing_or_the_share(urls):
    for partial, reward in ((False, 0.0), (True, 0.5)):
        world = AppWorldTasks(urls[0], partial=partial)
        world.reset("task_2", 0)
        result = world.step("complete 42")
        assert result.reward == reward and result.info["success"] is False
        world.close()


def test_the_turn_limit_truncates_and_the_tests_decide(urls):
    world = AppWorldTasks(urls[0], max_turns=2, partial=True)
    world.reset("task_1", 0)
    assert not world.step("say a").done
    result = world.step("say b")
    assert result.done and result.info["truncated"] and result.reward == 0.5
    world.close()


def test_output_and_texts_are_limited(urls):
    world = AppWorldTasks(urls[0], limits={"output_chars": 100, "text_chars": 200})
    world.reset("task_1", 0)
    assert len(world.step("spam 100000").messages[0]["content"]) == 100
    assert "at most 200" in world.step("say " + "x" * 300).messages[0]["content"]
    with pytest.raises(EnvironmentFault, match="longer than"):
        world.step("spam 5000000")
    world.close()


def test_a_block_that_takes_too_long_ends_the_episode(urls):
    world = AppWorldTasks(urls[0], limits={"seconds": 0.5})
    world.reset("task_1", 0)
    result = world.step("sleep 2")
    assert result.done and result.reward == 0.0 and result.info["truncated"]
    world.close()


def test_each_open_episode_needs_a_server(servers, urls):
    world = AppWorldTasks(urls)
    one, two, three = world.spawn(), world.spawn(), world.spawn()
    one.reset("task_1", 0)
    two.reset("task_2", 0)
    assert [server.world["task_id"] for server in servers] == ["task_1", "task_2"]
    with pytest.raises(EnvironmentFault, match="all 2 servers are in use"):
        three.reset("task_1", 0)
    assert one.step("complete 42").reward == 1.0
    one.close()
    one.close()
    three.reset("task_1", 0)
    assert two.step("complete 7").reward == three.step("complete 42").reward == 1.0
    two.close()
    three.close()


def test_faults_of_the_server_are_errors(servers, urls):
    world = AppWorldTasks(urls[0])
    with pytest.raises(EnvironmentFault, match="HTTP 500"):
        world.reset("task_9", 0)
    world.reset("task_1", 0)
    servers[0].world = None
    with pytest.raises(EnvironmentFault, match="HTTP 500"):
        world.step("say x")
    world.close()
    with pytest.raises(EnvironmentFault, match="appworld serve environment"):
        AppWorldTasks("http://127.0.0.1:9").reset("task_1", 0)


@pytest.mark.parametrize("options", [{"urls": "localhost:8000"}, {"urls": []}, {"max_turns": 0}])
def test_wrong_options_are_errors(options):
    with pytest.raises(EnvironmentFault, match="should"):
        AppWorldTasks(**options)


def test_wrong_tasks_are_errors(urls):
    world = AppWorldTasks(urls[0], tasks=["task_1"])
    for task in ("task_2", 3, None):
        with pytest.raises(TaskError):
            world.reset(task, 0)
