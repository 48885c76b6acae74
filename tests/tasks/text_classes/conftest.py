from pathlib import Path

import pytest

TINY = [
    "data.examples=120", "model.attention=self", "model.hidden=8", "model.embedding=8", "train.steps=6", "train.validate_every=3",
    "train.threads=1",
    "train.checkpoint_every=3",
]  # fmt: skip
TINY_BERT = [
    "data.examples=120", "model.name=bert", "model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=16",
    "model.max_length=40", "train.steps=4", "train.validate_every=2", "train.threads=1", "train.checkpoint_every=2",
]  # fmt: skip


@pytest.fixture
def tiny() -> list[str]:
    return list(TINY)


@pytest.fixture
def tiny_bert() -> list[str]:
    return list(TINY_BERT)


@pytest.fixture
def kept() -> list[str]:
    """The settings of `tiny_bert` that are not the model's."""
    return [change for change in TINY_BERT if change.startswith(("data", "train"))]


@pytest.fixture(scope="session")
def text_run(tmp_path_factory) -> Path:
    """A run of a few steps: it knows nothing, but everything works."""
    from saccade.runs.train import train

    return train("reviews-lstm", TINY, tmp_path_factory.mktemp("texts") / "lstm")


@pytest.fixture(scope="session")
def bert_run(tmp_path_factory) -> Path:
    from saccade.runs.train import train

    return train("reviews-lstm", TINY_BERT, tmp_path_factory.mktemp("texts") / "bert")


@pytest.fixture(scope="session")
def their_folder(tmp_path_factory) -> Path:
    """A text classifier in Hugging Face's format, with the tokenizer it reads by."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("theirs") / "tiny-bert"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [
        "the",
        "we",
        "was",
        "not",
        "food",
        "service",
        "i",
        "thought",
        "friendly",
        "awful",
        "sister",
        "found",
        "lovely",
        "room",
        "my",
        "##s",
        "##ly",
        "a",
        ".",
        ",",
        "!",
    ]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    engine = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.add_special_tokens(special)
    engine.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=24, id2label={0: "bad", 1: "good"},
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.eval().save_pretrained(folder)
    return folder
