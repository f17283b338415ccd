"""Base of everything a user constructs with values (jobs, faults): validated by pydantic, frozen,
and refused with one line that names the field and the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loomnet.base.constructor import signature_of
from loomnet.base.errors import LoomnetError, UsageError
from loomnet.base.names import did_you_mean, quoted


def one_line(owner: str, error: ValidationError, known: Iterable[str]) -> str:
    """The first problem of a ValidationError as `owner.field: what is wrong; the fix`."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    field = path[0] if path else ""
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f'{owner}: unknown name "{field}"{did_you_mean(field, known)}'
    where = f"{owner}.{field}" if field else owner
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "literal_error":
        expected = str(first.get("ctx", {}).get("expected", "")).replace("'", "")
        names = [name for part in expected.split(",") for name in part.split(" or ")]
        given = first["input"] if isinstance(first["input"], str) else quoted(first["input"])
        hint = did_you_mean(given, [name.strip() for name in names if name.strip()])
        return f'{where}: "{given}" is not one of {expected}{hint}'
    cause = first.get("ctx", {}).get("error")
    text = str(cause) if isinstance(cause, LoomnetError) else first["msg"]
    if not isinstance(cause, LoomnetError):
        text = f"{text} (given {quoted(first['input'])})"
    return f"{where}: {text}"


def given(*, default: Any = ..., converter: Callable[..., Any], kw_only: bool = True) -> Any:
    """A field of which a user gives another type than it has: "2 ms" for a Time.

    Type checkers read the constructor's parameter from `converter` and `kw_only`
    (typing.dataclass_transform); pydantic converts by the field's annotation.
    """
    return Field(default)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, given))
class _SpecType(type(BaseModel)):
    """pydantic's metaclass, with given() for type checkers, and without pydantic's own names where
    help() and editors list a class."""

    def __dir__(cls) -> list[str]:
        return sorted(
            name
            for name in super().__dir__()
            if name not in _HIDDEN and not name.startswith("__pydantic_")
        )


# Names that BaseModel and its metaclass give to every class.
_HIDDEN = {
    *dir(BaseModel),
    "__annotations__",
    "__class_vars__",
    "__private_attributes__",
    "__abstractmethods__",
    "__signature__",
    "__weakref__",
    "_abc_impl",
} - {"__class__", "__doc__", "__module__"}


class Spec(BaseModel, metaclass=_SpecType):
    """A frozen, validated value. The fields named in `positional` may be given by position. A class
    that users make has a constructor(); type checkers read other classes by their fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        arbitrary_types_allowed=True,
        ser_json_timedelta="float",
    )
    positional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **values: Any) -> None:
        self.construct(args, values)

    @classmethod
    def __pydantic_init_subclass__(cls, **values: Any) -> None:
        super().__pydantic_init_subclass__(**values)
        defaults = {name: field.default for name, field in cls.model_fields.items()}
        if (signature := signature_of(cls.__init__, defaults)) is not None:
            cls.__signature__ = signature

    @classmethod
    def _names_known(cls) -> list[str]:
        """Names that it may be given, for what an error proposes."""
        return list(cls.model_fields)

    def construct(self, args: tuple[Any, ...], values: dict[str, Any]) -> None:
        """Validates what a constructor was given. Raises UsageError."""
        owner = type(self).__name__
        if len(args) > len(self.positional):
            raise UsageError(
                f"{owner} takes {len(self.positional)} values by position "
                f"({', '.join(self.positional)}), {len(args)} were given"
            )
        for name, value in zip(self.positional, args, strict=False):
            if name in values:
                raise UsageError(f"{owner}.{name} is given twice")
            values[name] = value
        try:
            BaseModel.__init__(self, **values)
        except ValidationError as error:
            raise UsageError(one_line(owner, error, self._names_known())) from None
