"""Laws of a training run: what moves, what stays, and that it goes on where it stopped."""

import itertools
import json
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from nano_training.curriculum import Group, Phase, Source, batches
from nano_training.feeder import feed
from nano_training.initial import initial_weights
from nano_training.loop import LOG_EVERY, Run, run_worker
from nano_training.optimizer import orthogonalized
from specialized_path.nano.config import KimiK3NanoConfig


@pytest.fixture
def source(tmp_path):
    """Chats whose answers are all the same, one of them too long for a sequence."""
    chats = [
        {
            "messages": [
                {"role": "user", "content": str(n)},
                {"role": "assistant", "content": "again and again"},
            ]
        }
        for n in range(400)
    ]
    chats[1]["messages"][0]["content"] = "long" * 20
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return {"name": "chats", "command": f"cat {path}", "share": 1.0, "loss_weight": 0.5}


@pytest.fixture
def train(tmp_path, source):
    """Returns a function that trains for so many steps in all, in this process, and gives the folder."""
    num_threads = torch.get_num_threads()

    def run(steps, **changed):
        curriculum = tmp_path / f"{steps}.json"
        group = {"share": 1, "length": 24, "sequences": 2, "sources": [source]}
        phase = {"steps": steps, "groups": [group]}
        curriculum.write_text(json.dumps({"phases": [phase]}))
        settings = {"seed": 0, "workers": 1, "matrix_lr": 0.02, "vector_lr": 0.01, "compile": False}
        settings |= {"device": "cpu", "feeders": 0, "seconds": None, "start": None} | changed
        settings["started"] = time.monotonic()
        rendezvous = str(tmp_path / f"rendezvous-{len(list(tmp_path.iterdir()))}")
        run_worker(0, Run(out_dir=tmp_path, curriculum=curriculum, rendezvous=rendezvous, **settings))
        return tmp_path

    yield run
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(False)


@pytest.fixture
def phase(source):
    """A phase over the chats."""
    group = Group(share=1, length=24, sequences=2, sources=(Source(**source),))
    return Phase(steps=1, groups=(group,))


def test_what_every_chat_says_is_learned_the_routing_stays_and_nothing_is_done_twice(train, tmp_path):
    trained = load_file(train(LOG_EVERY) / "model.safetensors")
    (point,) = json.loads((tmp_path / "curve.json").read_text())
    assert point["chats"]["token_accuracy"] > 0.5
    initial = initial_weights(KimiK3NanoConfig(), 0)
    frozen = {name for name, weight in trained.items() if torch.equal(weight, initial[name])}
    # The first mixture has a single source: its query has nothing to decide.
    alone = ("model.layers.0.self_attention_res_norm.weight", "model.layers.0.self_attention_res_proj.weight")
    routing = (name for name in initial if ".gate." in name or ("mlp_res" in name and "layers.0" not in name))
    assert frozen == {*alone, *routing}
    tags = (weights["model.embed_tokens.weight"][:, :17] for weights in (trained, initial))
    assert torch.equal(*tags)
    (tmp_path / "chats.jsonl").unlink()
    again = load_file(train(LOG_EVERY) / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in trained.items())


def test_a_chat_that_does_not_fit_is_left_out_and_the_rest_is_padded(phase):
    batch = next(batches(phase, seed=0))
    first_bytes = [chr(row[2]) for row in batch.token_ids.tolist()]
    assert first_bytes == ["0", "2"]


def test_only_what_is_learned_has_weight_and_it_is_the_sources(phase):
    batch = next(batches(phase, seed=0))
    assert batch.weights.unique().tolist() == [0.0, 0.5]
    learned = batch.token_ids[:, 1:][batch.weights > 0].tolist()
    assert bytes(t for t in learned if t < 256) == b"again and again" * 2


def test_a_step_draws_from_one_group_at_a_time_and_all_get_their_share(source):
    sources = [Source(**source | {"name": name}) for name in "ab"]
    short, long = (
        Group(share=share, length=length, sequences=1, sources=(source,))
        for share, length, source in zip((3, 1), (24, 96), sources, strict=True)
    )
    taken = itertools.islice(batches(Phase(steps=1, groups=(short, long)), seed=0), 100)
    drawn = [(batch.weights.shape[1], int(batch.source)) for batch in taken]
    assert set(drawn) == {(24, 0), (96, 1)}
    assert 60 < drawn.count((24, 0)) < 90


def test_processes_that_make_batches_ahead_make_the_same_ones(phase):
    with feed(phase, [0]) as fed:
        ahead = [next(fed) for _ in range(3)]
    for batch, other in zip(batches(phase, 0), ahead, strict=False):
        assert torch.equal(batch.token_ids, other.token_ids)
        assert torch.equal(batch.weights, other.weights)
        assert torch.equal(batch.source, other.source)


def test_sources_that_end_end_the_run_instead_of_leaving_it_waiting(phase):
    with feed(phase, [0]) as fed, pytest.raises(RuntimeError, match="makes batches ended"):
        for _ in fed:
            pass


def test_a_run_of_so_many_seconds_ends_with_a_step_size_of_zero(train, tmp_path):
    began = time.monotonic()
    train(LOG_EVERY, seconds=4.0)
    assert 4.0 <= time.monotonic() - began < 20.0
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["progress"] >= 1.0
    assert state["step"] > LOG_EVERY


def test_a_run_goes_on_from_given_weights(train, tmp_path):
    given = tmp_path / "given.safetensors"
    save_file({n: w + 0.01 for n, w in initial_weights(KimiK3NanoConfig(), 3).items()}, given)
    trained = load_file(train(1, start=given, matrix_lr=0.0, vector_lr=0.0) / "model.safetensors")
    assert all(torch.equal(trained[name], weight) for name, weight in load_file(given).items())


@pytest.mark.parametrize("shape", [(3, 32, 64), (2, 64, 32), (1, 4, 128)])
def test_a_matrix_moves_along_all_its_directions_alike(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalized(matrices))
    assert (values > 0.6).all() and (values < 1.3).all()


def test_the_directions_of_a_matrix_are_kept():
    matrices = torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.transpose(-1, -2) @ orthogonalized(matrices) @ right.transpose(-1, -2)
    assert (turned - torch.diag_embed(turned.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-3
