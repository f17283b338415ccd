"""Numbers as text for people: four significant digits and SI prefixes, so that no digit or exponent
is lost in a narrow column. Files hold the whole number."""

from __future__ import annotations

from decimal import Context, Decimal

DIGITS = 4
# Units that take an SI prefix themselves: 0.0000343 s is 34.3 us. Long times stay in seconds.
PREFIXED = ("s", "b/s", "B/s", "B")
PREFIXES = {-12: "p", -9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
WHOLE_BELOW = 100_000  # the digits before the point are all shown below this
PLAIN_ABOVE = Decimal("0.0001")  # a number without unit has an exponent below this
NULL = "–"


def number_text(value: float | None, unit: str | None = None, digits: int = DIGITS) -> str:
    """`value` to four significant digits, or so many: "711.2 us", "0.7568", "2.24 M"; a dash for
    null. A unit that takes a prefix is part of the text; any other ("ratio", "packets") is left
    out."""
    if value is None:
        return NULL
    if unit == "GB/s":  # what nccl-tests count in
        value, unit = value * 1e9, "B/s"
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(int(value))
    if not exact.is_finite():
        return str(value)
    scaled = unit in PREFIXED and unit != "s"
    whole = abs(exact) < WHOLE_BELOW and not scaled
    kept = max(digits, exact.adjusted() + 1) if whole else digits
    rounded = Context(prec=kept).plus(exact)
    if unit in PREFIXED:
        return _prefixed(rounded, unit or "", longest=0 if unit == "s" else max(PREFIXES))
    if abs(rounded) >= WHOLE_BELOW:
        return _prefixed(rounded, "", longest=max(PREFIXES))
    if rounded and abs(rounded) < PLAIN_ABOVE:
        return f"{float(rounded):.{DIGITS}g}"
    return _plain(rounded)


def _prefixed(value: Decimal, unit: str, *, longest: int) -> str:
    power = min(value.adjusted() // 3 * 3, longest) if value else 0
    if power not in PREFIXES or value.adjusted() - power >= DIGITS + 2:
        return f"{float(value):.{DIGITS}g} {unit}".rstrip()
    return f"{_plain(value.scaleb(-power))} {PREFIXES[power]}{unit}".rstrip()


def _plain(value: Decimal) -> str:
    """Without exponent, and without zeros at the end of a fraction."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
