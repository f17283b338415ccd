"""What a compiled switch program takes from elsewhere, read from the object's bytes: a program that
ends the process, starts others or changes signals is found before any of its code runs."""

from __future__ import annotations

import re
import struct

from loomnet.programs.contract import Broken

# Functions that work on memory alone, which compilers call by themselves, and printing, which helps
# to find a mistake. With _FORTIFY_SOURCE some have names of their own.
_MEMORY = (
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "bcmp",
    "strlen",
    "strcmp",
    "strncmp",
    "strnlen",
)
_PRINTING = (
    "printf",
    "fprintf",
    "snprintf",
    "puts",
    "putchar",
    "putc",
    "fputs",
    "fputc",
    "fwrite",
    "fflush",
    "stdout",
    "stderr",
)
_OF_COMPILERS = {
    "__stack_chk_fail",
    "__stack_chk_guard",
    "__tls_get_addr",
    "_GLOBAL_OFFSET_TABLE_",
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_registerTMCloneTable",
    "_ITM_deregisterTMCloneTable",
}
ALLOWED = _OF_COMPILERS | {
    *_MEMORY,
    *_PRINTING,
    *(f"__{name}_chk" for name in (*_MEMORY, *_PRINTING)),
}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM, _INIT_ARRAY, _FINI_ARRAY = 11, 14, 15  # sh_type
_POINTER = 8  # bytes
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL)


def refusal_of(data: bytes, source: bytes) -> str:
    """Why an object is not loaded, as what follows the file's name: ":12: it uses exit …", with the
    line of `source`, its text, where that is found; nothing for one that takes what it may. Raises
    Broken for an object that is cut short."""
    try:
        names, runs_at_load = _taken(data)
    except (struct.error, IndexError, ValueError):
        raise Broken("its compiled object is cut short; compile it anew") from None
    if runs_at_load:
        return (
            ": it has a function that runs when it is loaded or unloaded "
            "(__attribute__((constructor))); a switch program runs for packets alone"
        )
    wrong = sorted(set(names) - ALLOWED)
    if not wrong:
        return ""
    others = f" and {', '.join(wrong[1:4])}" if wrong[1:] else ""
    return (
        f"{_line_of(wrong[0], source)}: it uses {wrong[0]}{others} of the C library; a switch "
        f"program may call {', '.join(_MEMORY[:4])}, the like, and printf: it has no use for "
        "processes, signals, files, clocks and memory of its own"
    )


def _taken(data: bytes) -> tuple[list[str], bool]:
    """Names that a shared object of 64 bits, the least byte first, takes from others, and whether
    code of its own runs when it is loaded; nothing for another kind of file."""
    if not data.startswith(_ELF64_LITTLE):
        return [], False
    found, runs = [], False
    header = _HEADER.unpack_from(data)
    at, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, at + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        # One function in each is the C compiler's own.
        runs |= kind in (_INIT_ARRAY, _FINI_ARRAY) and length > _POINTER
        if kind == _DYNSYM:
            names = sections[link][4]
            for place in range(offset + entry, offset + length, entry):  # the first is none
                name, _, _, section, _, _ = _SYMBOL.unpack_from(data, place)
                if section == 0:
                    begin = names + name
                    found.append(data[begin : data.index(b"\0", begin)].decode(errors="replace"))
    return found, runs


def _line_of(name: str, source: bytes) -> str:
    """ ":12", where the text first names it outside comments; nothing where it does not."""
    code = _COMMENT.sub(lambda each: b"\n" * each[0].count(b"\n"), source)
    plain = re.sub(r"^_+|_chk$|^__isoc\d+_", "", name)
    for each in dict.fromkeys((name, plain)):
        if (found := re.search(rb"\b%b\s*\(" % re.escape(each.encode()), code)) is not None:
            return f":{code.count(10, 0, found.start()) + 1}"
    return ""
