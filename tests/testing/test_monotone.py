"""The law of improvement: found, shrunk, repeatable, and honest about overshoots."""

import inspect
import json
import math

import hypothesis
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import bandits as models
import seeupo_theory
from bandits import SequentialBandit, random_mdp
from seeupo_theory import PRESETS, Algorithm, api
from seeupo_theory.cli import cli
from seeupo_theory.testing import Overshoot, Policy, assert_monotone, bandits, problems, values
from seeupo_theory.testing._report import COMMAND_SWITCHES, command, step_call
from seeupo_theory.testing._steps import STEP_OPTIONS, _fast, _plain

SEARCH = settings(
    max_examples=300, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False
)

ROUTES = 1e-12
"""The two routes run the same steps on the same numbers, batched differently by the compiler."""

TWO_TURNS = bandits(turns=2, actions=2, rewards=values())
LOSING = SequentialBandit([[0, {"values": [1, -2], "probs": ["3/5", "2/5"]}]])
LONG = SequentialBandit([[[0, -2], [0, 1]]])
LONG_POLICY = Policy([[["1/2", "1/2"]], [["1/3", "2/3"], ["4/5", "1/5"]]])


def names():
    return {
        **{"seeupo_theory": seeupo_theory, "math": math, "Algorithm": Algorithm},
        **{"SequentialBandit": SequentialBandit, "Policy": Policy},
    }


def code(failure):
    """Model, policy, call and command of a message."""
    lines = str(failure).splitlines()
    scope = names()
    exec("\n".join(line for line in lines if line.startswith(("model = ", "policy = "))), scope)
    call = next(line for line in lines if line.startswith("seeupo_theory.step("))
    shell = next((line for line in lines if line.startswith("seeupo step ")), None)
    return scope, call, shell


@settings(max_examples=100)
@given(problem=problems(TWO_TURNS), lr=st.sampled_from([0.1, 0.5, 2.0]))
def test_seeupo_on_independent_tables_improves(problem, lr):
    assert_monotone("seeupo", *problem, lr=lr, epochs=5)


def test_a_broken_variant_is_found_and_can_be_repeated(tmp_path, monkeypatch):
    """Without the running factor the first turn follows an advantage that is out of date."""

    @SEARCH
    @given(problem=problems(TWO_TURNS))
    def the_law(problem):
        assert_monotone("seeupo-no-factor", *problem, lr=5.0)

    with pytest.raises(AssertionError, match="seeupo-no-factor lowers J by") as caught:
        the_law()
    assert not isinstance(caught.value, Overshoot)
    scope, call, shell = code(caught.value)
    step = eval(call, scope)
    assert not step.monotone and step.surrogate_rose

    monkeypatch.chdir(tmp_path)
    models.save_model(scope["model"], "model.json")
    models.save_policy(scope["policy"].exact, "policy.json")
    out = CliRunner().invoke(cli, [*shell.split()[1:], "--json"], catch_exceptions=False)
    assert json.loads(out.stdout)["per_turn"] == pytest.approx(step.per_turn, abs=ROUTES)


def test_group_std_lowers_j():
    with pytest.raises(AssertionError) as caught:
        assert_monotone("grpo", LOSING, group_size=2, epochs=5)
    scope, call, shell = code(caught.value)
    step = eval(call, scope)
    assert scope["model"] == LOSING and scope["policy"] is None
    head = f"grpo lowers J by {step.value_before - step.value_after:.6g}: "
    assert str(caught.value).startswith(head) and not step.monotone
    assert shell == (
        "seeupo step model.json --policy policy.json --algorithm grpo --group-size 2 --epochs 5"
    )
    assert_monotone("grpo", LOSING, group_size=2, epochs=5, tolerance=1.0)


def test_functions_of_the_user_are_algorithms():
    def whitened(returns):
        centred = returns - returns.mean(axis=-1, keepdims=True)
        return centred / (returns.std(axis=-1, keepdims=True) + 1e-6)

    mine = Algorithm("mine", estimator=whitened, order="simultaneous", epochs=5)
    with pytest.raises(AssertionError, match="mine lowers J by") as caught:
        assert_monotone(mine, LOSING, group_size=2)
    scope, call, shell = code(caught.value)
    assert shell is None and "estimator=whitened" in call
    assert not eval(call, {**scope, "whitened": whitened}).monotone
    with pytest.raises(ValueError, match="the limit of a custom estimator is unknown"):
        assert_monotone(mine, LOSING)


@pytest.mark.parametrize(
    ("name", "size"), [("seeupo", 3), ("happo", math.inf), ("trajectory-ppo", math.inf)]
)
def test_the_fast_route_is_the_same_step(name, size):
    model = SequentialBandit([[[0, 1], [3, "1/2"]], [[1, 0], [0, 2]]], ["1/3", "2/3"])
    policy = Policy([[["1/3", "2/3"], ["1/2", "1/2"]], [["1/4", "3/4"]] * 4])
    algorithm = PRESETS[name].replace(epochs=3, guard=False)  # the loop is slow to compile
    options = {"group_size": size, "seed": 4}
    path, rise, order = _fast(algorithm, model, policy, options)
    plain, plain_rise, plain_order = _plain(algorithm, model, policy, options)
    np.testing.assert_allclose(path, plain, rtol=0, atol=ROUTES)
    assert order == plain_order and abs(path[0] - path[-1]) > 0.001
    assert (rise >= -1e-12) == (plain_rise >= 0)


def test_bandits_of_a_shape_share_one_program(monkeypatch):
    """Whatever the rewards, the policy and the step size: the static arguments are equal."""
    from seeupo_theory.tabular import ensembles

    static, steps, original = set(), [], ensembles.iterate_all

    def spied(ensemble, algorithm, instances, *, lr, **options):
        static.add((ensemble, algorithm, *sorted(options.items())))
        steps.append(lr)
        return original(ensemble, algorithm, instances, lr=lr, **options)

    monkeypatch.setattr(ensembles, "iterate_all", spied)
    assert_monotone("haml-kl", SequentialBandit([[0, 1, "1/2"]]), lr=0.5)
    assert_monotone("haml-kl", SequentialBandit([[3, 1, "1/2"]]), [[[0.5, 0.25, 0.25]]], lr=0.25)
    assert len(static) == 1 and steps == [0.5, 0.25]


def test_overshoots_are_told_from_broken_theorems():
    step = {"lr": 20.0, "epochs": 3}
    result = api.step(LONG, LONG_POLICY, algorithm="seeupo", **step)
    assert not result.monotone and not result.surrogate_rose
    message = r"own surrogate, and seeupo lowers J by .* in the update of turn 1: .* after \(the"
    for overshoot in ("reject", "fail"):
        with pytest.raises(Overshoot, match=message):
            assert_monotone("seeupo", LONG, LONG_POLICY, overshoot=overshoot, **step)
    assert_monotone("seeupo", LONG, LONG_POLICY, overshoot="allow", **step)
    assert_monotone("seeupo", LONG, LONG_POLICY, each_update=False, **step)  # J rose as a whole
    assert issubclass(Overshoot, AssertionError)


def test_overshoots_are_rejected_inside_a_search():
    seen = []

    @settings(max_examples=5)
    @given(st.sampled_from([LONG, SequentialBandit([[[0, 1], [1, 0]]])]))
    def the_law(model):
        seen.append(model)
        assert_monotone("seeupo", model, LONG_POLICY, lr=20.0, epochs=3)

    the_law()
    assert LONG in seen

    @given(st.just(LONG))
    def only_overshoots(model):
        assert_monotone("seeupo", model, LONG_POLICY, lr=20.0, epochs=3)

    with pytest.raises(hypothesis.errors.Unsatisfiable):
        only_overshoots()


def test_other_models_and_families_take_the_plain_route():
    mdp = random_mdp(0, states=2, actions=2, horizon=2)
    assert _fast(PRESETS["seeupo"], mdp, None, {}) is None
    assert_monotone("seeupo", mdp, epochs=3)
    team = SequentialBandit([[[0, 1], [1, -3]]])
    assert _fast(PRESETS["seeupo"], team, None, {"param": "shared"}) is None
    assert_monotone("seeupo", team, lr=2.0, epochs=5)
    with pytest.raises(AssertionError, match="param='shared', observe='none'") as caught:
        assert_monotone("seeupo", team, param="shared", observe="none", lr=2.0, epochs=5)
    assert "--param shared --observe none" in str(caught.value)


def test_a_monte_carlo_expectation_asserts_nothing():
    wide = SequentialBandit([np.arange(40.0) / 7])
    with pytest.raises(ValueError, match=r"monte-carlo .* asserts nothing; take a smaller group"):
        assert_monotone("grpo", wide, group_size=16, epochs=1)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("grop", LOSING), {}, "did you mean 'grpo'"),
        (("grpo", LOSING), {"ordr": "forward"}, "did you mean 'order'"),
        (
            ("grpo", LOSING),
            {"overshoot": "skip"},
            "overshoot is 'skip'; it should be one of reject",
        ),
        (("grpo", LOSING), {"group_size": 0.5}, "group_size is 0.5"),
        (("grpo", LOSING, [[[0.5, 0.4]]]), {}, r"row 0 sums to 0\.9"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        assert_monotone(*arguments, **options)


# Code and commands --------------------------------------------------------------------------------


def test_the_command_line_has_every_switch():
    options = {parameter.name for parameter in cli.commands["step"].params}
    assert options >= COMMAND_SWITCHES
    plain = {"group_size", "contexts_per_batch", "seed", "param", "observe"}
    assert plain <= options & STEP_OPTIONS
    keywords = set(inspect.signature(api.step).parameters) - {"switches", "model", "policy"}
    assert keywords - {"algorithm"} == STEP_OPTIONS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_named(name):
    algorithm = PRESETS[name]
    assert step_call(algorithm, {}) == f"seeupo_theory.step(model, policy, algorithm={name!r})"
    assert command(algorithm, {}).endswith(f"--algorithm {name}")
    assert repr(name) in step_call(algorithm.replace(name="mine"), {})


def test_what_the_command_line_cannot_say_has_no_command():
    seeupo = PRESETS["seeupo"]
    assert command(seeupo.replace(guard=True), {}) is None
    assert command(PRESETS["seeupo-official"].replace(factor_clip=None), {}) is None
    assert command(seeupo, {"options": {"dimension": 2}}) is None
    assert command(Algorithm(estimator=len), {}) == (
        "seeupo step model.json --policy policy.json --algorithm builtins:len"
    )
    assert command(Algorithm(estimator=len, objective=print), {}) is None
    assert "group_size=math.inf" in step_call(seeupo, {"group_size": math.inf})
