"""Watching a model attend: right names, right weights, no trace, and no change of what is watched."""

import re
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from saccade.attention import CAUSAL, Additive, Attend, Band, Dot, Hard, MultiHead, Soft, record_attention, recording

from .cases import EXACT


class Block(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.self_attention = MultiHead(8, 2, dropout=0.2)
        if cross:
            self.cross_attention = MultiHead(8, 4, dropout=0.2)
        self.norm = nn.LayerNorm(8)

    def forward(self, x, memory=None):
        x = x + self.self_attention(x, band=CAUSAL if memory is not None else None).context
        if memory is not None:
            x = x + self.cross_attention(x, memory).context
        return self.norm(x)


class Stack(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.layers = nn.ModuleList([Block(cross) for _ in range(2)])

    def forward(self, x, memory=None):
        for layer in self.layers:
            x = layer(x, memory)
        return x


class Translator(nn.Module):
    """An encoder, a decoder with cross-attention, and a recurrent reader that looks at one query a step."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Stack(cross=False), Stack(cross=True)
        self.reader = Attend(Additive(8), dropout=0.2)

    def forward(self, source, target):
        memory = self.encoder(source)
        out = self.decoder(target, memory)
        remembered = self.reader.remember(memory)
        steps = [self.reader.recall(out[:, t : t + 1], remembered).context for t in range(out.shape[1])]
        return out + torch.cat(steps, dim=1)


NAMES = [
    "encoder.layers.0.self_attention",
    "encoder.layers.1.self_attention",
    "decoder.layers.0.self_attention",
    "decoder.layers.0.cross_attention",
    "decoder.layers.1.self_attention",
    "decoder.layers.1.cross_attention",
    "reader",
]


@pytest.fixture
def model():
    return Translator().eval()


@pytest.fixture
def inputs():
    return torch.randn(3, 6, 8), torch.randn(3, 4, 8)


def test_weights_come_under_the_path_of_their_module_in_order_of_the_calls(model, inputs):
    with record_attention(model) as maps:
        model(*inputs)
    assert list(maps) == NAMES
    assert len(maps) == len(NAMES)
    assert [maps[name][0].shape for name in NAMES] == [
        (3, 2, 6, 6),
        (3, 2, 6, 6),
        (3, 2, 4, 4),
        (3, 4, 4, 6),
        (3, 2, 4, 4),
        (3, 4, 4, 6),
        (3, 1, 6),
    ]
    for name in maps:
        assert all(weights.shape[-1] and not weights.requires_grad for weights in maps[name])


def test_recorded_weights_are_those_that_make_the_context():
    attend = Attend(Dot(4)).double()
    query, key, value = (torch.randn(2, n, 4, dtype=torch.float64) for n in (3, 5, 5))
    with record_attention(attend) as maps:
        context = attend(query, key, value).context
    torch.testing.assert_close(maps[""][0] @ value, context, **EXACT)


@pytest.mark.parametrize(
    ("route", "score"), [("explicit", Dot), ("fused", Dot), ("blockwise", Dot), ("chunked", Additive)]
)
def test_every_route_hands_over_the_weights_it_used(route, score):
    attend = Attend(score(4), route=route).double()
    query, key, value = (torch.randn(2, 5, 4, dtype=torch.float64) for _ in range(3))
    how = {"band": Band(1, 2), "visible": torch.arange(5) < torch.tensor([5, 3])[:, None, None]}
    plain = attend(query, key, value, **how).context
    with record_attention(attend) as maps:
        context = attend(query, key, value, **how).context
    assert torch.equal(context, plain)
    (weights,) = maps[""]
    torch.testing.assert_close(weights @ value, context, **EXACT)


def test_a_module_called_many_times_gives_one_map_when_joined(model, inputs):
    with record_attention(model) as maps:
        model(*inputs)
    assert len(maps["reader"]) == 4
    assert torch.equal(maps.joined("reader"), torch.cat(maps["reader"], dim=1))
    assert maps.joined("reader").shape == (3, 4, 6)


def test_joined_gives_keys_that_were_not_there_yet_no_weight():
    layer = MultiHead(8, 2)
    x = torch.randn(2, 4, 8)
    memory = layer.remember(x[:, :1])
    with record_attention(layer) as maps:
        for t in range(4):
            if t:
                memory = memory.then(layer.remember(x[:, t : t + 1]))
            layer.recall(x[:, t : t + 1], memory)
    with record_attention(layer) as whole:
        layer(x, band=CAUSAL)
    torch.testing.assert_close(maps.joined(""), whole[""][0])
    assert maps.joined("").triu(1).abs().max() == 0


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("*", NAMES),
        ("decoder.*cross*", [NAMES[3], NAMES[5]]),
        ("encoder.layers.1.*", [NAMES[1]]),
        ("reader", ["reader"]),
    ],
)
def test_only_the_modules_that_match_are_recorded(model, inputs, only, expected):
    with record_attention(model, only=only) as maps:
        model(*inputs)
    assert list(maps) == expected


@pytest.mark.parametrize("only", ["Reader", "encoder.layer.1*", "self_attention"])
def test_a_pattern_that_no_module_matches_is_refused(model, only):
    with (
        pytest.raises(KeyError, match=rf"matches '{re.escape(only)}': use a pattern"),
        record_attention(model, only=only),
    ):
        pass


def test_attention_of_torch_layers_is_warned_about():
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    with pytest.warns(UserWarning, match=r"path 'layers.0.self_attn', .*from_torch"), record_attention(model) as maps:
        model(torch.randn(1, 3, 8))
    assert not maps
    with pytest.warns(UserWarning, match=r"path ''.*MultiHead.from_torch"), record_attention(layer.self_attn):
        pass


def test_torch_layers_outside_of_the_pattern_are_not_warned_about(recwarn):
    model = torch.nn.ModuleDict({"ours": MultiHead(8, 2), "theirs": torch.nn.MultiheadAttention(8, 2)})
    with record_attention(model, only="ours"):
        model["ours"](torch.randn(1, 3, 8))
    assert not recwarn.list


def test_an_unknown_name_is_answered_with_what_there_is(model, inputs):
    with record_attention(model, only="encoder*") as maps:
        model(*inputs)
    with pytest.raises(KeyError, match=r"under 'decoder'; recorded: encoder.layers.0.self_attention, encoder.layers.1"):
        maps["decoder"]
    assert "decoder" not in maps
    with record_attention(model) as maps, pytest.raises(KeyError, match="recorded: nothing"):
        maps.joined("encoder")


def test_gradients_may_be_off(model, inputs):
    with record_attention(model) as maps:
        model(*inputs)
    with torch.no_grad(), record_attention(model) as without:
        model(*inputs)
    with torch.inference_mode(), record_attention(model) as inference:
        model(*inputs)
    for name in NAMES:
        torch.testing.assert_close(maps.joined(name), without.joined(name))
        torch.testing.assert_close(maps.joined(name), inference.joined(name))


@pytest.mark.parametrize("training", [True, False])
def test_the_output_and_its_gradients_do_not_change_by_being_watched(model, inputs, training):
    model.train(training)
    torch.manual_seed(5)
    plain = model(*inputs)
    torch.manual_seed(5)
    with record_attention(model):
        watched = model(*inputs)
    assert torch.equal(plain, watched)
    expected = torch.autograd.grad(plain.sum(), list(model.parameters()), allow_unused=True)
    found = torch.autograd.grad(watched.sum(), list(model.parameters()), allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_weights_are_recorded_before_dropout():
    layer = MultiHead(8, 2, dropout=0.9).train()
    with record_attention(layer) as maps:
        layer(torch.randn(2, 5, 8))
    torch.testing.assert_close(maps[""][0].sum(-1), torch.ones(2, 2, 5))
    assert (maps[""][0] > 0).all()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_recorded_once(model, inputs, use_reentrant):
    source, target = inputs
    with record_attention(model) as maps:
        once = model(source.requires_grad_(), target)
    with record_attention(model) as again:
        output = checkpoint(model, source, target, use_reentrant=use_reentrant)
        output.sum().backward()
    torch.testing.assert_close(output, once)
    assert {name: len(calls) for name, calls in again.items()} == {name: len(calls) for name, calls in maps.items()}


def test_a_sampled_key_is_recorded_as_sampled():
    attend = Attend(Dot(4), Hard()).train()
    query, key, value = torch.randn(2, 30, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    with record_attention(attend) as maps:
        context = attend(query, key, value).context
    assert torch.equal(maps[""][0] @ value, context)


def test_recordings_may_be_nested(model, inputs):
    with record_attention(model) as outer:
        model(*inputs)
        with record_attention(model.encoder) as inner:
            model(*inputs)
        model(*inputs)
    assert list(inner) == ["layers.0.self_attention", "layers.1.self_attention"]
    assert len(inner["layers.0.self_attention"]) == 1
    assert len(outer[NAMES[0]]) == 3
    assert torch.equal(outer[NAMES[0]][1], inner["layers.0.self_attention"][0])


def test_another_model_is_not_recorded(model, inputs):
    with record_attention(model) as maps:
        Translator()(*inputs)
    assert len(maps) == 0


def test_an_exception_inside_leaves_no_trace(model, inputs):
    too_wide = torch.randn(3, 4, 9)
    with pytest.raises(ValueError, match=r"got \(3, 4, 9\)"), record_attention(model) as maps:
        model(inputs[0], too_wide)
    assert list(maps) == NAMES[:2]
    model(*inputs)
    assert list(maps) == NAMES[:2]
    assert len(maps[NAMES[0]]) == 1


def test_nothing_is_recorded_after_the_end(model, inputs):
    with record_attention(model) as maps:
        pass
    model(*inputs)
    assert len(maps) == 0


def test_another_thread_is_not_recorded(model, inputs):
    with record_attention(model) as maps:
        thread = threading.Thread(target=model, args=inputs)
        thread.start()
        thread.join()
        assert len(maps) == 0
        model(*inputs)
    assert len(maps["reader"]) == 4


def test_two_threads_record_apart(model):
    found = {}

    def watch(length):
        with record_attention(model) as maps:
            for _ in range(3):
                model(torch.randn(1, length, 8), torch.randn(1, 2, 8))
        found[length] = [weights.shape[-1] for weights in maps[NAMES[0]]]

    threads = [threading.Thread(target=watch, args=(length,)) for length in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {3: [3, 3, 3], 5: [5, 5, 5]}


def everything_on(model):
    """All attributes and hooks of all modules, and all parameters."""
    attributes = {name: {k: repr(v) for k, v in vars(module).items()} for name, module in model.named_modules()}
    return attributes, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_nothing_remains_on_the_modules(model, inputs):
    attributes, state = everything_on(model)
    with record_attention(model):
        model(*inputs)
        assert everything_on(model)[0] == attributes
    after, state_after = everything_on(model)
    assert after == attributes
    assert list(state_after) == list(state)
    assert all(torch.equal(state[name], state_after[name]) for name in state)


def test_a_recording_that_outlives_another_keeps_a_compiled_model_in_view(model, inputs):
    """The compiler's stance belongs to all threads: the end of one recording must not end it for another, nor leave it behind."""
    compiled = torch.compile(model, backend="eager")
    before = torch._dynamo.eval_frame._stance
    first, second = record_attention(compiled), record_attention(compiled)
    first_started, second_started, first_ended = threading.Event(), threading.Event(), threading.Event()
    found = []

    def record_first():
        with first:
            first_started.set()
            second_started.wait(10)
        first_ended.set()

    def record_second():
        first_started.wait(10)
        with second as maps:
            second_started.set()
            first_ended.wait(10)
            compiled(*inputs)
        found.extend(maps)

    threads = [threading.Thread(target=target) for target in (record_first, record_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == NAMES
    assert torch._dynamo.eval_frame._stance == before


# Models that something else has wrapped


def test_a_compiled_model_records_with_clean_names_and_the_same_output(model, inputs):
    with record_attention(model) as plain:
        expected = model(*inputs)
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(*inputs), expected)
    with record_attention(compiled) as maps:
        watched = compiled(*inputs)
    assert torch.equal(watched, expected)
    assert list(maps) == NAMES
    for name in NAMES:
        assert torch.equal(maps.joined(name), plain.joined(name))
    assert torch.equal(compiled(*inputs), expected)


def test_compiled_parts_of_a_model_record_with_clean_names(model, inputs):
    expected = model(*inputs)
    for layer in range(2):
        model.decoder.layers[layer] = torch.compile(model.decoder.layers[layer], backend="eager")
    model.reader.compile(backend="eager")
    model(*inputs)
    with record_attention(model) as maps:
        watched = model(*inputs)
    assert list(maps) == NAMES
    assert torch.equal(watched, expected)


def test_a_whole_attention_compiles_into_one_graph():
    for attend in (Attend(Dot(4)), Attend(Additive(4), Hard()), Attend(Dot(4), route="fused"), Attend(Dot(4), Soft())):
        query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
        compiled = torch.compile(attend.eval(), backend="eager", fullgraph=True)
        assert torch.equal(compiled(query, key).context, attend(query, key).context)


@pytest.fixture
def one_process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process_group")
def test_a_distributed_model_records_with_clean_names(model, inputs):
    distributed = DistributedDataParallel(model)
    with record_attention(distributed) as maps:
        distributed(*inputs)
    assert list(maps) == NAMES


class Residual(nn.Module):
    """`module` is also a name that people give."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return x + self.module(x).context


def test_a_module_that_is_really_called_module_keeps_its_path():
    model = nn.Sequential(Residual(MultiHead(8, 2)), Residual(MultiHead(8, 2)))
    with record_attention(model) as maps:
        model(torch.randn(1, 3, 8))
    assert list(maps) == ["0.module", "1.module"]


def test_a_module_that_two_parts_share_answers_to_either_path():
    shared = MultiHead(8, 2)
    model = nn.ModuleDict({"encoder": nn.Sequential(shared), "decoder": nn.Sequential(shared)})
    for only, expected in (("*", "encoder.0"), ("decoder.*", "decoder.0")):
        with record_attention(model, only=only) as maps:
            shared(torch.randn(1, 3, 8))
        assert list(maps) == [expected]


def test_recording_does_not_load_the_compiler(monkeypatch, model, inputs):
    """It takes seconds to load, and nothing can be compiled in a process that has not loaded it."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: pytest.fail("this loads the compiler"))
    with record_attention(model) as maps:
        model(*inputs)
    assert list(maps) == NAMES


def test_a_module_with_two_names_is_found_under_either():
    model = torch.nn.Module()
    model.first = MultiHead(8, 2)
    model.second = model.first
    for only in ("first", "second"):
        with record_attention(model, only=only) as maps:
            model.first(torch.randn(1, 3, 8))
        assert list(maps) == [only]


def test_a_recorded_map_may_be_changed_before_the_way_back():
    layer, x = MultiHead(8, 2, route="explicit"), torch.randn(1, 3, 8)
    with record_attention(layer) as maps:
        context = layer(x).context
    maps[""][0].zero_()
    context.sum().backward()
    changed = layer.value.weight.grad.clone()
    layer.zero_grad()
    layer(x).context.sum().backward()
    torch.testing.assert_close(layer.value.weight.grad, changed)


def test_a_recording_that_cannot_begin_leaves_no_trace(monkeypatch):
    """As inside a compiled function, where the compiler refuses another stance."""
    import torch._dynamo

    def refuse(*_):
        raise RuntimeError("not here")

    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "set_stance", refuse)
        with pytest.raises(RuntimeError, match="not here"), record_attention(MultiHead(8, 2)):
            pass
    assert recording.uncompiled._inside == 0
    assert not recording.is_anybody_watching()


def test_a_model_compiled_for_the_first_time_inside_is_told_of(tmp_path):
    script = """
import torch
from saccade.attention import MultiHead, record_attention
layer = MultiHead(8, 2)
with record_attention(layer) as maps:
    torch.compile(layer, backend="eager")(torch.randn(1, 3, 8))
print(len(maps))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "0\n"
    assert "run it once before" in done.stderr


@pytest.mark.slow
def test_a_recording_of_nothing_is_no_compiled_model(tmp_path):
    script = """
import torch
from saccade.attention import MultiHead, record_attention
with record_attention(MultiHead(8, 2)):
    import torch._dynamo
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
