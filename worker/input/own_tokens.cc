#include "worker/input/own_tokens.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "worker/text/chat_context.h"
#include "worker/text/unicode.h"

namespace troupe {

namespace {

// Whether a mark before it stands in no template's way: one that is a word ("user") or a line break is also
// what templates compare texts with, or split them at.
bool has_signs(std::string_view token) {
  constexpr size_t kBytesMin = 3;
  return token.size() >= kBytesMin &&
         std::any_of(token.begin(), token.end(), [](unsigned char c) { return std::ispunct(c) != 0; });
}

TextMap marking(const Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text) -> std::optional<std::string> {
    std::vector<size_t> begins;
    size_t done = 0;
    for (const TokenPlace& place : tokenizer.places_of_special(text)) {
      if (place.begin < done) continue;
      done = place.end;
      if (has_signs(text.substr(place.begin, place.end - place.begin))) begins.push_back(place.begin);
    }
    if (begins.empty()) return std::nullopt;
    return with_own_marks(text, begins);
  };
}

// Calls `visit` with each special token that nothing marks, but for those within one that is marked.
template <typename Visit>
void visit_unmarked(const Tokenizer& tokenizer, const CutText& prompt, Visit visit) {
  size_t own_end = 0;
  for (const TokenPlace& place : tokenizer.places_of_special(prompt.text)) {
    if (std::binary_search(prompt.own.begin(), prompt.own.end(), place.begin)) {
      own_end = std::max(own_end, place.end);
    } else if (place.begin >= own_end) {
      visit(place);
    }
  }
}

// They stand between two others of a token: roles, and the texts of the template.
using Pieces = absl::flat_hash_set<std::string>;

bool is_pieced(std::string_view token, std::span<const std::string> heads, std::span<const std::string> texts,
               const Pieces& middles) {
  const auto ends_with = [&](size_t bytes) {
    return std::any_of(heads.begin(), heads.end(),
                       [&](std::string_view text) { return text.ends_with(token.substr(0, bytes)); });
  };
  const auto begins_with = [&](size_t at) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](std::string_view text) { return text.starts_with(token.substr(at)); });
  };
  for (size_t head = 1; head < token.size(); ++head) {
    if (!ends_with(head)) continue;
    for (size_t tail = head; tail < token.size(); ++tail) {
      if (middles.contains(to_absl(token.substr(head, tail - head))) && begins_with(tail)) return true;
    }
  }
  return false;
}

void add_pieced_by_texts(const Tokenizer& tokenizer, const ChatTemplate& chat,
                         absl::flat_hash_set<int32_t>& pieced) {
  const std::vector<std::string> texts = chat.own_texts();
  std::vector<std::string> heads;
  Pieces middles{""};
  for (const Role role : {Role::kSystem, Role::kDeveloper, Role::kUser, Role::kAssistant, Role::kTool})
    middles.emplace(role_name(role));
  for (const std::string& text : texts) {
    const std::vector<size_t> cuts = tokenizer.cuts_of_special(text);
    if (!cuts.empty() && cuts.back() == text.size()) heads.push_back(text);
    middles.insert(text);
  }
  if (heads.empty()) return;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id) && is_pieced(tokenizer.token_text(id), heads, texts, middles))
      pieced.insert(id);
  }
}

// Small chats, in which nothing but the template writes special tokens.
std::vector<GenerateRequest> small_chats() {
  const ChatMessage system{Role::kSystem, "a", ""}, user{Role::kUser, "b", ""},
      answer{Role::kAssistant, "c", ""},
      result{Role::kTool, "d", R"({"name":"f","tool_call_id":"123456789"})"};
  const ChatMessage call{Role::kAssistant, "",
                         R"({"tool_calls":[{"id":"123456789","type":"function",)"
                         R"("function":{"name":"f","arguments":"{\"g\":1}"}}]})"};
  std::vector<GenerateRequest> chats(4);
  chats[0].messages = {user};
  chats[1].messages = {system, user, answer, user};
  chats[2].messages = {system, user, call, result, answer, user};
  chats[3].messages = {user, call, result};
  for (const size_t with_tools : {2, 3}) {
    chats[with_tools].tools_json =
        R"([{"type":"function","function":{"name":"f","description":"h","parameters":)"
        R"({"type":"object","properties":{"g":{"type":"integer","description":"i"}}}}}])";
    chats[with_tools].documents_json = R"([{"title":"j","text":"k"}])";
  }
  return chats;
}

void add_pieced_by_chats(const ServedModel& model, const ChatTemplate& chat, OwnTokens& own) {
  for (const GenerateRequest& request : small_chats()) {
    for (const bool opens : {true, false}) {
      const auto context = chat_context(request, own.variables, opens, chat.traits());
      const auto rendered = context.ok() ? chat.render_mapped(*context) : context.status();
      if (!rendered.ok()) continue;
      visit_unmarked(*model.tokenizer, without_marks(*rendered),
                     [&](const TokenPlace& place) { own.unmarked.insert(place.id); });
    }
  }
}

}  // namespace

void mark_own_tokens(ServedModel& model, std::span<ChatTemplate* const> templates) {
  const TextMap mark = marking(*model.tokenizer);
  bj::value variables = model.special_tokens;
  map_texts(variables, mark);
  OwnTokens own{std::move(variables.get_object()), {}};
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    if (model.tokenizer->is_special(id) && !has_signs(model.tokenizer->token_text(id)))
      own.unmarked.insert(id);
  }
  for (ChatTemplate* const chat : templates) {
    chat->map_own_texts(mark);
    add_pieced_by_texts(*model.tokenizer, *chat, own.unmarked);
    add_pieced_by_chats(model, *chat, own);
  }
  model.own_tokens = std::move(own);
}

void cut_other_tokens(const ServedModel& model, CutText& prompt) {
  std::vector<size_t> cuts;
  visit_unmarked(*model.tokenizer, prompt, [&](const TokenPlace& place) {
    if (model.own_tokens->unmarked.contains(place.id)) return;
    size_t second = place.begin;
    next_code_point(prompt.text, second);
    if (second < place.end) cuts.push_back(second);
  });
  if (cuts.empty()) return;
  std::vector<size_t> all;
  std::set_union(cuts.begin(), cuts.end(), prompt.cuts.begin(), prompt.cuts.end(), std::back_inserter(all));
  prompt.cuts = std::move(all);
}

}  // namespace troupe
