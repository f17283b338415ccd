"""Refusals that name what was meant: units, shares, lists, the options of a user's control."""

import sys
from typing import ClassVar

import pytest

import loomnet as ln

FABRIC = ln.star(hosts=3, rate="10 Gb/s", delay="1 us")
FLOWS = ln.Flows("10 kB", pairs=[(0, 1)], transport="roce")


@pytest.fixture(scope="module", autouse=True)
def control():
    @ln.plugin.congestion("refusals_demo")
    class Demo(ln.plugin.Congestion):
        options: ClassVar[dict] = {"target_us": 30.0, "beta": 0.8}

    return Demo


def run(**options):
    return ln.run(FABRIC, FLOWS, write=False, **options)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: ln.Time("5"),
            'time "5" has no unit: write one of ps, ns, us, ms, s, min, h behind',
        ),
        (lambda: ln.Time("5 sec"), 'unknown unit "sec".*; units are ps, ns, us, ms, s, min, h'),
        (
            lambda: ln.Time(5),
            "5 has no unit: .* with one of ps, ns, us, ms, s, min, h, for example",
        ),
        (lambda: ln.Flows("websearch", load=50), "Flows.load: 50 must be a share .*: 0.5 is 50 %"),
        (lambda: ln.Flows("websearch", load="50%"), "Flows.load: '50%' must be a share"),
        (
            lambda: ln.TorchJob("train.py", args="--steps=3 -v", ranks=2),
            r"TorchJob.args: '--steps=3 -v' is one text; write a list of texts, "
            r"as \['--steps=3', '-v'\]",
        ),
        (lambda: ln.check_plugin("refusals_demo"), "is a name; give the class itself"),
        (lambda: run(roce={"cc": "dcqnc"}), "roce: cc: no control dcqnc; nearest: dcqcn"),
        (
            lambda: run(roce={"cc": "refusals_demo", "target": 3}),
            "no option target; nearest: target_us, .*; there are target_us, beta, ",
        ),
        (
            lambda: run(roce={"cc": "refusals_demo", "target_us": "30 us"}),
            "target_us='30 us' must be a number, as its default 30.0 is",
        ),
    ],
)
def test_what_was_meant_is_named(make, said):
    with pytest.raises(ln.UsageError, match=said):
        make()


def test_options_of_a_transport_without_a_job_are_noted(capsys):
    ln.run(
        FABRIC,
        ln.Flows("10 kB", pairs=[(0, 1)], transport="mrc"),
        write=False,
        roce={"cc": "dcqcn"},
    )
    assert (
        "note: no job uses roce, so its options have no effect: the run is over mrc"
        in capsys.readouterr().err
    )
    run(roce={"cc": "dcqcn"})
    assert "no job uses" not in capsys.readouterr().err


PROGRAM = """
#define LN_CONTRACT 1
#define LN_SUMMARY "waits"
#define LN_OPTIONS(X) X(gap, 10000000, 0, 1000000000000, "ps")
#include <loomnet/switch_program.h>
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                               struct ln_packet* packet, const struct ln_meta* meta) {
  (void)options, (void)meta;
  struct ln_verdict verdict = ln_route(host, packet);
  return verdict.action == LN_FORWARD ? ln_forward(verdict.value) : verdict;
}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="compiles for Linux")
def test_options_of_a_c_program_have_units(tmp_path):
    (tmp_path / "waits.c").write_text(PROGRAM)
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    file = str(tmp_path / "waits.c")
    with pytest.raises(ln.UsageError, match=r"gap: 5 has no unit"):
        fabric.program("*", file, gap=5)
    with pytest.raises(ln.UsageError, match="gap: must be 0 ps to 1 s, not 2 s"):
        fabric.program("*", file, gap="2 s")
    # The verdict of ln_route has the fields that docs/switch-programs.md names.
    r = ln.run(
        fabric.program("*", file, gap="5 us"), ln.Flows("10 kB", pairs=[(0, 1)]), write=False
    )
    assert r["unfinished"] == 0
