# SPDX-License-Identifier: Apache-2.0
"""What a folder calls the tensors of a model of transformers, where its classes have others: they rename some as they read and
write, and stack experts."""


def in_folder(model, name, values):
    """The tensors of a folder that hold a parameter's values, by name."""
    kind = model.config.model_type
    if kind == "gpt_neox":
        name = name.replace("lm_head.", "embed_out.")
    if kind == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    layer, _, fused = name.rpartition(".experts.")
    if not layer or kind in ("gpt_oss", "gemma4_text"):
        return {name: values}
    gate, up, down = ("w1", "w3", "w2") if kind in ("mixtral", "lfm2_moe") else ("gate_proj", "up_proj", "down_proj")
    parts = {gate: 0, up: 1} if fused == "gate_up_proj" else {down: 0}
    return {
        f"{layer}.experts.{expert}.{part}.weight": of_expert.chunk(len(parts))[i].clone()
        for expert, of_expert in enumerate(values)
        for part, i in parts.items()
    }


def router_loss(model, out):
    """What transformers' models add to the loss of their labels, where their configuration asks for it."""
    if not getattr(model.config, "output_router_logits", False) or not hasattr(model.config, "router_aux_loss_coef"):
        return 0
    return model.config.router_aux_loss_coef * out.aux_loss
