"""A scenario is a decorated function; its typed signature is the only list of its parameters."""

from __future__ import annotations

import contextlib
import html
import inspect
import re
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from loomnet.base.arguments import checked_call
from loomnet.base.errors import LoomnetError, UsageError, WallTimeError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.notebook import in_notebook
from loomnet.base.reading import MOST_SOURCE, decoded, is_file, read_bytes
from loomnet.base.spec import one_line
from loomnet.base.table import Table
from loomnet.base.wall_time import WallTime, WallTimeOver, importing
from loomnet.labs.lab import Lab
from loomnet.labs.own_modules import modules_beside, own_modules_of
from loomnet.labs.scenario_file import check_file, check_text, import_file
from loomnet.measures.rows import check_plain
from loomnet.processes.inputs import Inputs
from loomnet.programs.c_file import homes
from loomnet.results.report import Report
from loomnet.running.record import Record

_RUN_OPTIONS = (
    "seed",
    "clock",
    "directory",
    "max_wall_s",
    "runner",
    "replay_gaps",
    "replay_faults",
    "say",
    "on_progress",
    "base",
    "record",
)
_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Parameter:
    """One parameter as the signature states it."""

    name: str
    type: str
    default: str | None  # None: required


class Scenario:
    """What @ln.scenario makes of a function whose first argument is the Lab."""

    def __init__(self, function: Callable[..., object]) -> None:
        _check_function(function)
        self.function = function
        self.name = function.__name__
        file = inspect.getsourcefile(function)
        self.file = Path(file).resolve() if file and is_file(file) else None
        self.modules = own_modules_of(function.__globals__)  # of its folder; None without a file
        self._text = self._text_as_loaded()
        # A file of one scenario may say at its top what the scenario does.
        of_file = function.__globals__.get("__doc__") if self.file else None
        self.doc = inspect.getdoc(function) or inspect.cleandoc(of_file or "")
        self._model = self._signature_model()
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.__module__ = function.__module__

    def _text_as_loaded(self) -> bytes | None:
        """Of its file, which may be edited while a run lasts; None without a file."""
        if self.file is None:
            return None
        loaded = {} if self.modules is None else self.modules.texts
        if (text := loaded.get(str(self.file))) is None:  # of a module that Python has loaded
            with contextlib.suppress(UsageError):
                text = read_bytes(self.file, MOST_SOURCE)
        return text

    def _signature_model(self) -> type[BaseModel]:
        signature = list(inspect.signature(self.function).parameters.values())
        if not signature or signature[0].kind not in _BY_POSITION:
            raise UsageError(
                f"scenario {self.name}: its first argument must be the lab: "
                f"def {self.name}(lab: ln.Lab, …)"
            )
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
        except Exception as error:  # what an annotation raises, a NameError above all
            raise UsageError(
                f"scenario {self.name}: its types cannot be read: {type(error).__name__}: {error}"
            ) from None
        fields: dict[str, Any] = {}
        for parameter in signature[1:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"scenario {self.name}: *{parameter.name} has no name to set; "
                    "list every parameter"
                )
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(
                    f"scenario {self.name}: {parameter.name} stands before a / and is set by "
                    "position alone; parameters are set by name"
                )
            if parameter.name.startswith("_"):
                raise UsageError(
                    f"scenario {self.name}: {parameter.name} begins with _, which no parameter does"
                )
            if parameter.name in _RUN_OPTIONS:
                raise UsageError(
                    f"scenario {self.name}: a parameter cannot be named "
                    f'"{parameter.name}", which every run has already'
                )
            if parameter.name not in hints:
                raise UsageError(f"scenario {self.name}: parameter {parameter.name} needs a type")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
        config = ConfigDict(
            extra="forbid",
            validate_default=True,
            arbitrary_types_allowed=True,
            protected_namespaces=(),
            # report.json cannot hold them; pydantic would write null for those that it lets pass.
            allow_inf_nan=False,
            ser_json_inf_nan="constants",
        )
        try:
            # A parameter may bear the name of a method of pydantic's; none is called by it here.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                return create_model(self.name, __config__=config, **fields)
        except Exception as error:  # pydantic has no schema for a type, or no room for a name
            raise UsageError(
                f"scenario {self.name}: its parameters cannot be typed: {error}"
            ) from None

    @property
    def parameters(self) -> list[Parameter]:
        """Every parameter with its type and default, in order."""
        found = []
        for name, field in self._model.model_fields.items():
            kind = field.annotation
            text = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
            text = text.replace("loomnet.base.units.", "")
            found.append(Parameter(name, text, None if field.is_required() else str(field.default)))
        return found

    def validate(self, values: dict[str, Any]) -> BaseModel:
        """Typed parameters from raw values. Raises UsageError: one line, with the fix."""
        try:
            typed = self._model.model_validate(values)
        except ValidationError as error:
            raise UsageError(one_line(self.name, error, self._model.model_fields)) from None
        for name, value in plain(typed).items():
            check_plain(f"{self.name}.{name}", value)
        return typed

    def settings(self, texts: list[str]) -> dict[str, Any]:
        """`name=value` strings as given to --set. Raises UsageError for an unknown name, and for
        a comma, which belongs to `loomnet sweep`."""
        values: dict[str, str] = {}
        for text in texts:
            name, value = self._setting(text)
            if "," in value and self._model.model_fields[name].annotation is not str:
                raise UsageError(
                    f"--set {text}: one run takes one value; for several, use "
                    f"`loomnet sweep` with --set {text}"
                )
            if name in values:
                raise UsageError(f"--set {text}: {name} is set twice")
            values[name] = value.strip()
        return values

    def axes(self, texts: list[str]) -> dict[str, list[str]]:
        """`name=value,value` strings as given to --set of a sweep. Raises UsageError."""
        axes: dict[str, list[str]] = {}
        for text in texts:
            name, value = self._setting(text)
            values = [each.strip() for each in value.split(",")]
            if "" in values:
                raise UsageError(f"--set {text}: a value is empty")
            if name in axes:
                raise UsageError(f"--set {text}: {name} is set twice")
            axes[name] = values
        return axes

    def _setting(self, text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign:
            raise UsageError(f"--set {text}: write name=value")
        self.known([name], f"--set {text}")
        return name, value

    def known(self, names: Iterable[str], where: str) -> None:
        """Raises UsageError, with the three nearest, for a name that is no parameter."""
        for name in names:
            if name not in self._model.model_fields:
                raise UsageError(
                    f'{where}: {self.name} has no parameter "{name}"'
                    f"{did_you_mean(name, self._model.model_fields)}"
                )

    def source(self) -> str:
        """The text that defines it: its file's as it was loaded, or its function's where it has
        none. Raises UsageError."""
        if self.file is not None:
            return decoded(self.file, self._text or b"")
        try:
            return inspect.getsource(self.function)
        except OSError:
            raise UsageError(
                f"scenario {self.name}: its source is not at hand; put it in a file"
            ) from None

    def run(
        self,
        /,
        *,
        seed: int = 0,
        clock: str = "virtual",
        directory: Path | None = None,
        max_wall_s: float | None = None,
        runner: Any = None,
        replay_gaps: Any = None,
        replay_faults: Any = None,
        for_twin: bool = False,
        say: Any = None,
        on_progress: Any = None,
        base: Path | None = None,
        record: Record | None = None,
        _reads: Inputs | None = None,
        **values: Any,
    ) -> Report:
        """Runs it and returns the report, which is also written. An interrupted run leaves a
        partial report. `base`: where scripts are looked for first, by default beside the
        scenario's file. `_reads` is to take in what the run reads."""
        typed = self.validate(values)
        bar = contextlib.ExitStack()
        if on_progress is None and in_notebook():
            from loomnet.labs.notebook_bar import notebook_bar

            on_progress = bar.enter_context(notebook_bar(self.name))
        wall = WallTime(max_wall_s)
        reads = _reads or Inputs(base or (self.file.parent if self.file else None))
        lab = Lab(
            self.name,
            clock=clock,
            seed=seed,
            parameters=plain(typed),
            base=base or (self.file.parent if self.file else None),
            directory=directory,
            source=self.file,
            max_wall_s=max_wall_s,
            wall=wall,
            runner=runner,
            replay_gaps=replay_gaps,
            replay_faults=replay_faults,
            for_twin=for_twin,
            say=say,
            on_progress=on_progress,
            record=record,
        )
        try:
            with bar, wall, reads, homes(self.file and self.file.parent, base):
                self.play(lab, typed)
        except KeyboardInterrupt:
            lab.report.interrupted = True
        except (WallTimeOver, WallTimeError) as over:
            wall.disarm()
            lab.report.cut_off(str(over))
        except BaseException:
            if not lab.report.interrupted:  # what a scenario raises on its way out of Ctrl-C
                lab.discard_if_empty()
                raise
        if not (lab.ran or lab.report.interrupted or lab.report.fidelity):
            lab.discard_if_empty()
            raise UsageError(
                f"scenario {self.name} ran nothing: it ended without a call of lab.run(fabric, job)"
            )
        lab.inputs = self.inputs(reads, lab.directory)
        lab.modules |= {} if self.modules is None else self.modules.sources()
        if self.file is not None and self._text is not None:
            lab.modules[self.file.name] = self._text
        try:
            lab.write()
        except UsageError as error:  # a full disk takes the file, not the figures
            lab.report.unwritten = str(error)
        if lab.report.interrupted and in_notebook():
            # The cell goes on with its next line, and nothing else would say it.
            print(
                f"{self.name}: interrupted; the report has what was measured until then",
                file=sys.stderr,
            )
        return lab.report

    def inputs(self, reads: Inputs, directory: Path) -> dict[str, str]:
        """What a run into this directory has read, with what was read in loading and the modules
        beside the scenario's file: digests by name."""
        own, modules = [directory], self.modules
        if modules is not None:
            reads.also(modules.loading)
            home = reads.scenario or modules.folder
            reads.know(
                {
                    str(home / Path(path).relative_to(modules.folder)): digest
                    for path, digest in modules.digests().items()
                }
            )
            if home != modules.folder:  # a copy of the scenario, which is no input beside it
                own.append(modules.folder)
        return reads.found(own)

    def play(self, lab: Lab, typed: BaseModel) -> None:
        """Calls the function with a lab and validated parameters. What it raises is the scenario's
        own; own_traceback() finds it by this frame."""
        names = type(typed).model_fields
        given = {name: typed.__dict__[name] for name in names}
        with importing(), modules_beside(self.function.__globals__):
            returned = self.function(lab, **given)
        if inspect.isawaitable(returned) or inspect.isgenerator(returned):
            if (close := getattr(returned, "close", None)) is not None:
                close()  # Python would warn of a coroutine that was never awaited
            raise UsageError(
                f"scenario {self.name} returned a {type(returned).__name__} that nothing runs; "
                "write it as a plain function"
            )

    def __call__(self, lab: Lab, /, **values: Any) -> None:
        """Plays the scenario on a lab that is there already."""
        self.play(lab, self.validate(values))

    def __repr__(self) -> str:
        return f"Scenario({self.name}: {', '.join(p.name for p in self.parameters)})"

    def _repr_html_(self) -> str:
        """In a notebook: what it says of itself, and its parameters."""
        said = f"scenario {self.name}" + (f": {self.doc.splitlines()[0]}" if self.doc else "")
        table = Table(
            ("parameter", "type", "default"),
            (
                {"parameter": each.name, "type": each.type, "default": each.default}
                for each in self.parameters
            ),
        )
        return f"<p>{html.escape(said)}</p>{table._repr_html_()}"


def plain(typed: BaseModel) -> dict[str, Any]:
    """Validated parameters as report.json holds them. Raises UsageError for one it cannot hold."""
    try:
        return BaseModel.model_dump(typed, mode="json")
    except (ValueError, TypeError, RecursionError) as error:  # PydanticSerializationError is one
        raise UsageError(
            f"{type(typed).__name__}: a parameter's value cannot be written into "
            f"report.json: {error}"
        ) from None


def _check_function(function: Any) -> None:
    """Raises UsageError for what cannot be a scenario."""
    if not inspect.isfunction(function):
        raise UsageError(
            f"scenario: {quoted(function)} is not a function; put @ln.scenario above "
            "def name(lab: ln.Lab, …)"
        )
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"scenario {name}: an async def is never awaited; write def {name}(…)")
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"scenario {name}: a function with yield never runs to its end; take the yield out"
        )


def own_traceback(error: BaseException) -> list[str] | None:
    """The lines of a scenario's own traceback, without Loomnet's frames around it; None for an
    exception that did not come out of a scenario's code."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if Scenario.play.__code__ not in frames:
        return None
    shown_error = traceback.TracebackException.from_exception(error)
    depth = len(frames) - frames[::-1].index(Scenario.play.__code__)
    shown_error.stack[:] = shown_error.stack[depth:]
    each: traceback.TracebackException | None = shown_error
    while each is not None:
        # Inside Loomnet the place at fault is kept, unless the message alone is meant to be read.
        ours = [Path(frame.filename).is_relative_to(_PACKAGE) for frame in each.stack]
        if not all(ours[-1:]) or issubclass(each.exc_type or Exception, LoomnetError):
            each.stack[:] = [f for f, own in zip(each.stack, ours, strict=True) if not own]
        each = each.__cause__ or each.__context__
    return list(shown_error.format())


@checked_call
def scenario(function: Callable[..., object]) -> Scenario:
    """Decorator: makes a function of a Lab and typed parameters a scenario."""
    return Scenario(function)


def scenarios_in(file: str | Path) -> list[Scenario]:
    """All scenarios of a file, in order of definition. Raises UsageError if it cannot be read."""
    path = Path(file)
    check_file(path)
    if not re.search(rb"loomnet|\bscenario\b", read_bytes(path, MOST_SOURCE)):
        return []  # a training script, say, which would train where it is imported
    module = import_file(path.resolve())
    return [
        value
        for value in vars(module).values()
        if isinstance(value, Scenario) and value.__module__ == module.__name__
    ]


@checked_call
def load(target: str | Path, *, max_wall_s: float | None = None) -> Scenario:
    """The scenario of `FILE` or `FILE::NAME`. Raises UsageError naming what there is, WallTimeError
    where the file's code runs for longer than `max_wall_s` when it is loaded."""
    if not isinstance(target, (str, Path)):
        raise UsageError(f"load: {quoted(target)} is not FILE or FILE::NAME")
    file, _, name = str(target).partition("::")
    try:
        with WallTime(max_wall_s) as wall:
            found = {each.name: each for each in scenarios_in(file)}
    except WallTimeOver as over:
        wall.disarm()
        raise WallTimeError(f"{file}: {over} while the file was being loaded") from None
    if not found:
        check_text(Path(file))
        raise UsageError(
            f"{file} holds no scenario: decorate a function with @ln.scenario; a "
            f'training script is run by one, as ln.TorchJob("{Path(file).name}")'
        )
    if name:
        if name not in found:
            raise UsageError(f'{file} has no scenario "{name}"{did_you_mean(name, found)}')
        return found[name]
    if len(found) > 1:
        raise UsageError(
            f"{file} holds {len(found)} scenarios: write {file}::NAME with one of "
            f"{', '.join(found)}"
        )
    return next(iter(found.values()))
