// SPDX-License-Identifier: Apache-2.0
#include "run/session/comparison.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/network.h"
#include "base/stopwatch.h"
#include "io/sealed.h"
#include "model/families/families.h"
#include "run/loaded/counted_texts.h"

namespace sluice::core {
namespace {

using SidesOfRows = std::vector<std::vector<RowSide>>;

// Prompts, each with the answer of the document before its own; of one that is too long for a row what fits.
CountedTexts other_answers(const BatchSource& source, std::span<const int64_t> documents) {
  std::vector<CountedText> texts;
  for (const int64_t number : documents) {
    const SidedDocument own = source.document(number);
    const SidedDocument other = source.document((number + source.documents() - 1) % source.documents());
    const AnswerSide &prompt = own.sides.side[0], &answer = other.sides.side[0];
    std::vector<int32_t> ids(own.ids.begin(), own.ids.begin() + long(prompt.answer));
    ids.insert(ids.end(), other.ids.begin() + long(answer.answer), other.ids.begin() + long(answer.end));
    ids.resize(std::min(ids.size(), size_t(source.sequence())));
    texts.push_back({std::move(ids), size_t(prompt.answer)});
  }
  return {std::move(texts), source.sequence()};
}

// Log-probabilities of a row, as training has them.
std::vector<float> log_probs_in(const TokenLosses& losses, int64_t first, int64_t count) {
  std::vector<float> out;
  for (int64_t t = first; t < first + count; ++t) out.push_back(float(0 - losses.loss[size_t(t)]));
  return out;
}

// The sum of the log-probabilities of an answer's tokens.
double log_prob_of(const RowSide& s, std::span<const float> log_probs) {
  double sum = 0;
  for (int64_t t = s.answer - 1; t < s.end - 1; ++t) sum += double(log_probs[size_t(t)]);
  return sum;
}

// Asks for the rows of this process, each of which has a part; `network`: null: one process has all. `take`
// writes what they say to `out`, which all processes have afterwards.
Status make_log_probs(Engine& engine, const BatchSource& source, Network* network, std::vector<double>& out,
                      Observer& observer,
                      const std::function<void(int64_t row, int64_t at, const TokenLosses&)>& take) {
  const int64_t parts = network == nullptr ? 1 : network->size(),
                part = network == nullptr ? 0 : network->rank();
  const int64_t rows = source.epoch_rows(), first = rows * part / parts, end = rows * (part + 1) / parts;
  SLUICE_TRY(
      evaluate_each(source, first, end - first, sequences_of(engine), pass_of(engine), {},
                    [&](int64_t row, const Rows&, int64_t at, const TokenLosses& losses) {
                      take(row, at, losses);
                      observer.progress({"log-probabilities of the reference", row + 1 - first, end - first});
                    }));
  if (network == nullptr) return {};
  std::vector<double> all(out.size() * size_t(parts));
  SLUICE_TRY(network->all_gather(std::as_bytes(std::span(out)), std::as_writable_bytes(std::span(all))));
  // No two processes have the same document.
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) out[i % out.size()] = all[i];
  }
  return {};
}

bool reads_kl(const RunConfig& c) {
  return c.chosen_objective().compares != Compares::Nothing &&
         loss_type_of(c.chosen_objective(), c.objective).kl;
}

// Log-probabilities of a part of the data, which the cache may have.
class Kept {
 public:
  Kept(const Prepared& p, const std::string& content, const std::string& weights, const ReferencePart& part)
      : part_(part), request_("reference 1") {
    const RunConfig& c = p.config;
    request_.add("data", content).add("side", part.side).add("weights", weights);
    request_.add("model", to_json(p.model)).add("compute", name_of(p.numerics.compute));
    if (p.model.products.w) request_.add("products", name_of(p.model.products.w->type));
    if (!p.model.wide.empty()) request_.add("wide", fmt::format("{}", fmt::join(p.model.wide, " ")));
    if (p.model.narrow_head) request_.add("narrow_head", true);
    request_.add("backend", p.machine.backend->name);
    // All that decides which rows there are, and the order of their sums.
    request_.add("sequence", c.train.seq_len).add("seed", c.train.seed).add("chunk", p.shape.chunk_tokens);
    request_.add("head", p.shape.head_tokens).add("other answers", int64_t{reads_kl(c)});
    if (!c.data.cache.empty()) path_ = std::filesystem::path(c.data.cache) / "references" / request_.key();
  }

  // False: it is not there, or not believed.
  bool find() const {
    if (path_.empty()) return false;
    const auto content = read_sealed(path_, request_);
    if (!content.ok() || content->size() != part_.count * sizeof(double)) return false;
    part_.values->resize(part_.count);
    std::memcpy(part_.values->data(), content->data(), content->size());
    return true;
  }
  Status keep() const {
    if (path_.empty()) return {};
    const auto bytes = std::as_bytes(std::span(*part_.values));
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    return write_sealed(path_, request_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

 private:
  const ReferencePart& part_;
  SealedRequest request_;
  std::filesystem::path path_;
};

Result<std::string> weights_now(const Engine& engine) {
  SLUICE_ASSIGN(const Checksum sum, engine.checksum_of_weights());
  return sum.to_text();
}

// Whether all processes have found theirs.
Result<bool> all_found(Network* network, bool found) {
  if (network == nullptr) return found;
  SLUICE_ASSIGN(const auto all, gathered(*network, uint8_t(found)));
  return std::ranges::all_of(all, [](uint8_t one) { return one != 0; });
}

}  // namespace

EvaluationPass pass_of(Engine& engine) {
  return [&engine](const Rows& rows) { return engine.evaluate(rows); };
}
std::function<int64_t(int64_t)> sequences_of(const Engine& engine) {
  return [&engine](int64_t left) { return engine.evaluation_of(left).model.shape.sequences(); };
}

Result<std::string> weights_of_reference(Engine& engine, const std::string& saved) {
  if (saved.empty()) return weights_now(engine);
  SLUICE_TRY(engine.load_beginning());
  SLUICE_ASSIGN(std::string now, weights_now(engine));
  if (now == saved) return now;
  return error(
      "model.weights = {} and train.seed give weights of the checksum {}, where the run began with {}",
      engine.prepared().config.model.weights, now, saved);
}

Result<std::string> have_reference(Engine& engine, const std::string& content, const std::string& saved,
                                   Observer& observer, std::span<const ReferencePart> parts) {
  const Prepared& p = engine.prepared();
  std::string weights = saved;
  if (saved.empty()) {
    SLUICE_ASSIGN(weights, weights_now(engine));
  }
  bool restored = saved.empty();
  for (const ReferencePart& part : parts) {
    const Kept kept(p, content, weights, part);
    SLUICE_ASSIGN(const bool found, all_found(part.network, kept.find()));
    if (found) continue;
    if (!restored) {
      if (const auto again = weights_of_reference(engine, saved); !again.ok())
        return error_at(fmt::format("data.cache = {} has the reference's log-probabilities not any more",
                                    p.config.data.cache),
                        again.error());
      restored = true;
    }
    part.values->assign(part.count, 0);
    SLUICE_TRY(part.make());
    if (part.network == nullptr || part.network->rank() == 0) {
      if (const Status written = kept.keep(); !written.ok()) observer.warned(written.message());
    }
  }
  return weights;
}

Result<Reference> reference_of(Engine& engine, const RunData& data, const std::string& saved,
                               Observer& observer) {
  const Prepared& p = engine.prepared();
  Reference out;
  if (!reads_reference(p.config.chosen_objective(), p.config.objective)) return out;
  std::vector<ReferencePart> parts;
  for (const bool held : {false, true}) {
    const BatchSource* const source = held ? data.heldout.get() : data.train.get();
    if (source == nullptr) continue;
    std::vector<double>& values = held ? out.heldout : out.train;
    // Process 0 alone has what is held out.
    Network* const with = held ? nullptr : p.machine.options.network;
    const auto make = [&engine, &observer, &p, source, with, &values]() -> Status {
      SLUICE_TRY(make_log_probs(engine, *source, with, values, observer,
                                [&](int64_t row, int64_t at, const TokenLosses& losses) {
                                  const std::vector<float> own = log_probs_in(losses, at, source->sequence());
                                  for (const RowSide& s : source->sides(0, row))
                                    values[size_t(2 * s.document + s.which)] = log_prob_of(s, own);
                                }));
      if (!reads_kl(p.config)) return {};
      std::vector<int64_t> documents;
      for (int64_t row = 0; row < source->epoch_rows(); ++row) {
        for (const RowSide& s : source->sides(0, row)) documents.push_back(s.document);
      }
      const CountedTexts others = other_answers(*source, documents);
      return make_log_probs(engine, others, with, values, observer,
                            [&](int64_t row, int64_t at, const TokenLosses& losses) {
                              for (const auto& [text, score] : others.scores(row, at, losses))
                                values[size_t(2 * documents[text] + 1)] = score.log_prob;
                            });
    };
    parts.push_back({held ? "held out" : "training", &values, size_t(2 * source->documents()), with, make});
  }
  SLUICE_ASSIGN(out.weights, have_reference(engine, data.content, saved, observer, parts));
  return out;
}

void ComparedSums::add(const ComparedSums& o) {
  loss += o.loss, chosen_reward += o.chosen_reward, rejected_reward += o.rejected_reward;
  chosen_log_prob += o.chosen_log_prob, rejected_log_prob += o.rejected_log_prob;
  log_likelihood += o.log_likelihood, count += o.count, chosen += o.chosen, rejected += o.rejected;
  right += o.right, tokens += o.tokens;
}

Comparison::Comparison(Engine& engine, const RunData& data, Reference reference)
    : engine_(engine),
      data_(data),
      reference_(std::move(reference)),
      objective_(engine.prepared().config.chosen_objective()),
      keys_(with_defaults(objective_, engine.prepared().config.objective)),
      loss_(loss_type_of(objective_, keys_)) {}

ComparedSums Comparison::compare(const std::vector<RowSide>& sides, std::span<const float> log_probs,
                                 const std::vector<double>& reference, double kl, const ComparedSums& all,
                                 std::span<float> weights) const {
  const double likelihood = likelihood_of(objective_, keys_);
  const size_t of_each = objective_.compares == Compares::Pairs ? 2 : 1;
  const auto answer_of = [&](const RowSide& s) {
    const double before = reference.empty() ? 0 : reference[size_t(2 * s.document + s.which)];
    return Answer{log_prob_of(s, log_probs), before, s.end - s.answer};
  };
  const auto weigh = [&](int64_t from, int64_t to, double weight) {
    for (int64_t t = from - 1; !weights.empty() && t < to - 1; ++t) weights[size_t(t)] += float(weight);
  };
  ComparedSums sums;
  for (size_t i = 0; i + of_each <= sides.size(); i += of_each) {
    const RowSide &first = sides[i], &last = sides[i + of_each - 1];
    Compared c{answer_of(first), answer_of(last), true, true, kl};
    if (of_each == 1) c.has_chosen = !first.bad, c.has_rejected = first.bad;
    const Judged j = loss_.judge(keys_, c);
    const auto shown = [&](const Answer& a) {
      return objective_.averages ? a.log_prob / double(a.tokens) : a.log_prob;
    };
    sums.loss += j.loss, sums.count += 1;
    if (c.has_chosen) {
      sums.chosen += 1, sums.chosen_reward += j.chosen_reward, sums.chosen_log_prob += shown(c.chosen);
      weigh(first.answer, first.end, -j.chosen / all.count);
    }
    if (c.has_rejected) {
      sums.rejected += 1, sums.rejected_reward += j.rejected_reward,
          sums.rejected_log_prob += shown(c.rejected);
      weigh(last.answer, last.end, -j.rejected / all.count);
    }
    sums.right += of_each == 2 && j.chosen_reward > j.rejected_reward ? 1 : 0;
    if (likelihood == 0) continue;
    const RowSide counted{.answer = objective_.whole_likelihood ? first.begin + 1 : first.answer,
                          .end = first.end};
    sums.log_likelihood += log_prob_of(counted, log_probs);
    sums.tokens += double(counted.end - counted.answer);
    weigh(counted.answer, counted.end, likelihood / all.tokens);
  }
  return sums;
}

double Comparison::loss_of(const ComparedSums& s) const {
  const double likelihood = likelihood_of(objective_, keys_);
  return s.loss / s.count - (likelihood > 0 ? likelihood * s.log_likelihood / s.tokens : 0);
}

std::vector<sluice::NamedValue> Comparison::values_of(const ComparedSums& s, std::optional<double> kl) const {
  std::vector<sluice::NamedValue> out;
  if (s.chosen > 0) out.push_back({"rewards/chosen", s.chosen_reward / s.chosen});
  if (s.rejected > 0) out.push_back({"rewards/rejected", s.rejected_reward / s.rejected});
  if (objective_.compares == Compares::Pairs) out.push_back({"rewards/accuracies", s.right / s.count});
  if (s.chosen > 0 && s.rejected > 0)
    out.push_back({"rewards/margins", s.chosen_reward / s.chosen - s.rejected_reward / s.rejected});
  if (s.chosen > 0) out.push_back({"logps/chosen", s.chosen_log_prob / s.chosen});
  if (s.rejected > 0) out.push_back({"logps/rejected", s.rejected_log_prob / s.rejected});
  if (s.tokens > 0) out.push_back({"nll_loss", -s.log_likelihood / s.tokens});
  if (kl) out.push_back({"kl", *kl});
  return out;
}

Result<double> Comparison::kl_of(const BatchSource& source, const SidesOfRows& rows,
                                 const std::vector<double>& reference) {
  std::vector<int64_t> documents;
  for (const auto& row : rows) {
    for (const RowSide& s : row) documents.push_back(s.document);
  }
  const CountedTexts others = other_answers(source, documents);
  double sum = 0;
  SLUICE_TRY(evaluate_each(others, 0, others.epoch_rows(), sequences_of(engine_), pass_of(engine_), {},
                           [&](int64_t row, const Rows&, int64_t at, const TokenLosses& losses) {
                             for (const auto& [text, score] : others.scores(row, at, losses))
                               sum += score.log_prob - reference[size_t(2 * documents[text] + 1)];
                           }));
  return std::max(0.0, documents.empty() ? 0.0 : sum / double(documents.size()));
}

struct Comparison::Step {
  ComparedSums all;                // count and tokens alone: what losses of the step are divided by
  SidesOfRows rows;                // its own
  std::vector<ComparedSums> sums;  // by row
};

Result<StepResult> Comparison::step(const Rows& rows, double learning_rate, std::vector<Interval>* timeline) {
  const Prepared& p = engine_.prepared();
  const BatchSource& source = *data_.train;
  Network* const network = p.machine.options.network;
  const int64_t sequence = source.sequence(), own = rows.tokens() / sequence;
  const int64_t first_row = network == nullptr ? 0 : network->rank() * own;
  const int64_t step = engine_.steps_done(), rows_of_all = p.shape.tokens_of_all() / sequence;
  Step now;
  SidesOfRows all;
  const double likelihood = likelihood_of(objective_, keys_);
  for (int64_t row = 0; row < rows_of_all; ++row) {
    all.push_back(source.sides(step, row));
    for (const RowSide& s : all.back()) {
      if (s.which != 0) continue;
      now.all.count += 1;
      if (likelihood > 0)
        now.all.tokens += double(s.end - (objective_.whole_likelihood ? s.begin + 1 : s.answer));
    }
  }
  const Stopwatch watch;
  std::optional<double> kl;
  if (loss_.kl) {
    SLUICE_ASSIGN(kl, kl_of(source, all, reference_.train));
  }
  const double before_ns = watch.seconds() * 1e9;
  now.rows.assign(all.begin() + long(first_row), all.begin() + long(first_row + own));
  now.sums.resize(size_t(own));
  StepLoss loss{LossScale::One};
  loss.ask = [&](int64_t first, std::span<const float> log_probs, std::span<float> weights) -> Status {
    std::ranges::fill(weights, 0.0F);
    for (int64_t at = 0; at < std::ssize(weights); at += sequence) {
      const auto row = size_t((first + at) / sequence);
      now.sums[row] =
          compare(now.rows[row], log_probs.subspan(size_t(at), size_t(sequence)), reference_.train,
                  kl.value_or(0), now.all, weights.subspan(size_t(at), size_t(sequence)));
    }
    return {};
  };
  SLUICE_ASSIGN(StepResult result, engine_.step(rows, learning_rate, timeline, loss));
  std::vector<ComparedSums> sums = now.sums;
  if (network != nullptr) {
    sums.resize(size_t(rows_of_all));
    SLUICE_TRY(
        network->all_gather(std::as_bytes(std::span(now.sums)), std::as_writable_bytes(std::span(sums))));
  }
  ComparedSums total;
  for (const ComparedSums& row : sums) total.add(row);
  result.loss = loss_of(total);
  result.values = values_of(total, kl);
  result.before_ns = before_ns;
  return result;
}

Result<Evaluation> Comparison::evaluate(int64_t rows, const std::function<bool()>& stop) {
  const BatchSource& source = *data_.heldout;
  SidesOfRows all;
  for (int64_t row = 0; row < rows; ++row) all.push_back(source.sides(0, row));
  std::optional<double> kl;
  if (loss_.kl) {
    SLUICE_ASSIGN(kl, kl_of(source, all, reference_.heldout));
  }
  std::vector<ComparedSums> sums;
  ComparedSums total;
  SLUICE_TRY(evaluate_each(source, 0, rows, sequences_of(engine_), pass_of(engine_), stop,
                           [&](int64_t row, const Rows&, int64_t at, const TokenLosses& losses) {
                             const std::vector<float> own = log_probs_in(losses, at, source.sequence());
                             sums.push_back(
                                 compare(all[size_t(row)], own, reference_.heldout, kl.value_or(0), {}, {}));
                             total.add(sums.back());
                           }));
  Evaluation out;
  const double likelihood = likelihood_of(objective_, keys_);
  for (const ComparedSums& s : sums) {
    // So that the mean over comparisons is loss_of() all.
    const double rest = likelihood > 0 ? likelihood * s.log_likelihood * total.count / total.tokens : 0;
    out.rows.push_back({s.loss - rest, int64_t(s.count), int64_t(s.right)});
  }
  out.values = values_of(total, kl);
  return out;
}

}  // namespace sluice::core
