"""A decorated function of a user's file; its typed signature is the only list of its parameters."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from loomnet.base.errors import LoomnetError, UsageError
from loomnet.base.names import did_you_mean, quoted
from loomnet.base.reading import MOST_SOURCE, decoded, is_file, read_bytes
from loomnet.base.spec import one_line
from loomnet.labs.own_modules import own_modules_of
from loomnet.labs.scenario_file import check_file, check_text, import_file
from loomnet.measures.rows import check_plain

T = TypeVar("T")

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


class TypedFunction:
    """A function of a user's file with its typed parameters, as a command finds and sets them.

    Kinds of it say what they are called (`kind`), by which decorator (`mark`), what their first
    argument is (`takes`, "" for none), how a definition begins (`shape`), which command takes one
    (`command`), which names are taken (`taken`), what to do with several values (`several`), and
    what a file without one may be meant for (`none`).
    """

    kind: ClassVar[str]
    mark: ClassVar[str]
    takes: ClassVar[str]
    shape: ClassVar[str]
    command: ClassVar[str]
    none: ClassVar[str]
    taken: ClassVar[tuple[str, ...]]
    several: ClassVar[str]

    def __init__(self, function: Callable[..., object]) -> None:
        _check_function(function, type(self))
        self.function = function
        self.name = function.__name__
        file = inspect.getsourcefile(function)
        self.file = Path(file).resolve() if file and is_file(file) else None
        self.modules = own_modules_of(function.__globals__)  # of its folder; None without a file
        self._text = self._text_as_loaded()
        # A file of one function may say at its top what the function does.
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
        if self.takes:
            if not signature or signature[0].kind not in _BY_POSITION:
                raise UsageError(
                    f"{self.kind} {self.name}: its first argument must be {self.takes}: "
                    f"{self.shape.replace('name', self.name)}"
                )
            del signature[0]
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
        except Exception as error:  # what an annotation raises, a NameError above all
            raise UsageError(
                f"{self.kind} {self.name}: its types cannot be read: {type(error).__name__}: "
                f"{error}"
            ) from None
        fields: dict[str, Any] = {}
        for parameter in signature:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"{self.kind} {self.name}: *{parameter.name} has no name to set; "
                    "list every parameter"
                )
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise UsageError(
                    f"{self.kind} {self.name}: {parameter.name} stands before a / and is set by "
                    "position alone; parameters are set by name"
                )
            if parameter.name.startswith("_"):
                raise UsageError(
                    f"{self.kind} {self.name}: {parameter.name} begins with _, which no "
                    "parameter does"
                )
            if parameter.name in self.taken:
                raise UsageError(
                    f"{self.kind} {self.name}: a parameter cannot be named "
                    f'"{parameter.name}", which the command has already'
                )
            if parameter.name not in hints:
                raise UsageError(
                    f"{self.kind} {self.name}: parameter {parameter.name} needs a type"
                )
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
                f"{self.kind} {self.name}: its parameters cannot be typed: {error}"
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
        a comma, where that would be several values."""
        values: dict[str, str] = {}
        for text in texts:
            name, value = self._setting(text)
            if "," in value and self._model.model_fields[name].annotation is not str:
                raise UsageError(f"--set {text}: {self.several.replace('TEXT', text)}")
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
                f"{self.kind} {self.name}: its source is not at hand; put it in a file"
            ) from None


def called(function: Callable[..., T], *args: Any, **values: Any) -> T:
    """Calls a user's function. What that raises is its own: own_traceback() finds this frame."""
    return function(*args, **values)


def plain(typed: BaseModel) -> dict[str, Any]:
    """Validated parameters as report.json holds them. Raises UsageError for one it cannot hold."""
    try:
        return BaseModel.model_dump(typed, mode="json")
    except (ValueError, TypeError, RecursionError) as error:  # PydanticSerializationError is one
        raise UsageError(
            f"{type(typed).__name__}: a parameter's value cannot be written into "
            f"report.json: {error}"
        ) from None


def _check_function(function: Any, kind: type[TypedFunction]) -> None:
    """Raises UsageError for what cannot be one of that kind."""
    if not inspect.isfunction(function):
        raise UsageError(
            f"{kind.kind}: {quoted(function)} is not a function; put {kind.mark} above {kind.shape}"
        )
    name = function.__name__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{kind.kind} {name}: an async def is never awaited; write def {name}(…)")
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{kind.kind} {name}: a function with yield never runs to its end; take the yield out"
        )


def own_traceback(error: BaseException) -> list[str] | None:
    """The lines of the traceback of a user's own code, without Loomnet's frames around it; None for
    an exception that did not come out of a function that called() has called."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if called.__code__ not in frames:
        return None
    shown_error = traceback.TracebackException.from_exception(error)
    depth = len(frames) - frames[::-1].index(called.__code__)
    shown_error.stack[:] = shown_error.stack[depth:]
    each: traceback.TracebackException | None = shown_error
    while each is not None:
        # Inside Loomnet the place at fault is kept, unless the message alone is meant to be read.
        ours = [Path(frame.filename).is_relative_to(_PACKAGE) for frame in each.stack]
        if not all(ours[-1:]) or issubclass(each.exc_type or Exception, LoomnetError):
            each.stack[:] = [f for f, own in zip(each.stack, ours, strict=True) if not own]
        each = each.__cause__ or each.__context__
    return list(shown_error.format())


K = TypeVar("K", bound=TypedFunction)


def declared_in(file: str | Path, kind: type[K]) -> list[K]:
    """All functions of one kind in a file, in order of definition. Raises UsageError if it cannot
    be read."""
    path = Path(file)
    check_file(path)
    if not re.search(rb"loomnet|\bscenario\b", read_bytes(path, MOST_SOURCE)):
        return []  # a training script, say, which would train where it is imported
    module = import_file(path.resolve())
    return [
        value
        for value in vars(module).values()
        if isinstance(value, kind) and value.__module__ == module.__name__
    ]


def loaded(target: str | Path, kind: type[K]) -> K:
    """The function of that kind in `FILE`, or that of `FILE::NAME`. Raises UsageError naming what
    there is."""
    if not isinstance(target, (str, Path)):
        raise UsageError(f"load: {quoted(target)} is not FILE or FILE::NAME")
    file, _, name = str(target).partition("::")
    there = declared_in(file, TypedFunction)
    found = {each.name: each for each in there if isinstance(each, kind)}
    if not found:
        check_text(Path(file))
        if there:
            other = there[0]
            raise UsageError(
                f"{file} holds no {kind.kind}, but the {other.kind} {other.name}: "
                f"{other.command} {file}"
            )
        raise UsageError(
            f"{file} holds no {kind.kind}: decorate a function with {kind.mark}; "
            f"{kind.none.replace('FILE', Path(file).name)}"
        )
    if name:
        if name not in found:
            raise UsageError(f'{file} has no {kind.kind} "{name}"{did_you_mean(name, found)}')
        return found[name]
    if len(found) > 1:
        raise UsageError(
            f"{file} holds {len(found)} {kind.kind}s: write {file}::NAME with one of "
            f"{', '.join(found)}"
        )
    return next(iter(found.values()))
