"""`loomnet cost`, the scenario of its bars, and docs/mfabric.md."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import loomnet as ln
from loomnet.cli import main

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "scenarios" / "mfabric" / "cost.py"
DOC = (ROOT / "docs" / "mfabric.md").read_text().split("## What it costs")[1].split("\n## ")[0]
CUSTOM = """rate,nic,transceiver,electrical_port,ocs_port,panel_port,fibre
400G,1,1,1,1,1,1
1.6T,2,2,2,2,2,2.5
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(CUSTOM)
    return tmp_path


def test_parts_totals_and_performance_per_dollar(here, capsys):
    assert main(["cost", "mixnet", "--gpus", "1024", "--alpha", "6", "--rate", "400G"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"electrical_port +1,090 +1,280 +1,395,200 +27.5%", out)
    assert re.search(r"mixnet alpha=6 +400G +5,078,272 +4,959.25 +2.2893", out)
    assert re.search(r"Mixtral-8x22B +400G +mixnet +1.114 +1.082 +2.22", out)
    assert "https://mixnet-project.github.io" in out
    assert list(here.iterdir()) == [here / "mine.csv"]


def test_several_fabrics_rates_and_alphas(here, capsys):
    assert (
        main(
            [
                "cost",
                "mixnet",
                "fattree",
                "mixnet",
                "railonly",
                "--alpha",
                "1..3,6",
                "--rate",
                "800 Gb/s,100G",
                "--json",
                "-",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    names = [(bill["fabric"], bill["alpha"], bill["rate"]) for bill in found["bills"]]
    each = [
        ("mixnet", 1),
        ("mixnet", 2),
        ("mixnet", 3),
        ("mixnet", 6),
        ("fattree", None),
        ("railonly", None),
    ]
    assert names == [(*name, rate) for rate in ("800G", "100G") for name in each]
    totals = {(b["fabric"], b["alpha"], b["rate"]): b["total"] for b in found["bills"]}
    assert totals["mixnet", 1, "100G"] == 2_546_432
    assert totals["mixnet", 6, "800G"] == 7_947_008
    # Times are published for alpha = 6 alone.
    points = [row["point"] for row in found["performance_per_dollar"] if row["fabric"] == "mixnet"]
    assert points == ["S4", "S8", "S12", "S16", "S1", "S5", "S9", "S13"]


def test_all_rates_and_json_beside_the_tables(here, capsys):
    assert main(["cost", "topoopt", "--rate", "all", "--json", "out.json"]) == 0
    found = json.loads((here / "out.json").read_text())
    assert [bill["total"] for bill in found["bills"]] == [
        1_032_192,
        1_605_632,
        2_465_792,
        3_990_528,
    ]
    assert "topoopt, 800G" in capsys.readouterr().out


def test_the_calculators_formula(here, capsys):
    assert main(["cost", "mixnet", "railonly", "--formula", "site"]) == 0
    out = capsys.readouterr().out
    assert "3,984,896" in out and "9,757,696" in out and "compare it" not in out
    assert main(["cost", "mixnet", "railonly"]) == 0
    assert "railonly is counted by the calculator's formula" in capsys.readouterr().out


def test_other_sizes_have_no_published_times(here, capsys):
    assert main(["cost", "mixnet", "--gpus", "2048"]) == 0
    out = capsys.readouterr().out
    assert "10,156,544" in out and "performance per dollar" not in out
    assert "no published times: mixnet alpha=6" in out


def test_prices_of_ones_own(here, capsys):
    assert main(["cost", "mixnet", "--gpus", "8", "--rate", "1.6T", "--prices", "mine.csv"]) == 0
    out = capsys.readouterr().out
    # 8 NICs, 18 transceivers, 10 ports, 6 optical ports at $2; 12 fibres at $2.50
    assert "prices of mine.csv" in out and re.search(r"total +114\b", out)
    assert main(["cost", "mixnet", "--show-prices"]) == 0
    (here / "published.csv").write_text(capsys.readouterr().out)
    assert main(["cost", "mixnet", "--prices", "published.csv"]) == 0
    assert "5,078,272" in capsys.readouterr().out


def test_a_network_that_costs_nothing(here, capsys):
    (here / "free.csv").write_text(
        re.sub("1(?=[,\n])", "0", CUSTOM.splitlines()[0] + "\n" + "400G,1,1,1,1,1,1\n")
    )
    assert main(["cost", "mixnet", "fattree", "--prices", "free.csv"]) == 0
    assert re.search(r"mixnet alpha=6 +400G +0 +0.00 +–", capsys.readouterr().out)


BAD = {
    "mixnt": '"mixnt" is not one of fattree.*nearest: mixnet',
    "mixnet --gpus 1001": "gpus=1001 is not a multiple of 8",
    "mixnet --gpus 0": "gpus=0 is not",
    "mixnet --gpus many": "not a valid integer|valid integer",
    "mixnet --alpha 9": "alpha=9 is above the 8 NICs",
    "mixnet --alpha 7..9": "alpha=9 is above the 8 NICs",
    "mixnet --alpha six": "alpha 'six': write a number from 0 to 8",
    "fattree --alpha 9": "alpha=9 is above the 8 NICs",
    "mixnet --rate 300G": "rate 300G is not in the published prices; there are 100G",
    "mixnet --rate 400": '"400" has no unit: write 400G or "400 Gb/s"',
    "mixnet --rate ''": '"" is not a rate',
    "mixnet --rate 400G,": '"" is not a rate',
    "mixnet --formula sites": '"sites" is not one of textbook, site',
    "mixnet fattree31 --formula site": "has no row for fattree31",
    "mixnet --prices none.csv": "prices: none.csv: No such file",
    "mixnet --prices .": "is a folder",
    "mixnet --prices mine.csv --rate 100G": "100G is not in the prices of mine.csv; there are 400G",
    "mixnet --json none/out.json": "--json: cannot write none/out.json",
    "": "Missing argument",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_one_line_and_2(words, here, capfd):
    assert main(["cost", *shlex.split(words)]) == 2
    out, err = capfd.readouterr()
    assert not out and err.startswith("loomnet: ") and err.count("\n") == 1
    assert re.search(BAD[words], err)
    assert list(here.iterdir()) == [here / "mine.csv"]


def test_cost_loads_neither_the_engine_nor_matplotlib(here):
    code = (
        "import sys\nfrom loomnet.cli import main\n"
        "main(['cost', 'mixnet'])\n"
        "assert not {'loomnet._core', 'matplotlib', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


# --- the scenario -------------------------------------------------------------------------------
def test_the_bars_hold(tmp_path):
    report = ln.load(SCENARIO).run(directory=tmp_path / "run")
    assert report.ok, report.failed
    checks = {check.name: check for check in report.checks}
    assert {
        "C1",
        "C2-mean",
        "C2-400G",
        "C5-Mixtral-8x7B",
        "C5-Mixtral-8x22B",
        "C8-totals",
        "parts-of-a-built-fat-tree",
        "non-blocking",
    } <= checks.keys()
    assert len([name for name in checks if name.startswith(("C3-", "C4-"))]) == 16
    rows = {row.dotted: row for row in report.rows}
    assert rows["integers"].value == 144
    assert rows["points_where_topoopt_is_better"].value == 11
    assert rows["C6"].value is None and "DAC cables is unpublished" in rows["C6"].reason
    assert rows["C5-DeepSeek-R1"].value is None and rows["C5-DeepSeek-R1"].published == 2.1
    assert rows["C3.farthest_from_stated"].value < 0.05 < rows["C4.farthest_from_stated"].value


def test_copper_with_a_price_of_the_users(tmp_path):
    report = ln.load(SCENARIO).run(directory=tmp_path / "run", dac_price=100, k=6)
    (row,) = [row for row in report.rows if row.name == "C6"]
    assert report.ok and 2 < row.value < 2.4


@pytest.mark.parametrize(
    "name, change", [("C1", "PORTS_PER_NIC"), ("C8-totals", "_SITE_PORTS_PER_NIC")]
)
def test_a_wrong_formula_fails_its_bar(tmp_path, monkeypatch, name, change):
    from loomnet.systems.cost import parts

    monkeypatch.setattr(parts, change, getattr(parts, change) + 1)
    report = ln.load(SCENARIO).run(directory=tmp_path / "run")
    assert name in {check.name for check in report.checks if not check.ok}


# --- the page -----------------------------------------------------------------------------------
def test_the_pages_commands_run(here, capsys):
    lines = re.findall(r"^\$? ?loomnet (cost .*?)(?: +#.*)?$", DOC, re.M)
    assert len(lines) >= 4
    for line in lines:
        command, _, file = line.partition(" > ")
        assert main(shlex.split(command)) == 0, line
        text = capsys.readouterr().out
        if file:
            (here / file.strip()).write_text(text)


def test_the_pages_totals():
    rows = re.findall(r"^\| (\d+)G " + 4 * r"\| (\d[\d,]{6,}) ", DOC, re.M)
    assert len(rows) == 4
    for rate, *totals in rows:
        for name, text in zip(("fattree", "fattree31", "mixnet", "topoopt"), totals, strict=True):
            assert ln.cost.bill(name, rate=f"{rate}G").total == int(text.replace(",", ""))


def test_the_pages_prices():
    rows = re.findall(r"^\| (100|200|400|800)G ((?:\| \d+ ){6})\|$", DOC, re.M)
    assert [(f"{rate}G", *map(int, cells.replace("|", "").split())) for rate, cells in rows] == [
        (row["rate"], *(row[part] for part in ln.cost.PARTS)) for row in ln.cost.PRICES.rows()
    ]


def test_the_pages_code(here):
    (code,) = re.findall(r"```python\n(.*?)```", DOC, re.S)
    exec(compile(code, "docs/mfabric.md", "exec"), {})
    assert (here / "performance_per_dollar.png").stat().st_size > 20_000


def test_the_pages_count_of_topoopts_points():
    better = [
        row
        for row in ln.cost.performance("mixnet", base="topoopt")
        if row["performance_per_dollar"] < 1
    ]
    assert f"{len(better)} of the 16 published points" in " ".join(DOC.split())
