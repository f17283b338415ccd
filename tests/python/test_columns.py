import numpy as np

from loomnet.measures.columns import Columns, first_of_steps


def test_rows_stay_in_order_however_many_there_are():
    found = Columns(("at", np.int64), ("two", np.int64, (2,)), ("kind", np.uint8))
    assert len(found) == 0 and found["at"].tolist() == []
    for number in range(300):
        found.add(number % 3, at=[number] * (number % 3), two=[number, -number], kind=7)
    wanted = [number for number in range(300) for _ in range(number % 3)]
    assert found["at"].tolist() == wanted and len(found) == len(wanted)
    assert found["two"].tolist() == [[number, -number] for number in wanted]
    assert set(found["kind"].tolist()) == {7}


def test_what_is_kept_is_what_there_is_and_grows_on():
    found = Columns(("at", np.int64))
    found.add(10, at=range(10))
    found.keep(found["at"] % 2 == 1)
    assert found["at"].tolist() == [1, 3, 5, 7, 9]
    found.keep(np.array([4, 0]))
    found.add(1, at=11)
    assert found["at"].tolist() == [9, 1, 11]
    found.keep(np.zeros(3, bool))
    found.add(1, at=5)
    assert found["at"].tolist() == [5]


def test_the_first_row_of_each_step_is_kept_of_each_series():
    at = np.array([0, 1, 9, 10, 10, 12, 30])
    assert at[first_of_steps(at, 10)].tolist() == [0, 10, 30]
    series = np.array([1, 0, 1, 0, 1, 0, 1])
    kept = first_of_steps(at, 10, series)
    assert list(zip(at[kept].tolist(), series[kept].tolist(), strict=True)) == [
        (0, 1),
        (1, 0),
        (10, 0),
        (10, 1),
        (30, 1),
    ]
    assert first_of_steps(np.empty(0, np.int64), 10).tolist() == []
    assert first_of_steps(np.empty(0, np.int64), 10, np.empty(0, np.int64)).tolist() == []
