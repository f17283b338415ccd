"""ln.cost: parts, dollars and performance per dollar of MixNet and what it is compared with."""

import json
import math
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loomnet as ln

RATES = ("100G", "200G", "400G", "800G")
SERVERS = st.integers(1, 5000)
ALPHAS = st.integers(0, 8)
# US dollars for 1,024 GPUs at RATES, as the scenario of the bars has them.
TABLES = runpy.run_path(str(Path(__file__).parents[2] / "scenarios" / "mfabric" / "cost.py"))
TOTALS, BY_ALPHA = TABLES["TOTALS"], TABLES["BY_ALPHA"]
SITE = {
    **TABLES["SITE_TOTALS"],
    "rail": TABLES["SITE_TOTALS"]["fattree"],
    "topoopt": TOTALS["topoopt"],
}


def total(fabric, **values):
    found = ln.cost.bill(fabric, **values).total
    assert isinstance(found, int)
    return found


# --- tables of the publication ------------------------------------------------------------------
@pytest.mark.parametrize("fabric", TOTALS)
def test_totals(fabric):
    assert tuple(total(fabric, rate=rate) for rate in RATES) == TOTALS[fabric]


@pytest.mark.parametrize("alpha", BY_ALPHA)
def test_totals_by_alpha(alpha):
    assert tuple(total("mixnet", alpha=alpha, rate=rate) for rate in RATES) == BY_ALPHA[alpha]


@pytest.mark.parametrize("fabric", SITE)
def test_totals_of_the_calculator(fabric):
    found = tuple(total(fabric, rate=rate, formula="site") for rate in RATES)
    assert found == SITE[fabric]


def test_rail_only_has_the_calculators_formula_alone():
    bill = ln.cost.bill("railonly")
    assert bill.formula == "site" and bill.total == SITE["railonly"][2]


def test_quantities():
    assert (
        ln.cost.quantities("fattree")
        == ln.cost.quantities("rail")
        == {
            "nic": 1024,
            "transceiver": 6144,
            "electrical_port": 5120,
            "ocs_port": 0,
            "panel_port": 0,
            "fibre": 3072,
        }
    )
    assert ln.cost.bill("mixnet").quantities == {
        "nic": 1024,
        "transceiver": 2304,
        "electrical_port": 1280,
        "ocs_port": 768,
        "fibre": 1536,
    }
    assert ln.cost.bill("topoopt").quantities == {
        "nic": 1024,
        "transceiver": 1024,
        "panel_port": 1024,
        "fibre": 1024,
    }
    # The calculator prices no electrical port of MixNet, and an optical port for every NIC.
    assert ln.cost.bill("mixnet", formula="site").quantities == {
        "nic": 1024,
        "transceiver": 2560,
        "ocs_port": 1024,
        "fibre": 1536,
    }


@pytest.mark.parametrize(
    "fabric, part, dollars",
    [
        ("fattree", "nic", (674_816, 1_104_896, 1_534_976, 2_301_952)),
        ("fattree", "transceiver", (608_256, 1_468_416, 4_048_896, 8_595_456)),
        ("fattree", "electrical_port", (957_440, 1_914_880, 5_580_800, 7_168_000)),
        ("fattree", "fibre", (460_800,) * 4),
        ("mixnet", "nic", (674_816, 1_104_896, 1_534_976, 2_301_952)),
        ("mixnet", "transceiver", (228_096, 550_656, 1_518_336, 3_223_296)),
        ("mixnet", "electrical_port", (239_360, 478_720, 1_395_200, 1_792_000)),
        ("mixnet", "ocs_port", (399_360,) * 4),
        ("mixnet", "fibre", (230_400,) * 4),
    ],
)
def test_dollars_by_part(fabric, part, dollars):
    assert tuple(ln.cost.bill(fabric, rate=rate).dollars[part] for rate in RATES) == dollars


def test_cost_ratios():
    ratios = [total("fattree", rate=rate) / total("mixnet", rate=rate) for rate in RATES]
    assert [round(ratio, 4) for ratio in ratios] == [1.5244, 1.7905, 2.2893, 2.3312]
    assert round(sum(ratios) / 4, 4) == 1.9838


# --- identities ---------------------------------------------------------------------------------
@given(SERVERS, st.sampled_from(RATES))
def test_mixnet_without_optics_is_the_fat_tree(servers, rate):
    tree, own = (
        ln.cost.bill(name, gpus=8 * servers, alpha=0, rate=rate) for name in ("fattree", "mixnet")
    )
    assert own.items == tree.items


@given(
    SERVERS,
    ALPHAS,
    st.sampled_from(("fattree", "rail", "mixnet", "topoopt", "railonly")),
    st.sampled_from(ln.cost.FORMULAS),
    st.sampled_from(RATES),
)
def test_cost_is_linear_in_servers(servers, alpha, fabric, formula, rate):
    more = {"alpha": alpha, "formula": formula, "rate": rate}
    assert total(fabric, gpus=8 * servers, **more) == servers * total(fabric, gpus=8, **more)


@given(SERVERS)
def test_the_oversubscribed_tree_is_linear_but_for_rounding(servers):
    gpus = 8 * servers
    found = ln.cost.quantities("fattree31", gpus=gpus)
    assert found["electrical_port"] == gpus + 4 * math.ceil(gpus / 3)
    assert found["transceiver"] == found["electrical_port"] + gpus
    assert found["fibre"] == math.ceil(found["transceiver"] / 2)
    assert total("fattree31", gpus=24 * servers) == servers * total("fattree31", gpus=24)


@given(SERVERS, st.sampled_from(RATES))
def test_cost_per_gpu(servers, rate):
    (prices,) = (row for row in ln.cost.PRICES.rows() if row["rate"] == rate)
    nic, module, port, ocs, panel = (
        prices[part] for part in ("nic", "transceiver", "electrical_port", "ocs_port", "panel_port")
    )
    per_gpu = {
        "fattree": nic + 6 * module + 5 * port + 450,
        "mixnet": nic + 2.25 * module + 1.25 * port + 0.75 * ocs + 225,
        "topoopt": nic + module + panel + 150,
    }
    for fabric, dollars in per_gpu.items():
        assert ln.cost.bill(fabric, gpus=8 * servers, rate=rate).per_gpu == dollars


@given(SERVERS, st.sampled_from(RATES))
def test_every_nic_on_the_optical_switch_costs_less(servers, rate):
    found = [total("mixnet", gpus=8 * servers, alpha=alpha, rate=rate) for alpha in range(9)]
    assert found == sorted(found, reverse=True) and len(set(found)) == 9


@given(
    st.sampled_from(tuple(ln.cost.FABRICS)),
    ALPHAS,
    SERVERS,
    st.lists(st.integers(0, 10**7), min_size=6, max_size=6),
)
def test_a_bill_adds_up_to_the_cent(fabric, alpha, servers, cents):
    table = {
        "1.6T": {
            part: f"{value // 100}.{value % 100:02}"
            for part, value in zip(ln.cost.PARTS, cents, strict=True)
        }
    }
    bill = ln.cost.bill(fabric, gpus=8 * servers, alpha=alpha, rate="1.6 Tb/s", prices=table)
    by_hand = sum(
        bill.quantities.get(part, 0) * value
        for part, value in zip(ln.cost.PARTS, cents, strict=True)
    )
    assert bill.cents == by_hand
    assert sum(bill.share(item) for item in bill.items) == pytest.approx(1 if by_hand else 0)


def test_a_built_fat_tree_has_the_parts_of_the_formula():
    for k in (4, 8, 16):
        fabric = ln.clos.fat_tree(k, rate="400 Gb/s", delay="1 us")
        hosts, switches, links = fabric.counts
        wanted = ln.cost.quantities("fattree", gpus=hosts)
        assert (k * switches, links, 2 * links) == (
            wanted["electrical_port"],
            wanted["fibre"],
            wanted["transceiver"],
        )


# --- performance per dollar ---------------------------------------------------------------------
def ends(rate, **more):
    values = [
        row["performance_per_dollar"] for row in ln.cost.performance("mixnet", rate=rate, **more)
    ]
    assert len(values) == 4
    return min(values), max(values)


def test_performance_per_dollar_from_published_times():
    to_tree = {rate: ends(rate) for rate in RATES}
    assert to_tree == {
        "100G": pytest.approx((1.20, 1.48), abs=0.005),
        "200G": pytest.approx((1.44, 1.78), abs=0.005),
        "400G": pytest.approx((1.93, 2.29), abs=0.005),
        "800G": pytest.approx((1.96, 2.36), abs=0.005),
    }
    assert ends("100G", base="rail") == pytest.approx((1.43, 1.62), abs=0.005)
    assert ends("100G", formula="site") == pytest.approx((1.43, 1.76), abs=0.006)
    assert ends("400G", formula="site") == pytest.approx((2.85, 3.38), abs=0.006)


def test_topoopt_trains_more_per_dollar_in_11_of_16_points():
    rows = ln.cost.performance("mixnet", base="topoopt")
    assert len(rows) == 16 and sum(row["performance_per_dollar"] < 1 for row in rows) == 11


def test_the_published_points():
    points = {point.name: point for point in ln.cost.TIMES}
    assert list(points) == [f"S{i}" for i in range(1, 17)]
    ratios = [points["S9"].ratio(name) for name in ("mixnet", "rail", "topoopt")]
    assert ratios == pytest.approx((1.274, 1.351, 2.424), abs=0.0006)
    assert (points["S4"].model, points["S4"].rate) == ("Mixtral-8x22B", "800G")
    assert points["S16"].times == {"fattree": 1.0, "mixnet": 1.053, "rail": 1.155, "topoopt": 1.789}


def test_a_fabric_is_its_own_equal_and_one_without_times_has_no_rows():
    assert {row["performance_per_dollar"] for row in ln.cost.performance("fattree")} == {1.0}
    assert ln.cost.performance("railonly") == []


@given(*[st.floats(1e-3, 1e6)] * 4)
def test_performance_per_dollar_turns_round(time, base_time, cost, base_cost):
    forth = ln.cost.performance_per_dollar(time, base_time, cost, base_cost)
    back = ln.cost.performance_per_dollar(base_time, time, base_cost, cost)
    assert forth * back == pytest.approx(1)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "1", True, None])
def test_performance_per_dollar_needs_positive_numbers(bad):
    with pytest.raises(ln.UsageError, match=r"time=.*is not a number above 0"):
        ln.cost.performance_per_dollar(bad, 1, 1, 1)


def test_the_sweep_over_alpha():
    rows = ln.cost.sweep("1..6", rate="800 Gb/s")
    assert rows.column("alpha") == [1, 2, 3, 4, 5, 6]
    assert rows.column("total")[:4] == [totals[3] for totals in BY_ALPHA.values()]
    assert rows.column("fattree_over")[-1] == pytest.approx(2.3312, abs=5e-5)
    assert ln.cost.alphas("0,4..6,4") == [0, 4, 5, 6] and ln.cost.alphas([2, 2, 1]) == [2, 1]


def test_copper_saves_two_transceivers_and_a_fibre_per_electrical_nic():
    table = ln.cost.PRICES.with_part("dac", 0)
    tree, own = (ln.cost.bill(name, prices=table).quantities for name in ("fattree", "mixnet"))
    assert (tree["transceiver"], tree["fibre"], tree["dac"]) == (4096, 2048, 1024)
    assert (own["transceiver"], own["fibre"], own["dac"]) == (1792, 1280, 256)
    assert "dac" not in ln.cost.bill("topoopt", prices=table).quantities
    with pytest.raises(ln.UsageError, match="formula site counts no DAC cables"):
        ln.cost.bill("mixnet", prices=table, formula="site")


# --- what a user gives --------------------------------------------------------------------------
@pytest.mark.parametrize("rate", ["400G", "400 G", "400 Gb/s", "0.4T", "400 Gbps", "50 GB/s"])
def test_ways_to_write_a_rate(rate):
    assert total("mixnet", rate=rate) == 5_078_272


@pytest.mark.parametrize(
    "values, line",
    [
        ({"fabric": "mixnt"}, 'cost: "mixnt" is not one of fattree, .*; nearest: mixnet'),
        ({"fabric": 7}, "cost: 7 is not one of"),
        ({"gpus": 1001}, "gpus=1001 is not a multiple of 8.*nearest: 1000, 1008"),
        ({"gpus": 4}, "gpus=4 is not a multiple of 8.*nearest: 8$"),
        ({"gpus": 0}, "gpus=0 is not a whole number from 8"),
        ({"gpus": -8}, "gpus=-8 is not"),
        ({"gpus": 8.0}, r"gpus=8\.0 is not"),
        ({"gpus": True}, "gpus=True is not"),
        ({"gpus": 10**400}, "is not a whole number from 8"),
        ({"alpha": 9}, "alpha=9 is above the 8 NICs of a server"),
        ({"alpha": -1}, "alpha=-1 is not a whole number from 0 to 8"),
        ({"alpha": "6"}, "alpha='6' is not"),
        ({"rate": "300G"}, "rate 300G is not in the published prices; there are 100G, 200G, 400G"),
        ({"rate": "400"}, 'cost: rate: "400" has no unit: write 400G'),
        ({"rate": 400}, "cost: rate: 400 has no unit"),
        ({"rate": "fast"}, 'cost: rate: "fast" is not a rate'),
        ({"formula": "sight"}, 'formula "sight" is not one of textbook, site'),
        ({"fabric": "fattree31", "formula": "site"}, "formula site has no row for fattree31"),
        ({"price": 3}, 'unknown name "price"; nearest: prices'),
    ],
)
def test_bad_values_are_one_line(values, line):
    with pytest.raises(ln.UsageError, match=line) as refused:
        ln.cost.bill(**{"fabric": "mixnet", **values})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "alpha",
    ["", "x", "6..1", "1..", "9", "1..9", "1,,2", "1.5", "-1", [], [1, "2"], None, 2.0, "1" * 5000],
)
def test_bad_alphas(alpha):
    with pytest.raises(ln.UsageError, match="cost: alpha"):
        ln.cost.alphas(alpha)


# --- prices -------------------------------------------------------------------------------------
ROW = {
    "nic": 1000,
    "transceiver": "200.50",
    "electrical_port": 300,
    "ocs_port": 400,
    "panel_port": 50,
    "fibre": 10,
}


def test_prices_from_a_dict_a_json_and_a_csv_file_are_one(tmp_path):
    as_json, as_csv = tmp_path / "p.json", tmp_path / "p.csv"
    as_json.write_text(json.dumps({"1.6T": ROW}))
    as_csv.write_text(
        "﻿rate, nic,transceiver,electrical_port,ocs_port,panel_port,fibre\r\n"
        "1600 Gb/s,1000,200.50,300,400,50,10\r\n\r\n",
        encoding="utf-8",
    )
    found = {
        ln.cost.bill("mixnet", gpus=8, rate="1.6T", prices=source).total
        for source in ({"1600G": ROW}, as_json, str(as_csv))
    }
    # 8 NICs, 18 transceivers, 10 ports, 6 optical ports, 12 fibres
    assert found == {8000 + 3609 + 3000 + 2400 + 120}


def test_the_published_prices_as_a_file_are_the_published_prices(tmp_path):
    (tmp_path / "prices.csv").write_text(ln.cost.PRICES.csv())
    again = ln.cost.prices(tmp_path / "prices.csv")
    assert again.rows() == ln.cost.PRICES.rows() and len(again.rates) == 4
    assert ln.cost.bill("mixnet", prices=again).total == 5_078_272


def test_cents_stay_exact():
    cheap = ln.cost.PRICES.with_part("fibre", "0.01")
    bill = ln.cost.bill("topoopt", gpus=8, prices=cheap)
    assert bill.dollars["fibre"] == 0.08 and bill.cents == 8 * (1499 + 659 + 100) * 100 + 8


@pytest.mark.parametrize(
    "change, line",
    [
        ({"nik": 5}, '"nik" is not a part; there are nic, .*; nearest: nic'),
        ({"nic": -1}, "400G: nic: -1 is negative"),
        ({"nic": "-0.5"}, "negative"),
        ({"nic": "1.234"}, "not whole cents"),
        ({"nic": "1e5"}, "is not a price"),
        ({"nic": float("nan")}, "is not a price"),
        ({"nic": None}, "None is not a price"),
        ({"nic": True}, "True is not a price"),
        ({"nic": [1]}, "is not a price"),
        ({"nic": 10**10}, "more than 10.9 dollars"),
        ({"nic": ""}, "is not a price"),
    ],
)
def test_bad_prices_are_one_line(change, line):
    with pytest.raises(ln.UsageError, match=line) as refused:
        ln.cost.prices({"400G": {**ROW, **change}})
    assert "\n" not in str(refused.value) and str(refused.value).startswith("prices: 400G")


@pytest.mark.parametrize(
    "text, line",
    [
        ("", "no column rate"),
        ("{", "not JSON"),
        ("[1]", "not a table of rates"),
        ("{}", "no rate has a price"),
        ('{"400G": 3}', "400G: 3 is not a table"),
        ('{"400G": {"nic": 1}}', "400G: no price of transceiver, electrical_port"),
        ('{"400": {}}', '"400" has no unit'),
        ('{"400G": {}, "400G": {}}', '"400G" is there twice'),
        ("nic,fibre\n1,2\n", "no column rate"),
        ("rate,nic\n400G\n", "row 2 has 1 cells, the head has 2"),
        ("rate,nic,nic\n400G,1,2\n", 'column "nic" is there twice'),
        ("rate,nic\n", "no rate has a price"),
        ("rate,nic\n400G,\n", "400G: no price of nic, transceiver"),
        ("rate,nic,cable\n400G,1,2\n", '"cable" is not a part'),
        ('rate,nic\n400G,"1\n', "not CSV"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_price_files_are_one_line(tmp_path, text, line):
    file = tmp_path / "prices.txt"
    file.write_text(text)
    with pytest.raises(ln.UsageError, match=line) as refused:
        ln.cost.prices(file)
    assert "\n" not in str(refused.value) and str(file) in str(refused.value)


def test_a_rate_written_in_two_ways_is_there_twice(tmp_path):
    with pytest.raises(ln.UsageError, match="400G is there twice"):
        ln.cost.prices({"400G": ROW, "0.4T": ROW})


def test_price_files_that_are_none(tmp_path):
    for path, line in (
        (tmp_path, "a folder"),
        (tmp_path / "none", "No such file"),
        ("/dev/zero", "not a regular file"),
        ("a\0b", "null byte"),
        ("", "neither a path"),
        (3, "neither a path"),
    ):
        with pytest.raises(ln.UsageError, match=line):
            ln.cost.prices(path)
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(ln.UsageError, match="not UTF-8"):
        ln.cost.prices(tmp_path / "latin")


def test_a_part_without_a_price_is_named():
    with pytest.raises(ln.UsageError, match='"cable" is not a part'):
        ln.cost.PRICES.with_part("cable", 3)
    with pytest.raises(ln.UsageError, match="dac: -3 is negative"):
        ln.cost.PRICES.with_part("dac", -3)


# --- figure -------------------------------------------------------------------------------------
def figure_rows(**more):
    return [
        {
            "model": row["model"],
            "rate": row["rate"],
            "fabric": fabric,
            "published": row["performance_per_dollar"],
            **more,
        }
        for fabric in ("mixnet", "rail", "topoopt")
        for row in ln.cost.performance(fabric)
    ]


def test_published_points_are_hollow_ours_solid_and_blocking_a_bar():
    figure = ln.cost.performance_figure(figure_rows(ours=1.5, blocking=0.1))
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        "Mixtral-8x22B",
        "Mixtral-8x7B",
        "LLaMA-MoE",
        "Qwen-MoE",
    ]
    faces = [line.get_markerfacecolor() for line in panels[0].lines if line.get_marker() != "None"]
    assert faces.count("none") == 3 and len(faces) == 6
    assert sum(len(axes.patches) for axes in figure.axes) == 4 * 3 * 4
    (legend,) = figure.legends
    assert {"published", "ours", "exposed blocking"} <= {t.get_text() for t in legend.get_texts()}


def test_the_figure_needs_neither_ours_nor_blocking(tmp_path):
    figure = ln.cost.performance_figure(figure_rows())
    assert len(figure.axes) == 4
    figure.savefig(tmp_path / "f.png")
    single = ln.cost.performance_figure(
        [{"model": "m", "rate": "1.6T", "fabric": "mine", "ours": 2}]
    )
    assert len(single.axes) == 1


@pytest.mark.parametrize(
    "rows, line",
    [
        ([], "no rows"),
        ([3], "3 needs model, rate and fabric"),
        ([{"model": "m"}], "needs model"),
        ([{"model": "m", "rate": "x", "fabric": "f"}], 'rate: "x" is not a rate'),
        (
            [{"model": "m", "rate": "1G", "fabric": "f", "ours": -1}],
            "ours=-1 is not a number from 0",
        ),
        ([{"model": "m", "rate": "1G", "fabric": "f", "blocking": 2}], "blocking=2 is not a share"),
    ],
)
def test_bad_rows_of_the_figure(rows, line):
    with pytest.raises(ln.UsageError, match=line):
        ln.cost.performance_figure(rows)
