"""Values come back from JSON and arrays bit by bit, and files can make nothing else."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from pymc_tempering.core.ladder import Ladder
from pymc_tempering.storage.plain_values import (
    BIT_GENERATORS,
    Codec,
    Hook,
    generator_from,
    pack,
    state_of,
    unpack,
)


@dataclass(frozen=True)
class Pair:
    first: object
    second: object


class Named(NamedTuple):
    values: np.ndarray
    word: str


class Compiled:
    pass


CODEC = Codec((Pair, Named, Ladder))


def there_and_back(value, codec=CODEC):
    return codec.from_bytes(codec.to_bytes(value))


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**127 + 1, -(2**70), 0.1, -0.0, float("inf"), float("-inf"), "text", [],
        [1, [2.5, None]], (1, ("a", 2)), {"a": {"b": (1,)}}, Pair(1, Pair("x", (2,))),
    ],
    ids=repr,
)  # fmt: skip
def test_simple_values_come_back(value):
    back = there_and_back(value)
    assert back == value
    assert repr(back) == repr(value)


def test_what_is_not_a_number_comes_back():
    assert np.isnan(there_and_back(Pair(float("nan"), 1)).first)


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.1, -0.0, np.nan, np.inf, 5e-324]), np.empty((0, 3)), np.array(2.5),
        np.array([True, False]), np.array([2**63], dtype=np.uint64), np.array(["a", "bc"]),
        np.arange(6, dtype=np.int32).reshape(2, 3),
    ],
)  # fmt: skip
def test_arrays_keep_their_bits_and_types(values):
    assert same_bits(there_and_back(Pair(values, 0)).first, values)


def test_arrays_keep_their_order_in_memory():
    """Products of matrices differ in their last bits by it."""
    by_columns = np.asfortranarray(np.random.default_rng(1).normal(size=(4, 3)))
    back = there_and_back([by_columns, np.ascontiguousarray(by_columns)])
    assert [each.flags.f_contiguous for each in back] == [True, False]


def test_one_array_in_two_places_is_stored_once():
    values = np.arange(3.0)
    _, arrays = unpack(CODEC.to_bytes(Pair(values, [values])))
    assert list(arrays) == ["first"]


def test_no_constructor_rounds_a_value_again():
    """`Ladder` normalizes its weights, which may move their last bit at each construction."""
    rng = np.random.default_rng(2)
    moved = 0
    for _ in range(200):
        ladder = Ladder(np.linspace(0, 1, 7), rng.normal(size=7), rng.normal(size=7))
        assert same_bits(there_and_back(ladder).log_weights, ladder.log_weights)
        again = Ladder(ladder.betas, ladder.log_z, ladder.log_weights)
        moved += not same_bits(again.log_weights, ladder.log_weights)
    assert moved  # so the way around the constructor is needed


def test_named_tuples_and_hooks():
    compiled = Compiled()
    codec = Codec((Named,), {Compiled: Hook(lambda _: "it", lambda _: compiled)})
    back = there_and_back([Named(np.ones(2), "w"), compiled], codec)
    assert isinstance(back[0], Named)
    assert back[1] is compiled


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, Compiled()]}, r"a\.1 is a Compiled"),
        (Pair(np.array([Compiled()]), 1), "first is an array of object"),
        ({1: 2}, "a dict"), (Pair(1, lambda: 1), "second is a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_named(value, words):
    with pytest.raises(TypeError, match=words):
        CODEC.to_bytes(value)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"is": "Popen", "fields": {"args": "ls"}}, "unknown class 'Popen'"),
        ({"is": "Pair", "fields": {"first": 1}}, "fields of Pair"),
        ({"found": "Compiled", "by": None}, "unknown class 'Compiled'"),
        ({"array": "gone"}, "'gone' is missing"),
        ({"pickle": "gASV"}, "nothing here has written"),
        ({"generator": {"dict": {"name": "SystemRandom"}}}, "no bit generator"),
    ],
)
def test_files_make_nothing_but_known_classes(plain, words):
    with pytest.raises(ValueError, match=words):
        CODEC.from_bytes(pack(plain, {}))


@pytest.mark.parametrize("name", BIT_GENERATORS)
def test_a_generator_goes_on_and_spawns_as_it_would_have(name):
    rng = np.random.Generator(getattr(np.random, name)(5)).spawn(2)[1]
    rng.random(3, dtype=np.float32)  # an odd number leaves half a draw in its buffer
    rng.spawn(2)
    again = there_and_back(rng)
    for one, other in zip([rng, *rng.spawn(2)], [again, *again.spawn(2)], strict=True):
        np.testing.assert_array_equal(one.random(5), other.random(5))
        np.testing.assert_array_equal(one.integers(9, size=5), other.integers(9, size=5))


def test_a_generator_without_a_known_seed_is_refused():
    class Other(np.random.PCG64):
        pass

    with pytest.raises(TypeError, match="Other generator cannot be stored"):
        state_of(np.random.Generator(Other(1)))
    with pytest.raises(ValueError, match="no bit generator"):
        generator_from({"name": "Other"})
