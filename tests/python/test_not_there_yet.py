"""Public names whose systems are yet to come: each is refused in one line, with exit status 2, and
leaves nothing behind."""

import pytest

import loomnet as ln


def go(job=None, **options):
    fabric = ln.star(hosts=2, rate="1 Gb/s", delay="1 us")
    return ln.run(fabric, job or ln.AllReduce("10 kB"), **options)


REFUSED = {
    "other sums": (
        lambda: ln.AllReduce("1 MB", allreduce="tree"),
        'AllReduce.allreduce: "tree" is not one of ring or ina',
    ),
    "queue pairs": (
        lambda: ln.AllReduce("1 MB", queue_pairs=4),
        "AllReduce: queue_pairs=4 is not supported yet; leave it out",
    ),
    "another model": (lambda: go(model="water"), 'run: model="water" is not a model; there are'),
    "no model": (
        lambda: go(model=5),
        'run: model=5 is not a model; there are "packets" and "fluid"',
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_yet_to_come_is_one_line(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, line = REFUSED[what]
    with pytest.raises(ln.UsageError) as refused:
        call()
    assert line in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.exit_code == 2 and list(tmp_path.iterdir()) == []


def test_what_there_is_is_taken(tmp_path):
    r = go(ln.AllReduce("10 kB", allreduce="ring"), model="packets", directory=tmp_path)
    assert r["errors"] == 0
    with pytest.raises(ln.UsageError, match=r'events: the fabric has no panel; .*: trace="FILE"'):
        r.events  # noqa: B018


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    from loomnet.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "later.py").write_text(
        "import loomnet as ln\n@ln.scenario\ndef later(lab: ln.Lab):\n"
        "    lab.run(ln.star(hosts=2, rate='1 Gb/s', delay='1 us'),\n"
        "            ln.AllReduce('10 kB', queue_pairs=4))\n"
    )
    assert main(["run", "later.py"]) == 2
    assert capsys.readouterr().err == (
        "loomnet: AllReduce: queue_pairs=4 is not supported yet; leave it out\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["later.py"]
