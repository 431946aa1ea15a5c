// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "ops/cast.h"
#include "report/report.h"

namespace sluice::core {
namespace {

struct Role {
  std::string_view name, words;
};
constexpr Role kRoles[] = {
    // Activations, in the order of a layer.
    {"x", "input of a layer: the residual stream"},
    {"x_token", "embeddings of tokens, before those of their positions are added"},
    {"h1", "x after the first norm: what attention's projections read"},
    {"bcx", "what a convolution reads: its two gates and its input, side by side"},
    {"conv_tail", "the last inputs of a convolution, which the next piece of the sequence reads"},
    {"conv", "what a convolution gives, before its output projection"},
    {"delta_raw", "queries, keys and values of a gated delta rule, before their convolution"},
    {"delta_z", "what gates the result of a gated delta rule"},
    {"delta_ba", "what the betas and decays of a gated delta rule are made of"},
    {"delta_conv", "queries, keys and values of a gated delta rule"},
    {"delta_gates", "betas and decays of a gated delta rule"},
    {"delta_o", "what a gated delta rule gives"},
    {"delta_state", "states of a gated delta rule, which the next piece of the sequence goes on from"},
    {"delta_gated", "what a gated delta rule gives, normalised and gated, before its output projection"},
    {"attn_gate", "what gates the result of attention"},
    {"attn_gated", "what attention gives, gated, before its output projection"},
    {"q_raw", "queries before their norm"},
    {"kv_raw", "keys beside values, before the norm of the keys"},
    {"q", "queries of attention, rotated to their positions"},
    {"kv", "keys (rotated) beside values of attention"},
    {"o_sum", "o while it is summed over earlier chunks"},
    {"o", "what attention gives, before its output projection"},
    {"lse", "log-sum-exp of attention's scores: a number per head and token"},
    {"x_mid", "x plus the output of attention: input of the layer's second half"},
    {"attn_out", "what attention gives, before it is normalised and added to x"},
    {"h2", "x_mid after the second norm: what the MLP reads"},
    {"gu", "gate and up projections of the MLP, side by side, or the up projection alone"},
    {"act", "the gate, activated, times up: what the down projection reads"},
    {"mlp_out", "what the MLP gives, before it is normalised and added to x_mid"},
    {"x_halves", "x behind both halves of a layer that adds to it or scales it"},
    {"x_input", "the same with what the layer's table adds"},
    {"input_rows", "rows of the layer's table, of the tokens"},
    {"input_raw", "a projection of the embedding, before its norm"},
    {"input", "that projection, normalised, beside the rows: what a layer is given of the token itself"},
    {"input_gate", "a projection of x, which gates input"},
    {"input_act", "input, gated"},
    {"input_out", "what is added to x of it, before its norm"},
    {"h", "output of the last layer after its norm: what the head reads"},
    {"logits", "a score for every word of the vocabulary"},
    // Weights.
    {"embedding", "weights: a vector per word of the vocabulary"},
    {"positions", "weights: a vector per position"},
    {"norm1", "weights of the norm before attention"},
    {"wq", "weights of the query projection"},
    {"wkv", "weights of the key and value projections"},
    {"q_norm", "weights of the norm of every query head"},
    {"k_norm", "weights of the norm of every key head"},
    {"wconv_in", "weights of a convolution's input projection"},
    {"wconv", "weights of a convolution, by channel"},
    {"wconv_out", "weights of a convolution's output projection"},
    {"wdelta_qkv", "weights of a gated delta rule's projection of queries, keys and values"},
    {"wdelta_z", "weights of the projection of a gated delta rule's gate"},
    {"wdelta_ba", "weights of the projection of betas and decays"},
    {"a_log", "logarithms of the decay of heads of a gated delta rule"},
    {"dt_bias", "bias of the decay of heads of a gated delta rule"},
    {"delta_norm", "weights of the norm behind a gated delta rule"},
    {"wdelta_out", "weights of a gated delta rule's output projection"},
    {"wq_gate", "weights of the projection of attention's gate"},
    {"bq_gate", "bias of the projection of attention's gate"},
    {"sinks", "learnt logits of heads, in the sum of attention's softmax"},
    {"wo", "weights of attention's output projection"},
    {"norm1_after", "weights of the norm behind attention"},
    {"norm2_after", "weights of the norm behind the MLP"},
    {"norm2", "weights of the norm before the MLP"},
    {"wgu", "weights of the gate and up projections"},
    {"wd", "weights of the down projection"},
    {"input_table", "weights: a vector per word of the vocabulary, for the layer"},
    {"winput", "weights of the projection of the embedding for the layer"},
    {"input_norm", "weights of the norm of what layers are given of tokens"},
    {"winput_gate", "weights of the projection that gates what the layer is given of the token"},
    {"winput_out", "weights of the projection of that into x"},
    {"input_after", "weights of the norm behind it"},
    {"layer_scale", "the number that the layer's x is multiplied by"},
    {"bq", "bias of the query projection"},
    {"bkv", "bias of the key and value projections"},
    {"bo", "bias of attention's output projection"},
    {"bgu", "bias of the gate and up projections"},
    {"bd", "bias of the down projection"},
    {"norm", "weights of the last norm"},
    {"norm1_bias", "bias of the norm before attention"},
    {"norm2_bias", "bias of the norm before the MLP"},
    {"norm_bias", "bias of the last norm"},
    {"head", "weights of the head, which gives the logits"},
    // The rest.
    {"batch", "tokens, targets and positions of a chunk"},
    {"log_probs", "log-probabilities of a chunk's targets"},
    {"asked", "weights and log-probabilities of a round's targets, where a loss of the caller's is asked"},
    {"losses", "losses of a chunk's targets, which nobody reads: they come with the log-probabilities"},
    {"args", "numbers of this step: its index, learning rate, weights of the loss"},
    {"inv_freq", "frequencies of the rotation to positions"},
    {"window_inv_freq", "the same of layers with a window"},
    {"loss", "the sum of the loss"},
    {"act2", "act, computed again by the backward pass"},
    {"clip", "the factor by which gradients are clipped"},
    {"grad_sums", "sums of squares of gradients, for the clip"},
};

}  // namespace

std::string_view describe_role(std::string_view role) {
  if (role.ends_with(kTurned)) return "a copy in 8 bits, turned, which a product of the backward pass reads";
  if (role.ends_with(kByRow)) return "a copy in 8 bits, which a product reads";
  role = role.substr(0, role.find('-'));  // parts are described as their stack
  const auto it =
      std::find_if(std::begin(kRoles), std::end(kRoles), [&](const Role& r) { return r.name == role; });
  return it == std::end(kRoles) ? std::string_view() : it->words;
}

}  // namespace sluice::core
