"""The demo models' training script: its split and tokenizer are fixed, its stages run.

Everything that needs torch, transformers or PEFT is skipped, visibly, where they are missing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tools.train_demo import corpus
from tools.train_demo.corpus import Document
from tools.train_demo.tokenizer import END_OF_TEXT, END_OF_TEXT_ID, save_tokenizer, train_tokenizer

LIBRARIES = ("torch", "transformers", "peft")
MISSING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
needs_libraries = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def small_documents() -> list[Document]:
    wanted = {"heapq", "textwrap", "bisect", "shlex", "string"}
    return [document for document in corpus.gather_code() if document.group in wanted]


def test_split_holds_out_whole_modules_and_is_the_same_every_time() -> None:
    first, second = (corpus.split_code(corpus.gather_code()) for _ in range(2))
    assert first.digest() == second.digest()
    trained = {document.group for document in first.train}
    held_out = {document.group for document in first.held_out}
    assert held_out >= corpus.ALWAYS_HELD_OUT
    assert not trained & held_out
    assert corpus.byte_count(first.train) > 10 * corpus.byte_count(first.held_out)


def test_tests_and_generated_tables_are_left_out() -> None:
    names = [document.name for document in corpus.gather_code()]
    assert not [name for name in names if name.startswith(("encodings/", "pydoc_data/"))]
    assert not [name for name in names if {"test", "tests"} & set(name.split("/"))]


def test_topics_are_split_by_name() -> None:
    split = corpus.split_topics(corpus.gather_topics())
    assert split.train and split.held_out
    assert not {doc.name for doc in split.train} & {doc.name for doc in split.held_out}
    trained = set().union(*(corpus.long_lines(document) for document in split.train))
    assert not [doc.name for doc in split.held_out if trained & corpus.long_lines(doc)]


def test_split_follows_the_name_alone(tmp_path: Path) -> None:
    for name in ("ast.py", "os.py", "json/decoder.py", "test/os.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    split = corpus.split_code(corpus.gather_code(tmp_path))
    assert [document.name for document in split.held_out] == ["ast.py", "json/decoder.py"]
    assert [document.name for document in split.train] == ["os.py"]


def test_same_texts_give_the_same_tokenizer() -> None:
    texts = [document.text for document in small_documents()]
    assert train_tokenizer(texts, 512).to_str() == train_tokenizer(texts, 512).to_str()


def test_tokenizer_returns_every_byte_behind_one_end_of_text() -> None:
    tokenizer = train_tokenizer((doc.text for doc in small_documents()), 512)
    text = "def f(x):\n\treturn 'ä€😀' \r\n\n  # \x00\x7f"
    ids = tokenizer.encode(text).ids
    assert ids[0] == END_OF_TEXT_ID and END_OF_TEXT_ID not in ids[1:]
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_to_id(END_OF_TEXT) == END_OF_TEXT_ID


@pytest.mark.skipif("transformers" in MISSING, reason="not installed: transformers")
def test_transformers_reads_the_same_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer((doc.text for doc in small_documents()), 512)
    save_tokenizer(tokenizer, tmp_path, 64)
    other = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("", "class A:\n    pass\n", " two  spaces .", "ä€😀\r\n\x00", END_OF_TEXT):
        ids = tokenizer.encode(text).ids
        assert other(text)["input_ids"] == ids
        assert other.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids)
    assert other.eos_token_id == other.bos_token_id == END_OF_TEXT_ID


@needs_libraries
def test_smoke_run_writes_every_folder_and_repeats(tmp_path: Path) -> None:
    from tools.train_demo.__main__ import main

    first, second = tmp_path / "first", tmp_path / "second"
    main(["--smoke", "--out", str(first), "--threads", "1"])
    main(["--smoke", "--out", str(second), "--threads", "1", "--no-evaluate", "--stages", "target"])
    assert (first / "RESULTS.md").read_text().count("| demo_") == 5
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        assert (first / "demo" / name).read_bytes() == (second / "demo" / name).read_bytes()
    for folder in ("demo_adapter_lora", "demo_adapter_bdlora"):
        assert (first / folder / "adapter_model.safetensors").is_file()


@needs_libraries
def test_own_model_equals_the_one_that_transformers_loads(tmp_path: Path) -> None:
    import torch

    from tools.train_demo.adapters import load_reference
    from tools.train_demo.export import export_llama, load_llama
    from tools.train_demo.model import Llama
    from tools.train_demo.plans import smoke_plans

    torch.manual_seed(0)
    model = Llama(smoke_plans().target.shape)
    for weight in model.parameters():
        weight.data.normal_(std=0.3)
    tokenizer = train_tokenizer((doc.text for doc in small_documents()), 320)
    export_llama(model, tokenizer, tmp_path)
    ids = torch.randint(0, 320, (2, 40))
    with torch.no_grad():
        ours, theirs = load_llama(tmp_path)(ids), load_reference(tmp_path)(input_ids=ids).logits
    assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))


@needs_libraries
def test_unrolled_eagle3_rounds_equal_drafting_token_by_token() -> None:
    """The head's masks in training against a plain loop over one growing cache."""
    import torch

    from tools.train_demo.eagle3 import Eagle3Head, default_auxiliary, fused_auxiliary
    from tools.train_demo.model import Llama
    from tools.train_demo.plans import smoke_plans

    torch.manual_seed(0)
    shape = smoke_plans().target.shape
    target, head = Llama(shape), Eagle3Head(shape)
    for weight in (*target.parameters(), *head.parameters()):
        weight.data.normal_(std=0.3)
    ids = torch.randint(0, shape.vocabulary, (1, 20))
    with torch.no_grad():
        auxiliary, _ = fused_auxiliary(target, ids, default_auxiliary(shape.layers))
        embedded = target.embed_tokens(ids[:, 1:])
        unrolled = head.unroll(embedded, auxiliary[:, :-1], 4)
        for known in (2, 9, 15):
            state = head.fc(auxiliary[:, :known])
            for number in range(4):
                length = known + number
                tables = head.cos[:length], head.sin[:length]
                q, k, v = head.midlayer.project(embedded[:, :length], state, *tables)
                mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                # Inputs of every entry stay as they are: the target's, then the head's own.
                last = head.midlayer.finish(state, mixed)[:, -1:]
                logits = head.lm_head(head.norm(last))[0, 0]
                assert torch.allclose(logits, unrolled[number][0, length - 1], rtol=1e-3, atol=1e-3)
                state = torch.cat((state, last), dim=1)
