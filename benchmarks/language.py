"""Language models beside plain torch and transformers: tokens a second in training, and in writing on with a cache.

    python -m benchmarks.language                 both sizes, training and generation
    python -m benchmarks.language --quick

The same GPT (GPT-2's settings, no dropout) with the same batches, clipping and AdamW: ours by what `saccade train` runs, plain torch as
nanoGPT has it (fused attention, logits of all tokens), and GPT2LMHeadModel. A second row of ours has the settings of the recipe
`language`. Generation is greedy from a prompt of 8 tokens, by ours and by `generate`, both with a cache. Each contender has a process of
its own (benchmarks/training.py says why). Writes benchmarks/results/language.json.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import report
from benchmarks.measure import rounds_apart
from saccade.decoding import Continuing, continued
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.models import gpt
from saccade.models.shapes import Shapes
from saccade.training.allocator import keep_freed_memory
from saccade.training.config import TrainConfig
from saccade.training.optimizer import optimizer_of


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    context: int
    batch: int
    words: int


SIZES = {"4 × 128": Size(4, 128, 4, 64, 12, 65), "6 × 384": Size(6, 384, 6, 256, 4, 65)}
RECIPE = f"{report.OURS}, recipe"
TRAINERS = (report.OURS, RECIPE, "torch", "transformers")
WRITERS = (report.OURS, "transformers")
UPDATES, WRITTEN, PROMPT = 4, 48, 8
_GPT2: dict[str, Any] = {"positions": "learned", "activation": "gelu-tanh", "query_key_norm": False, "initial": "small"}


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    options = report.settle(parser.parse_args())
    results = (report.kept("language") or {}).get("sizes", {})
    for size in options.sizes:
        results[size] = {"training": training(size, options)}
        for batch in (1, 16):
            results[size][f"generation, batch {batch}"] = generation(size, batch, options)
        report.keep("language", options, sizes=results)
        for what, found in results[size].items():
            print(f"{size}, {what}: {found['against the best peer']:.2f} x the best peer")
            report.show(found["contenders"])


def training(size: str, options: Any) -> dict[str, Any]:
    chosen = SIZES[size]
    variants = {name: ("training", name, size, options.threads) for name in TRAINERS}
    seconds = rounds_apart("benchmarks.language:once", variants, options.repeats, options.busy)
    return _rows(seconds, UPDATES * chosen.batch * chosen.context)


def generation(size: str, batch: int, options: Any) -> dict[str, Any]:
    variants = {name: ("generation", name, size, options.threads, batch) for name in WRITERS}
    seconds = rounds_apart("benchmarks.language:once", variants, options.repeats, options.busy)
    return _rows(seconds, batch * WRITTEN)


def _rows(seconds: dict[str, list[float]], tokens: int) -> dict[str, Any]:
    rows = report.contenders(seconds, tokens, "tokens")
    return {
        "against the best peer": report.against_best([row for row in rows if row["contender"] != RECIPE]),
        "contenders": rows,
    }


def once(what: str, name: str, size: str, threads: str, batch: str = "1") -> Callable[[], None]:
    """Some updates, or some tokens written, to be measured in a process of its own."""
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    if name.startswith(report.OURS):
        keep_freed_memory()
    if what == "generation":
        return _writing(name, SIZES[size], int(batch))
    return _updating(name, SIZES[size])


def _updating(name: str, size: Size) -> Callable[[], None]:
    rows = torch.randint(size.words, (size.batch, size.context + 1))
    tokens, following = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    model, loss = _model(name, size)

    def mean_loss() -> Tensor:
        return loss(tokens, following)

    config = TrainConfig(learning_rate=1e-3, weight_decay=0.1, betas=(0.9, 0.99))
    if name.startswith(report.OURS):
        step = type("Step", (), {"parameters": list(model.parameters())})
        optimizer = optimizer_of(step, config, model)  # type: ignore[arg-type]
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)

    def work() -> None:
        for _ in range(UPDATES):
            mean_loss().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return work


def _model(name: str, size: Size) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """The model, and the mean loss of its batches."""
    if name == "transformers":
        theirs = _gpt2(size)
        return theirs, lambda tokens, following: F.cross_entropy(
            theirs(tokens, use_cache=False).logits.flatten(0, 1), following.flatten()
        )
    if name == "torch":
        plain = Plain(size)
        return plain, lambda tokens, following: F.cross_entropy(plain(tokens).flatten(0, 1), following.flatten())
    ours = _ours(size, {} if name == RECIPE else _GPT2)

    def loss(tokens: Tensor, following: Tensor) -> Tensor:
        total, _ = linear_cross_entropy(ours.read(tokens).flatten(0, 1), ours.output, following.flatten())
        return total / following.numel()

    return ours, loss


def _ours(size: Size, settings: dict[str, Any]) -> gpt.GPT:
    sizes = {"layers": size.layers, "width": size.width, "heads": size.heads, "context": size.context}
    return gpt.build(gpt.Config.model_validate({**sizes, **settings}), Shapes(target_words=size.words))


def _gpt2(size: Size) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": size.context, "n_embd": size.width, "n_layer": size.layers, "n_head": size.heads}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=size.words, **sizes, **off, **special))


def _writing(name: str, size: Size, batch: int) -> Callable[[], None]:
    prompts = torch.randint(1, size.words, (batch, PROMPT))
    if name == "transformers":
        theirs = _gpt2(size).eval()
        mask = torch.ones_like(prompts)

        def generate() -> None:
            with torch.inference_mode():
                theirs.generate(
                    prompts,
                    attention_mask=mask,
                    max_new_tokens=WRITTEN,
                    min_new_tokens=WRITTEN,
                    do_sample=False,
                    use_cache=True,
                )

        return generate
    ours = _ours(size, _GPT2).eval()

    def write() -> None:
        for _ in continued(ours, prompts, Continuing(), never=(), limit=WRITTEN, seed=1):
            pass

    return write


class Plain(nn.Module):
    """A GPT in plain torch: what one would write without a library."""

    def __init__(self, size: Size):
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.positions = nn.Parameter(0.02 * torch.randn(size.context, size.width))
        self.blocks = nn.ModuleList(PlainBlock(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


class PlainBlock(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(2))
        self.queries_keys_values = nn.Linear(size.width, 3 * size.width, bias=False)
        self.output = nn.Linear(size.width, size.width, bias=False)
        self.expand = nn.Linear(size.width, 4 * size.width, bias=False)
        self.contract = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.queries_keys_values(self.norms[0](x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).flatten(2))
        return x + self.contract(F.gelu(self.expand(self.norms[1](x)), approximate="tanh"))


if __name__ == "__main__":
    main()
