"""Quantities: exact, typed, and refused without a unit."""

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import loomnet as ln
from loomnet.base.errors import UnitError

KINDS = [ln.Rate, ln.Time, ln.Size]


@pytest.mark.parametrize(
    ("kind", "text", "count"),
    [
        (ln.Rate, "400 Gb/s", 400 * 10**9),
        (ln.Rate, "40Mbit/s", 40 * 10**6),
        (ln.Rate, "2.5 Gbps", 2_500_000_000),
        (ln.Rate, "1 MB/s", 8 * 10**6),
        (ln.Time, "0.5 ms", 500_000_000),
        (ln.Time, "1 us", 10**6),
        (ln.Time, "1 µs", 10**6),
        (ln.Time, "10min", 600 * 10**12),
        (ln.Time, "1e-3 s", 10**9),
        (ln.Time, "0 s", 0),
        (ln.Size, "256 MiB", 256 * 2**20),
        (ln.Size, "64 MB", 64 * 10**6),
    ],
)
def test_strings_with_units_become_exact_integers(kind, text, count):
    assert kind(text).count == count


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(count=st.integers(min_value=1, max_value=2**63 - 1))
def test_text_of_a_quantity_reads_back_as_itself(kind, count):
    quantity = kind.of(count)
    assert kind(str(quantity)) == quantity
    assert pickle.loads(pickle.dumps(quantity)) == quantity == copy.deepcopy(quantity)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bare", [400, 4.0, True, None, "400", "", " ", "Gb/s", "4 parsecs", "NaN s"]
)
def test_what_has_no_unit_of_its_kind_is_refused(kind, bare):
    with pytest.raises(UnitError):
        kind(bare)


def test_refusals_name_the_unit_and_the_fix():
    with pytest.raises(UnitError, match=r'rate "40" has no unit: write one of b/s, kb/s, Mb'):
        ln.Rate("40")
    with pytest.raises(UnitError, match=r'unknown unit "gb/s"; nearest: .*Gb/s'):
        ln.Rate("400 gb/s")
    with pytest.raises(UnitError, match='for example "400 Gb/s"'):
        ln.Rate(400)
    with pytest.raises(UnitError, match="not a whole number of picoseconds"):
        ln.Time("1.5 ps")
    with pytest.raises(UnitError, match="at least 0"):
        ln.Time("-1 s")
    with pytest.raises(UnitError, match="at most"):
        ln.Time("4000 h")
    with pytest.raises(UnitError, match="at least 1"):
        ln.Rate("0 b/s")
    with pytest.raises(UnitError, match="not a rate"):
        ln.Rate(ln.Time("1 s"))


def test_arithmetic_keeps_the_kind():
    second = ln.Time("1 s")
    assert second * 3 == ln.Time("3 s") == 3 * second
    assert second / 4 == ln.Time("250 ms")
    assert ln.Time("3 s") / second == 3.0
    assert ln.Time("3 s") - second == ln.Time("2 s")
    assert sorted([ln.Time("2 s"), second]) == [second, ln.Time("2 s")]
    assert second != ln.Size.of(second.count)
    with pytest.raises(TypeError):
        second + ln.Size("1 B")
    with pytest.raises(UnitError):
        second - ln.Time("2 s")


def test_a_byte_at_400_gigabits_lasts_20_picoseconds():
    rate = ln.Rate("400 Gb/s")
    assert rate.serialization(ln.Size("1 B")) == ln.Time("20 ps")
    assert rate.bytes_in(ln.Time("13 us")) == 650_000


def test_pydantic_converts_and_serialises():
    class Model(BaseModel):
        rate: ln.Rate
        delay: ln.Time = ln.Time("1 us")

    model = Model(rate="400 Gb/s")
    assert model.rate == ln.Rate("400 Gb/s")
    assert json.loads(model.model_dump_json()) == {"rate": "400 Gb/s", "delay": "1 us"}
    with pytest.raises(ValidationError, match="has no unit"):
        Model(rate=400)
