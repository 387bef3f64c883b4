#pragma once

// Requests prepared for a small model, and random answers under their grammars, read as clients get them.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/worker/input/chat_server.h"
#include "worker/input/prepare_grammar.h"
#include "worker/text/answer/answer_parser.h"
#include "worker/text/tokenizer/detokenizer.h"

namespace troupe::prepare_grammar_test {

using chat_server::bytes_with_line_breaks;
using chat_server::ChatServer;

inline constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ tools | tojson if tools }}"
    "{% if add_generation_prompt %}<|im_start|>{% if thinks is defined %}<think>\n{% endif %}{% endif %}";
// The first two are a turn's.
inline const std::vector<std::string> kSpecial = {"<|im_start|>",
                                                  "<|im_end|>",
                                                  "<tool_call>",
                                                  "[TOOL_CALLS]",
                                                  "<｜tool▁calls▁begin｜>",
                                                  "<｜tool▁call▁begin｜>",
                                                  "<｜tool▁sep｜>",
                                                  "<｜tool▁call▁end｜>",
                                                  "<｜tool▁calls▁end｜>",
                                                  "<|tool_calls_section_begin|>",
                                                  "<|tool_call_begin|>",
                                                  "<|tool_call_argument_begin|>",
                                                  "<|tool_call_end|>",
                                                  "<|tool_calls_section_end|>",
                                                  "</think>"};
inline const std::string kTools =
    R"(,"tools":[{"type":"function","function":{"name":"roll","strict":true,"parameters":{"type":"object","properties":)"
    R"({"sides":{"type":"integer","minimum":2,"maximum":20}},"required":["sides"],"additionalProperties":false}}},)"
    R"({"type":"function","function":{"name":"look-at","parameters":{"properties":{"what":{"type":"string","maxLength":4},)"
    R"("how":{"$ref":"#/$defs/h"}},"required":["what"],"additionalProperties":false,"$defs":{"h":{"enum":["up","down"]}}}}},)"
    R"({"type":"function","function":{"name":"wait"}}])";

// Texts that random bytes seldom come to: those that begin a call in free text, and that end a value.
inline constexpr std::string_view kPieces[] = {
    "<function=", "<tool_call>", "\n</parameter>\n", "</parameter>", "</arg_value>", "\"", "}", "]", ")"};

// The tokens of single bytes, all or none of them.
inline bool accept_bytes(grammar::GrammarMatcher& matcher, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (matcher.accept(static_cast<uint8_t>(bytes[i])).value_or(false)) continue;
    matcher.rollback(i);
    return false;
  }
  return true;
}

struct Prepared {
  explicit Prepared(const std::string& fields, std::string_view tool_parser = "hermes",
                    std::string_view reasoning_parser = "none",
                    const std::vector<std::string>& special = kSpecial)
      : server(bytes_with_line_breaks(special), kTemplate) {
    server.model.config.eos_token_ids = {*server.tokenizer->token_to_id("<|im_end|>")};
    server.model.config.vocab_size = server.tokenizer->vocab_size();
    server.model.forms =
        model_forms(*server.tokenizer, server.chat_template.get(), nullptr, tool_parser, reasoning_parser);
    cache = std::make_unique<GrammarCache>(server.tokenizer.get(), server.model.config.vocab_size,
                                           server.model.config.eos_token_ids);
    server.model.grammar_cache = cache.get();
    auto made = prepare_request(server.model, GenerateRequest::Kind::kChat,
                                R"({"messages":[{"role":"user","content":"go"}])" + fields + "}", 1);
    if (made.ok()) {
      request = *std::move(made);
    } else {
      error = made.error();
    }
  }

  // A random answer that ends as soon as it may, parsed as a client gets it; false: it did not end.
  bool answer(uint32_t seed, AnswerDelta& delta, std::string& text) const {
    std::mt19937 random(seed);
    grammar::GrammarMatcher matcher(request.engine.grammar.compiled);
    const grammar::Vocabulary& vocabulary = request.engine.grammar.compiled->vocabulary();
    std::vector<uint32_t> bits(vocabulary.mask_words());
    Detokenizer detokenizer(server.tokenizer.get(), {}, {.shown_special = request.engine.shown_special});
    for (int i = 0; i < 2000; ++i) {
      EXPECT_TRUE(matcher.fill_mask(bits).ok());
      std::vector<TokenId> tokens;
      for (size_t id = 0; id < vocabulary.size(); ++id) {
        if ((bits[id / 32] >> (id % 32) & 1) != 0) tokens.push_back(static_cast<TokenId>(id));
      }
      const TokenId end = server.model.config.eos_token_ids[0];
      const bool may_end = std::find(tokens.begin(), tokens.end(), end) != tokens.end();
      if (tokens.empty()) return ADD_FAILURE() << "nothing may follow " << text, false;
      if (may_end && i > 40) break;
      // The marks that calls are made of are rare in free text.
      TokenId token = tokens[random() % tokens.size()];
      if (random() % 4 == 0) token = tokens.back();
      const char bracket = request.syntax.tools == nullptr ? '\0' : request.syntax.tools->bracket;
      const bool may_open = std::find(tokens.begin(), tokens.end(), bracket) != tokens.end();
      if (i == 0 && bracket != 0 && may_open && seed % 4 == 0) token = bracket;
      if (token == end) break;
      const std::string_view piece = kPieces[random() % std::size(kPieces)];
      if (random() % 4 == 0 && accept_bytes(matcher, piece)) {
        for (const char byte : piece) text += detokenizer.push(static_cast<uint8_t>(byte));
        continue;
      }
      EXPECT_TRUE(matcher.accept(token).value_or(false));
      text += detokenizer.push(token);
      if (matcher.is_finished()) break;
    }
    if (!matcher.is_accepting()) return false;
    text += detokenizer.finish();
    if (!request.syntax.parses()) {
      delta.content = text;
      return true;
    }
    AnswerParser parser(request.syntax, "chatcmpl-1", 0);
    for (const char byte : text) parser.push({&byte, 1}, 0, delta);
    parser.finish(delta);
    return true;
  }

  ChatServer server;
  std::unique_ptr<GrammarCache> cache;
  PreparedRequest request;
  std::optional<ApiError> error;
};

// The calls' pieces, put together.
inline std::vector<ToolCall> calls_of(const AnswerDelta& delta) {
  std::vector<ToolCall> calls;
  for (const ToolCall& piece : delta.calls) {
    const auto index = static_cast<size_t>(piece.index);
    if (index >= calls.size()) calls.resize(index + 1);
    calls[index].name += piece.name;
    calls[index].arguments += piece.arguments;
  }
  return calls;
}

// Written anew by hand: what kTools' schemas say.
inline bool passes(const ToolCall& call, bool is_held_to_all) {
  const auto parsed = parse_json(call.arguments);
  // (Objects that are open may have a name twice.)
  if (!parsed.ok() && !is_held_to_all && call.name != "roll")
    return to_std(parsed.status().message()).find("duplicate key") != std::string::npos;
  if (!parsed.ok() || !parsed->is_object()) return false;
  const bj::object& arguments = parsed->get_object();
  if (call.name == "roll") {
    const bj::value* sides = arguments.if_contains("sides");
    return arguments.size() == 1 && sides != nullptr && sides->is_int64() && sides->get_int64() >= 2 &&
           sides->get_int64() <= 20;
  }
  if (call.name != "look-at" && call.name != "wait") return false;
  if (!is_held_to_all) return true;
  if (call.name == "wait") return arguments.empty();
  const bj::value* how = arguments.if_contains("how");
  const bool how_passes =
      how == nullptr || (how->is_string() && (how->get_string() == "up" || how->get_string() == "down"));
  return arguments.contains("what") && arguments.at("what").is_string() && how_passes &&
         arguments.size() == (how == nullptr ? 1u : 2u);
}

}  // namespace troupe::prepare_grammar_test
