// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "tokenizer/bpe.h"

namespace sluice::core {
namespace {

constexpr std::string_view kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool is_numeric(uint32_t code) {
  static const CodeTable kTable(numeric_ranges());
  return kTable.contains(code);
}

// Calls use(begin, end, matches) for the characters that match, one by one, and for what lies between them.
template <class Matches, class Use>
Status for_each_character(std::string_view text, const Matches& matches, const Use& use) {
  size_t done = 0;
  for (size_t at = 0, next = 0; at < text.size(); at = next) {
    next = at + size_t(utf8_length(text[at]));
    if (!matches(at)) continue;
    if (done < at) SLUICE_TRY(use(done, at, false));
    SLUICE_TRY(use(at, next, true));
    done = next;
  }
  return done < text.size() ? use(done, text.size(), false) : Status{};
}

// The last allowed end of a match that no text behind `text` changes, and before which all matches stay the
// same when the text ends there; or 0.
size_t last_match_end(const Regex& regex, std::string_view text, size_t from,
                      const std::function<bool(size_t)>& allowed, RegexScratch& scratch) {
  if (regex.looks_behind()) return 0;
  std::vector<std::pair<size_t, uint64_t>> ends;  // with a hash of the matches up to there
  size_t begin = 0, end = 0;
  Hash matches;
  LookAhead ahead(text.size());
  for (size_t at = 0; at < text.size(); at = end) {
    if (regex.find(text, at, scratch, ahead, begin, end, /*partial=*/true) != Regex::Found::Yes ||
        begin == end)
      break;
    matches.add(begin).add(end);
    if (end >= from && allowed(end)) ends.emplace_back(end, matches.value());
  }
  // A match may have looked at what comes behind it, and be another one without it.
  for (; !ends.empty(); ends.pop_back()) {
    const std::string_view part = text.substr(0, ends.back().first);
    Hash again;
    LookAhead again_ahead(part.size());
    for (size_t at = 0; at < part.size(); at = end) {
      if (regex.find(part, at, scratch, again_ahead, begin, end) != Regex::Found::Yes || begin == end) break;
      again.add(begin).add(end);
    }
    if (again.value() == ends.back().second) return ends.back().first;
  }
  return 0;
}

}  // namespace

// Puts matches and what lies between them together, as a behavior says.
class PreTokenizer::Joiner {
 public:
  using Emit = std::function<Status(size_t begin, size_t end)>;
  Joiner(Behavior behavior, Emit emit) : behavior_(behavior), emit_(std::move(emit)) {}

  Status add(size_t begin, size_t end, bool matches) {
    const bool before = std::exchange(matched_, matches);
    switch (behavior_) {
      case Behavior::Removed:
        return matches ? Status{} : emit(begin, end);
      case Behavior::Isolated:
        return emit(begin, end);
      case Behavior::Contiguous:
        return keep(begin, end, open_ && matches == before);
      case Behavior::MergedWithPrevious:
        return keep(begin, end, open_ && matches && !before);
      case Behavior::MergedWithNext:
        return keep(begin, end, open_ && !matches && before);
    }
    return {};
  }
  Status finish() { return std::exchange(open_, false) ? emit(begin_, end_) : Status{}; }

 private:
  Status emit(size_t begin, size_t end) { return begin < end ? emit_(begin, end) : Status{}; }
  Status keep(size_t begin, size_t end, bool together) {
    if (!together) {
      SLUICE_TRY(finish());
      begin_ = begin;
    }
    end_ = end;
    open_ = true;
    return {};
  }

  Behavior behavior_;
  Emit emit_;
  bool matched_ = false, open_ = false;
  size_t begin_ = 0, end_ = 0;  // of what is open
};

// Sends a text through the steps, each piece of one through the next.
class PreTokenizer::Cutter {
 public:
  Cutter(const PreTokenizer& p, bool begins, RegexScratch& regex, Scratch& scratch, const Use& use)
      : steps_(p.steps_), begins_(begins), regex_(regex), scratch_(scratch), use_(use) {
    scratch_.text.resize(steps_.size() * 2);
  }

  Status run(size_t step, std::string_view text, size_t head) {
    if (step == steps_.size()) return use_(text);
    return std::visit([&](const auto& s) { return cut(s, step, text, head); }, steps_[step]);
  }

 private:
  Status pass(size_t step, std::string_view text, size_t head, size_t begin, size_t end) {
    return run(step + 1, text.substr(begin, end - begin), head > begin ? std::min(head, end) - begin : 0);
  }

  Status cut(const Split& split, size_t step, std::string_view text, size_t head) {
    if (split.behavior == Behavior::Isolated) {
      return split.pattern.for_each(text, regex_, [&](size_t begin, size_t end, bool) {
        return begin < end ? pass(step, text, head, begin, end) : Status{};
      });
    }
    Joiner joiner(split.behavior,
                  [&](size_t begin, size_t end) { return pass(step, text, head, begin, end); });
    SLUICE_TRY(split.pattern.for_each(text, regex_, [&](size_t begin, size_t end, bool matches) {
      return joiner.add(begin, end, matches != split.invert);
    }));
    return joiner.finish();
  }

  Status cut(const Digits& digits, size_t step, std::string_view text, size_t head) {
    Joiner joiner(digits.individual ? Behavior::Isolated : Behavior::Contiguous,
                  [&](size_t begin, size_t end) { return pass(step, text, head, begin, end); });
    SLUICE_TRY(for_each_character(
        text, [&](size_t at) { return is_numeric(utf8_at(text, at)); },
        [&](size_t begin, size_t end, bool matches) { return joiner.add(begin, end, matches); }));
    return joiner.finish();
  }

  Status cut(const ByteLevel& level, size_t step, std::string_view text, size_t head) {
    if (level.prefix_space && (begins_ || step > 0) && text.front() != ' ') {
      std::string& longer = scratch_.text[step * 2];
      longer.assign(1, ' ').append(text);
      text = longer;
      if (head > 0) ++head;
    }
    if (!level.use_regex) return pass_bytes(step, text, head);
    return level.words.front().for_each(text, regex_, [&](size_t begin, size_t end, bool) {
      return pass_bytes(step, text.substr(begin, end - begin),
                        head > begin ? std::min(head, end) - begin : 0);
    });
  }

  // As raw bytes to the model, as the characters that stand for them to another step.
  Status pass_bytes(size_t step, std::string_view text, size_t head) {
    if (text.empty()) return {};
    if (step + 1 == steps_.size()) return use_(text);
    std::string& characters = scratch_.text[step * 2 + 1];
    characters.clear();
    size_t mapped_head = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      characters += byte_characters()[static_cast<unsigned char>(text[at])];
      if (at < head) mapped_head = characters.size();
    }
    return run(step + 1, characters, mapped_head);
  }

  Status cut(const Metaspace& meta, size_t step, std::string_view text, size_t head) {
    std::string& marked = scratch_.text[step * 2];
    marked.clear();
    size_t marked_head = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == ' ') {
        marked += meta.mark;
      } else {
        marked += text[at];
      }
      if (at < head) marked_head = marked.size();
    }
    const bool puts = meta.prefix == Prefix::Always || (meta.prefix == Prefix::First && marked_head > 0);
    if (puts && (begins_ || step > 0) && !marked.starts_with(meta.mark)) {
      marked.insert(0, meta.mark);
      if (marked_head > 0) marked_head += meta.mark.size();
    }
    const std::string_view all = marked;
    if (!meta.split) return run(step + 1, all, marked_head);
    Joiner joiner(Behavior::MergedWithNext,
                  [&](size_t begin, size_t end) { return pass(step, all, marked_head, begin, end); });
    SLUICE_TRY(for_each_character(
        all, [&](size_t at) { return all.substr(at).starts_with(meta.mark); },
        [&](size_t begin, size_t end, bool matches) { return joiner.add(begin, end, matches); }));
    return joiner.finish();
  }

  const std::vector<std::variant<Split, Digits, ByteLevel, Metaspace>>& steps_;
  bool begins_;
  RegexScratch& regex_;
  Scratch& scratch_;
  const Use& use_;
};

Result<PreTokenizer::Split> PreTokenizer::read_split(const JsonValue& value) {
  constexpr std::string_view kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                             "Contiguous"};
  SLUICE_ASSIGN(const JsonValue pattern_value, value.get("pattern"));
  SLUICE_ASSIGN(Pattern pattern, Pattern::read(pattern_value));
  SLUICE_ASSIGN(const std::string behavior, value.string("behavior"));
  SLUICE_ASSIGN(const bool invert, value.boolean("invert"));
  const auto* const found = std::find(std::begin(kBehaviors), std::end(kBehaviors), behavior);
  if (found == std::end(kBehaviors)) {
    return value.error("behavior '{}'; allowed are {}", behavior, fmt::join(kBehaviors, ", "));
  }
  return Split{std::move(pattern), Behavior(found - std::begin(kBehaviors)), invert};
}

Result<std::string> read_prepend_scheme(const JsonValue& value) {
  SLUICE_ASSIGN(const auto given, value.find("prepend_scheme"));
  std::string scheme = "always";
  if (given) {
    SLUICE_ASSIGN(scheme, given->string());
  }
  if (scheme != "first" && scheme != "never" && scheme != "always")
    return value.error("prepend_scheme '{}'; allowed are first, never, always", scheme);
  SLUICE_ASSIGN(const bool prefix_space, value.boolean("add_prefix_space", true));
  if (!prefix_space && scheme != "never")
    return value.error("add_prefix_space is false and prepend_scheme is {}", scheme);
  return scheme;
}

Result<PreTokenizer::Metaspace> PreTokenizer::read_metaspace(const JsonValue& value) {
  SLUICE_ASSIGN(std::string mark, value.character("replacement"));
  SLUICE_ASSIGN(const std::string scheme, read_prepend_scheme(value));
  SLUICE_ASSIGN(const bool split, value.boolean("split", true));
  const Prefix prefix = scheme == "first"   ? Prefix::First
                        : scheme == "never" ? Prefix::Never
                                            : Prefix::Always;
  return Metaspace{std::move(mark), prefix, split};
}

Result<PreTokenizer> PreTokenizer::read(const JsonValue& value) {
  PreTokenizer result;
  SLUICE_ASSIGN(const auto parts, flatten_sequence(value, "pretokenizers"));
  for (const JsonValue& part : parts) {
    SLUICE_ASSIGN(const std::string type, part.string("type"));
    if (type == "Split") {
      SLUICE_ASSIGN(Split split, read_split(part));
      result.steps_.emplace_back(std::move(split));
    } else if (type == "Digits") {
      SLUICE_ASSIGN(const bool individual, part.boolean("individual_digits"));
      result.steps_.emplace_back(Digits{individual});
    } else if (type == "ByteLevel") {
      ByteLevel level;
      SLUICE_ASSIGN(level.prefix_space, part.boolean("add_prefix_space"));
      SLUICE_ASSIGN(level.use_regex, part.boolean("use_regex", true));
      if (level.use_regex) {
        SLUICE_ASSIGN(Pattern words, Pattern::of_regex(kWords));
        level.words.push_back(std::move(words));
      }
      result.steps_.emplace_back(std::move(level));
    } else if (type == "Metaspace") {
      SLUICE_ASSIGN(Metaspace meta, read_metaspace(part));
      result.steps_.emplace_back(std::move(meta));
    } else {
      return part.error(
          "the pre-tokenizer {} is not supported; supported are Split, Digits, ByteLevel, Metaspace and "
          "Sequence",
          type);
    }
  }
  return result;
}

std::optional<bool> PreTokenizer::prefix_space() const {
  std::optional<bool> puts;
  for (const auto& step : steps_) {
    if (const auto* level = std::get_if<ByteLevel>(&step)) puts = puts.value_or(false) || level->prefix_space;
  }
  return puts;
}

Status PreTokenizer::cut(std::string_view text, size_t head, bool begins, RegexScratch& regex,
                         Scratch& scratch, const Use& use) const {
  if (text.empty()) return {};
  return Cutter(*this, begins, regex, scratch, use).run(0, text, head);
}

size_t PreTokenizer::last_boundary(std::string_view text, size_t from,
                                   const std::function<bool(size_t)>& allowed, RegexScratch& scratch) const {
  if (steps_.empty()) return 0;
  const auto& first = steps_.front();
  const Regex* regex = nullptr;
  if (const auto* split = std::get_if<Split>(&first)) {
    const bool apart = split->behavior == Behavior::Isolated || split->behavior == Behavior::Removed;
    if (apart) regex = split->pattern.regex();
  } else if (const auto* level = std::get_if<ByteLevel>(&first)) {
    if (level->use_regex) regex = level->words.front().regex();
  }
  if (regex != nullptr) return last_match_end(*regex, text, from, allowed, scratch);
  const auto* digits = std::get_if<Digits>(&first);
  const auto* meta = std::get_if<Metaspace>(&first);
  for (size_t at = text.size(); at > std::max<size_t>(from, 1);) {
    at = utf8_before(text, at);
    if (at == 0 || !allowed(at)) continue;
    if (digits != nullptr) {
      const bool before = is_numeric(utf8_at(text, utf8_before(text, at))),
                 here = is_numeric(utf8_at(text, at));
      if (before != here || (here && digits->individual)) return at;
    } else if (meta != nullptr && meta->split && text[at] == ' ') {
      return at;
    }
  }
  return 0;
}

bool PreTokenizer::makes_bytes() const {
  return !steps_.empty() && std::holds_alternative<ByteLevel>(steps_.back());
}

}  // namespace sluice::core
