import pytest
import torch

from saccade.attention import record_attention
from saccade.data.questions.batching import collate, windows
from saccade.data.questions.words import Lexicon, cut
from saccade.models.bidaf import Config, build
from saccade.models.shapes import Shapes

TEXTS = [
    ("Where is Ada?", "Ada ran home. Bob sat down in the garden and slept."),
    ("Who?", "Bob sat."),
]
LEXICON = Lexicon.learn({word: 1 for pair in TEXTS for text in pair for word in cut(text).words}, 100, True, least=1)


def batch(*texts):
    return collate([windows(cut(question), cut(context), 50, 20)[0] for question, context in texts], LEXICON)


def reader(**settings):
    torch.manual_seed(0)
    shapes = Shapes(source_words=len(LEXICON), letters=LEXICON.letter_count)
    return build(Config(hidden=8, embedding=6, letters=5, **settings), shapes).eval()


@pytest.mark.parametrize("back", ["words", "max"])
def test_a_question_is_answered_alike_alone_and_in_company(back):
    model = reader(back=back)
    together = model(batch(*TEXTS))
    for row, text in enumerate(TEXTS):
        for side, alone in zip(together, model(batch(text)), strict=True):
            assert torch.allclose(side[row, : alone.shape[1]], alone[0], atol=1e-5)
            assert torch.isneginf(side[row, alone.shape[1] :]).all()


def test_both_looks_are_recorded_between_question_and_context():
    model = reader()
    with record_attention(model) as recorded:
        model(batch(TEXTS[0]))
    question, context = (len(cut(text)) for text in TEXTS[0])
    assert recorded.joined("flow.to_context").shape == (1, question, context)
    assert recorded.joined("flow.to_question").shape == (1, context, question)


def test_the_papers_look_back_is_a_softmax_over_the_best_fit_of_each_word():
    model = reader(back="max")
    flow, words = model.flow, torch.ones(1, 1, 3, dtype=torch.bool)
    question, context = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    inside = torch.tensor([[[True, True, True, True, False]]])
    score = flow.to_question.score
    weights = [score.query_weight, score.key_weight, score.both_weight]
    w = torch.cat(weights)[:, 0]
    fits = [[w @ torch.cat((h, u, h * u)) for u in question[0]] for h in context[0]]
    shares = torch.stack([max(row) for row in fits[:4]]).softmax(0)
    expected = sum(share * h for share, h in zip(shares, context[0], strict=False))
    with record_attention(model) as recorded:
        _, back = flow(question, context, words, inside)
    assert torch.allclose(back[0], expected.expand(5, -1), atol=1e-5)
    assert torch.allclose(recorded.joined("flow.to_context")[0, 0, :4], shares, atol=1e-6)


def test_word_vectors_from_a_file_stay_as_they_are(tmp_path):
    (tmp_path / "v.txt").write_text("ada 1 2 3 4 5 6\n")
    model = reader(vectors=tmp_path / "v.txt")
    assert not model.words.embed.weight.requires_grad
    assert reader().words.embed.weight.requires_grad
