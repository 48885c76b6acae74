"""A tokenizer of a stranger: parts that never end or fill the memory are refused by name, and those of known models are read."""

import copy
import json
import time

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from saccade.data.text.engine import _KNOWN_PATTERNS, check_tokenizer, engine_from
from saccade.data.text.lines import MAX_CHARACTERS
from saccade.data.text.tokenizer import Tokenizer, Vocabularies
from saccade.errors import UserError

VOCABULARY = {"<unk>": 0, "a": 1, "b": 2}


def content(**parts):
    engine = tokenizers.Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    for name, part in parts.items():
        setattr(engine, name, part)
    return json.loads(engine.to_str())


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"pre_tokenizer": pre_tokenizers.Split(Regex("(a+)+$"), "isolated")}, r"the pattern '\(a\+\)\+\$' is not one"),
        ({"normalizer": normalizers.Replace("a", "a" * 50)}, "a rule replaces text by the longer 'aaa"),
        ({"normalizer": normalizers.Replace(Regex("(a+)+$"), "b")}, r"the pattern .* is not one that is known to end"),
        ({"normalizer": normalizers.Sequence([normalizers.Replace("a", "aa")] * 30)}, "not a sequence of at most 16"),
        ({"normalizer": normalizers.Prepend("a" * 1000)}, "what is prepended is not text of at most 8"),
        ({"normalizer": normalizers.Nmt()}, "its normalizer has the part 'Nmt'"),
        (
            {"pre_tokenizer": pre_tokenizers.CharDelimiterSplit("a")},
            "its pre_tokenizer has the part 'CharDelimiterSplit'",
        ),
        ({"decoder": decoders.CTC()}, "its decoder has the part 'CTC'"),
        (
            {"post_processor": processors.TemplateProcessing(single=" ".join(["$A"] * 50), special_tokens=[])},
            "its template has more than 16 parts",
        ),
    ],
)
def test_a_part_that_may_explode_is_refused_by_name(parts, named):
    with pytest.raises(ValueError, match=named):
        check_tokenizer(content(**parts))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"padding": {"strategy": {"Fixed": 10**9}, "pad_to_multiple_of": None}}, "its padding is longer than 8,192"),
        ({"padding": {"strategy": "BatchLongest", "pad_to_multiple_of": 10**9}}, "its padding is longer"),
        ({"model": {"type": "BPE", "dropout": 0.5, "vocab": VOCABULARY, "merges": []}}, "drops merges at random"),
        ({"model": {"type": "Magic"}}, "its model 'Magic' is none of BPE"),
        ({"model": {"type": "WordLevel", "vocab": {"a": "x"}}}, "tokens that are not numbered"),
        ({"model": {"type": "WordLevel", "vocab": {"a" * 20_000: 0}}}, "a token is not text of at most 10,000"),
        ({"added_tokens": [{"content": "x" * 20_000}]}, "an added token is not text"),
        ({"model": None}, "its model is not a group of settings"),
    ],
)
def test_a_setting_that_may_explode_is_refused_by_name(changes, named):
    with pytest.raises(ValueError, match=named):
        check_tokenizer({**content(), **changes})


@pytest.mark.parametrize("kind", ["bpe", "words", "characters"])
def test_the_tokenizers_that_training_writes_are_read(kind):
    written = Tokenizer.train(["the cat, the hat"], kind, 300)
    assert Tokenizer.from_json(written.to_json()).encode("the hat") == written.encode("the hat")


def test_the_parts_of_well_known_models_are_read():
    bert = content(
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        post_processor=processors.TemplateProcessing(single="<unk> $A", special_tokens=[("<unk>", 0)]),
        decoder=decoders.WordPiece(),
    )
    gpt2 = content(pre_tokenizer=pre_tokenizers.ByteLevel(), decoder=decoders.ByteLevel())
    llama = content(
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )
    for known in (bert, gpt2, llama):
        assert engine_from(known).get_vocab() == VOCABULARY
        check_tokenizer(copy.deepcopy(known))


@pytest.mark.parametrize("text", ["a", "a-", "a'", "1.", "'", " ", "\n ", "é́", "(", "U.", " \r\n", "-'"])
@pytest.mark.parametrize("pattern", sorted(_KNOWN_PATTERNS))
def test_known_patterns_end_soon_on_long_text(pattern, text):
    longest = (text * MAX_CHARACTERS)[: MAX_CHARACTERS // 4]
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    started = time.perf_counter()
    split.pre_tokenize_str(longest)
    split.pre_tokenize_str(longest[:-1] + "!")
    assert time.perf_counter() - started < 2


def test_a_tokenizer_of_a_run_that_panics_is_a_sentence(tmp_path):
    vocabulary = Tokenizer.train(["a b a b"], "bpe", 260)
    stored = {"version": 1, "source": json.loads(vocabulary.to_json())}
    stored["source"]["engine"]["model"]["merges"] = [["zz", "yy"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"is not a vocabulary of Saccade .*: give the file of a run"):
        Vocabularies.load(tmp_path / "tokenizer.json")
