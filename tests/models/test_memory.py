import pytest
import torch

from saccade.attention import record_attention
from saccade.data.questions.batching import collate, windows
from saccade.data.questions.words import Lexicon, cut
from saccade.models.memory import Config, build
from saccade.models.shapes import Shapes

TEXTS = [
    ("Where is Ada?", "Ada ran home. Bob sat in the garden. Ada slept."),
    ("Who sat?", "Bob sat."),
]
LEXICON = Lexicon.learn({word: 1 for pair in TEXTS for text in pair for word in cut(text).words}, 100, True, least=1)


def batch(*texts):
    return collate([windows(cut(question), cut(context), 50, 20)[0] for question, context in texts], LEXICON)


def reader(**settings):
    torch.manual_seed(0)
    return build(Config(hidden=8, **settings), Shapes(source_words=len(LEXICON), letters=9)).eval()


def test_a_story_is_read_alike_alone_and_in_company():
    model = reader(hops=2)
    together = model(batch(*TEXTS))
    for row, text in enumerate(TEXTS):
        for side, alone in zip(together, model(batch(text)), strict=True):
            assert torch.allclose(side[row, : alone.shape[1]], alone[0], atol=1e-5)
            assert torch.isneginf(side[row, alone.shape[1] :]).all()


def test_each_hop_looks_over_the_sentences():
    model = reader(hops=3)
    with record_attention(model) as recorded:
        model(batch(*TEXTS))
    for hop in range(3):
        weights = recorded.joined(f"hops.{hop}")
        assert weights.shape == (2, 1, 3)
        assert weights[1, 0].tolist() == pytest.approx([1, 0, 0])


def test_one_hop_by_hand():
    """The equations as loops over words and sentences."""
    model = reader(hops=1)
    one = batch(TEXTS[0])
    size, sentences, words = 8, one.sentences[0].tolist(), one.forms[one.context[0]]

    def place(j, count):
        return torch.tensor([(1 - j / count) - (d / size) * (1 - 2 * j / count) for d in range(1, size + 1)])

    def memory(number):
        rows = []
        for s in range(3):
            own = [word for word, sentence in zip(words, sentences, strict=True) if sentence == s]
            told = sum(place(j, len(own)) * model.embeds[number].weight[word] for j, word in enumerate(own, start=1))
            rows.append(told + model.ages[number].weight[2 - s])
        return torch.stack(rows)

    asked = one.forms[one.question[0]]
    u = sum(place(j, len(asked)) * model.embeds[0].weight[word] for j, word in enumerate(asked, start=1))
    looked = (memory(0) @ u).softmax(0)
    after = model.between.weight @ u + looked @ memory(1)
    start, _ = model(one)
    for position, (word, sentence) in enumerate(zip(words, sentences, strict=True), start=1):
        expected = after @ model.begins(model.embeds[1].weight[word]) + looked[sentence].log()
        assert start[0, position].item() == pytest.approx(expected.item(), abs=1e-5)
