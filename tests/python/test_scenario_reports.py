"""The list of scenarios whose reports a change that moves no figure is compared by."""

import pytest

pytest.importorskip("loomnet._core")

from scenario_reports import PARAMETERS, SCENARIOS, differences, report

import loomnet as ln


def test_every_scenario_is_in_the_list():
    found = {
        str(path.relative_to(SCENARIOS).with_suffix(""))
        for path in SCENARIOS.rglob("*.py")
        if "@ln.scenario" in path.read_text()
    }
    assert found == set(PARAMETERS)
    for name, values in PARAMETERS.items():
        assert set(values) <= {each.name for each in ln.load(SCENARIOS / f"{name}.py").parameters}


def test_a_report_repeats_to_the_byte_and_another_seeds_is_told(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, seeds in zip(folders, ((1, 1), (1, 2)), strict=True):
        folder.mkdir()
        for place, seed in enumerate(seeds):
            found, _ = report("permutation", seed)
            assert found.startswith(b"{")
            (folder / f"permutation-{place}.json").write_bytes(found)
    assert differences(*folders) == ["permutation-1.json"]
