"""The cache: memory stays bounded, what is used stays, and threads cannot make it forget how full it is."""

from __future__ import annotations

import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.sst import Cache

CAPACITY = 10


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("get"), st.integers(0, 7), st.just(0)),
            st.tuples(st.just("put"), st.integers(0, 7), st.integers(0, CAPACITY + 2)),
        ),
        max_size=60,
    )
)
def test_what_was_used_last_stays_and_memory_stays_bounded(calls: list[tuple[str, int, int]]) -> None:
    cache = Cache[object](CAPACITY)
    model: OrderedDict[int, tuple[object, int]] = OrderedDict()
    hits = misses = 0
    for call, key, size in calls:
        if call == "get":
            expected = model.get(key, (None, 0))[0]
            assert cache.get(key) is expected
            if key in model:
                model.move_to_end(key)
                hits += 1
            else:
                misses += 1
        else:
            value = object()
            cache.put(key, value, size)
            if size <= CAPACITY:
                model.pop(key, None)
                model[key] = (value, size)
                while sum(size for _, size in model.values()) > CAPACITY:
                    model.popitem(last=False)
        assert cache.size_bytes == sum(size for _, size in model.values()) <= CAPACITY
        assert len(cache) == len(model)
    assert (cache.hits, cache.misses) == (hits, misses)
    for key in range(8):
        assert cache.get(key) is model.get(key, (None, 0))[0]


def test_a_value_larger_than_the_cache_is_not_kept_and_pushes_nothing_out() -> None:
    cache = Cache[str](CAPACITY)
    cache.put("small", "kept", 4)
    cache.put("large", "not kept", CAPACITY + 1)
    assert cache.get("large") is None
    assert cache.get("small") == "kept"
    assert cache.size_bytes == 4


def test_a_value_just_as_large_as_the_cache_is_kept_alone() -> None:
    cache = Cache[str](CAPACITY)
    cache.put("small", "gone", 1)
    cache.put("large", "kept", CAPACITY)
    assert (cache.get("small"), cache.get("large")) == (None, "kept")


def test_a_cache_without_room_keeps_nothing() -> None:
    cache = Cache[str](0)
    cache.put("a", "A", 1)
    assert cache.get("a") is None
    assert len(cache) == 0


class Interrupted:
    """A key that, at a given look at it, lets another thread have its turn: the worst moment, every time."""

    def __init__(self, at_look: int, other: Callable[[], None]) -> None:
        self._looks_left = at_look
        self._thread = threading.Thread(target=other)

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        self._looks_left -= 1
        if self._looks_left == 0:
            self._thread.start()
            # A cache that keeps the other out until it is done with this key lets this wait run out.
            self._thread.join(timeout=0.2)
        return hash("shared")

    def finish(self) -> None:
        self._thread.join()


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("first", ["get", "put"])
@pytest.mark.parametrize("second", ["get", "put"])
def test_a_thread_that_comes_between_does_not_change_how_full_the_cache_believes_itself(
    first: str, second: str, look: int
) -> None:
    cache = Cache[str](CAPACITY)
    cache.put("shared", "old", 3)
    calls: dict[str, Callable[[Hashable], object]] = {
        "get": cache.get,
        "put": lambda key: cache.put(key, "new", 4),
    }
    key = Interrupted(look, lambda: calls[second]("shared") and None)
    calls[first](key)
    key.finish()
    for number in range(2 * CAPACITY):
        cache.put(number, "fresh", 1)
    assert len(cache) == cache.size_bytes == CAPACITY


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_switch_often")
def test_threads_cannot_make_the_cache_forget_how_full_it_is() -> None:
    capacity = 100
    cache = Cache[int](capacity)
    errors: list[BaseException] = []

    def hammer(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(25_000):
                key = rng.randrange(30)
                if rng.random() < 0.5:
                    assert cache.get(key) in (key, None)
                else:
                    cache.put(key, key, rng.randrange(1, 20))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert cache.size_bytes <= capacity
    # It holds as much as it should: no more than fits, and all that fits.
    for key in range(1_000, 1_000 + 2 * capacity):
        cache.put(key, key, 1)
    assert cache.size_bytes == len(cache) == capacity
    assert [cache.get(key) for key in range(1_000, 1_000 + capacity)] == [None] * capacity
    last = range(1_000 + capacity, 1_000 + 2 * capacity)
    assert [cache.get(key) for key in last] == list(last)
