#include "worker/input/grammar_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/core/work_limit.h"

namespace troupe {

namespace {

// Processor time that a grammar may take: texts of other requests wait for the thread.
constexpr auto kCompileMax = std::chrono::seconds(2);

// Limit of each grammar's; most need a hundredth of it.
constexpr size_t kGrammarBytesMax = size_t{16} << 20;

// Longer sources are compiled anew each time: most of such a one is descriptions.
constexpr size_t kKeyBytesMax = size_t{1} << 20;

bool finds_first_space_stripped(const Tokenizer& tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id, /*skip_special=*/true);
    if (bytes.size() < 2 || bytes[0] != ' ' || bytes[1] < 'a' || bytes[1] > 'z') continue;
    const auto stream = tokenizer.stream(/*skip_special=*/true, /*at_start=*/true);
    const std::string text = stream->push(id) + stream->finish();
    return !text.starts_with(' ');
  }
  return false;
}

StatusOr<std::shared_ptr<const grammar::CompiledGrammar>> compile(
    const grammar::Format& format, std::shared_ptr<const grammar::Vocabulary> vocabulary) {
  WorkLimit limit(kCompileMax, Deadline{});
  const WorkScope scope(limit);
  grammar::GrammarRuntime::Options options;
  options.parser.memory_bytes_max = kGrammarBytesMax;
  options.parser.automaton.table_bytes_max = kGrammarBytesMax;
  options.masks.memory_bytes_max = kGrammarBytesMax;
  auto rules = grammar::rules_of_format(format);
  if (limit.end() != WorkLimit::End::kNone) return invalid_argument("it takes too much time to compile");
  TROUPE_RETURN_IF_ERROR(rules.status());
  TROUPE_ASSIGN_OR_RETURN(auto compiled,
                          grammar::CompiledGrammar::make(*std::move(rules), std::move(vocabulary), options));
  // The first mask may take tenths of a second, or be past the parser's bounds. Here no step waits for it.
  std::vector<uint32_t> mask(compiled->vocabulary().mask_words());
  if (!grammar::GrammarMatcher(compiled).fill_mask(mask).ok())
    return invalid_argument("the answer is too complex under its grammar");
  return compiled;
}

}  // namespace

StatusOr<std::shared_ptr<const grammar::Vocabulary>> grammar_vocabulary(
    const Tokenizer& tokenizer, int64_t vocab_size, const std::vector<int32_t>& eos_token_ids) {
  std::vector<std::string> texts(static_cast<size_t>(vocab_size));
  const auto count = static_cast<int32_t>(std::min<int64_t>(tokenizer.vocab_size(), vocab_size));
  for (int32_t id = 0; id < count; ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id, /*skip_special=*/false);
    std::string& text = texts[static_cast<size_t>(id)];
    if (tokenizer.is_special(id)) {
      text = grammar::mark_text(bytes);
    } else if (bytes.find(grammar::kMarkByte) == std::string_view::npos) {
      text = bytes;
    }
    if (text.size() > grammar::TokenTrie::kTextMax) text.clear();
  }
  std::vector<int32_t> ends;
  for (const int32_t id : eos_token_ids) {
    if (id >= 0 && id < vocab_size) ends.push_back(id);
  }
  return grammar::Vocabulary::make(std::move(texts), std::move(ends));
}

GrammarCache::GrammarCache(const Tokenizer* tokenizer, int64_t vocab_size, std::vector<int32_t> eos_token_ids)
    : tokenizer_(tokenizer),
      vocab_size_(vocab_size),
      eos_token_ids_(std::move(eos_token_ids)),
      strips_first_space_(finds_first_space_stripped(*tokenizer)) {}

StatusOr<std::shared_ptr<const grammar::Vocabulary>> GrammarCache::vocabulary() {
  const MutexLock lock(vocabulary_mutex_);
  if (vocabulary_ == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(vocabulary_, grammar_vocabulary(*tokenizer_, vocab_size_, eos_token_ids_));
  }
  return vocabulary_;
}

StatusOr<std::shared_ptr<const grammar::CompiledGrammar>> GrammarCache::find(const grammar::Format& format) {
  std::string key = grammar::key_of(format);
  {
    const MutexLock lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found != entries_.end()) {
      std::rotate(entries_.begin(), found, found + 1);
      return entries_.front().compiled;
    }
  }
  TROUPE_ASSIGN_OR_RETURN(auto vocabulary, this->vocabulary());
  TROUPE_ASSIGN_OR_RETURN(auto compiled, compile(format, std::move(vocabulary)));
  if (key.size() > kKeyBytesMax) return compiled;
  const MutexLock lock(mutex_);
  if (entries_.size() == kGrammarsMax) entries_.pop_back();
  entries_.insert(entries_.begin(), {std::move(key), compiled});
  return compiled;
}

}  // namespace troupe
