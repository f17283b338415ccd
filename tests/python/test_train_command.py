"""`loomnet train`: seeds to policies, what stops a training and where it goes on, one line for each
mistake. The commands of docs/learning.md and docs/gallery.md about it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pages
import pytest

pytest.importorskip("torch")

import one_torch_thread
import trainings

from loomnet.base.errors import UsageError
from loomnet.cli import main
from loomnet.learning.alarm import Collapse
from loomnet.learning.course import Course, chosen
from loomnet.learning.score_book import ScoreBook
from loomnet.learning.seed_training import SeedTraining, Stopped
from loomnet.learning.training import Training
from loomnet.learning.training_file import load_training
from loomnet.processes.folder import Folder

_core = pytest.importorskip("loomnet._core")


@pytest.fixture(autouse=True)
def one_thread():
    yield from one_torch_thread.alone()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainings.written(tmp_path)
    return tmp_path


def seed_training(here, name, stopping=lambda: False, seed=0, say=None, **values):
    course = Course.of(load_training("tiny.py"), values, [seed], here / name.partition("/")[0])
    plan, folder = course.file.made(values), Folder.at(here / name)
    said = [] if say is None else say
    return SeedTraining(plan, seed, folder, dict(course.about), said.append, stopping)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training of one seed that nothing has stopped, with what the command printed."""
    folder = tmp_path_factory.mktemp("whole")
    trainings.written(folder)
    words = "-m loomnet train tiny.py --set jain=2 --out out --jobs 1".split()
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out", done.stdout


def content(folder):
    return json.loads((folder / "policy.json").read_text())


def test_a_seed_becomes_a_policy_that_runs(whole):
    folder, printed = whole
    made = content(folder / "seed-0")
    policy = (folder / "seed-0" / "policy.astp").read_bytes()
    assert _core.astraea.Policy.from_bytes(policy).inputs == 55
    assert (folder / "chosen.astp").read_bytes() == policy
    assert made["over"] == "bound" and made["updates"] == 100 and made["parameters"]["jain"] == 2
    assert [(each["stage"], each["why"]) for each in made["stages"]] == [
        ("S1", "bound"),
        ("S2", "bound"),
    ]
    assert made["cloned"]["steps"] == 300 and 0 < made["cloned"]["watched"]["score"] <= 1
    looks = [(each["stage"], each["updates"]) for each in made["looks"]]
    assert looks == [("S1", 25), ("S1", 50), ("S2", 50), ("S2", 75), ("S2", 100)]
    best = max(each["watched"]["score"] for each in made["looks"] if "watched" in each)
    assert made["best"]["score"] == best
    assert set(made["selection"]["points"]) == {
        "20Mbps-10ms-1bdp-2flows",
        "20Mbps-20ms-1bdp-2flows",
    }
    # The point that was watched has the same scores in the grid: the policy that is kept is that.
    assert made["selection"]["points"]["20Mbps-10ms-1bdp-2flows"]["score"] == pytest.approx(best)
    result = json.loads((folder / "result.json").read_text())
    assert result["chosen"] == 0 and set(result["beside"]) == {"teacher", "cubic"}
    assert set(result["sealed"]) == {"policies_before", "policy", "teacher"}
    assert re.search(r"^0 +S2 +bound +100 .*seed-0/policy.astp +\*$", printed, re.M), printed
    assert re.search(r"^selection grid: teacher 0\.\d{3}$", printed, re.M)


def test_the_same_command_finds_what_is_done(whole, capsys, monkeypatch):
    folder, printed = whole
    monkeypatch.chdir(folder.parent)
    before = (folder / "seed-0" / "policy.json").read_bytes()
    began = time.monotonic()
    assert main("train tiny.py --set jain=2 --out out --jobs 1".split()) == 0
    assert time.monotonic() - began < 5
    again = capsys.readouterr().out
    assert again.splitlines()[-4:] == printed.splitlines()[-4:]
    assert (folder / "seed-0" / "policy.json").read_bytes() == before


def test_a_training_that_was_stopped_anywhere_is_one_that_was_not(whole, here):
    """It is asked after every slice and every scored link; each time it stops there."""
    stops = 0
    while True:
        asked = 0

        def stopping():
            nonlocal asked
            asked += 1
            return asked > 2

        try:
            made = seed_training(here, "stopped", stopping, jain=2).run()
            break
        except Stopped:
            stops += 1
            assert stops < 40
    assert stops > 3
    unbroken = content(whole[0] / "seed-0")
    for name in ("sha256", "looks", "best", "selection", "cloned", "stages"):
        one, other = (without_minutes(each[name]) for each in (made, unbroken))
        assert one == other, name


def without_minutes(value):
    if isinstance(value, list):
        return [without_minutes(each) for each in value]
    if isinstance(value, dict):
        return {name: without_minutes(each) for name, each in value.items() if name != "minutes"}
    return value


def test_ctrl_c_leaves_a_checkpoint_and_seeds_side_by_side_are_those_alone(whole, here):
    command = [sys.executable, "-m", "loomnet", "train", "tiny.py", "--set", "jain=2"]
    command += ["--seeds", "2", "--jobs", "2", "--out", "two"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for line in process.stdout:
            if "S1, look" in line:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                break
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(60)
    assert process.returncode == 130, out + err
    assert "interrupted; the same command goes on from here: two" in out
    assert "Traceback" not in err
    kept = [each for each in (0, 1) if (here / "two" / f"seed-{each}" / "checkpoint.pt").exists()]
    assert kept
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"seed {kept[0]}: goes on at \d+ updates, S", done.stdout), done.stdout
    same = content(here / "two" / "seed-0")["sha256"] == content(whole[0] / "seed-0")["sha256"]
    assert same, "beside another seed, and after a stop"
    assert content(here / "two" / "seed-1")["sha256"] != content(here / "two" / "seed-0")["sha256"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nothing.py", 'no file "nothing.py"'),
        ("scenario.py", "holds no training, but the scenario demo: loomnet run scenario.py"),
        ("empty.py", "holds no training: decorate a function with @curriculum"),
        ("tiny.py::other", 'has no training "other"'),
        ("tiny.py --set mots=3", 'tiny has no parameter "mots"; nearest: most'),
        ("tiny.py --set most=many", "most"),
        ("tiny.py --set most=3,4", "a training takes one value of each parameter"),
        ("tiny.py --set most=0", "Stage S2: most and held: give 1 or more"),
        ("tiny.py --seeds some", "--seeds some: write a number of seeds, or seeds: 3,5,8"),
        ("tiny.py --seeds 0", "--seeds 0: give 1 to 1000 seeds, each once"),
        ("tiny.py --seeds 3,3", "each once"),
        ("tiny.py --seeds 999999999", "give 1 to 1000 seeds"),
        ("tiny.py --out own", "own/notes.txt is no training's; give another folder with --out"),
        ("tiny.py --out other", "holds another training; give another folder with --out"),
        ("wrong.py", "returned a dict; return a Curriculum"),
    ],
)
def test_a_mistake_is_one_line(words, said, here, capsys):
    (here / "scenario.py").write_text("import loomnet as ln\n@ln.scenario\ndef demo(lab): pass\n")
    (here / "empty.py").write_text("import loomnet\n")
    wrong = "from loomnet.learning import curriculum\n@curriculum\ndef wrong():\n    return {}\n"
    (here / "wrong.py").write_text(wrong)
    for name, file, text in (
        ("own", "notes.txt", "mine"),
        ("other", "training.json", '{"key": "x", "parameters": {}}'),
    ):
        (here / name).mkdir()
        (here / name / file).write_text(text)
    assert main(["train", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error
    assert not (here / "runs").exists() or not list((here / "runs").glob("*/seed-*"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "not a plain file"),
        (lambda path: path.symlink_to(path.parent.parent / "mine"), "symbolic links"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_what_stands_in_the_locks_place_is_neither_waited_for_nor_followed(
    make, said, here, capsys
):
    (here / "out").mkdir()
    make(here / "out" / ".lock")
    assert main("train tiny.py --out out".split()) == 2
    assert said in capsys.readouterr().err
    assert not (here / "mine").exists()


def test_a_folder_of_other_files_is_left_as_it_was(here, capsys):
    (here / "own").mkdir()
    (here / "own" / "notes.txt").write_text("mine")
    assert main("train tiny.py --out own".split()) == 2
    assert [each.name for each in (here / "own").iterdir()] == ["notes.txt"]
    capsys.readouterr()
    # What a process that was killed leaves of its first files is no other's.
    (here / "left").mkdir()
    for name in (".lock", ".training.json.0a1b2c3d"):
        (here / "left" / name).write_text("")
    course = Course.of(load_training("tiny.py"), {}, [0], here / "left")
    with course.held() as folder:
        assert "training.json" in folder.names()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "another"),
        ("selection", None),
        ("selection", {"score": float("nan")}),
        ("selection", 5),
        ("minutes", "many"),
        ("updates", None),
    ],
)
def test_a_side_car_that_does_not_fit_is_one_line(name, value, whole, here):
    shutil.copytree(whole[0], here / "out")
    file = here / "out" / "seed-0" / "policy.json"
    assert seed_training(here, "out/seed-0", jain=2).run()["seed"] == 0
    file.write_text(json.dumps(content(file.parent) | {name: value}))
    with pytest.raises(UsageError, match=r"policy.json does not fit policy.astp beside it"):
        seed_training(here, "out/seed-0", jain=2).run()


def test_scores_that_are_no_numbers_are_a_damaged_book(whole, here):
    shutil.copytree(whole[0], here / "out")
    file = here / "out" / "beside.json"
    for value in (None, float("nan"), "much"):
        book = json.loads((whole[0] / "beside.json").read_text())
        next(iter(book["rows"]["cubic"].values()))["loss"] = value
        file.write_text(json.dumps(book))
        with pytest.raises(UsageError, match=r"beside.json is damaged"):
            ScoreBook(Folder.at(here / "out"), "beside.json")


@pytest.mark.parametrize("cloning", [False, True])
def test_links_on_which_nothing_is_decided_are_one_line(cloning, here):
    text = trainings.FILE.replace('[Flow(), Flow("0.5 s")]', '[Flow("5 s")]')
    trainings.written(here, text)
    with pytest.raises(UsageError, match="a length in which flows that learn come"):
        seed_training(here, "out", cloning=cloning).run()


def test_networks_beyond_numbers_are_one_line(here):
    training = seed_training(here, "out", cloning=False)
    training._start()
    training._training.learner.actor.dense[0].weight.data.fill_(float("nan"))
    with pytest.raises(UsageError, match="seed 0: the networks cannot be a policy any more"):
        training._look()


def test_run_says_what_a_training_is_for(here, capsys):
    assert main(["run", "tiny.py"]) == 2
    assert "tiny.py holds no scenario, but the training tiny: loomnet train tiny.py" in (
        capsys.readouterr().err
    )


def test_what_a_drawn_link_raises_is_the_files_own(here, capsys):
    assert main("train tiny.py --set fails=true --set cloning=false".split()) == 4
    error = capsys.readouterr().err
    assert "KeyError: 'nothing'" in error and "tiny.py" in error and "training.py" not in error


def test_a_damaged_checkpoint_is_one_line(here):
    def stop():
        return True

    with pytest.raises(Stopped):
        seed_training(here, "out", stop, cloning=False).run()
    file = here / "out" / "seed-0"
    course = here / "out"
    kept = (course / "checkpoint.pt").read_bytes()
    for damaged in (kept[: len(kept) // 2], b"", b"\x80\x02cos\nsystem\n(S'true'\ntR."):
        (course / "checkpoint.pt").write_bytes(damaged)
        with pytest.raises(UsageError, match=r"checkpoint.pt is damaged .*seed 0 is trained from"):
            seed_training(here, "out", cloning=False).run()
    (course / "checkpoint.pt").write_bytes(kept)
    with pytest.raises(UsageError, match="it is of another seed"):
        seed_training(here, "out", seed=1, cloning=False).run()
    with pytest.raises(UsageError, match="it is of another training"):
        seed_training(here, "out", cloning=False, most=150).run()
    assert not file.exists()


def test_collapse_by_hand():
    fallen = {"utilisation": 0.04, "floor": 0.95, "low": 0.95}
    alarm = Collapse()
    assert [alarm.rings(fallen) for _ in range(5)] == [False] * 4 + [True]
    for name, value in (("utilisation", 0.06), ("floor", 0.89), ("low", 0.89)):
        alarm = Collapse()
        for _ in range(4):
            assert not alarm.rings(fallen)
        assert not alarm.rings(fallen | {name: value})
        assert not alarm.rings(fallen)


def test_a_training_that_collapses_begins_anew_and_is_given_up(here, monkeypatch):
    """Flows of a first policy that always asks for less, on a link that is long to fill."""
    monkeypatch.setattr("loomnet.learning.seed_training.SLICE", 4)
    seeds = []

    def falling(self, *args, seed=0, **values):
        seeds.append(seed)
        whole(self, *args, seed=seed, **values)
        final = self.learner.actor.dense[-1]
        final.weight.data.zero_()
        final.bias.data.fill_(-5)

    whole = Training.__init__
    monkeypatch.setattr(Training, "__init__", falling)
    said = []
    made = seed_training(here, "out", say=said, cloning=False, falls=True).run()
    assert seeds == [0, 1_000_003, 2_000_006]
    assert made["over"] == "collapse" and made["selection"] is None and made["restarts"] == 2
    assert any("begins anew with another seed" in line for line in said)
    assert said[-1] == "collapse, 3 times: this seed is given up"
    assert chosen([made]) is None
    assert seed_training(here, "out", cloning=False, falls=True).run() == made


def test_the_median_stands_for_a_training():
    def found(*scores):
        return [
            {"seed": k, "selection": None if each is None else {"score": each}}
            for k, each in enumerate(scores)
        ]

    for scores, seed in (
        ((0.5, 0.9, 0.7), 2),
        ((0.9, 0.5), 1),
        ((0.9, 0.5, 0.6, 0.8), 2),
        ((None, 0.4, None), 1),
    ):
        best = chosen(found(*scores))
        assert best is not None and best["seed"] == seed


def test_patience_ends_a_training(here, monkeypatch):
    class Worse(dict):
        left = iter(range(100, 0, -1))

    monkeypatch.setattr(
        "loomnet.learning.seed_training.summary", lambda found: {"score": next(Worse.left) / 100}
    )
    made = seed_training(here, "out", cloning=False, most=1_000, patience=2).run()
    assert made["over"] == "no better score in 2 looks"
    assert made["best"]["updates"] == made["stages"][0]["updates"]


def test_the_pages_training_is_one(here):
    code = pages.python_blocks("docs/learning.md")[-1]
    (here / "mine.py").write_text(code)
    plan = load_training("mine.py").made({"updates": "30"})
    assert plan.updates == 5_030 and [str(each) for each in plan.sealed] == [
        "30Mbps-30ms-2bdp-2flows"
    ]


def test_commands_of_the_pages_name_a_training_and_its_parameters():
    """They take hours; this one takes seconds of the same file."""
    commands = [each for each in pages.all_commands() if "loomnet train " in each]
    assert {command.split()[2] for command in commands} == {
        "scenarios/astraea/train.py",
        "scenarios/astraea/baselines.py::orca",
        "scenarios/astraea/baselines.py::aurora",
    }
    for command in commands:
        target = re.search(r"scenarios/\S+\.py(::\w+)?", command)[0]
        file = load_training(f"{pages.ROOT}/{target}")
        file.made(file.settings(re.findall(r"--set (\S+)", command)))
    file = load_training(pages.ROOT / "scenarios/astraea/train.py")
    for profile in ("ours", "paper"):
        plan = file.made({"profile": profile, "budget": "1"})
        assert plan.updates == 430_000 and len(plan.watched) == 36 and len(plan.selection) == 180
