"""Bounded XML: no document type, so no entities, and limits on nesting and elements."""

from __future__ import annotations

from xml.etree import ElementTree

MAX_DEPTH = 32
MAX_ELEMENTS = 100_000


class XmlFault(ValueError):
    """Text is not XML, or exceeds a limit."""


def parse_xml(text: bytes) -> ElementTree.Element:
    """The root element of a document. XmlFault if it is malformed, declares a document type, or
    exceeds a limit; it is refused before the rest is read."""
    try:
        parser = ElementTree.XMLParser(target=_Builder())
        parser.feed(text)
        root: ElementTree.Element = parser.close()
    except (ElementTree.ParseError, LookupError) as cause:  # LookupError: an unknown encoding
        raise XmlFault(str(cause)) from cause
    except ValueError as cause:  # an encoding of several bytes, or XmlFault itself
        raise cause if isinstance(cause, XmlFault) else XmlFault(str(cause)) from cause
    return root


class _Builder(ElementTree.TreeBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise XmlFault(f"elements nested deeper than {MAX_DEPTH}")
        if self._count > MAX_ELEMENTS:
            raise XmlFault(f"more than {MAX_ELEMENTS} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        # The bytes cannot be searched for it: they may be in any encoding.
        raise XmlFault("a document type is declared; none expected")
