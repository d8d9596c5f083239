"""Laws that every rule keeps in every array library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from .catalogue import (
    BACKENDS,
    CATALOGUE,
    DIFFERENCE_TOLERANCE,
    DTYPES,
    LIBRARY_TOLERANCE,
    compiled,
    difference_gradients,
    jax_gradients,
    run,
    torch_gradients,
)

every = pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
smooth = pytest.mark.parametrize(
    "entry", [e for e in CATALOGUE if e.gradient], ids=lambda e: e.name
)


@every
def test_libraries_agree_and_keep_the_dtype(entry):
    for dtype in DTYPES:
        arguments = entry.draw(dtype)
        outputs = {b.name: run(entry, b, arguments) for b in BACKENDS}
        for name, out in outputs.items():
            assert out.dtype == np.dtype(dtype), name
            assert np.all(np.isfinite(out)), name
            np.testing.assert_allclose(
                out, outputs["numpy"], rtol=LIBRARY_TOLERANCE[dtype], atol=LIBRARY_TOLERANCE[dtype]
            )


@smooth
def test_gradients_agree(entry):
    arguments, tolerance = entry.draw("float64"), 10 * LIBRARY_TOLERANCE["float64"]
    for ours, theirs in zip(
        jax_gradients(entry, arguments), torch_gradients(entry, arguments), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@smooth
def test_gradients_keep_the_dtype(entry):
    arguments, tolerance = entry.draw("float32"), 50 * LIBRARY_TOLERANCE["float32"]
    wide = torch_gradients(entry, entry.draw("float64"))
    for narrow, want in zip(torch_gradients(entry, arguments), wide, strict=True):
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, want, rtol=tolerance, atol=tolerance)


@smooth
def test_gradients_are_those_of_the_value(entry):
    arguments = entry.draw("float64")
    found, slopes = jax_gradients(entry, arguments), difference_gradients(entry, arguments)
    for gradient, slope in zip(found, slopes, strict=True):
        scale = 1 + np.max(np.abs(slope))
        np.testing.assert_allclose(gradient, slope, atol=DIFFERENCE_TOLERANCE * scale)


@every
def test_arguments_are_not_written(entry):
    arguments = entry.draw("float64")
    entry.rule(*arguments)  # NumPy refuses to write: they are read-only
    given = [torch.tensor(x) for x in arguments]
    entry.rule(*given)
    for before, after in zip(arguments, given, strict=True):
        np.testing.assert_array_equal(before, after.numpy())


@every
def test_compiles_once_for_one_shape(entry):
    rule, traces = compiled(entry)
    for seed in (0, 1):
        arguments = entry.draw("float64", seed)
        out = rule(*map(jnp.asarray, arguments))
        tolerance = LIBRARY_TOLERANCE["float64"]
        np.testing.assert_allclose(
            out, run(entry, BACKENDS[0], arguments), rtol=tolerance, atol=tolerance
        )
    assert traces.count(tuple(jnp.asarray(x).dtype for x in arguments)) == 1


@every
def test_maps_over_a_new_axis(entry):
    drawn = [entry.draw("float64", seed) for seed in (0, 1)]
    tolerance = LIBRARY_TOLERANCE["float64"]
    each = np.stack([run(entry, BACKENDS[0], a) for a in drawn])
    stacked = [np.stack(x) for x in zip(*drawn, strict=True)]
    for out in (
        jax.jit(jax.vmap(entry.rule))(*map(jnp.asarray, stacked)),
        torch.func.vmap(entry.rule)(*map(torch.tensor, stacked)),
    ):
        np.testing.assert_allclose(np.asarray(out), each, rtol=tolerance, atol=tolerance)
