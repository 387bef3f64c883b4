// A schema, a regular expression, a grammar, or a schema of a call's arguments between tags or in Python's
// way (by the first byte: S, R, G, T or P) is refused or compiled, and a compiled one's masks are what trying
// every token gives, forward and after going back.

#include <cstdlib>
#include <string>
#include <vector>

#include "common/core/work_limit.h"
#include "common/grammar/front/front_ends.h"
#include "common/grammar/grammar.h"

namespace troupe::grammar {
namespace {

std::shared_ptr<const Vocabulary> small_vocabulary() {
  std::vector<std::string> texts = {""};
  for (int b = 0; b < 256; ++b) texts.emplace_back(1, static_cast<char>(b));
  for (const char* text :
       {"{\"", "\":", "\",\"", "[[", "true", " a", "ab", "12", "\n ", "\xC3\xA9", "\xE5\xAE"})
    texts.emplace_back(text);
  return *Vocabulary::make(std::move(texts), {0});
}

StatusOr<Rules> rules_of(char kind, std::string_view text) {
  if (kind == 'S') return rules_of_json_schema(text, {});
  if (kind == 'R') return rules_of_regex(text);
  if (kind == 'T') {
    ArgumentLayout tags{.name_opens = "<", .name_ends = ">", .value_ends = "</>", .has_text = true};
    tags.read_as_json = {"a", "b"};
    JsonOptions options;
    options.barred = {"</>"};
    return rules_of_arguments(text, options, tags);
  }
  if (kind == 'P') {
    JsonOptions options;
    options.notation = Notation::kPython;
    return rules_of_arguments(text, options, {.name_ends = "=", .separator = ","});
  }
  return rules_of_gbnf(text);
}

void check_mask(GrammarMatcher& matcher, const std::vector<uint32_t>& bits, size_t token) {
  GrammarMatcher copy = matcher;
  const auto accepted = copy.accept(static_cast<int32_t>(token));
  const bool is_set = (bits[token / 32] >> (token % 32) & 1) != 0;
  if (accepted.ok() && *accepted != is_set) std::abort();
}

void check_answer(const std::shared_ptr<const CompiledGrammar>& grammar, size_t seed) {
  const size_t count = grammar->vocabulary().size();
  GrammarMatcher matcher(grammar);
  std::vector<uint32_t> bits(grammar->vocabulary().mask_words()), again(bits.size());
  for (size_t step = 0; step < 8; ++step) {
    if (!matcher.fill_mask(bits).ok()) return;
    for (size_t token = seed % 7; token < count; token += 7) check_mask(matcher, bits, token);
    size_t chosen = count;
    for (size_t i = 0; i < count && chosen == count; ++i) {
      const size_t token = (seed + i) % count;
      if (token != 0 && (bits[token / 32] >> (token % 32) & 1) != 0) chosen = token;
    }
    if (chosen == count || !matcher.accept(static_cast<int32_t>(chosen)).value_or(false)) return;
    matcher.rollback(1);
    if (!matcher.fill_mask(again).ok()) return;
    if (again != bits) std::abort();
    if (!matcher.accept(static_cast<int32_t>(chosen)).value_or(true)) std::abort();
    seed = seed * 31 + 17;
  }
}

}  // namespace
}  // namespace troupe::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  if (size < 2) return 0;
  static const auto vocabulary = grammar::small_vocabulary();
  WorkLimit limit(std::chrono::seconds(1), Deadline::never());
  const WorkScope scope(limit);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto rules = grammar::rules_of(static_cast<char>(data[0]), text);
  if (!rules.ok()) return 0;
  grammar::GrammarRuntime::Options options;
  options.parser.memory_bytes_max = 8u << 20;
  options.parser.automaton.table_bytes_max = 4u << 20;
  const auto compiled = grammar::CompiledGrammar::make(*std::move(rules), vocabulary, options);
  if (compiled.ok()) grammar::check_answer(*compiled, size);
  return 0;
}
