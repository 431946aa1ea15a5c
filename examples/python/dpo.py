# SPDX-License-Identifier: Apache-2.0
"""A loss of one's own: direct preference optimization (DPO) of a small model on toy pairs. It learns to prefer counting up."""
import numpy as np
import sluice

PAIRS, LENGTH, BETA = 4, 32, 0.1


def pairs(seed):
    """Rows in turn chosen and rejected: after a prompt of eight tokens, one counts up and the other down."""
    first = np.random.default_rng(seed).integers(0, 256, (PAIRS, 1))
    steps = np.arange(LENGTH + 1)
    down = np.where(steps < 8, steps, 14 - steps)
    rows = np.stack([first + steps, first + down], axis=1).reshape(2 * PAIRS, LENGTH + 1) % 256
    tokens, targets = rows[:, :-1].astype(np.int32), rows[:, 1:].astype(np.int32)
    targets[:, :7] = -1  # of the prompt nothing is learnt
    return tokens, targets


def dpo(log_probabilities, targets, reference):
    """-log sigmoid(beta * (gain of the chosen - gain of the rejected)), the mean over pairs, and its derivatives."""
    gains = (log_probabilities - reference).sum(axis=1)
    margin = BETA * (gains[0::2] - gains[1::2])
    slope = -BETA / (1 + np.exp(margin)) / PAIRS  # by the chosen's gain; by the rejected's it is the opposite
    return np.logaddexp(0, -margin).mean(), np.repeat(np.stack([slope, -slope], axis=1).reshape(-1, 1), LENGTH, axis=1)


plan = sluice.plan(sluice.Model.config("""{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160}"""), host="2GiB", seq_len=LENGTH,
    tokens_per_step=2 * PAIRS * LENGTH, weighted=True)
with sluice.Session(plan) as session:
    references = [session.forward(*pairs(seed)) for seed in range(4)]
    for step in range(40):
        seed = step % 4
        queued = session.forward_backward(*pairs(seed), loss=lambda p, t: dpo(p, t, references[seed]))
        session.optim_step(learning_rate=3e-3)
        if step % 10 == 0 or step == 39:
            print(f"step {step}: loss {queued.loss:.3f}")
