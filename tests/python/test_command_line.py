"""What the command line says of itself: the greeting, help that is whole and has examples, the same
names for the same things, and what the shell offers at Tab."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from loomnet.cli import main
from loomnet.cli.commands import app
from loomnet.cli.completion import parameters
from loomnet.cli.help import EXAMPLES, first_sentence

ROOT = typer.main.get_command(app)
SCENARIO = """
    import loomnet as ln

    @ln.scenario
    def {name}(lab: ln.Lab, planes: int = 4, plain: str = "x", *, size: ln.Size = "1 MB"):
        '''{doc}'''
"""


def commands(group=ROOT, words=("loomnet",)):
    """Every command with the words that call it, those of groups too."""
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        yield from (
            [((*words, name), command)] if below is None else commands(command, (*words, name))
        )


COMMANDS = dict(commands())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def write(path, doc="One run.", name="demo"):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = SCENARIO.format(name=name, doc=doc).splitlines()
    path.write_text("\n".join(line[4:] for line in lines))


def shown(words, capfd):
    assert main([*words[1:], "--help"]) == 0
    return capfd.readouterr().out


def test_loomnet_alone_greets_with_three_things_to_do(here, capfd):
    assert main([]) == 0
    out, err = capfd.readouterr()
    assert not err and "Usage" not in out and max(map(len, out.splitlines())) <= 80
    todo = re.findall(r"^  loomnet (\S+)", out, re.MULTILINE)
    assert todo == ["new", "run", "doctor"] and set(todo) <= set(ROOT.commands)
    assert "loomnet --help" in out


def test_the_overview_is_whole(here, capfd):
    text = shown(["loomnet"], capfd)
    assert "..." not in text.partition("Begin:")[2]
    flat = " ".join(text.split()).replace("- ", "-")
    for name, command in ROOT.commands.items():
        sentence = first_sentence(command.help).replace("- ", "-")
        assert f" {name} {sentence}" in flat and sentence.endswith(".")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_is_80_wide_and_says_no_python_types(here, capfd, words):
    text = shown(words, capfd)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0].startswith(f"Usage: {' '.join(words)}")
    assert not re.search(r"<\w+( range)?>|\{|…$", text)
    assert not re.search(
        r"^  [a-z]\w*( |$)", text.partition("Arguments:")[2].partition("Options:")[0], re.MULTILINE
    ), "arguments are upper case"


@pytest.mark.parametrize("words", [w for w in COMMANDS if "ocs" not in w], ids=" ".join)
def test_every_command_shows_examples_that_parse(words, capfd):
    epilog = COMMANDS[words].epilog or ""
    assert epilog.startswith(EXAMPLES)
    lines = epilog.replace("\\\n", " ").splitlines()[1:]
    assert lines
    for line in lines:
        typed = shlex.split(line.partition(" | ")[0].strip().removeprefix("sudo "))
        assert typed[:2] == ["loomnet", words[1]]
        COMMANDS[words].make_context(words[1], typed[2:])  # raises for what does not parse


def test_the_same_thing_has_one_name():
    """Every option and argument of one name has one metavar in all commands, but for sweep, which
    takes several values, and for ocs, which has the grammar of SONiC's switches."""
    seen = {}
    for words, command in COMMANDS.items():
        if "ocs" in words:
            continue
        for parameter in command.params:
            key = "--set" if parameter.name == "setting" else parameter.name
            if (words[1], key) in (("sweep", "--set"), ("cost", "rate")):
                continue
            seen.setdefault(key, set()).add(parameter.metavar)
    assert not {
        key: names
        for key, names in seen.items()
        if len(names) > 1 and key not in ("target", "json_out")
    }
    assert seen["host"] == {"NODE"} and seen["port"] <= {"NODE:PORT", "[NODE:PORT]"}


def test_list_says_whole_sentences(here, capsys):
    write(
        here / "one.py",
        "The first sentence goes on\n        in a second line, to its end. Not this one.",
    )
    write(here / "a_file_with_a_name_longer_than_a_column.py", "Short.")
    (here / "two.py").write_text(
        (here / "one.py").read_text()
        + (here / "one.py").read_text().replace("def demo", "def other").partition("ln\n")[2]
    )
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "one.py The first sentence goes on in a second line, to its end." in flat
    assert "Not this one" not in out
    assert re.search(r"^two.py::demo +The", out, re.MULTILINE) and "two.py::other" in out
    assert re.search(r"^a_file_with_a_name_longer_than_a_column.py$\n +Short\.", out, re.MULTILINE)


def test_list_looks_into_the_folders_of_scenarios(here, capsys):
    write(here / "scenarios" / "top.py")
    write(here / "scenarios" / "inner" / "deep.py")
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "scenarios/top.py" in out and "scenarios/inner/deep.py" in out


def test_list_of_nothing_names_new(here, capsys):
    assert main(["list"]) == 2
    assert "`loomnet new` writes a first one" in capsys.readouterr().err


def test_describe_of_no_file_and_no_fabric_names_the_fabrics(here, capsys):
    assert main(["describe", "h100"]) == 2
    assert (
        "neither a file nor a fabric; fabrics are two_tier, three_tier" in capsys.readouterr().err
    )
    assert main(["describe", "h100.py"]) == 2
    assert 'no file "h100.py"' in capsys.readouterr().err
    assert main(["describe", "two_tier", "--set", "planes=2"]) == 2
    assert "add --set leaves=… --set spines=… --set hosts_per_leaf=…" in capsys.readouterr().err


def test_a_training_script_is_not_run_as_a_scenario(here, capsys):
    (here / "train.py").write_text("open('trained', 'w')")
    assert main(["run", "train.py"]) == 2
    assert 'run by one, as ln.TorchJob("train.py")' in capsys.readouterr().err
    assert not (here / "trained").exists()


# --- Tab ------------------------------------------------------------------------------------------
def offered(here, line):
    """What bash is offered behind `line`."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_LOOMNET_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "loomnet"],
        cwd=here,
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert not done.stderr
    return done.stdout.split()


def test_the_shell_is_offered_commands_values_parameters_and_runs(here):
    write(here / "demo.py")
    (here / "runs" / "demo-1").mkdir(parents=True)
    assert set(offered(here, "loomnet re")) == {"replay"}
    assert offered(here, "loomnet run demo.py --clock l") == ["live"]
    assert offered(here, "loomnet run demo.py --set ") == ["planes=", "plain=", "size="]
    assert offered(here, "loomnet run demo.py --set planes=8 --set s") == ["size="]
    assert offered(here, "loomnet compare ru") == ["runs/demo-1"]
    assert offered(here, "loomnet describe two") == ["two_tier"]
    assert offered(here, "loomnet explain blip") == ["blip_s"]
    assert "--install-completion" in offered(here, "loomnet --inst")


def test_completion_reads_a_scenario_and_never_runs_it(here):
    write(here / "demo.py")
    (here / "demo.py").write_text((here / "demo.py").read_text() + "\nopen('ran', 'w')\n")
    assert parameters("demo.py::demo") == ["planes", "plain", "size"]
    assert parameters("demo.py::other") == [] and parameters("none.py") == []
    (here / "broken.py").write_text("def (")
    assert parameters("broken.py") == [] and not Path("ran").exists()
