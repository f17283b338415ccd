"""Numbers that a switch program in C may get wrong: a port without a link is a counted drop, a
counter that there is not an error with its line; and the times that it is told are those of the
engine's clock."""

import shutil

import pytest

import loomnet as ln
from loomnet.base.errors import PluginError
from loomnet.programs import compiler

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, compiler.ENGINE.compilers)), reason="no C compiler"
)
HEAD = """#define LN_CONTRACT 1
#define LN_COUNTERS(X) X(SEEN, "seen") X(DROP_MINE, "drop_mine")
#define LN_OPTIONS(X) X(n, 0, 0, 1000000, "packets")
#define LN_ROWS 1
#define LN_ROW(FIELD, BYTES) FIELD(ln_u64, first) FIELD(ln_u64, last)
#include <loomnet/switch_program.h>
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                               struct ln_packet* packet, const struct ln_meta* meta) {
"""
FAST = {"timeout_exponent": 4, "retry_count": 0}
FABRIC_HOSTS = 4


def run(tmp_path, body, job=None, **options):
    path = tmp_path / "numbers.c"
    path.write_text(f"{HEAD}{body}\n}}\n")
    fabric = ln.star(hosts=FABRIC_HOSTS, rate="100 Gb/s", delay="1 us")
    fabric.program("*", str(path), **options)
    return ln.run(
        fabric, job or ln.Flows("100 kB", pairs=[(0, 1)], transport="roce"), write=False, roce=FAST
    )


@pytest.mark.parametrize("port", [4, 99, 65_535, 65_536, 65_537, 1_000_000])
def test_a_port_without_a_link_is_a_drop_counted_by_name(tmp_path, port):
    """65,536 and more stay no port's, though a verdict has 16 bits."""
    r = run(tmp_path, "return ln_forward(options->n);", n=port)
    (drop,) = r.drops
    assert (drop["where"], drop["reason"]) == ("switch", "no_device")
    counters = r.switch("p0.leaf0").counters
    assert drop["packets"] == counters["drop_no_device"] == counters["received"] > 40
    assert r.data.fidelity.unexplained == 0 and r["errors"] == 1
    assert not (r.flow_records[0].completion_ps or 0)


def test_a_port_with_a_link_is_none(tmp_path):
    r = run(tmp_path, "return ln_forward(meta->ingress ^ 1);")
    assert not list(r.drops) and r["errors"] == 0


@pytest.mark.parametrize(
    "call",
    [
        "ln_count(host->counters, options->n);",
        "if (options->n) return ln_drop(host->counters, options->n);",
    ],
)
def test_a_counter_that_is_none_ends_the_run_with_its_line(tmp_path, call):
    body = f"\n{call}\nreturn ln_route(host, packet);"
    for number in (18, 19, 4_000, 1_000_000):
        with pytest.raises(PluginError) as error:
            run(tmp_path, body, n=number)
        said = str(error.value)
        assert f"the switch program gave {number} to ln_count or ln_drop, which is the" in said
        assert "\n" not in said
        if shutil.which("addr2line"):
            assert "numbers.c:10: " in said, said
    # The last of its own; forward's, which come first, number 16.
    r = run(
        tmp_path, "\nln_count(host->counters, options->n);\nreturn ln_route(host, packet);", n=17
    )
    assert r["errors"] == 0 and r.switch("p0.leaf0").counters["drop_mine"] > 40


@pytest.mark.parametrize(
    "call", ["ln_count(host->counters, 4000);", "return ln_drop(host->counters, 18);"]
)
def test_a_constant_that_is_no_counter_does_not_compile(tmp_path, call):
    with pytest.raises(ln.UsageError, match=r"numbers\.c:10:.*no such counter") as error:
        run(tmp_path, f"\n{call}\nreturn ln_route(host, packet);")
    assert "ln_count and ln_drop take the symbols of LN_COUNTERS" in str(error.value)


TIMES = """
  struct ln_row* row = ln_row(host->state, 0);
  if (!row) return ln_route(host, packet);
  if (packet->length > 1000) {
    if (!row->first) row->first = meta->now;
    row->last = meta->now;
  }
  return ln_route(host, packet);"""


@pytest.mark.parametrize("start", ["0 s", "3 ms"])
def test_times_of_plug_ins_programs_and_results_are_one_clock(tmp_path, start):
    seen = []

    @ln.plugin.congestion("tells_time")
    class TellsTime(ln.plugin.Congestion):
        def on_ack(self, ack):
            seen.append(ack.now_ps)

    path = tmp_path / "times.c"
    path.write_text(f"{HEAD}{TIMES}\n}}\n")
    fabric = ln.star(hosts=2, rate="100 Gb/s", delay="1 us")
    fabric.program("*", str(path))
    r = ln.run(
        fabric,
        ln.Flows("1 MB", pairs=[(0, 1)], transport="roce", starts=[start]),
        write=False,
        roce={"cc": "tells_time"},
    )
    (flow,) = r.flow_records
    began, ended = flow.start_ps, flow.start_ps + flow.completion_ps
    assert r.time_zero_ps > 0 and (began > 0) == (start != "0 s")
    acks = [at - r.time_zero_ps for at in seen]
    assert began + 4 * 10**6 < acks[0] and acks[-1] == ended  # 4 us there and back, at least
    (row,) = r.switch("p0.leaf0").snapshot()["rows"]
    # The first packet of 2,142 bytes and Ethernet's 24 more takes 173 ns, and the link 1 us.
    assert row["first"] - r.time_zero_ps == pytest.approx(began + 1_173_000, abs=1_000)
    assert began < row["last"] - r.time_zero_ps < ended
