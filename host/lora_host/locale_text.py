"""Text that the system's locale has decoded, as UTF-8."""

from __future__ import annotations


def utf8_text(text: str) -> str:
    """`text` with UTF-8 where the locale could not decode it. Python keeps such bytes as surrogates
    (PEP 383); in the POSIX locale these are all beyond ASCII. Bytes that are not UTF-8 stay."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other surrogates: no text of a locale
        return text
