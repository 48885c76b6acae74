"""The tokenizers of other models against the libraries they come from: WordPiece, byte-level BPE and SentencePiece's kind."""

import json

import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from saccade.config.recipe import load
from saccade.data.text.existing import ExistingTokenizer
from saccade.data.text.spelling import spaced, words_of, words_of_tokens
from saccade.data.text.tokenizer import Tokenizer
from saccade.data.text.vocabulary import load_tokenizer, save_tokenizer, starting_tokenizer
from saccade.errors import ConfigError, UserError

TEXTS = ["The cat's toys weren't cheap!", "un café à la crème, İstanbul", "unbelievable 😀 naïveté", "  two  spaces "]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def word_pieces(directory) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=BERT))
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return engine


def bytes_of(directory) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=330, special_tokens=ROBERTA, initial_alphabet=alphabet)
    )
    engine.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return engine


def metaspace(directory) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.Unigram())
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    engine.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(vocab_size=80, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>")
    )
    return engine


KINDS = {"wordpiece": (word_pieces, BERT), "bytes": (bytes_of, ROBERTA), "metaspace": (metaspace, None)}


def folder(directory, kind: str, **config) -> transformers.PreTrainedTokenizerFast:
    """As a model's folder holds it, and the library's own reading of it."""
    make, special = KINDS[kind]
    engine = make(directory)
    engine.enable_truncation(4)
    engine.enable_padding(length=9)
    names = {}
    if special is BERT:
        names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), BERT, strict=True))
    elif special is ROBERTA:
        names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), ROBERTA, strict=True))
    else:
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    directory.mkdir(exist_ok=True)
    engine.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    (directory / "config.json").write_text(json.dumps({"vocab_size": engine.get_vocab_size(), **config}))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), **names)
    theirs.backend_tokenizer.no_truncation()
    theirs.backend_tokenizer.no_padding()
    return theirs


@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_as_its_own_library_does(tmp_path, kind):
    theirs = folder(tmp_path, kind)
    ours = ExistingTokenizer.from_folder(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ours.encode(text)) == theirs.decode(
            theirs(text)["input_ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        covered = ours.encode_with_offsets(text)
        assert list(covered.ids) == ours.encode(text)
        assert (
            list(covered.offsets)
            == theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        )


@pytest.mark.parametrize("kind", ["wordpiece", "bytes"])
def test_special_tokens_stand_where_its_library_puts_them(tmp_path, kind):
    theirs = folder(tmp_path, kind)
    ours = ExistingTokenizer.from_folder(tmp_path)
    first, second = TEXTS[:2]
    assert ours.around(ours.encode(first)).ids == theirs(first)["input_ids"]
    joined, expected = (
        ours.around(ours.encode(first), ours.encode(second)),
        theirs(first, second, return_token_type_ids=True),
    )
    assert joined.ids == expected["input_ids"]
    assert joined.ids[joined.second : -1] == ours.encode(second)
    assert joined.ids[joined.first : joined.first + 3] == ours.encode(first)[:3]
    if kind == "wordpiece":
        assert joined.segments == expected["token_type_ids"]


def test_special_tokens_cannot_be_written(tmp_path):
    folder(tmp_path, "wordpiece")
    ours = ExistingTokenizer.from_folder(tmp_path)
    assert not {2, 3, 4} & set(ours.encode("a [SEP] b [CLS] [MASK]"))


@pytest.mark.parametrize("kind", KINDS)
def test_its_tokens_belong_to_words(tmp_path, kind):
    folder(tmp_path, kind)
    ours = ExistingTokenizer.from_folder(tmp_path)
    ids = ours.encode("unbelievable cats!")
    assert ours.words(ids) == ["unbelievable", "cats", "!"]
    groups = ours.word_groups(ids)
    assert groups == sorted(groups)
    assert any(label.startswith("·") for label in ours.pieces(ids))


@pytest.mark.parametrize("kind", [*KINDS, "bpe", "words", "characters"])
def test_offsets_find_the_words_of_the_text_as_it_was_written(tmp_path, kind):
    if kind in KINDS:
        folder(tmp_path, kind)
        tokenizer = ExistingTokenizer.from_folder(tmp_path)
    else:
        tokenizer = Tokenizer.train(TEXTS, kind, 330, lowercase=True)
    for text in [*TEXTS, "İİ CAFÉ  weren't 😀"]:
        offsets = tokenizer.encode_with_offsets(text).offsets
        for words in (words_of(text), spaced(text)):
            groups = words_of_tokens(text, offsets, words)
            assert groups == sorted(groups)
            for group, (start, end) in zip(groups, offsets, strict=True):
                letters = [place for place in range(start, end) if not text[place].isspace()]
                assert not letters or words[group][0] <= letters[0] < words[group][1]


def test_words_stand_between_white_space_or_marks():
    text = "  a b.  c "
    assert [text[start:end] for start, end in spaced(text)] == ["a", "b.", "c"]
    assert [text[start:end] for start, end in words_of(text)] == ["a", "b", ".", "c"]


@pytest.mark.parametrize("kind", [*KINDS, "bpe"])
def test_it_is_kept_in_the_run(tmp_path, kind):
    if kind in KINDS:
        folder(tmp_path, kind, vocab_size=400)
        tokenizer = ExistingTokenizer.from_folder(tmp_path)
        assert len(tokenizer) == 400
    else:
        tokenizer = Tokenizer.train(TEXTS, kind, 330)
    save_tokenizer(tokenizer, tmp_path)
    again = load_tokenizer(tmp_path)
    assert (again.kind, len(again), again.special) == (tokenizer.kind, len(tokenizer), tokenizer.special)
    for text in TEXTS:
        assert again.encode(text) == tokenizer.encode(text)
        assert again.pieces(again.encode(text)) == tokenizer.pieces(tokenizer.encode(text))


def test_a_vocab_txt_alone_reads_like_the_whole(tmp_path):
    folder(tmp_path, "wordpiece")
    whole = ExistingTokenizer.from_folder(tmp_path)
    names = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(names, key=names.get)))
    (tmp_path / "tokenizer.json").unlink()
    alone = ExistingTokenizer.from_folder(tmp_path)
    assert [alone.encode(text) for text in TEXTS] == [whole.encode(text) for text in TEXTS]
    assert alone.special == whole.special


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder(tmp_path, "wordpiece", vocab_size=50)
    with pytest.raises(
        ConfigError, match=r"its tokenizer has \d+ tokens and its weights know 50, so they do not belong"
    ):
        ExistingTokenizer.from_folder(tmp_path)
    folder(tmp_path, "wordpiece", pad_token_id=1)
    with pytest.raises(ConfigError, match="fills up with token 0 and its weights were trained with 1"):
        ExistingTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        ExistingTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json .*nobody knows what its weights read"):
        ExistingTokenizer.from_folder(tmp_path)


def test_a_vocabulary_that_is_none_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"version": 1, "source": {}}')
    with pytest.raises(UserError, match="is not the vocabulary of a run that reads texts"):
        load_tokenizer(tmp_path)
    assert starting_tokenizer(load("digits-rnn").start, print) is None
