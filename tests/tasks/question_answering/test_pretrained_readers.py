"""Question and context as one text, against the pipeline of the library that such encoders come from."""

import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import saccade as library
from saccade.data.questions.batching import windows
from saccade.data.text.existing import ExistingTokenizer
from saccade.models.hugging_face import from_hugging_face
from saccade.runs.train import train
from saccade.tasks.question_answering.reading import TokenReader

QUESTION, CONTEXT = "Who sang in the café?", "Ada sang  in the café on Monday, and Mary listened to her songs."
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT for questions with random weights, as its own library saves it."""
    path = tmp_path_factory.mktemp("bert")
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer, engine.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    engine.train_from_iterator([QUESTION, CONTEXT], trainers.WordPieceTrainer(vocab_size=60, special_tokens=SPECIAL))
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    engine.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ends)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=engine.get_vocab_size(),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    model = transformers.BertForQuestionAnswering(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(path)
    return path


@torch.no_grad()
def test_logits_and_places_are_those_of_its_own_library(folder):
    theirs = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()
    encode = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    given = encode(QUESTION, CONTEXT, return_tensors="pt", return_offsets_mapping=True, return_token_type_ids=True)
    offsets = given.pop("offset_mapping")[0].tolist()
    in_context = [place for place, side in enumerate(given.sequence_ids()) if side == 1]
    expected = theirs(**given)
    ours, _ = from_hugging_face(folder)
    reader = TokenReader(ExistingTokenizer.from_folder(folder), 64, 2)
    (window,) = windows(reader.cut(QUESTION), reader.cut(CONTEXT), 60, 30)
    start, end = reader.logits(ours, reader.collate([window]))
    for found, wanted in ((start, expected.start_logits), (end, expected.end_logits)):
        torch.testing.assert_close(found[0], wanted[0, [0, *in_context]], atol=1e-4, rtol=1e-4)
    places = list(zip(window.context.starts, window.context.ends, strict=True))
    assert places == [tuple(offsets[place]) for place in in_context]


@torch.no_grad()
def test_windows_in_company_have_the_logits_that_they_have_alone(folder):
    ours, _ = from_hugging_face(folder)
    reader = TokenReader(ExistingTokenizer.from_folder(folder), 64, 2)
    several = windows(reader.cut(QUESTION), reader.cut(CONTEXT), 10, 6)
    assert len(several) > 2
    together = reader.logits(ours, reader.collate(several))
    for row, window in enumerate(several):
        for side, alone in zip(together, reader.logits(ours, reader.collate([window])), strict=True):
            torch.testing.assert_close(side[row, : alone.shape[1]], alone[0], atol=1e-4, rtol=1e-4)


def test_it_is_fine_tuned_asked_and_looked_at(folder, tmp_path):
    changes = [
        "data.examples=50",
        "train.steps=2",
        "train.warmup_steps=1",
        f"start.from={folder}",
        "model.name=bert",
        "tuning.freeze=embed.*",
    ]
    run = library.load(train("stories-bidaf", changes, tmp_path / "run"))
    story = "Ines walked to the chapel."
    (answer,) = run.predict([("Where is Ines?", story)])
    assert story[answer.best.start : answer.best.end] == answer.text
    view = run.look({"question": "Where is Ines?", "context": story})
    first = view.maps[0]
    assert (first.query_title, first.key_title, first.heads) == ("question", "context", 2)
    assert not run.model.embed.words.weight.requires_grad
