"""A training with several seeds in one folder, of which a policy is chosen, and judged. Needs
PyTorch."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json, user_path
from loomnet.base.table import Table
from loomnet.base.version import version
from loomnet.labs.typed_function import plain
from loomnet.learning.grid import Found, mean_score, summary
from loomnet.learning.score_book import ScoreBook, digest
from loomnet.learning.seed_training import POLICY, SeedTraining
from loomnet.learning.stages import Curriculum
from loomnet.learning.training_file import TrainingFile
from loomnet.processes.folder import Folder
from loomnet.processes.inputs import build
from loomnet.results.run_directory import RUNS

INDEX, RESULT, CHOSEN, LOCK = "training.json", "result.json", "chosen.astp", ".lock"
BESIDE, SEALED = "beside.json", "sealed.json"
TRAINING_VERSION = 1


@dataclass(frozen=True)
class Course:
    """A training of a file, with its parameters and seeds, in a folder.

    Attributes:
        key: of the text of the file and its modules, and of the parameters: a folder has one.
    """

    file: TrainingFile
    values: Mapping[str, Any]
    seeds: Sequence[int]
    folder: Path
    key: str
    about: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        file: TrainingFile,
        values: Mapping[str, Any],
        seeds: Sequence[int],
        out: str | Path | None = None,
    ) -> Course:
        """`out`: the folder; None: one below runs/ which the same training finds again. Raises
        UsageError."""
        parameters = plain(file.validate(dict(values)))
        made = hashlib.sha256(file.source().encode())
        modules = {} if file.modules is None else file.modules.sources()
        for name in sorted(modules):
            made.update(name.encode() + b"\0" + hashlib.sha256(modules[name]).digest())
        made.update(json.dumps([file.name, parameters], sort_keys=True).encode())
        key = made.hexdigest()[:24]
        plain_name = re.sub(r"[^A-Za-z0-9_.]+", "_", file.name)[:80]
        folder = Path(RUNS) / f"train-{plain_name}-{key[:10]}"
        if out is not None:
            folder = user_path("train: --out", out)
        about = {
            "training_version": TRAINING_VERSION,
            "training": file.name,
            "file": file.file.name if file.file else None,
            "parameters": parameters,
            "key": key,
            "loomnet": version(),
            "build": build(),
            "git": _revision(),
            "torch": torch.__version__,
        }
        return cls(file, values, tuple(seeds), folder, key, about)

    @contextlib.contextmanager
    def held(self) -> Iterator[Folder]:
        """The folder, for one process at a time. Raises UsageError where another one works in it,
        or where it is another training's."""
        folder = Folder.at(self.folder)
        self._of_this_training(folder)  # before a file is made in it
        try:
            lock = folder.lock(LOCK)
        except OSError as error:
            raise UsageError(f"train: --out: {folder / LOCK}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"train: another one works in {self.folder}; wait, or use --out"
                ) from None
            self._of_this_training(folder)  # of what another one has written in between
            folder.write(INDEX, json.dumps({**self.about}, indent=1) + "\n")
            yield folder

    def _of_this_training(self, folder: Folder) -> None:
        """Raises UsageError where the folder holds another training, or other files."""
        names = folder.names()
        if INDEX in names:
            try:
                content = parse_json(folder.read(INDEX), INDEX)
                other, parameters = content["key"], content["parameters"]
            except (OSError, UsageError, KeyError, TypeError):
                raise UsageError(
                    f"train: {folder / INDEX} is damaged; give another folder with --out"
                ) from None
            if other != self.key:
                same = parameters == self.about["parameters"]
                raise UsageError(
                    f"train: {folder.path} holds "
                    f"{'a training by another text of the file' if same else 'another training'}; "
                    "give another folder with --out, or leave it out"
                )
        elif left := [each for each in names if not each.startswith((LOCK, f".{INDEX}."))]:
            raise UsageError(
                f"train: {folder / left[0]} is no training's; give another folder with --out"
            )

    def train(
        self,
        seed: int,
        folder: Folder,
        say: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> dict[str, Any]:
        """One seed to its end: the side-car's content. PyTorch computes on one thread."""
        torch.set_num_threads(1)
        return SeedTraining(
            self.file.made(self.values),
            seed,
            folder.folder(f"seed-{seed}"),
            dict(self.about),
            say,
            stopping,
        ).run()


def chosen(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The side-car of the policy that stands for a training: of the seeds that have a policy, by
    their means on the selection grid, the one in the middle, of two in the middle the lower."""
    able = sorted(
        (each for each in found if each["selection"] is not None),
        key=lambda each: each["selection"]["score"],
    )
    return able[(len(able) - 1) // 2] if able else None


def judge(
    course: Course,
    plan: Curriculum,
    folder: Folder,
    found: Sequence[Mapping[str, Any]],
    *,
    jobs: int,
    say: Callable[[str], None],
    watch: Callable[[int], None],
) -> dict[str, Any]:
    """Scores what is beside the policies, chooses one, and scores that on the sealed grid, once:
    what was scored there before stays in the result. Writes result.json and chosen.astp."""
    best = chosen(found)
    scores = [each["selection"]["score"] for each in found if each["selection"] is not None]
    content: dict[str, Any] = {
        **course.about,
        "seeds": [each["seed"] for each in found],
        "selection": {str(each["seed"]): _score(each) for each in found},
        "median": statistics.median(scores) if scores else None,
        "spread": [min(scores), max(scores)] if scores else None,
        "chosen": None if best is None else best["seed"],
        "beside": {},
        "sealed": {},
    }
    book = ScoreBook(folder, BESIDE)
    for control in plan.beside:
        say(f"scores {control} on the selection grid")
        there = book.of(control, plan.selection, plan.tcp, jobs=jobs, watch=watch)
        content["beside"][control] = {"score": mean_score(there), "means": summary(there)}
    if best is not None:
        policy = folder.folder(f"seed-{best['seed']}").read(POLICY)
        folder.write(CHOSEN, policy)
        if plan.sealed:
            content["sealed"] = _sealed(plan, folder, policy, jobs, say, watch)
    folder.write(RESULT, json.dumps(content, indent=1) + "\n")
    return content


def _sealed(
    plan: Curriculum,
    folder: Folder,
    policy: bytes,
    jobs: int,
    say: Callable[[str], None],
    watch: Callable[[int], None],
) -> dict[str, Any]:
    book = ScoreBook(folder, SEALED)
    mine = f"policy-{digest(policy)[:16]}"
    before = [each for each in book.controls() if each.startswith("policy-") and each != mine]
    content: dict[str, Any] = {"policies_before": before}
    for control in (policy, *plan.judged):
        name = "policy" if isinstance(control, bytes) else control
        say(f"scores {name} on the sealed grid, {len(plan.sealed)} points")
        found = book.of(control, plan.sealed, plan.tcp, jobs=jobs, watch=watch)
        within: Found = {p: each for p, each in found.items() if plan.ranges.holds(p)}
        beyond: Found = {p: each for p, each in found.items() if p not in within}
        content[name] = {
            part: {"score": mean_score(those), "means": summary(those)}
            for part, those in (("within", within), ("beyond", beyond))
            if any(p.counts for p in those)
        }
    return content


def _score(each: Mapping[str, Any]) -> float | None:
    return None if each["selection"] is None else each["selection"]["score"]


def table(course: Course, found: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each seed."""
    best = chosen(found)
    return Table(
        ("seed", "stage", "ended", "updates", "minutes", "score", "policy", "chosen"),
        [
            {
                "seed": each["seed"],
                "stage": each["stage"],
                "ended": each["over"],
                "updates": f"{each['updates']:,}",
                "minutes": f"{each['minutes']:.1f}",
                "score": "none" if _score(each) is None else f"{_score(each):.3f}",
                "policy": f"{course.folder}/seed-{each['seed']}/{POLICY}"
                if each["selection"]
                else "none",
                "chosen": "*" if each is best else "",
            }
            for each in found
        ],
    )


def _revision() -> str | None:
    """Of the clone that Loomnet is used from; None without one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
