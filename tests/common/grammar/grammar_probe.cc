// The library behind a line protocol, for test_grammar.py and test_schema_suite.py (tests/e2e) and grammar.py
// (tests/bench).
//
//   grammar_probe VOCABULARY      a file: each token's bytes in hexadecimal, a line a token; a line `-` is a
//                                 token that is no text; the first line is the end token
// Questions on stdin, an answer each on stdout; JSON values a line:
//   compile KIND TEXT      KIND: schema, compact (a schema without free whitespace), object, regex, gbnf,
//                          choice; TEXT is a JSON string (of choice an array). "ok MICROSECONDS" or "error
//                          TEXT"
//   start                  a new answer under it: "ok"
//   mask                   "MICROSECONDS ID ID …": tokens that may follow
//   accept ID              "1 ACCEPTING" or "0 ACCEPTING"
//   sample SEED LENGTH MAX random answers' text as a JSON string, or null if it did not end
//   accepts TEXT           1 if the text, a JSON string, is a whole answer, else 0
//   times ID ID …          microseconds of the mask before each of these tokens, all of which are accepted

#include <time.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "common/core/work_limit.h"
#include "common/grammar/front/front_ends.h"
#include "common/grammar/grammar.h"
#include "common/json/json.h"

namespace troupe::grammar {
namespace {

// The thread's processor time: what a busy machine does meanwhile is not the mask's.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock, duration>;
  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::shared_ptr<const Vocabulary> read_vocabulary(const char* path) {
  std::ifstream file(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);) {
    std::string text;
    for (size_t i = 0; line != "-" && i + 1 < line.size(); i += 2)
      text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    texts.push_back(text);
  }
  const auto start = Clock::now();
  auto vocabulary = Vocabulary::make(std::move(texts), {0});
  if (!vocabulary.ok()) std::exit(1);
  std::fprintf(stderr, "vocabulary: %zu tokens, %.0f ms, %.1f MB\n", (*vocabulary)->size(),
               microseconds_since(start) / 1000, static_cast<double>((*vocabulary)->memory_bytes()) / 1e6);
  return *vocabulary;
}

StatusOr<Rules> rules_of(const std::string& kind, const std::string& json) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value value, parse_json(json));
  if (kind == "choice") {
    std::vector<std::string> texts;
    for (const bj::value& text : value.as_array()) texts.emplace_back(text.as_string().c_str());
    return rules_of_choice(texts);
  }
  const std::string text(value.as_string());
  if (kind == "schema") return rules_of_json_schema(text, {});
  if (kind == "compact") return rules_of_json_schema(text, {.any_whitespace = false});
  if (kind == "object") return rules_of_json_object({});
  if (kind == "regex") return rules_of_regex(text);
  return rules_of_gbnf(text);
}

class Probe {
 public:
  explicit Probe(std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)), bits_(vocabulary_->mask_words()) {}

  std::string answer(const std::string& question) {
    std::istringstream words(question);
    std::string verb;
    words >> verb;
    if (verb == "compile") return compile(words);
    if (verb == "start") return matcher_.emplace(grammar_), "ok";
    if (verb == "mask") return mask();
    if (verb == "sample") return sample(words);
    if (verb == "times") return times(words);
    if (verb == "accepts") return accepts(words);
    int32_t token = 0;
    words >> token;
    const auto accepted = matcher_->accept(token);
    std::string text = accepted.ok() && *accepted ? "1 " : "0 ";
    return text + (matcher_->is_accepting() ? "1" : "0");
  }

 private:
  std::string compile(std::istringstream& words) {
    std::string kind, json;
    words >> kind;
    std::getline(words >> std::ws, json);
    const auto start = Clock::now();
    WorkLimit limit(std::chrono::seconds(5), Deadline{});
    const WorkScope scope(limit);
    auto rules = rules_of(kind, json);
    if (!rules.ok()) return "error " + std::string(rules.status().message());
    auto grammar = CompiledGrammar::make(*std::move(rules), vocabulary_);
    if (!grammar.ok()) return "error " + std::string(grammar.status().message());
    grammar_ = *std::move(grammar);
    return "ok " + std::to_string(microseconds_since(start));
  }

  bool fill() { return matcher_->fill_mask(bits_).ok(); }

  std::string mask() {
    const auto start = Clock::now();
    fill();
    std::string text = std::to_string(microseconds_since(start));
    for (size_t id = 0; id < vocabulary_->size(); ++id)
      if ((bits_[id / 32] >> (id % 32) & 1) != 0) text += " " + std::to_string(id);
    return text;
  }

  std::string sample(std::istringstream& words) {
    uint32_t seed = 0;
    size_t length = 0, max = 0;
    words >> seed >> length >> max;
    std::mt19937 random(seed);
    GrammarMatcher matcher(grammar_);
    std::string text;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < max; ++i) {
      if (!matcher.fill_mask(bits_).ok()) return "null";
      tokens.clear();
      for (size_t id = 0; id < vocabulary_->size(); ++id)
        if ((bits_[id / 32] >> (id % 32) & 1) != 0) tokens.push_back(static_cast<int32_t>(id));
      if (tokens.empty()) return "\"NOTHING MAY FOLLOW\"";
      const bool may_end = (bits_[0] & 1) != 0;
      int32_t token = tokens[random() % tokens.size()];
      if (may_end && i >= length) token = 0;
      if (!matcher.accept(token).value_or(false)) return "\"REFUSED\"";
      if (token == 0) {
        std::string literal;
        append_json_string(literal, text);
        return literal;
      }
      text += vocabulary_->text(token);
    }
    return "null";
  }

  std::string accepts(std::istringstream& words) {
    std::string json;
    std::getline(words >> std::ws, json);
    const auto text = parse_json(json);
    GrammarMatcher matcher(grammar_);
    const bool goes_on = text.ok() && matcher.accept_text(std::string(text->as_string())).value_or(false);
    return goes_on && matcher.is_accepting() ? "1" : "0";
  }

  std::string times(std::istringstream& words) {
    matcher_.emplace(grammar_);
    std::string text;
    for (int32_t token = 0; words >> token;) {
      const auto start = Clock::now();
      fill();
      text += std::to_string(microseconds_since(start)) + " ";
      const bool is_allowed = (bits_[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
      if (!is_allowed || !matcher_->accept(token).value_or(false)) return text + "refused";
    }
    return text;
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<uint32_t> bits_;
  std::shared_ptr<const CompiledGrammar> grammar_;
  std::optional<GrammarMatcher> matcher_;
};

}  // namespace
}  // namespace troupe::grammar

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  troupe::grammar::Probe probe(troupe::grammar::read_vocabulary(argv[1]));
  for (std::string line; std::getline(std::cin, line);) std::cout << probe.answer(line) << std::endl;
  return 0;
}
