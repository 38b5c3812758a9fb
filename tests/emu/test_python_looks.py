"""What a person sees of the Python API: help, short reprs, notebooks, async with."""

from __future__ import annotations

import asyncio
import pydoc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lora_sdk import Delta, Engine, LoadingBar, LoraError, Output, Result


@pytest.fixture(scope="module")
def result() -> Result:
    with Engine() as engine:
        return engine.generate("if a < b:\n", max_tokens=40)


def test_help_begins_with_how_it_is_used() -> None:
    text = pydoc.plain(pydoc.render_doc(Engine))
    lines = [line.strip(" |") for line in text.splitlines() if line.startswith(" |")]
    first = next(i for i, line in enumerate(lines) if line.startswith("with Engine("))
    assert first <= 3  # after the signature
    code = "\n".join(lines[first : first + 3])
    assert "engine.generate(" in code and "engine.chat(" in code


def test_reprs_fit_a_line(result: Result) -> None:
    assert (
        repr(Output(2, "a" * 99, (1, 2), "stop")) == f"<Output 2 '{'a' * 60}...': stop, 2 tokens>"
    )
    assert repr(Delta(1, "ab", 7)) == "<Delta 1 'ab': token 7>"
    assert repr(Delta(0, "", None, finish_reason="stop")) == "<Delta 0 '': no token, stop>"
    assert max(len(repr(one)) for one in (result, result.outputs[0])) < 160


def test_notebooks_see_escaped_text_and_counts(result: Result) -> None:
    html = result._repr_html_()
    assert "if a &lt; b:" in html and "40 new tokens" in html and "ended by length" in html
    assert html.count("<pre") == 1 and "< b" not in html
    with Engine(boards=2) as engine:
        several = engine.generate("<i>", max_tokens=2, n=2, temperature=1.0, seed=1)
        plan = engine.plan._repr_html_()
    assert several._repr_html_().count("&lt;i&gt;") == 2 and "<i>" not in several._repr_html_()
    assert plan.startswith("<pre>2 x u280") and "boards by rank: 0, 1" in plan


def test_a_bar_of_loading_in_a_notebook_and_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Engine(progress=LoadingBar()):
        said = capsys.readouterr().err
    assert said.endswith("100%\n") and said.count("\r") > 1
    shown: list[str] = []

    def display(bar: str, display_id: bool) -> Any:
        assert display_id
        shown.append(bar)
        return SimpleNamespace(update=shown.append)

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython).update(get_ipython=lambda: SimpleNamespace(config={"IPKernelApp": {}}))
    vars(module).update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with Engine(progress=LoadingBar("model")):
        assert len(shown) > 1 and shown[-1].startswith("model <progress value=")
    assert capsys.readouterr().err == ""


def test_async_with_gives_the_boards_back() -> None:
    async def main() -> Engine:
        async with Engine() as engine:
            one, other = await asyncio.gather(
                engine.agenerate("a", max_tokens=3), engine.agenerate("b", max_tokens=3)
            )
            assert len(one.token_ids) == len(other.token_ids) == 3
        return engine

    engine = asyncio.run(main())
    assert engine.closed
    with pytest.raises(LoraError):
        engine.generate("a", max_tokens=1)
