"""OC-10: the latent that attention returns becomes values, head by head, and passes the sigmoid gate."""

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to


def mla_value_gate(
    latent: Tensor,
    w_uv: Tensor,
    gate: Tensor,
    *,
    seq_lens: Tensor | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`round(latent_h @ W_UV_h^T)`, times the sigmoid of the gate, rounded; zero for an empty request.

    Args:
        latent: [B, ..., H, kv_lora_rank]; its type is the one rounded to.
        w_uv: [H, V, kv_lora_rank].
        gate: [B, ..., H*V].
        seq_lens: [B]; requests of length 0 give zero even when the gate is NaN. None means that none is
            empty.
        acc_dtype: type of the sums and of the gate.

    Returns:
        [B, ..., H*V] in `latent.dtype`.

    Source: DeepSeek-AI, "DeepSeek-V2" (weight absorption); the gate is from the Kimi K3 checkpoint
    configuration.
    """
    wide = torch.einsum("...hc,hvc->...hv", latent.to(acc_dtype), w_uv.to(acc_dtype))
    values = round_to(wide, latent.dtype).flatten(-2)
    out = round_to(values.to(acc_dtype) * torch.sigmoid(gate.to(acc_dtype)), latent.dtype)
    if seq_lens is None:
        return out
    live = (seq_lens > 0).reshape(-1, *[1] * (out.dim() - 1))
    return torch.where(live, out, 0)
