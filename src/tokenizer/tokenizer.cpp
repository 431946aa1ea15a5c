// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "io/file.h"
#include "io/model_folder.h"
#include "text/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/beside.h"
#include "tokenizer/bpe.h"
#include "tokenizer/code_set.h"
#include "tokenizer/decoder.h"
#include "tokenizer/json_value.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace sluice::core {
namespace {

// A bound on ids, so that a file cannot ask for huge tables.
constexpr int64_t kMostId = (int64_t{1} << 24) - 1;
// At the end of a text, where a place to cut it is looked for.
constexpr size_t kTailBytes = size_t{1} << 18;
// Ids that are handed on together.
constexpr size_t kTakenAtOnce = size_t{1} << 16;

// Tokens that the post-processor puts around a text.
struct Around {
  std::vector<int32_t> before, after;
};

struct Scratch {
  RegexScratch regex;
  PreTokenizer::Scratch pieces;
  BpeScratch bpe;
};

Result<std::vector<std::pair<std::string, std::string>>> read_merges(const JsonValue& value) {
  std::vector<std::pair<std::string, std::string>> merges;
  if (!value.is_array()) return value.error("{} instead of an array", value.json().type_name());
  merges.reserve(value.json().size());
  for (const nlohmann::json& merge : value.json()) {
    const auto bad = [&] {
      return value.error("number {} is neither \"a b\" nor [\"a\", \"b\"] as those before it", merges.size());
    };
    if (merge.type() != value.json().front().type()) return bad();
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) return bad();
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      return bad();
    }
  }
  return merges;
}

Status refuse_subword(const JsonValue& model, std::string_view key) {
  SLUICE_ASSIGN(const auto value, model.find(key));
  if (!value) return {};
  SLUICE_ASSIGN(const std::string text, value->string());
  if (!text.empty()) return value->error("'{}' is not supported", text);
  return {};
}

Result<BpeOptions> read_model(const JsonValue& model) {
  BpeOptions options;
  SLUICE_ASSIGN(const auto type_value, model.find("type"));
  if (type_value) {
    SLUICE_ASSIGN(const std::string type, type_value->string());
    if (type != "BPE") return type_value->error("{} is not supported; supported is BPE", type);
  }
  SLUICE_ASSIGN(const auto dropout, model.find("dropout"));
  if (dropout && !(dropout->json().is_number() && dropout->json().get<double>() == 0))
    return dropout->error("{} is not supported: the same text would not always be the same tokens",
                          dropout->json().dump());
  SLUICE_TRY(refuse_subword(model, "continuing_subword_prefix"));
  SLUICE_TRY(refuse_subword(model, "end_of_word_suffix"));
  SLUICE_ASSIGN(const auto unk, model.find("unk_token"));
  if (unk) {
    SLUICE_ASSIGN(options.unk_token, unk->string());
  }
  SLUICE_ASSIGN(options.fuse_unk, model.boolean("fuse_unk", false));
  SLUICE_ASSIGN(options.byte_fallback, model.boolean("byte_fallback", false));
  SLUICE_ASSIGN(options.ignore_merges, model.boolean("ignore_merges", false));
  SLUICE_ASSIGN(const JsonValue vocab, model.get("vocab"));
  if (!vocab.json().is_object()) return vocab.error("{} instead of an object", vocab.json().type_name());
  if (vocab.json().empty()) return vocab.error("it has no tokens");
  options.vocab.reserve(vocab.json().size());
  for (const auto& [token, id] : vocab.json().items()) {
    SLUICE_ASSIGN(const int64_t number, JsonValue(id, vocab.place()).integer(0, kMostId));
    options.vocab.emplace_back(token, int32_t(number));
  }
  SLUICE_ASSIGN(const JsonValue merges, model.get("merges"));
  SLUICE_ASSIGN(options.merges, read_merges(merges));
  return options;
}

// Adds the ids of one TemplateProcessing's "single".
Status read_template(const JsonValue& value, Around& around) {
  SLUICE_ASSIGN(const JsonValue single, value.get("single"));
  SLUICE_ASSIGN(const JsonValue tokens, value.get("special_tokens"));
  SLUICE_ASSIGN(const auto pieces, single.elements());
  bool seen = false;
  for (const JsonValue& piece : pieces) {
    SLUICE_ASSIGN(const auto sequence, piece.find("Sequence"));
    if (sequence) {
      SLUICE_ASSIGN(const std::string id, sequence->string("id"));
      if (id != "A" || seen) return piece.error("a template takes the text, $A, once");
      seen = true;
      continue;
    }
    SLUICE_ASSIGN(const JsonValue special, piece.get("SpecialToken"));
    SLUICE_ASSIGN(const std::string name, special.string("id"));
    SLUICE_ASSIGN(const JsonValue token, tokens.get(name));
    SLUICE_ASSIGN(const JsonValue ids_value, token.get("ids"));
    SLUICE_ASSIGN(const auto ids, ids_value.elements());
    for (const JsonValue& id : ids) {
      SLUICE_ASSIGN(const int64_t number, id.integer(0, kMostId));
      (seen ? around.after : around.before).push_back(int32_t(number));
    }
  }
  if (!seen) return single.error("the text, $A, is missing");
  return {};
}

Result<Around> read_post_processor(const JsonValue& value) {
  Around around;
  bool template_seen = false;
  SLUICE_ASSIGN(const auto parts, flatten_sequence(value, "processors"));
  for (const JsonValue& part : parts) {
    SLUICE_ASSIGN(const std::string type, part.string("type"));
    if (type == "ByteLevel") continue;  // it concerns places in the text only
    if (type != "TemplateProcessing")
      return part.error(
          "the post-processor {} is not supported; supported are TemplateProcessing, ByteLevel and Sequence",
          type);
    if (std::exchange(template_seen, true)) return part.error("a second TemplateProcessing is not supported");
    SLUICE_TRY(read_template(part, around));
  }
  return around;
}

Error not_utf8(std::string_view text, size_t at) {
  const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
  Error e = error("line {}: byte 0x{:02x} is not UTF-8", line, static_cast<unsigned char>(text[at]));
  e.details = {{"line", fmt::format("{}", line)}};
  return e;
}

}  // namespace

class Tokenizer::Impl {
 public:
  static Result<std::unique_ptr<const Impl>> read(std::string_view text, const TokenizerOptions& options,
                                                  const BesideTokenizer& beside);

  Status encode(std::string_view text, TextPart part, bool special, std::vector<int32_t>& ids,
                EncodeCounts& counts, const Plain& plain) const;
  size_t part_bytes(std::string_view text, bool begins, const Plain& plain) const;
  Status encode_places(std::string_view text, const Plain& plain, const TakePlaces& take,
                       EncodeCounts& counts) const;
  std::optional<int32_t> written_in(std::string_view text, std::span<const int32_t> allowed) const;
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const;
  std::optional<std::string> token(int32_t id) const;
  int32_t id(std::string_view token) const;

  bool is_special(int32_t id) const {
    const auto text = token(id);
    return text && special_.contains(*text);
  }
  int64_t vocab() const { return vocab_; }
  uint64_t content() const { return content_; }
  const Around& around() const { return around_; }

 private:
  class Places;
  using Taken = Bpe::Taken;
  // Whether the characters of a token, at that place of what is searched, are but text.
  using IsText = std::function<bool(const AddedToken&, Stretch)>;

  explicit Impl(Bpe bpe) : bpe_(std::move(bpe)) {}
  Status add_tokens(const JsonValue& list, const BesideTokenizer& beside, Hash& content);
  Status add_token(AddedToken token, int32_t& next_id, std::vector<int32_t>& order);
  Status encode_segment(std::string_view segment, size_t head, bool begins, Scratch& scratch,
                        std::vector<int32_t>& ids, int64_t& dropped, const IsText& is_text,
                        const Taken& taken = {}) const;
  template <class Use>
  Status in_parts(std::string_view segment, size_t head, bool begins, const Plain& plain, Scratch& scratch,
                  const Use& use) const;
  size_t part_of_window(std::string_view window, bool begins, const Plain& plain, Scratch& scratch) const;
  size_t part_of_segment(std::string_view segment, bool begins, const Plain& plain, Scratch& scratch) const;
  bool strips_left() const;
  static bool may_be_text(const AddedToken& token, const Plain& plain);
  static bool next(const AddedTokenFinder& finder, std::string_view text, size_t& at, size_t& done,
                   AddedTokenFinder::Match& match, const IsText& is_text);

  // A Scratch that nobody else uses, until it is given back.
  class Borrowed {
   public:
    explicit Borrowed(const Impl& impl) : impl_(impl) {
      const std::lock_guard lock(impl.mutex_);
      if (impl.idle_.empty()) {
        scratch_ = std::make_unique<Scratch>();
      } else {
        scratch_ = std::move(impl.idle_.back());
        impl.idle_.pop_back();
      }
    }
    ~Borrowed() {
      const std::lock_guard lock(impl_.mutex_);
      impl_.idle_.push_back(std::move(scratch_));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    const Impl& impl_;
    std::unique_ptr<Scratch> scratch_;
  };

  Bpe bpe_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Decoder decoder_;
  Around around_;
  AddedTokenFinder raw_, normalized_;
  std::unordered_map<int32_t, AddedToken> added_;
  std::unordered_map<std::string, int32_t> added_ids_;
  std::set<std::string, std::less<>> special_;
  std::vector<std::string> tokens_;  // by id, of the model; "" and not in it: none
  std::vector<bool> in_model_;
  int64_t vocab_ = 0;
  uint64_t content_ = 0;
  size_t part_bytes_ = 0, most_tokens_ = 0;
  std::string why_;  // there may be no more of them
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

Result<std::unique_ptr<const Tokenizer::Impl>> Tokenizer::Impl::read(std::string_view text,
                                                                     const TokenizerOptions& limits,
                                                                     const BesideTokenizer& beside) {
  SLUICE_ASSIGN(const nlohmann::json json, parse_json(text));
  if (json.is_discarded()) return error("not JSON, or not UTF-8");
  const JsonValue root(json, "");
  if (!json.is_object()) return error("{} instead of an object", json.type_name());
  SLUICE_ASSIGN(const auto version, root.find("version"));
  if (version && version->json() != "1.0")
    return version->error("{}; supported is \"1.0\"", version->json().dump());
  SLUICE_ASSIGN(const JsonValue model, root.get("model"));
  SLUICE_ASSIGN(BpeOptions options, read_model(model));
  options.most_piece_bytes = limits.most_piece_bytes;
  options.why = limits.why;

  std::vector<std::string> tokens;
  std::vector<bool> in_model;
  for (const auto& [token, id] : options.vocab) {
    if (size_t(id) >= tokens.size()) {
      tokens.resize(size_t(id) + 1);
      in_model.resize(size_t(id) + 1);
    }
    if (in_model[size_t(id)])
      return error("model.vocab: '{}' and '{}' have the same id, {}", tokens[size_t(id)], token, id);
    in_model[size_t(id)] = true;
    tokens[size_t(id)] = token;
  }
  auto bpe = Bpe::create(std::move(options));
  if (!bpe.ok()) return error_at("model", bpe.error());
  std::unique_ptr<Impl> impl(new Impl(std::move(*bpe)));
  impl->tokens_ = std::move(tokens);
  impl->in_model_ = std::move(in_model);
  impl->vocab_ = int64_t(impl->tokens_.size());
  impl->part_bytes_ = size_t(limits.part_bytes);

  static const nlohmann::json kNull;
  const auto part = [&](const char* key) {
    const auto it = json.find(key);
    return JsonValue(it == json.end() ? kNull : *it, key);
  };
  SLUICE_ASSIGN(impl->normalizer_, Normalizer::read(part("normalizer")));
  // Whatever a file says, a short text takes no more memory than a part of a long one.
  impl->normalizer_.bound(std::min(limits.most_piece_bytes, TokenizerOptions().part_bytes),
                          limits.most_text_bytes, limits.why);
  impl->most_tokens_ = size_t(limits.most_text_bytes);
  impl->why_ = limits.why;
  SLUICE_ASSIGN(impl->pre_tokenizer_, PreTokenizer::read(part("pre_tokenizer")));
  const auto puts_space = impl->pre_tokenizer_.prefix_space();
  if (beside.prefix_space && puts_space && *puts_space != *beside.prefix_space)
    return error(
        "pre_tokenizer: add_prefix_space is {}, and transformers goes by the one of tokenizer_config.json, "
        "which is {} for its tokenizer_class; write the same in both",
        *puts_space, *beside.prefix_space);
  SLUICE_ASSIGN(impl->decoder_, Decoder::read(part("decoder")));
  SLUICE_ASSIGN(impl->around_, read_post_processor(part("post_processor")));
  Hash content;
  content.add(text);
  SLUICE_TRY(impl->add_tokens(part("added_tokens"), beside, content));
  for (const auto* ids : {&impl->around_.before, &impl->around_.after}) {
    for (const int32_t id : *ids) impl->vocab_ = std::max<int64_t>(impl->vocab_, id + 1);
  }
  impl->content_ = content.value();
  return std::unique_ptr<const Impl>(std::move(impl));
}

// Ids are given as the library gives them: those of the model, and for other tokens the next from the size of
// the model's vocabulary on. Those in the file play no part.
Status Tokenizer::Impl::add_token(AddedToken token, int32_t& next_id, std::vector<int32_t>& order) {
  if (token.content.empty()) return {};
  token.text = token.content;
  if (token.normalized) {
    size_t head = 0;
    RegexScratch scratch;
    SLUICE_TRY(normalizer_.apply(token.text, head, scratch));
  }
  const auto known = added_ids_.find(token.content);
  token.id = known != added_ids_.end() ? known->second : bpe_.find(token.content);
  if (token.id < 0) token.id = next_id++;
  added_ids_[token.content] = token.id;
  if (token.special) special_.insert(token.content);
  vocab_ = std::max<int64_t>(vocab_, token.id + 1);
  if (!added_.contains(token.id)) order.push_back(token.id);
  added_[token.id] = std::move(token);
  return {};
}

// Those of the list, and then what the files beside it say otherwise, which is part of the content.
Status Tokenizer::Impl::add_tokens(const JsonValue& list, const BesideTokenizer& beside, Hash& content) {
  auto next_id = int32_t(bpe_.size());
  std::vector<int32_t> order;
  std::vector<JsonValue> elements;
  if (!list.is_null()) {
    SLUICE_ASSIGN(elements, list.elements());
  }
  for (const JsonValue& element : elements) {
    AddedToken token;
    SLUICE_ASSIGN(const JsonValue id_value, element.get("id"));
    SLUICE_TRY(id_value.integer(0, kMostId).ok() ? Status{} : id_value.integer(0, kMostId).error());
    SLUICE_ASSIGN(token.content, element.string("content"));
    SLUICE_ASSIGN(token.single_word, element.boolean("single_word"));
    SLUICE_ASSIGN(token.lstrip, element.boolean("lstrip"));
    SLUICE_ASSIGN(token.rstrip, element.boolean("rstrip"));
    SLUICE_ASSIGN(token.normalized, element.boolean("normalized"));
    SLUICE_ASSIGN(token.special, element.boolean("special"));
    SLUICE_TRY(add_token(std::move(token), next_id, order));
  }
  const auto add = [&](const AddedToken& token, bool named) -> Status {
    const auto id = added_ids_.find(token.content);
    if (id != added_ids_.end()) {
      const AddedToken& has = added_.at(id->second);
      const auto marks = [](const AddedToken& t) {
        return std::tuple(t.single_word, t.lstrip, t.rstrip, t.normalized, t.special);
      };
      if (named || marks(has) == marks(token)) return {};
    }
    content.add(token.content).add(token.single_word).add(token.lstrip).add(token.rstrip);
    content.add(token.normalized).add(token.special);
    return add_token(token, next_id, order);
  };
  for (const AddedToken& token : beside.added) SLUICE_TRY(add(token, false));
  for (const AddedToken& token : beside.named) SLUICE_TRY(add(token, true));
  std::vector<AddedToken> raw, normalized;
  for (const int32_t id : order) {
    const AddedToken& token = added_.at(id);
    (token.normalized ? normalized : raw).push_back(token);
  }
  SLUICE_ASSIGN(raw_, AddedTokenFinder::create(std::move(raw)));
  SLUICE_ASSIGN(normalized_, AddedTokenFinder::create(std::move(normalized)));
  return {};
}

// Whether the characters of a token are text somewhere.
bool Tokenizer::Impl::may_be_text(const AddedToken& token, const Plain& plain) {
  return token.special && !plain.stretches.empty() &&
         std::find(plain.allowed.begin(), plain.allowed.end(), token.id) == plain.allowed.end();
}

// As AddedTokenFinder::next, but for what is text. REQUIRES: the last match ended at `done`.
bool Tokenizer::Impl::next(const AddedTokenFinder& finder, std::string_view text, size_t& at, size_t& done,
                           AddedTokenFinder::Match& match, const IsText& is_text) {
  const size_t from = done;
  while (finder.next(text, at, done, match)) {
    const size_t begin = at - match.token->text.size();
    if (!is_text(*match.token, {begin, at})) return true;
    at = begin + size_t(utf8_length(text[begin]));
    done = from;
  }
  return false;
}

// A text without tokens that are looked for in raw text.
Status Tokenizer::Impl::encode_segment(std::string_view segment, size_t head, bool begins, Scratch& scratch,
                                       std::vector<int32_t>& ids, int64_t& dropped, const IsText& is_text,
                                       const Taken& taken) const {
  std::string changed;
  if (!normalizer_.empty()) {
    changed = segment;
    SLUICE_TRY(normalizer_.apply(changed, head, scratch.regex, begins));
    segment = changed;
  }
  const bool bytes = pre_tokenizer_.makes_bytes();
  const PreTokenizer::Use encode_piece = [&](std::string_view piece) {
    return bytes ? bpe_.encode_bytes(piece, scratch.bpe, ids, dropped, taken)
                 : bpe_.encode(piece, scratch.bpe, ids, dropped, taken);
  };
  size_t at = 0, done = 0, from = 0;
  const auto cut = [&](size_t to) {
    return pre_tokenizer_.cut(segment.substr(from, to - from), head > from ? head - from : 0,
                              begins || from > 0, scratch.regex, scratch.pieces, encode_piece);
  };
  for (AddedTokenFinder::Match match{}; next(normalized_, segment, at, done, match, is_text); from = done) {
    if (from < match.begin) SLUICE_TRY(cut(match.begin));
    ids.push_back(match.token->id);
  }
  return from < segment.size() ? cut(segment.size()) : Status{};
}

// Calls use(part, head, begins) for parts of a segment that have the tokens of the whole, so that what
// encoding holds beside them does not grow with the segment; where no place to cut is known, it does.
template <class Use>
Status Tokenizer::Impl::in_parts(std::string_view segment, size_t head, bool begins, const Plain& plain,
                                 Scratch& scratch, const Use& use) const {
  for (size_t at = 0; at < segment.size();) {
    const std::string_view rest = segment.substr(at);
    const bool first = begins && at == 0;
    size_t part = 0;
    for (size_t window = part_bytes_; part == 0 && window < rest.size(); window *= 2)
      part = part_of_window(rest.substr(0, window), first, plain, scratch);
    if (part == 0) part = rest.size();
    // Its normal form, and where that comes from, take nearly as much as a piece.
    if (part > part_bytes_ && !normalizer_.empty()) SLUICE_TRY(bpe_.check_piece(part));
    SLUICE_TRY(use(rest.substr(0, part), at == 0 ? head : 0, first));
    at += part;
  }
  return {};
}

Status Tokenizer::Impl::encode(std::string_view text, TextPart part, bool special, std::vector<int32_t>& ids,
                               EncodeCounts& counts, const Plain& plain) const {
  if (const size_t bad = find_invalid_utf8(text); bad != text.npos) return not_utf8(text, bad);
  const Borrowed scratch(*this);
  if (special && part.begins) ids.insert(ids.end(), around_.before.begin(), around_.before.end());
  size_t at = 0, done = 0, from = 0;
  const size_t ids_before = ids.size();
  const IsText is_text = [&](const AddedToken& token, Stretch) {
    const bool text_alone = may_be_text(token, plain);
    if (text_alone && counts.written < 0) counts.written = token.id;
    return text_alone;
  };
  const auto encode_to = [&](size_t to) -> Status {
    if (ids.size() - ids_before > most_tokens_)
      return error("more than {} tokens of a text of {} bytes{}", most_tokens_, text.size(), why_);
    const size_t head = from == 0 && part.begins ? size_t(utf8_length(text.front())) : 0;
    return in_parts(text.substr(from, to - from), head, part.begins || from > 0, plain, *scratch,
                    [&](std::string_view segment, size_t own_head, bool begins) {
                      return encode_segment(segment, own_head, begins, *scratch, ids, counts.dropped,
                                            is_text);
                    });
  };
  for (AddedTokenFinder::Match match{}; next(raw_, text, at, done, match, is_text); from = done) {
    if (from < match.begin) SLUICE_TRY(encode_to(match.begin));
    ids.push_back(match.token->id);
  }
  if (from < text.size()) SLUICE_TRY(encode_to(text.size()));
  if (special && part.ends) ids.insert(ids.end(), around_.after.begin(), around_.after.end());
  return {};
}

// Where tokens lie in a segment: goes through normalized text with the text of the tokens, and back to the
// segment's own by way of the characters of ASCII, before which normalization works in parts.
class Tokenizer::Impl::Places {
 public:
  Places(const Impl& impl, std::string_view segment) : impl_(impl), segment_(segment), whole_(segment) {}

  Status open(bool begins, Scratch& scratch);
  // Appends what the next tokens of the segment stand for, in a text in which it begins at `offset`.
  Status add(std::span<const int32_t> ids, size_t offset, std::vector<Stretch>& places);
  Status end() const {
    if (at_ == whole_.size()) return {};
    return error("text without a token: '{:.20}'", whole_.substr(at_));
  }
  // The place in the segment of one in its normal form.
  size_t back(size_t at) const { return back_.empty() ? at : back_[at]; }

 private:
  const Impl& impl_;
  std::string_view segment_, whole_;  // as it is, and normalized
  std::string changed_;               // the latter, where there is a normalizer
  std::vector<uint32_t> back_;        // of its bytes, and of its end: places in the segment; empty: the same
  size_t at_ = 0;
};

Status Tokenizer::Impl::Places::open(bool begins, Scratch& scratch) {
  const Normalizer& normalizer = impl_.normalizer_;
  if (normalizer.empty()) return {};
  if (segment_.size() > std::numeric_limits<uint32_t>::max())
    return error("{} bytes that cannot be cut; allowed are {}", segment_.size(),
                 std::numeric_limits<uint32_t>::max());
  changed_ = segment_;
  size_t head = 0;
  SLUICE_TRY(normalizer.apply(changed_, head, scratch.regex, begins));
  back_.reserve(changed_.size() + 1);
  std::string unit, before;
  for (size_t at = 0, next = 0; at < segment_.size(); at = next) {
    next = at + 1;
    while (next < segment_.size() && static_cast<unsigned char>(segment_[next]) >= 0x80) ++next;
    before = segment_.substr(at, next - at);
    unit = before;
    SLUICE_TRY(normalizer.apply(unit, head, scratch.regex, /*begins=*/false));
    const bool same = unit == before;
    for (size_t i = 0; i < unit.size(); ++i) back_.push_back(uint32_t(same ? at + i : i == 0 ? at : next));
    if (back_.size() > changed_.size()) return error("its normal form is not that of its parts");
  }
  back_.insert(back_.begin(), changed_.size() - back_.size(), 0);
  back_.push_back(uint32_t(segment_.size()));
  whole_ = changed_;
  return {};
}

Status Tokenizer::Impl::Places::add(std::span<const int32_t> ids, size_t offset,
                                    std::vector<Stretch>& places) {
  constexpr std::string_view kMark = "\u2581";
  const bool bytes_alone = impl_.pre_tokenizer_.makes_bytes();
  for (const int32_t id : ids) {
    // Most tokens are bytes of the text as they stand.
    const bool plain = bytes_alone && size_t(id) < impl_.tokens_.size() && !impl_.added_.contains(id);
    if (const size_t bytes = plain ? bytes_at_begin(impl_.tokens_[size_t(id)], whole_.substr(at_)) : 0) {
      places.push_back({offset + back(at_), offset + back(at_ + bytes)});
      at_ += bytes;
      continue;
    }
    const auto text = impl_.token(id);
    std::string surface = text ? *text : std::string();
    if (bytes_alone && !impl_.added_.contains(id)) {
      surface = bytes_of_characters(surface).value_or(surface);
    } else if (surface.size() == 6 && surface.starts_with("<0x") &&
               !whole_.substr(at_).starts_with(surface)) {
      surface = std::string(1, char(std::stoi(surface.substr(3, 2), nullptr, 16)));
    }
    const size_t begin = at_;
    bool first = at_ == 0;
    std::string_view rest = surface;
    while (!rest.empty()) {
      const bool mark = rest.starts_with(kMark);
      if (at_ < whole_.size() && whole_[at_] == rest.front()) {
        ++at_;
        rest.remove_prefix(1);
      } else if (mark && at_ < whole_.size() && whole_[at_] == ' ') {
        ++at_;
        rest.remove_prefix(kMark.size());
      } else if (first && (mark || rest.front() == ' ')) {  // which the tokenizer puts in front
        rest.remove_prefix(mark ? kMark.size() : 1);
      } else {
        return error("token {} ('{}') does not say which text it stands for, near '{:.20}'", id,
                     text.value_or(""), whole_.substr(std::min(begin, whole_.size())));
      }
      first = false;
    }
    places.push_back({offset + back(begin), offset + back(at_)});
  }
  return {};
}

Status Tokenizer::Impl::encode_places(std::string_view text, const Plain& plain, const TakePlaces& take,
                                      EncodeCounts& counts) const {
  if (const size_t bad = find_invalid_utf8(text); bad != text.npos) return not_utf8(text, bad);
  const Borrowed scratch(*this);
  const IsText is_text = [&](const AddedToken& token, Stretch stretch) {
    if (!may_be_text(token, plain)) return false;
    const auto it = std::upper_bound(plain.stretches.begin(), plain.stretches.end(), stretch.begin,
                                     [](size_t at, const Stretch& s) { return at < s.end; });
    const bool text_alone = it != plain.stretches.end() && it->begin < stretch.end;
    if (text_alone && counts.written < 0) counts.written = token.id;
    return text_alone;
  };
  std::vector<int32_t> ids;
  std::vector<Stretch> places;
  const auto add_part = [&](std::string_view part, size_t head, bool begins) -> Status {
    Places where(*this, part);
    SLUICE_TRY(where.open(begins, *scratch));
    const auto offset = size_t(part.data() - text.data());
    const Taken place = [&](std::vector<int32_t>& some) -> Status {
      for (std::span<const int32_t> rest = some; !rest.empty();) {
        const auto block = rest.first(std::min(rest.size(), kTakenAtOnce));
        places.clear();
        SLUICE_TRY(where.add(block, offset, places));
        SLUICE_TRY(take(block, places));
        rest = rest.subspan(block.size());
      }
      some.clear();
      return {};
    };
    const IsText is_text_here = [&](const AddedToken& token, Stretch s) {
      return is_text(token, {offset + where.back(s.begin), offset + where.back(s.end)});
    };
    SLUICE_TRY(encode_segment(part, head, begins, *scratch, ids, counts.dropped, is_text_here, place));
    SLUICE_TRY(place(ids));
    return where.end();
  };
  const auto add_segment = [&](size_t begin, size_t end) {
    const size_t head = begin == 0 && end > 0 ? size_t(utf8_length(text.front())) : 0;
    return in_parts(text.substr(begin, end - begin), head, true, plain, *scratch, add_part);
  };
  size_t at = 0, done = 0, from = 0;
  for (AddedTokenFinder::Match match{}; next(raw_, text, at, done, match, is_text); from = done) {
    SLUICE_TRY(add_segment(from, match.begin));
    const Stretch place{match.begin, match.end};
    SLUICE_TRY(take(std::span(&match.token->id, 1), std::span(&place, 1)));
  }
  return add_segment(from, text.size());
}

std::optional<int32_t> Tokenizer::Impl::written_in(std::string_view text,
                                                   std::span<const int32_t> allowed) const {
  const Plain plain = Plain::everywhere(allowed);
  const auto is_written = [&](const AddedToken& token) { return may_be_text(token, plain); };
  const auto& normalized = normalized_.tokens();
  const bool unknown = !normalizer_.empty() && std::any_of(normalized.begin(), normalized.end(), is_written);
  if (unknown) return std::nullopt;
  for (const AddedTokenFinder* finder : {&raw_, &normalized_}) {
    size_t at = 0, done = 0;
    for (AddedTokenFinder::Match match{}; finder->next(text, at, done, match);) {
      if (is_written(*match.token)) return match.token->id;
    }
  }
  return -1;
}

bool Tokenizer::Impl::strips_left() const {
  return std::any_of(added_.begin(), added_.end(), [](const auto& entry) { return entry.second.lstrip; });
}

size_t Tokenizer::Impl::part_bytes(std::string_view text, bool begins, const Plain& plain) const {
  if (!normalizer_.works_in_parts()) return 0;
  const Borrowed scratch(*this);
  const auto is_text = [&](const AddedToken& token, Stretch) { return may_be_text(token, plain); };
  // Behind the last token; the text behind it might hold another one that its end cuts.
  size_t at = 0, done = 0, from = 0;
  for (AddedTokenFinder::Match match{}; next(raw_, text, at, done, match, is_text);) from = done;
  const size_t part = part_of_window(text.substr(from), begins || from > 0, plain, *scratch);
  return part == 0 || raw_.touches(text, from + part) ? 0 : from + part;
}

// `window` goes on, maybe within a character or an added token, which are left out.
size_t Tokenizer::Impl::part_of_window(std::string_view window, bool begins, const Plain& plain,
                                       Scratch& scratch) const {
  const size_t margin = std::max(raw_.longest_bytes(), normalized_.longest_bytes()) + 4;
  if (!normalizer_.works_in_parts() || window.size() < margin) return 0;
  size_t whole = window.size() - margin;
  while (whole > 0 && static_cast<unsigned char>(window[whole - 1]) >= 0x80) --whole;
  return part_of_segment(window.substr(0, whole), begins, plain, scratch);
}

size_t Tokenizer::Impl::part_of_segment(std::string_view segment, bool begins, const Plain& plain,
                                        Scratch& scratch) const {
  if (segment.empty()) return 0;
  // Places before ASCII characters of the tail, where normalized parts make the normalized whole.
  size_t tail = segment.size() - std::min(segment.size(), kTailBytes);
  while (tail < segment.size() && static_cast<unsigned char>(segment[tail]) >= 0x80) ++tail;
  std::string whole(segment.substr(0, tail));
  size_t head = 0;
  if (!normalizer_.apply(whole, head, scratch.regex, begins).ok()) return 0;
  std::unordered_map<size_t, size_t> places;  // in normalized text to those in the segment
  const bool strips = strips_left();
  for (size_t at = tail, next = 0; at < segment.size(); at = next) {
    next = at + 1;
    while (next < segment.size() && static_cast<unsigned char>(segment[next]) >= 0x80) ++next;
    const bool after_space = at > 0 && (static_cast<unsigned char>(segment[at - 1]) >= 0x80 ||
                                        std::isspace(static_cast<unsigned char>(segment[at - 1])) != 0);
    if (at > 0 && !(strips && after_space)) places[whole.size()] = at;
    std::string unit(segment.substr(at, next - at));
    if (!normalizer_.apply(unit, head, scratch.regex, /*begins=*/false).ok()) return 0;
    whole += unit;
    if (whole.size() > normalizer_.most_bytes(segment.size())) return 0;
  }
  size_t at = 0, done = 0, from = 0;
  const bool all = !plain.stretches.empty() && plain.stretches[0].end == SIZE_MAX;
  bool known = true;
  const auto is_text = [&](const AddedToken& token, Stretch) {
    known = known && (all || !may_be_text(token, plain));
    return may_be_text(token, plain);
  };
  for (AddedTokenFinder::Match match{}; next(normalized_, whole, at, done, match, is_text);) from = done;
  if (!known) return 0;  // it is a token at some places, and text at others
  const std::string_view rest = std::string_view(whole).substr(from);
  const auto allowed = [&](size_t place) {
    return places.contains(from + place) && !normalized_.touches(whole, from + place);
  };
  size_t found = 0;
  if (!pre_tokenizer_.empty()) {
    found = pre_tokenizer_.last_boundary(rest, 1, allowed, scratch.regex);
  } else if (bpe_.works_in_parts()) {
    for (size_t place = rest.size(); found == 0 && place > 1;) {
      place = utf8_before(rest, place);
      if (place > 0 && allowed(place) && bpe_.never_joins(rest, place)) found = place;
    }
  }
  return found == 0 ? 0 : places.at(from + found);
}

Result<std::string> Tokenizer::Impl::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    auto text = token(id);
    if (text && !(skip_special && special_.contains(*text))) tokens.push_back(std::move(*text));
  }
  const Borrowed scratch(*this);
  return decoder_.decode(std::move(tokens), (*scratch).regex);
}

std::optional<std::string> Tokenizer::Impl::token(int32_t id) const {
  if (const auto it = added_.find(id); it != added_.end()) return it->second.text;
  if (id < 0 || size_t(id) >= tokens_.size() || !in_model_[size_t(id)]) return std::nullopt;
  return tokens_[size_t(id)];
}

int32_t Tokenizer::Impl::id(std::string_view token) const {
  const auto it = added_ids_.find(std::string(token));
  return it != added_ids_.end() ? it->second : bpe_.find(token);
}

Result<Tokenizer> Tokenizer::open(const std::filesystem::path& path, const TokenizerOptions& options) {
  SLUICE_ASSIGN(const std::string text, read_file(path));
  if (is_lfs_pointer(std::as_bytes(std::span(text)))) return lfs_pointer(path);
  SLUICE_ASSIGN(const BesideTokenizer beside, read_beside_tokenizer(path.parent_path()));
  auto impl = Impl::read(text, options, beside);
  if (!impl.ok()) return error_at(path.string(), impl.error());
  return Tokenizer(std::move(*impl));
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const TokenizerOptions& options) {
  SLUICE_ASSIGN(auto impl, Impl::read(json, options, {}));
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Status Tokenizer::encode_part(std::string_view text, TextPart part, bool special, std::vector<int32_t>& ids,
                              EncodeCounts* counts, const Plain& plain) const {
  EncodeCounts ignored;
  return impl_->encode(text, part, special, ids, counts != nullptr ? *counts : ignored, plain);
}

size_t Tokenizer::part_bytes(std::string_view text, bool begins, const Plain& plain) const {
  return impl_->part_bytes(text, begins, plain);
}

Status Tokenizer::encode_places(std::string_view text, const Plain& plain, const TakePlaces& take,
                                EncodeCounts* counts) const {
  EncodeCounts ignored;
  return impl_->encode_places(text, plain, take, counts != nullptr ? *counts : ignored);
}

std::optional<int32_t> Tokenizer::written_in(std::string_view text, std::span<const int32_t> allowed) const {
  return impl_->written_in(text, allowed);
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return impl_->decode(ids, skip_special);
}

int64_t Tokenizer::vocab() const {
  return impl_->vocab();
}
std::optional<std::string> Tokenizer::token(int32_t id) const {
  return impl_->token(id);
}
int32_t Tokenizer::id(std::string_view token) const {
  return impl_->id(token);
}
bool Tokenizer::is_special(int32_t id) const {
  return impl_->is_special(id);
}
std::span<const int32_t> Tokenizer::tokens_before() const {
  return impl_->around().before;
}
std::span<const int32_t> Tokenizer::tokens_after() const {
  return impl_->around().after;
}
uint64_t Tokenizer::content() const {
  return impl_->content();
}

}  // namespace sluice::core
