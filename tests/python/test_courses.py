"""scenarios/courses/*.ipynb: every cell runs, without root and in under a minute of processor time,
and shows itself; what the texts say of the figures is true, each sentence with a number in it."""

import json
import math
import resource
import shutil
from collections import defaultdict

import pages
import pytest
from notebooks import ROOT, check_claims, check_clean, code_cells, executed

import loomnet as ln

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("distributed")
COURSES = ROOT / "scenarios" / "courses"


def kept(name):
    return nbformat.read(COURSES / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", ["spraying", "sums", "circuits"])
def test_it_is_kept_short_and_without_outputs(name):
    book = kept(name)
    nbformat.validate(book)
    assert 10 <= len(book.cells) <= 15
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(book))
    assert sum(cell.source.startswith("# your turn") for cell in code_cells(book)) >= 2
    assert f"courses/{name}.ipynb" in (ROOT / "docs" / "notebooks.md").read_text()


def run(name, folder, values):
    """The notebook, executed, and what the expression `values` is in its kernel in the end."""
    book = kept(name)
    ask = nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({values}))")
    book.cells.append(ask)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    executed(book, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert took < 60, took
    [output] = book.cells.pop().outputs
    check_clean(book)
    return book, json.loads(output.text)


def kinds(book, start):
    """Kinds of what the cell that begins so shows, in order."""
    [cell] = [cell for cell in code_cells(book) if cell.source.startswith(start)]
    return [
        next(
            (kind for kind in ("text/html", "image/svg+xml", "image/png") if kind in output.data),
            "text/plain",
        )
        for output in cell.outputs
        if "data" in output
    ]


def near(value, said, digits=1):
    """Whether a text may say so of a value: rounded to so many digits behind the point."""
    return abs(value - said) <= 0.5001 * 10**-digits


SPRAYING = """{
    "counts": fabric.counts, "up": len(ecmp.data.samples.sent),
    "p50": ecmp["slowdown_p50"], "max": ecmp["slowdown_max"], "fct": ecmp["fct_max_s"],
    "use": [[row["time"], row["where"], row["value"]] for row in ecmp.series("link_use")],
    "queue": [[row["where"], row["value"]] for row in ecmp.series("queue")],
    "busy": len(busy), "sprayed": len(sprayed), "spray": spray["slowdown_max"],
    "sweep": found.frame.select("transport", "spines", "slowdown_max").rows(),
    "ecmp_dead": ecmp_dead.iterations.column("length_s"),
    "spray_dead": spray_dead.iterations.column("length_s"),
    "worse": [row.name for row in ln.compare(ecmp_dead, spray_dead) if row.verdict == "worse"],
    "recovery": [r["dead.recovery_s"] for r in (spray_dead, ecmp_dead)],
    "left": spray_dead["dead.expected_capacity"],
    "slowdown": spray_dead["dead.iteration_slowdown"],
    "during": spray_dead["dead.iteration_s"], "before": spray_dead["before.iteration_s"],
}"""


def test_spraying_and_ecmp(tmp_path):
    book, v = run("spraying", tmp_path, SPRAYING)
    assert kinds(book, "import") == ["text/html", "text/html"]
    assert kinds(book, "look") == kinds(book, "busy") == ["image/png"]
    for start in ("spray =", "@ln.scenario", "dead ="):
        assert kinds(book, start) == ["text/html"], start
    assert "<img" in str(book.cells)

    on = [at for at, where, value in v["use"] if where == "p0.leaf3->p0.spine0" and value > 0.5]
    alone = v["fct"] / v["max"]
    idle = [
        value
        for _, where, value in v["use"]
        if where.startswith("p0.leaf3->") and not where.endswith("spine0")
    ]
    worst = defaultdict(list)
    for transport, spines, slowdown in v["sweep"]:
        worst[transport, spines].append(slowdown)
    hosts, switches, _ = v["counts"]
    queues = defaultdict(float)
    for where, value in v["queue"]:
        queues[where] = max(queues[where], value)
    ecmp, spray = ([1e3 * each for each in v[name]] for name in ("ecmp_dead", "spray_dead"))
    check_claims(
        book,
        {
            "The network below has 16 hosts under four switches": (hosts, switches) == (16, 8),
            "every host sends 2 MB to the next host": '("2 MB", shift=1' in str(book.cells),
            "and receives 2 MB": True,
            "1 is the best there is": min(v["p50"], v["max"], v["spray"]) > 1,
            "Half of the flows have a slowdown of at least 1.9, and the slowest has 3.9": 1.9
            <= v["p50"]
            and near(v["max"], 3.9),
            "One link, from leaf 3 to spine 0, is in use for nearly four times as long": 3.6
            < max(on) / alone
            < 4,
            "the hash has put all four flows of leaf 3 on it": max(idle) < 0.05,
            "Its queue is the longest": max(queues, key=queues.__getitem__)
            == "p0.leaf3->p0.spine0",
            "Of the 16 links up, 6 carry no flow at all": (v["up"], v["up"] - v["busy"]) == (16, 6),
            "choose four different ones in 4!/4⁴ = 9 % of all cases": near(
                100 * math.factorial(4) / 4**4, 9, 0
            ),
            "A link stays empty with a chance of (3/4)⁴ = 32 %, which is 5 of 16": near(
                100 * 0.75**4, 32, 0
            )
            and near(16 * 0.75**4, 5, 0),
            "Question 1": True,
            "How often, in ten seeds, is the slowest flow below a slowdown of 2": min(
                worst["roce", 4]
            )
            < 2
            < max(worst["roce", 4]),
            "The slowest flow now has a slowdown of 1.02, and all 16 links up are in use": near(
                v["spray"], 1.02, 2
            )
            and v["sprayed"] == 16,
            "The bars reach from the least to the greatest of five seeds": {
                len(each) for each in worst.values()
            }
            == {5},
            "no way of choosing can do better than a slowdown of 2": min(worst["roce", 2]) > 1.9,
            "spraying is there": 2 < min(worst["mrc", 2]) and max(worst["mrc", 2]) < 2.3,
            "With four spines spraying needs no luck at any seed": max(worst["mrc", 4]) < 1.05,
            "ECMP still has collisions with eight spines": min(worst["roce", 8]) > 1.9,
            "the permutation runs sixteen times": len(ecmp) == len(spray) == 16,
            "After the sixth the link between leaf 0 and spine 0 dies": max(spray[:6])
            < 0.19
            < spray[6],
            "here 1 ms": 'reroute_delay="1 ms"' in str(book.cells),
            "round 7 takes 4.3 s in place of 0.68 ms": near(ecmp[6] / 1e3, 4.3)
            and near(ecmp[5], 0.68, 2),
            "The rounds after it take 0.68 ms as before": all(
                near(each, 0.68, 2) for each in ecmp[7:]
            ),
            "no round takes longer than 0.37 ms": near(max(spray), 0.37, 2),
            "a round takes 0.26 ms in place of 0.18 ms": near(1e3 * v["during"], 0.26, 2)
            and near(1e3 * v["before"], 0.18, 2),
            "which is a factor of 4/3, and measured is 1.4": near(v["during"] / v["before"], 1.4),
            "The comparison calls one number of MRC worse": v["worse"]
            == ["dead.iteration_slowdown"],
            "1.2 ms for MRC, 4.3 s for RoCE": near(1e3 * v["recovery"][0], 1.2)
            and near(v["recovery"][1], 4.3),
            "A round ends with its slowest flow, so this factor counts": max(spray[9:12])
            < 1.1 * 4 / 3 * 1e3 * v["before"]
            < min(spray[7:9]),
            "of all flows together 7/8 of the rate is left": v["left"] == 7 / 8,
            "take 1.4 times as long while the link is dead": near(v["slowdown"], 1.4),
            "Question 2": True,
            'such as "100 us", help RoCE': True,
            "Question 3": True,
        },
    )


SUMS = """{
    "times": {name: r["before.iteration_s"] for name, r in runs.items()},
    "sent": [runs["ring"].data.totals["link h0->p0.leaf0"]["packets"],
             runs["ring"].data.totals["nic h0"]["data_sent"]],
    "roce": ln.run(rack(), ln.AllReduce("4 MB", repeat=5, ranks=4, transport="roce"))
        ["before.iteration_s"],
    "counters": dict(runs["esa"].switch("p0.leaf0").counters),
    "jct": {policy: r["vgg16.jct_s"] for policy, r in shared.items()},
    "shared": {policy: dict(r.switch("p0.leaf0").counters) for policy, r in shared.items()},
    "slots": shared["esa"].pool("p0.leaf0").slots,
    "resnet50": shared["esa"]["resnet50.jct_s"],
    "mean": {job: shared["esa"][f"{job}.slots_mean.p0.leaf0"] for job in ("vgg16", "resnet50")},
    "held": {policy: {job: max(row["held"] for row in r.pool("p0.leaf0") if row["job"] == job)
                      for job in ("vgg16", "resnet50")} for policy, r in shared.items()},
    "sweep": found.frame.select("policy", "pool", "seed", "vgg16_jct").rows(),
}"""


def test_sums_in_switches(tmp_path):
    book, v = run("sums", tmp_path, SUMS)
    assert kinds(book, "import") == ["text/html"] * 3
    assert kinds(book, "def two_jobs") == ["text/html"] * 3
    for start in ("runs =", 'runs["esa"]'):
        assert kinds(book, start) == ["text/html"], start
    assert kinds(book, "@ln.scenario") == ["image/png"]

    ms = {name: 1e3 * value for name, value in v["times"].items()}
    c, jct = v["counters"], {name: 1e3 * value for name, value in v["jct"].items()}
    took = defaultdict(list)
    for policy, pool, _, value in v["sweep"]:
        took[policy, pool].append(value)
    mean = {key: sorted(values)[1] for key, values in took.items()}
    plenty = [mean[policy, "128 KiB"] for policy in ("switchml", "atp", "esa")]
    atp = v["shared"]["atp"]
    bound = 4e6 * 8 / 10e9 * 1e3
    check_claims(
        book,
        {
            "hosts that can finish what the switch does not add": True,
            "parameter servers (ps0, …)": True,
            "each link carries 2 (n - 1)/n times the data": True,
            "with 4 workers 1.5 times 4 MB, with 8 workers 1.75 times": (2 * 3 / 4, 2 * 7 / 8)
            == (1.5, 1.75),
            "4 MB at 10 Gb/s are 3.2 ms": near(bound, 3.2),
            "The switch takes 3.6 ms where 3.2 ms is the bound, which is 13 % more": near(
                ms["esa"], 3.6
            )
            and near(100 * ms["esa"] / bound, 113, 0),
            "packets that hold 1 KiB of data each": True,
            "The ring takes 5.5 ms where 4.8 ms is, 14 % more": near(ms["ring"], 5.5)
            and near(1.5 * bound, 4.8)
            and near(100 * ms["ring"] / bound / 1.5, 114, 0),
            "and 37 % of the packets that h0 sends are acknowledgements and probes": near(
                100 * (1 - v["sent"][1] / v["sent"][0]), 37, 0
            ),
            "the ring takes 5.1 ms, 6 % more": near(1e3 * v["roce"], 5.1)
            and near(100 * 1e3 * v["roce"] / bound / 1.5, 106, 0),
            "the switch is 1.5 times as fast as the ring": near(ms["ring"] / ms["esa"], 1.5),
            "The three policies do not differ here": max(ms["switchml"], ms["atp"], ms["esa"])
            < 1.01 * min(ms.values()),
            "Question 1": True,
            "With 8 workers, how long does the ring take": True,
            "the same 256 numbers": c["claim"] == -(-4_000_000 // (256 * 4)) * 5
            or c["claim"] % 5 == 0,
            "for each claim there are three merges and one complete sum": c["merge"]
            == 3 * c["claim"]
            and c["complete"] == c["claim"],
            "the switch has 16 KiB, which is 15 slots": v["slots"]
            == 15
            == (16 << 10) // (32 + 4 * 256),
            "Compute times differ by up to 20 % between workers": "jitter=0.2" in str(book.cells),
            "SwitchML's two jobs have 6 each, a fixed share, in two sets of 3": set(
                v["held"]["switchml"].values()
            )
            == {6},
            "Under ATP and ESA one job can hold all 15": all(
                max(v["held"][policy].values()) == 15 for policy in ("atp", "esa")
            ),
            "where it holds 0.4 slots on average and resnet50 3.8, and yet it ends first": near(
                v["mean"]["vgg16"], 0.4
            )
            and near(v["mean"]["resnet50"], 3.8)
            and v["jct"]["esa"] < v["resnet50"],
            "vgg16, which has most bytes, takes 14 ms under SwitchML, 25 ms under ATP and 12 ms": (
                near(jct["switchml"], 14, 0) and near(jct["atp"], 25, 0) and near(jct["esa"], 12, 0)
            ),
            "Under ATP five times as many packets collide as sums are completed": near(
                atp["collide"] / atp["complete"], 5, 0
            ),
            "the time of vgg16 with three sizes of memory and three seeds": len(v["sweep"]) == 27,
            "With 128 KiB the three are within 10 % of one another": max(plenty)
            < 1.1 * min(plenty),
            "With 16 KiB ATP takes more than twice ESA's time": mean["atp", "16 KiB"]
            > 2 * mean["esa", "16 KiB"],
            "Question 2": True,
            '(rack("atp", servers=8, …) and servers=4 in ln.ModelJob)': True,
            "Question 3": True,
            "With jitter=0 all workers are in step": True,
        },
    )


def words(page):
    return " ".join((ROOT / "docs" / page).read_text().split())


def test_the_answers_are_what_runs_give(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, text = {}, words("course-answers.md")
    (code,) = pages.python_blocks("docs/course-answers.md")
    exec(code, names)
    assert [seed for seed, worst in enumerate(names["slowest"]) if worst < 2] == [0, 2, 3, 6]
    assert sorted(round(worst, 2) for worst in names["slowest"])[4:] == [2.91] * 5 + [3.86]
    assert "seeds 0 to 9: 0, 2, 3 and 6. At five the slowest has 2.91, at one 3.86" in text
    dead = ln.down("p0.leaf0--p0.spine0", at=ln.step(6), phase="dead")
    soon = ln.run(
        names["fabric"],
        ln.Permutation("2 MB", shift=1, repeat=8, transport="roce"),
        [dead],
        seed=1,
        reroute_delay="100 us",
        write=False,
    )
    assert near(1e3 * soon.iterations[6]["length_s"], 0.86, 2)
    assert 'Round 7 takes 0.86 ms with `"100 us"`' in text
    cells = {cell.source.split("\n")[0]: cell.source for cell in code_cells(kept("sums"))}
    own = {}
    exec(cells["import loomnet as ln"].split("ring_job")[0], own)
    ring, over_roce, switch = (
        ln.run(own["rack"](policy, workers=8), ln.AllReduce("4 MB", repeat=5, ranks=8, **options))
        for policy, options in (
            (None, {}),
            (None, {"transport": "roce"}),
            ("esa", {"allreduce": "ina"}),
        )
    )
    assert near(1e3 * ring["before.iteration_s"], 6.38, 2)
    assert near(1e3 * over_roce["before.iteration_s"], 5.93, 2)
    assert near(1e3 * switch["before.iteration_s"], 3.63, 2)
    assert "The ring 6.38 ms, the switch 3.63 ms" in text and "the ring takes 5.93 ms" in text
    totals = ring.data.totals
    data = totals["nic h0"]["data_sent"] / totals["link h0->p0.leaf0"]["packets"]
    assert near(100 * (1 - data), 37, 0) and "37 % of the packets that h0 sends" in text
    exec(
        cells['def two_jobs(policy, pool="16 KiB", lab=ln):']
        .split("shared =")[0]
        .replace("jitter=0.2", "jitter=0"),
        own,
    )
    r = own["two_jobs"]("esa")
    assert near(1e3 * r["vgg16.jct_s"], 11.0) and near(1e3 * r["resnet50.jct_s"], 13.3)
    assert "| ESA | 11.6, 11.0 | 15.3, 13.3 |" in text
    pool = r.pool("p0.leaf0")
    assert pool.unseen and pool.taken == 20_896 and "20,896 times, each for no time" in text


def test_the_page_for_a_class(tmp_path, monkeypatch, capsys):
    (tmp_path / "scenarios").mkdir()
    shutil.copy(ROOT / "scenarios" / "flap.py", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    (code,) = pages.python_blocks("docs/for-a-class.md")
    exec(code, names := {})
    assert len(names["found"].frame) == 2 and "blip_s" in capsys.readouterr().out


CIRCUITS = """{
    "flows": list(patched.flows), "drops": list(patched.drops), "events": list(patched.events),
    "sweep": dict(found.frame.select("dark", "fct_max_s").rows()),
    "runs": {name: {figure: r[figure] for figure in (
                 "before.iteration_s", "exposed_s", "patches", "circuit_share")}
             for name, r in runs.items()},
    "first": runs["once"].iterations[0]["length_s"],
    "dark_at": min(row["time"] for row in runs["once"].events if row["value"] == "tuning"),
    "later": {name: sum(each.optical_bytes for each in r.experts.rounds[1:]) / sum(
                  each.optical_bytes + each.electrical_bytes for each in r.experts.rounds[1:])
              for name, r in runs.items() if name in ("once", "worthwhile")},
}"""


def again(delay="1 us", **options):
    """The two transfers of the notebook, over links of this delay: seconds and bytes that each
    host gets, and h0's windows towards h1 over time."""
    cells = [cell.source for cell in code_cells(kept("circuits"))]
    own = {"display": lambda *shown: None, "options": options}
    exec(cells[0].replace('delay="1 us"', f'delay="{delay}"'), own)
    run = cells[1].replace("lab.run(fabric, job)", "lab.run(fabric, job, **options)")
    exec(run.split("patched.plot")[0], own)
    r = own["patched"]
    gets = {
        host: [(number * each.bin_ps / 1e12, size) for number, size in enumerate(each.payload)]
        for host, each in r.data.hosts.items()
    }
    windows = [(row["time"], row["value"]) for row in r.series("cwnd", where="h0->h1*")]
    return gets, windows


def test_why_the_transfers_begin_late_and_go_slowly_after_a_patch(tmp_path, monkeypatch):
    """What the notebook says of MRC's probes and window: it waits for three round trips, be they
    of 4 us or of 8."""
    monkeypatch.chdir(tmp_path)
    gets, windows = again(sample="1 us", observe=["cwnd"])
    there = sum(size for at, size in gets[1] if at < 160e-6)
    assert near((2 * 2**20 - there) / 1e3, 381, 0)
    rate = sum(size for at, size in gets[1] if 50e-6 <= at < 150e-6) / 100e-6
    assert near(1e6 * (2 * 2**20 - there) / rate, 33, 0)
    assert near(1e6 * max(at for at, size in gets[1] if size) - 425, 77, 0)
    assert near(max(value for at, value in windows if at < 150e-6) / 1e3, 79, 0)
    assert near(min(value for at, value in windows) / 1e3, 16, 0)
    longer, _ = again("2 us", sample="1 us", observe=["cwnd"])
    begins = [min(at for at, size in each[2] if size) for each in (gets, longer)]
    assert near(1e6 * begins[0], 175 + 3 * 4 + 2, 0) and near(1e6 * begins[1], 175 + 3 * 8 + 4, 0)


def test_optical_circuits(tmp_path):
    book, v = run("circuits", tmp_path, CIRCUITS)
    assert kinds(book, "import") == ["text/html", "image/svg+xml"]
    assert kinds(book, "lab =") == kinds(book, "region =") == kinds(book, "@ln.sc") == ["image/png"]
    assert kinds(book, "display(patched") == ["text/html", "text/html", "image/png"]
    assert kinds(book, "others =") == ["text/html"]

    first, second = v["flows"]
    [drop] = v["drops"]
    status = [
        (1e6 * row["time"], row["value"])
        for row in v["events"]
        if row["where"] == "ocs0 1A" and row["kind"] == "status"
    ]
    tuning = sorted(round(at) for at, value in status if value == "tuning")
    tuned = sorted(round(at) for at, value in status if value == "tuned")
    dark, s = v["sweep"], {name: each["before.iteration_s"] for name, each in v["runs"].items()}
    check_claims(
        book,
        {
            "A circuit joins h0 and h1, another one h2 and h3": True,
            "This panel takes 25 us to change a circuit": [
                b - a for a, b in zip(tuning, tuned, strict=True)
            ]
            == [25, 25],
            "h0 sends 2 MiB to h1 and 2 MiB to h2": first["bytes"] == second["bytes"] == 2 << 20,
            "There is light to h1": first["destination"] == "h1",
            "150 us later the panel is told to join h0 to h2, and at 400 us": tuning == [150, 400],
            "The first patch darkens all four ports for 25 us, and so does the second": len(
                {row["where"] for row in v["events"] if row["value"] == "tuning"}
            )
            == 8,
            "The transfer to h2 waits for its circuit and ends 0.37 ms after the start": near(
                1e3 * (second["start_s"] + second["fct_s"]), 0.37, 2
            ),
            "its slowdown is 2.0": near(second["slowdown"], 2.0),
            "has light for 150 us, none for the next 275 us, and ends after 0.50 ms": tuned[1]
            - tuning[0]
            == 275
            and near(1e3 * first["fct_s"], 0.50, 2),
            "What h1 lacks at 150 us, 381 kB, would take 33 us at the rate before": True,  # again()
            "only when three probes have come back, one after the other, which takes 12 us": True,
            "its window was cut from 79 kB to 16 kB": True,
            "there are 11 of them": (drop["reason"], drop["packets"]) == ("dark", 11),
            "Question 1": True,
            "Published panels take from 7 us to 41 ms for a change": True,
            "1 MiB to a host that is joined 100 us later": True,
            "The first 100 us of the completion time are the wait for the patch": 100e-6
            < dark["1 us"]
            < 220e-6,
            "10 us of dark time cost 4 % more than 1 us": near(
                100 * dark["10 us"] / dark["1 us"], 104, 0
            ),
            "with 1 ms the transfer takes nearly 6 times as long": 5.5
            < dark["1 ms"] / dark["1 us"]
            < 6,
            "MixNet (SIGCOMM 2025) puts six of the eight NICs": "alpha=6" in str(book.cells),
            "Its panel takes 25 ms": True,
            "The job is a small part of Mixtral-8x22B": True,
            "The picture shows only the first 2 s": 'until="2 s"' in str(book.cells),
            "an iteration takes 3.7 s": near(s["never"], 3.7),
            "With circuits that are patched for every layer it takes 2.3 s, although 0.2 s": near(
                s["layer"], 2.3
            )
            and near(v["runs"]["layer"]["exposed_s"], 0.2),
            "patches once and is the fastest here": min(s, key=s.__getitem__) == "worthwhile"
            and v["runs"]["worthwhile"]["patches"] == 1,
            "2.1 s": near(s["worthwhile"], 2.1),
            "second iteration begins, for the traffic of the first one, which takes 3.7 s": (
                near(v["first"], 3.7)
                and near(v["dark_at"], v["first"], 3)
                and v["runs"]["once"]["patches"] == 1
            ),
            "So only 69 % of its bytes go by circuits where worthwhile has 86 %": [
                round(100 * v["runs"][name]["circuit_share"]) for name in ("once", "worthwhile")
            ]
            == [69, 86],
            "from the second iteration on it is 83 % and 86 %": [
                round(100 * v["later"][name]) for name in ("once", "worthwhile")
            ]
            == [83, 86],
            "Question 2": True,
            'Build the region with profile="10 us"': True,
            "Question 3": True,
        },
    )
