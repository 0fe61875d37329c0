"""Weights of vLLM's layers as the kernels take them: views, laid out as the contracts say."""

from types import SimpleNamespace

import torch

from specialized_path.kimi_k3.weights import KdaLayer, MlaLayer, bind_embedding, bind_layers

HEADS = 2


def _weight(*shape, dtype=torch.bfloat16):
    return SimpleNamespace(
        weight=torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape).to(dtype)
    )


def _layer(attention, index):
    mixtures = ("self_attention_res", "mlp_res")
    parts = {f"{name}_norm": _weight(8) for name in mixtures} | {
        f"{name}_proj": _weight(1, 8) for name in mixtures
    }
    norms = {"input_layernorm": _weight(8), "post_attention_layernorm": _weight(8)}
    return SimpleNamespace(layer_idx=index, self_attn=attention, **parts, **norms)


def _kda():
    return SimpleNamespace(
        conv1d=_weight(3 * HEADS * 128, 1, 4, dtype=torch.float32),
        f_b_proj=_weight(HEADS * 128, 128),
        A_log=torch.zeros(HEADS),
        dt_bias=torch.zeros(HEADS * 128),
        o_norm=_weight(128),
        in_proj_qkvgfab=_weight(16, 8),
        o_proj=_weight(8, HEADS * 128),
    )


def _mla():
    return SimpleNamespace(
        num_local_heads=HEADS,
        kv_b_proj=_weight(HEADS * 256, 512, dtype=torch.float32),
        q_a_layernorm=_weight(1536),
        kv_a_layernorm=_weight(512),
        q_b_proj=_weight(HEADS * 192, 1536),
        fused_qkv_a_g_proj=_weight(16, 8),
        o_proj=_weight(8, HEADS * 128),
    )


def _bound():
    modules = (_kda(), _mla())
    return modules, bind_layers(
        SimpleNamespace(layers=[_layer(module, i) for i, module in enumerate(modules)])
    )


def test_each_kind_of_attention_is_recognised():
    _, layers = _bound()
    assert [type(layer.attention) for layer in layers] == [KdaLayer, MlaLayer]


def test_key_and_value_halves_of_a_head_are_the_rows_of_kv_b():
    (_, mla), (_, layer) = _bound()
    rows = mla.kv_b_proj.weight
    expected = [
        rows[256 * head + 128 * half : 256 * head + 128 * (half + 1)] for half in (0, 1) for head in (0, 1)
    ]
    found = [*layer.attention.weights.w_uk, *layer.attention.w_uv]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_nothing_is_copied_so_a_reload_shows_through():
    (kda, mla), layers = _bound()
    kda.conv1d.weight.fill_(5.0)
    mla.kv_b_proj.weight.fill_(7.0)
    found = (
        layers[0].attention.weights.conv_weight,
        layers[1].attention.weights.w_uk,
        layers[1].attention.w_uv,
    )
    assert [t.unique().tolist() for t in found] == [[5.0], [7.0], [7.0]]


def test_the_convolution_has_a_row_of_taps_for_each_channel():
    _, layers = _bound()
    assert layers[0].attention.weights.conv_weight.shape == (3 * HEADS * 128, 4)


def test_the_embedding_leaves_out_the_rows_that_pad_the_vocabulary():
    shard = SimpleNamespace(org_vocab_start_index=40, org_vocab_end_index=45)
    table = SimpleNamespace(weight=torch.arange(8 * 4).view(8, 4), shard_indices=shard)
    found = bind_embedding(SimpleNamespace(embed_tokens=table))
    assert (found.vocab_start, found.weight[-1].tolist()) == (40, [16, 17, 18, 19])
