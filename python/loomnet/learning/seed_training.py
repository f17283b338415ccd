"""The training of one seed, stage by stage, in a folder where it goes on after any end. Needs
PyTorch."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import loomnet._core as _core
from loomnet.base.errors import UsageError
from loomnet.base.reading import parse_json
from loomnet.labs.typed_function import called
from loomnet.learning.alarm import Collapse
from loomnet.learning.cloning import Cloned, clone
from loomnet.learning.grid import mean_score, score, summary
from loomnet.learning.measured import control_of, measured
from loomnet.learning.score_book import ScoreBook, digest
from loomnet.learning.scores import Scores
from loomnet.learning.stages import BOUNDS, Curriculum, Stage
from loomnet.learning.training import Training
from loomnet.processes.folder import Folder

CHECKPOINT, BOOK, POLICY, SIDECAR = "checkpoint.pt", "selection.json", "policy.astp", "policy.json"
CHECKPOINT_VERSION = 2
SLICE = 100  # updates between two looks at the keyboard, the clock and the alarm
CHECKPOINT_S, TOLD_S = 300.0, 60.0
MOST_RESTARTS = 2  # with new seeds, after collapses
APART = 1_000_003  # between a seed and the one in its place after a collapse
HELD_SEED = 2**21  # of the generators of bottlenecks that are not learned from
MOST_CHECKPOINT = 2 << 30


class Stopped(KeyboardInterrupt):
    """Where a training stands at a place from which it can go on."""


class SeedTraining:
    """One seed's course through a curriculum. run() ends with policy.astp and policy.json.

    Args:
        about: what the side-car says of the training besides.
        say: is told a line now and then.
        stopping: whether the training is to stop, which is asked often; then a checkpoint is
            written, and run() raises Stopped.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        seed: int,
        folder: Folder,
        about: dict[str, Any],
        say: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._plan, self.seed, self._folder, self._about = curriculum, seed, folder, about
        self._say, self._stopping = say, stopping
        self._state: dict[str, Any] = {
            "stage": 0,
            "began": 0,  # updates when the stage did
            "next": 0,  # updates at which the policy is looked at
            "restarts": 0,
            "cloned": None,
            "looks": [],
            "ended": [],  # stages, with why and when
            "best": None,  # score and updates
            "worse": 0,  # looks since then
            "alarm": 0,
            "seconds": 0.0,
            "over": None,  # why the training has ended
        }
        self._best: bytes | None = None
        self._training: Training | None = None
        self._since = self._told = self._kept = time.monotonic()
        self._begin = (0, 0.0)  # updates and seconds of this process's begin

    def run(self) -> dict[str, Any]:
        """Goes on where the folder's checkpoint is, to the end; the side-car's content."""
        if {POLICY, SIDECAR} <= set(self._folder.names()):
            return self._finished()
        self._resume()
        self._since = self._told = self._kept = time.monotonic()
        self._begin = (self._updates, self._state["seconds"])
        try:
            if self._training is None:
                self._start()
            while self._state["over"] is None:
                self._advance()
            self._save()
            return self._finish()
        except Stopped:
            self._save()
            raise

    def _check(self) -> None:
        if self._stopping():
            raise Stopped

    # --- stages -----------------------------------------------------------------------------------
    @property
    def _stage(self) -> Stage:
        return self._plan.stages[self._state["stage"]]

    @property
    def _last(self) -> bool:
        return self._state["stage"] == len(self._plan.stages) - 1

    @property
    def _updates(self) -> int:
        return 0 if self._training is None else self._training.learner.updates

    def _made(self) -> Training:
        plan = self._plan
        return Training(
            self._stage.draw,
            flows=plan.flows,
            constants=plan.constants,
            pace=plan.pace,
            reward=plan.reward,
            seed=self.seed + APART * self._state["restarts"],
        )

    def _start(self) -> None:
        training = self._made()
        if self._plan.cloning is not None:
            found = clone(
                training.learner,
                self._plan.cloning,
                flows=self._plan.flows,
                tcp=self._plan.tcp,
                seed=self.seed + APART * self._state["restarts"],
                watch=self._cloned,
            )
            training.learner.stay_near()
            self._state["cloned"] = {"error": found.error, "steps": found.steps}
            below = "below" if found.error < self._plan.cloning.below else "not below"
            self._say(
                f"S0 ends after {found.steps:,} steps: error {found.error:.4f}, {below} "
                f"{self._plan.cloning.below:g}"
            )
        self._training = training
        self._state["next"] = self._first_look()
        self._save()

    def _first_look(self) -> int:
        """Of the stage that begins now: where the policy is chosen, at once."""
        return self._updates + (0 if self._last else min(self._plan.looks, self._stage.most))

    def _cloned(self, found: Cloned) -> None:
        self._check()
        self._say(f"S0: {found.steps:,} steps, error {found.error:.4f}")

    def _advance(self) -> None:
        """A slice of updates, or what is due between two of them."""
        assert self._training is not None
        state, stage = self._state, self._stage
        if state["cloned"] is not None and "watched" not in state["cloned"]:
            found = self._watched()
            state["cloned"]["watched"] = found
            self._say(f"cloned: score {found['score']:.3f}")
        if self._updates >= state["next"]:  # of what was interrupted, too
            end = state["began"] + stage.most
            why = self._look() or ("bound" if self._updates >= end else None)
            if why is not None:
                return self._leave(why)
            state["next"] = min(self._updates + self._plan.looks, end)
        told = self._training.go_on(min(SLICE, state["next"] - self._updates))
        self._progress(told)
        collapse = Collapse(state["alarm"])
        if collapse.rings(told):
            return self._collapsed()
        state["alarm"] = collapse.running
        if time.monotonic() - self._kept > CHECKPOINT_S:
            self._save()
        self._check()

    def _leave(self, why: str) -> None:
        assert self._training is not None
        state = self._state
        minutes = round(self._seconds() / 60, 2)
        state["ended"].append(
            {"stage": self._stage.name, "why": why, "updates": self._updates, "minutes": minutes}
        )
        self._say(f"{self._stage.name} ends after {self._updates:,} updates: {why}")
        if self._last:
            state["over"] = why
            return
        state["stage"], state["began"] = state["stage"] + 1, self._updates
        self._training.change(self._stage.draw)
        state["next"] = self._first_look()

    def _collapsed(self) -> None:
        state = self._state
        if state["restarts"] == MOST_RESTARTS:
            state["over"] = "collapse"
            self._say(f"collapse, {MOST_RESTARTS + 1} times: this seed is given up")
            return
        self._say("collapse: flows stand at their least windows; begins anew with another seed")
        state |= {"restarts": state["restarts"] + 1, "stage": 0, "began": 0, "alarm": 0}
        state |= {"best": None, "worse": 0}
        state["ended"].append({"stage": "", "why": "collapse", "updates": self._updates})
        self._best, self._training = None, None
        self._start()

    # --- looks ------------------------------------------------------------------------------------
    def _look(self) -> str | None:
        """Scores the policy; why the stage is over, if it is."""
        state, stage = self._state, self._stage
        row: dict[str, Any] = {"stage": stage.name, "updates": self._updates}
        why = None
        if stage.leave:
            found = self._held()
            row["held"] = found
            if all(found[name] >= least for name, least in stage.leave.items()):
                why = "reached"
            shown = [
                f"{name} {found[name]:.3f} (to reach: {least:g})"
                for name, least in stage.leave.items()
            ]
            self._say(f"{stage.name}, look at {self._updates:,} updates: {', '.join(shown)}")
        if self._last:
            row["watched"] = self._watched()
            reached = row["watched"]["score"]
            if state["best"] is None or reached > state["best"]["score"]:
                state["best"] = {"score": reached, "updates": self._updates}
                state["worse"], self._best = 0, self._policy().to_bytes()
            else:
                state["worse"] += 1
            best = state["best"]
            self._say(
                f"{stage.name}, look at {self._updates:,} updates: score {reached:.3f}, best "
                f"{best['score']:.3f} at {best['updates']:,}"
            )
            if state["worse"] >= self._plan.patience:
                why = f"no better score in {self._plan.patience} looks"
        row["minutes"] = round(self._seconds() / 60, 2)
        state["looks"].append(row)
        return why

    def _held(self) -> dict[str, float]:
        """Means of BOUNDS over bottlenecks of the stage that are not learned from."""
        control, found = control_of(self._policy(), self._plan.tcp), list[Scores]()
        for number in range(self._stage.held):
            link = called(self._stage.draw, np.random.default_rng((HELD_SEED, number)))
            found.append(measured(link, control, seed=number))
            self._check()
        return {name: float(np.mean([getattr(each, name) for each in found])) for name in BOUNDS}

    def _watched(self) -> dict[str, Any]:
        found = {}
        for point, each in score(self._plan.watched, self._policy().to_bytes(), self._plan.tcp):
            found[point] = each
            self._check()
        return summary(found)

    def _policy(self) -> Any:
        """Raises UsageError where learning has gone beyond numbers."""
        assert self._training is not None
        try:
            return self._training.policy()
        except ValueError as error:
            raise UsageError(
                f"seed {self.seed}: the networks cannot be a policy any more ({error}); lower the "
                "rates of Td3, and train in another folder"
            ) from None

    # --- the end ----------------------------------------------------------------------------------
    def _finish(self) -> dict[str, Any]:
        """Scores the best policy on the whole grid, and writes it with its side-car."""
        state, plan = self._state, self._plan
        policy = self._best
        content = {
            **self._about,
            "seed": self.seed,
            "restarts": state["restarts"],
            "over": state["over"],
            "stage": self._stage.name,
            "stages": state["ended"],
            "cloned": state["cloned"],
            "updates": self._updates,
            "decisions": self._training.decisions if self._training else 0,
            "minutes": round(self._seconds() / 60, 2),
            "best": state["best"],
            "looks": state["looks"],
            "selection": None,
            "sha256": None,
        }
        if policy is not None:
            book = ScoreBook(self._folder, BOOK)
            count = len(plan.selection)
            self._say(f"scores its policy on the whole selection grid, {count} points")
            found = book.of(policy, plan.selection, plan.tcp, watch=lambda done: self._check())
            content["selection"] = {
                "score": mean_score(found),
                "means": summary(found),
                "points": {str(point): each.row() for point, each in found.items()},
            }
            content["sha256"] = digest(policy)
            self._folder.write(POLICY, policy)
        else:
            self._folder.write(POLICY, b"")
        self._folder.write(SIDECAR, json.dumps(content, indent=1) + "\n")
        return content

    def _finished(self) -> dict[str, Any]:
        """The side-car of a training that is over. Raises UsageError."""
        try:
            content = parse_json(self._folder.read(SIDECAR), SIDECAR)
            policy = self._folder.read(POLICY)
            if content["key"] != self._about["key"]:
                raise ValueError("it is of another training")
            told = content["sha256"] if policy else content["selection"]
            if content["seed"] != self.seed or told != (digest(policy) if policy else None):
                raise ValueError("it is of another policy")
            if policy:
                _core.astraea.Policy.from_bytes(policy)
                if not math.isfinite(content["selection"]["score"]):
                    raise ValueError("its score is no number")
            for name, kind in (("stage", str), ("over", str), ("updates", int), ("minutes", float)):
                if not isinstance(content[name], kind):
                    raise ValueError(f"{name} is a {type(content[name]).__name__}")
        except (OSError, UsageError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{self._folder / SIDECAR} does not fit {POLICY} beside it ({error}); remove both, "
                "and they are written again"
            ) from None
        return content

    # --- time, checkpoints ------------------------------------------------------------------------
    def _seconds(self) -> float:
        """Of the training so far, over all processes that have had it."""
        now = time.monotonic()
        self._state["seconds"] += now - self._since
        self._since = now
        return self._state["seconds"]

    def _progress(self, told: dict[str, float]) -> None:
        if time.monotonic() - self._told < TOLD_S:
            return
        assert self._training is not None
        self._told = time.monotonic()
        seconds, (updates, before) = self._seconds(), self._begin
        each = (seconds - before) / max(self._updates - updates, 1)
        left = (self._plan.updates - self._updates) * each / 60
        self._say(
            f"{self._stage.name}: {self._updates:,} updates, {self._training.decisions:,} "
            f"decisions, reward {told['reward']:.3f}; {seconds / 60:.1f} min, at most {left:.0f} "
            "left"
        )

    def _save(self) -> None:
        if self._training is None:  # it has not been cloned yet, which takes a minute or two
            return
        self._seconds()
        best = np.frombuffer(self._best or b"", np.uint8)
        file = io.BytesIO()
        torch.save(
            {
                "version": CHECKPOINT_VERSION,
                "key": self._about["key"],
                "seed": self.seed,
                "state": json.dumps(self._state),
                "best": torch.from_numpy(best.copy()),
                "training": self._training.state_dict(),
            },
            file,
        )
        self._folder.write(CHECKPOINT, file.getvalue())
        self._kept = time.monotonic()

    def _resume(self) -> None:
        """Raises UsageError for a checkpoint that is damaged, or not of this training."""
        if CHECKPOINT not in self._folder.names():
            return
        try:
            file = io.BytesIO(self._folder.read(CHECKPOINT, MOST_CHECKPOINT))
            kept = torch.load(file, weights_only=True)
            if kept["version"] != CHECKPOINT_VERSION or kept["key"] != self._about["key"]:
                raise ValueError("it is of another training")
            if kept["seed"] != self.seed:
                raise ValueError("it is of another seed")
            state = json.loads(kept["state"])
            if state.keys() != self._state.keys():
                raise ValueError("its state has other entries")
            self._state = state
            self._best = kept["best"].numpy().tobytes() or None
            self._training = self._made()
            self._training.load_state_dict(kept["training"])
        except UsageError:
            raise
        except Exception as error:  # what a hostile file makes torch.load() raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(
                f"{self._folder / CHECKPOINT} is damaged ({reason[:200]}); remove it, and seed "
                f"{self.seed} is trained from its begin"
            ) from None
        self._say(f"goes on at {self._updates:,} updates, {self._stage.name}")
