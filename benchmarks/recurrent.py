"""Training a recurrent model with attention beside a textbook loop and JoeyNMT: useful target tokens per second, peak memory.

    python -m benchmarks.recurrent [--quick]

All read the source with a bidirectional GRU of 2 × 128, write with a GRU of 256 and attend with vᵀ tanh(W s + U h), words of size 256 that
the output layer shares. Batches, loss, clipping and optimiser are those of benchmarks.training. JoeyNMT steps, then attends, and feeds
its readout back (Luong's order), so ours stands in the table in that order too. Writes benchmarks/results/recurrent.json.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks import report
from benchmarks.measure import peak_memory, rounds_apart
from benchmarks.pairs import VOCABULARY, batches, useful_tokens
from benchmarks.training import epoch
from benchmarks.translators import DROPOUT, OurTraining, PlainTraining, Trainer, installed, joeynmt_training, smoothed
from saccade.data.text.tokenizer import PAD

SIZE = 256
GOAL = 2.0
LUONG, LUONG_AT_ONCE = "saccade, Luong's order", "saccade, Luong's order without feeding"


class Textbook(nn.Module):
    """Bahdanau's model as a tutorial writes it down: one loop over the words with everything inside."""

    def __init__(self) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(VOCABULARY, SIZE, padding_idx=PAD)
        self.target_embedding = nn.Embedding(VOCABULARY, SIZE, padding_idx=PAD)
        self.encoder = nn.GRU(SIZE, SIZE // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(SIZE, SIZE)
        self.from_query = nn.Linear(SIZE, SIZE, bias=False)
        self.from_key = nn.Linear(SIZE, SIZE, bias=False)
        self.energy = nn.Linear(SIZE, 1, bias=False)
        self.cell = nn.GRUCell(2 * SIZE, SIZE)
        self.readout = nn.Linear(3 * SIZE, SIZE)
        self.output = nn.Linear(SIZE, VOCABULARY)
        self.output.weight = self.target_embedding.weight
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        embedded = self.dropout(self.source_embedding(source))
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.encoder(packed)
        annotations = self.dropout(pad_packed_sequence(outputs, batch_first=True)[0])
        state = torch.tanh(self.bridge(torch.cat((last[0], last[1]), dim=1)))
        hidden = source == PAD
        logits = []
        for word in self.dropout(self.target_embedding(target)).unbind(1):
            scores = self.energy(torch.tanh(self.from_query(state)[:, None] + self.from_key(annotations))).squeeze(2)
            weights = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=1)
            context = (weights[:, None] @ annotations).squeeze(1)
            state = self.cell(torch.cat((word, context), dim=1), state)
            readout = torch.tanh(self.readout(self.dropout(torch.cat((state, context, word), dim=1))))
            logits.append(self.output(self.dropout(readout)))
        return torch.stack(logits, 1)


def textbook() -> PlainTraining:
    model = Textbook()
    return PlainTraining(
        model, lambda batch: smoothed(model(batch.source, batch.source_lengths, batch.target_in), batch)
    )


def ours(*settings: str) -> OurTraining:
    return OurTraining("seq2seq", "attention=perceptron", f"hidden={SIZE}", f"embedding={SIZE}", *settings)


def joeynmt() -> PlainTraining:
    common = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "dropout": DROPOUT}
    words = {"embedding_dim": SIZE, "dropout": DROPOUT}
    encoder = {**common, "hidden_size": SIZE // 2, "bidirectional": True, "embeddings": words}
    decoder = {**common, "hidden_size": SIZE, "hidden_dropout": DROPOUT, "attention": "bahdanau", "embeddings": words}
    return joeynmt_training(encoder, decoder | {"init_hidden": "bridge", "input_feeding": True}, shared=False)


TRAINERS: dict[str, Callable[[], Trainer]] = {
    report.OURS: ours,
    LUONG: partial(ours, "order=luong"),
    LUONG_AT_ONCE: partial(ours, "order=luong", "input_feeding=false"),
    "GRUCell loop": textbook,
    "JoeyNMT": joeynmt,
}


def main() -> None:
    options = report.settle(report.parser(__doc__.splitlines()[0]).parse_args())
    count = 1 if options.quick else 4
    drawn, variants = batches(count), {name: (name, options.threads, count) for name in installed(TRAINERS)}
    seconds = rounds_apart("benchmarks.recurrent:once", variants, options.repeats, options.busy)
    rows = report.contenders(seconds, useful_tokens(drawn), "tokens")
    if not options.without_memory:
        for row in rows:
            row["peak MB"] = peak_memory("benchmarks.recurrent:once", row["contender"], options.threads) / 1e6
    ratio = report.against_best(rows, ours=(report.OURS, LUONG, LUONG_AT_ONCE))
    report.keep("recurrent", options, **{"against the best peer": ratio, "goal": GOAL, "contenders": rows})
    print(f"{ratio:.2f} x the best peer, goal {GOAL}")
    report.show(rows)


def build(name: str) -> Trainer:
    torch.manual_seed(1)
    return TRAINERS[name]()


def once(name: str, threads: str, count: str = "2") -> Callable[[], None]:
    """Some updates, to be measured in a process of its own."""
    torch.set_num_threads(int(threads))
    return partial(epoch, build(name), batches(int(count)))


if __name__ == "__main__":
    main()
