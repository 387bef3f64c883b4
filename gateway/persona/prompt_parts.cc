#include "gateway/persona/prompt_parts.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/core/status.h"
#include "gateway/persona/fields.h"

namespace troupe {

namespace {

constexpr size_t kSearchedBytesMax = 64u << 10;  // of a conversation's end
constexpr int kRounds = 4;                       // in which entries may call up others
constexpr std::string_view kSectionEnd = "\n\n";

// The places of a conversation between which its parts may be put.
struct Conversation {
  explicit Conversation(const std::vector<ChatMessage>& all, bool goes_on) : messages(all) {
    while (begin < messages.size() && is_instruction(messages[begin])) begin += 1;
    end = messages.size() - (goes_on ? 1 : 0);
    last_user = end;
    for (size_t i = begin; i < end; ++i) {
      if (messages[i].role == Role::kUser) last_user = i;
    }
  }
  static bool is_instruction(const ChatMessage& message) {
    return message.role == Role::kSystem || message.role == Role::kDeveloper;
  }
  // Before messages[point]. Results of tools stay behind their calls.
  size_t point_at(int64_t depth) const {
    size_t point = depth == 0 ? std::min(last_user + 1, end) : last_user;
    const auto up = static_cast<size_t>(std::max<int64_t>(depth - 1, 0));
    point = point - std::min(point, up);
    while (point > begin && point < messages.size() && messages[point].role == Role::kTool) point -= 1;
    return std::max(point, std::min(begin, end));
  }

  const std::vector<ChatMessage>& messages;
  size_t begin = 0;  // behind instructions that it begins with
  size_t end = 0;    // of what post_history stands behind
  size_t last_user = 0;
};

}  // namespace

ApiResult<std::shared_ptr<const PersonaPrompt>> PersonaPrompt::compile(PersonaDefinition definition) {
  auto prompt = std::make_shared<PersonaPrompt>();
  prompt->definition_ = std::move(definition);
  if (auto done = prompt->compile_card(); !done.ok()) return done.error();
  if (auto done = prompt->compile_lore(); !done.ok()) return done.error();
  if (auto done = prompt->compile_late(); !done.ok()) return done.error();
  return std::shared_ptr<const PersonaPrompt>(std::move(prompt));
}

// A part of the text that all users share.
ApiResult<bool> PersonaPrompt::add_shared(std::string_view field, std::string_view text,
                                          std::string_view title) {
  if (text.empty()) return true;
  const PersonaDefinition& own = definition_;
  auto compiled = LateText::compile(field, text, own.character);
  if (!compiled.ok()) return compiled.error();
  const std::vector<std::string> variables = compiled->variables();
  if (own.each_user_in_card) shares_card_ = shares_card_ && variables.empty() && !compiled->names_user();
  for (const std::string& name : variables) {
    if (own.each_user_in_card || own.variables.contains(name)) continue;
    return ApiError::bad_field(
        field,
        absl::StrCat(
            "'", to_absl(field), "' has {{", name,
            "}}, and all users share that text: give it a value in 'variables', use it in post_history, "
            "user_note or an entry of lore that is not constant, or set user_in_card to \"each\""));
  }
  if (!own.each_user_in_card && compiled->names_user()) {
    definition_.warnings.push_back(absl::StrCat(
        "'", to_absl(field), "' names {{user}}: all users share that text, where it reads '", own.user_word,
        "'; the user's own name comes behind it (user_note). With user_in_card \"each\" it is the name "
        "itself, "
        "and the text is computed for each user anew"));
  }
  if (!card_.empty()) card_ += kSectionEnd;
  card_ += title;
  compiled->append(card_, own.user_word, own.variables, {});
  if (!own.each_user_in_card && !variables.empty())
    definition_.warnings.push_back(
        absl::StrCat("'", to_absl(field),
                     "' has variables: there they are those of the persona, whatever a request sends"));
  return true;
}

ApiResult<bool> PersonaPrompt::compile_card() {
  const PersonaDefinition own = definition_;  // (warnings are added to the other)
  std::vector<const LoreEntry*> entries;
  for (const LoreEntry& entry : own.lore) {
    if (entry.is_shared()) entries.push_back(&entry);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LoreEntry* a, const LoreEntry* b) { return a->order < b->order; });
  const auto add_lore = [this, &entries](LorePlace place) -> ApiResult<bool> {
    for (const LoreEntry* entry : entries) {
      if (entry->place != place) continue;
      if (auto done = add_shared(entry->field, entry->content, ""); !done.ok()) return done;
    }
    return true;
  };
  const std::string examples = absl::StrReplaceAll(own.examples, {{"<START>", "***"}, {"<start>", "***"}});
  if (auto done = add_lore(LorePlace::kBeforeCard); !done.ok()) return done;
  if (auto done = add_shared("card", own.card, ""); !done.ok()) return done;
  if (auto done = add_lore(LorePlace::kAfterCard); !done.ok()) return done;
  if (auto done =
          add_shared("examples", examples, absl::StrCat("How ", own.character, " speaks, by examples:\n"));
      !done.ok())
    return done;
  if (shares_card_) return true;
  // The same text, with its macros.
  std::string whole;
  const auto add = [&whole](std::string_view title, std::string_view text) {
    if (!text.empty())
      absl::StrAppend(&whole, whole.empty() ? "" : to_absl(kSectionEnd), to_absl(title), to_absl(text));
  };
  for (const LoreEntry* entry : entries) {
    if (entry->place == LorePlace::kBeforeCard) add("", entry->content);
  }
  add("", own.card);
  for (const LoreEntry* entry : entries) {
    if (entry->place == LorePlace::kAfterCard) add("", entry->content);
  }
  add("How {{char}} speaks, by examples:\n", examples);
  auto parts = LateText::compile("card", whole, own.character);
  if (!parts.ok()) return parts.error();
  card_parts_ = *std::move(parts);
  definition_.warnings.emplace_back(
      "the card has each user's own name or variables: no two users share what is computed of it, and it is "
      "not computed ahead");
  return true;
}

ApiResult<bool> PersonaPrompt::compile_lore() {
  std::vector<LoreMatcher::Key> keys;
  // One that many entries have is looked for once.
  std::map<std::tuple<std::string, bool, bool>, size_t> known;
  for (size_t i = 0; i < definition_.lore.size(); ++i) {
    const LoreEntry& own = definition_.lore[i];
    if (own.is_shared()) continue;
    auto content = LateText::compile(own.field, own.content, definition_.character);
    if (!content.ok()) return content.error();
    Entry entry{i, *std::move(content), "", {}, {}};
    if (definition_.lore_recursive)
      entry.content.append(entry.searched, definition_.user_word, definition_.variables, {});
    const auto add = [&](const std::vector<std::string>& texts, std::vector<size_t>& ids) -> ApiResult<bool> {
      for (const std::string& text : texts) {
        auto key = LateText::compile(own.field, text, definition_.character);
        if (!key.ok()) return key.error();
        LoreMatcher::Key made{"", own.case_sensitive, own.whole_words};
        key->append(made.text, definition_.user_word, definition_.variables, {});
        if (made.text.empty()) made.text = text;
        if (!made.case_sensitive) made.text = fold_case(made.text);
        const auto [at, is_new] =
            known.try_emplace({made.text, made.case_sensitive, made.whole_words}, keys.size());
        ids.push_back(at->second);
        if (is_new) keys.push_back(std::move(made));
      }
      return true;
    };
    if (auto done = add(own.keys, entry.keys); !done.ok()) return done;
    if (auto done = add(own.secondary_keys, entry.secondary_keys); !done.ok()) return done;
    lore_.push_back(std::move(entry));
  }
  key_count_ = keys.size();
  matcher_ = LoreMatcher(std::move(keys));
  return true;
}

ApiResult<bool> PersonaPrompt::compile_late() {
  const PersonaDefinition& own = definition_;
  names_user_ = shares_card_ && card_.find(own.user_word) != std::string::npos;
  const std::string usual =
      names_user_ ? absl::StrCat(own.user_word, " is called {{user}}.") : "The user is called {{user}}.";
  auto note =
      LateText::compile("user_note", own.user_note.value_or(shares_card_ ? usual : ""), own.character);
  if (!note.ok()) return note.error();
  user_note_ = *std::move(note);
  auto last = LateText::compile("post_history", own.post_history, own.character);
  if (!last.ok()) return last.error();
  post_history_ = *std::move(last);
  for (size_t i = 0; i < own.greetings.size(); ++i) {
    auto text = LateText::compile(absl::StrCat("greetings[", i, "]"), own.greetings[i], own.character);
    if (!text.ok()) return text.error();
    greetings_.push_back(*std::move(text));
  }
  return true;
}

bool PersonaPrompt::is_called(const Entry& entry, const std::vector<bool>& found) const {
  const LoreEntry& own = definition_.lore[entry.index];
  const auto there = [&found](size_t key) { return found[key]; };
  if (own.constant) return true;
  if (std::none_of(entry.keys.begin(), entry.keys.end(), there)) return false;
  const auto& second = entry.secondary_keys;
  if (second.empty()) return true;
  switch (own.secondary) {
    case SecondaryKeys::kAny:
      return std::any_of(second.begin(), second.end(), there);
    case SecondaryKeys::kAll:
      return std::all_of(second.begin(), second.end(), there);
    case SecondaryKeys::kNotAny:
      return std::none_of(second.begin(), second.end(), there);
    case SecondaryKeys::kNotAll:
      return !std::all_of(second.begin(), second.end(), there);
  }
  return true;
}

std::vector<const PersonaPrompt::Entry*> PersonaPrompt::called_by(
    const std::vector<ChatMessage>& messages) const {
  std::vector<const Entry*> called;
  if (lore_.empty()) return called;
  std::vector<bool> found(key_count_), in(lore_.size());
  size_t left = kSearchedBytesMax;
  const auto scan = static_cast<size_t>(definition_.lore_scan_messages);
  for (size_t i = 0; i < std::min(scan, messages.size()) && left > 0; ++i) {
    const std::string& text = messages[messages.size() - 1 - i].content;
    const size_t bytes = std::min(left, text.size());
    matcher_.find(std::string_view(text).substr(text.size() - bytes), found);
    left -= bytes;
  }
  for (int round = 0; round < (definition_.lore_recursive ? kRounds : 1); ++round) {
    const size_t before = called.size();
    for (size_t i = 0; i < lore_.size(); ++i) {
      if (in[i] || !is_called(lore_[i], found)) continue;
      in[i] = true;
      called.push_back(&lore_[i]);
    }
    if (called.size() == before) break;
    for (size_t i = before; definition_.lore_recursive && i < called.size(); ++i)
      matcher_.find(called[i]->searched, found);
  }
  return called;
}

// The important ones first; of these, those that would stand last.
void PersonaPrompt::keep_within_bytes(std::vector<const Entry*>& entries) const {
  const auto own = [this](const Entry* e) -> const LoreEntry& { return definition_.lore[e->index]; };
  std::stable_sort(entries.begin(), entries.end(), [&own](const Entry* a, const Entry* b) {
    return std::pair(own(a).importance, own(a).order) > std::pair(own(b).importance, own(b).order);
  });
  auto left = static_cast<size_t>(definition_.lore_bytes);
  std::erase_if(entries, [&](const Entry* entry) {
    const size_t bytes = own(entry).content.size();
    if (bytes > left) return true;
    left -= bytes;
    return false;
  });
}

// In the order of the prompt.
std::vector<PersonaPrompt::Placed> PersonaPrompt::place(const Input& input) const {
  std::vector<const Entry*> entries = called_by(input.messages);
  keep_within_bytes(entries);
  const Conversation conversation(input.messages, input.goes_on);
  std::vector<Placed> placed;
  for (const Entry* entry : entries) {
    const LoreEntry& own = definition_.lore[entry->index];
    placed.push_back({own.place == LorePlace::kLate ? conversation.point_at(own.depth) : 0, entry});
  }
  const auto before = [this](const Placed& a, const Placed& b) {
    const LoreEntry &left = definition_.lore[a.entry->index], &right = definition_.lore[b.entry->index];
    const bool left_late = left.place == LorePlace::kLate, right_late = right.place == LorePlace::kLate;
    return std::tuple(left_late, a.point, left.order, a.entry->index) <
           std::tuple(right_late, b.point, right.order, b.entry->index);
  };
  std::sort(placed.begin(), placed.end(), before);
  return placed;
}

// Puts the parts together; a variable without a value ends in an error.
struct PersonaPrompt::Rendering {
  const PersonaPrompt& prompt;
  const PersonaCall& call;
  std::vector<PromptItem> items = {};
  std::string missing = {};

  void append(std::string& out, const LateText& text) { append_of(prompt, out, text); }
  void append_of(const PersonaPrompt& whose, std::string& out, const LateText& text) {
    const PersonaDefinition& own = whose.definition_;
    std::string none = text.append(out, call.user.value_or(own.user_word), call.variables, own.variables);
    if (!none.empty()) missing = std::move(none);
  }
  void add(Role role, const LateText& text) {
    if (text.empty()) return;
    PromptItem item;
    item.role = role;
    append(item.text, text);
    items.push_back(std::move(item));
  }
  // The card, or all members' cards, each under its name.
  void add_cards(const Input& input) {
    std::string text;
    if (!call.joins_cards || input.members.empty()) prompt.append_card(text, *this);
    for (const PersonaPrompt* member : input.members) {
      if (!call.joins_cards) break;
      absl::StrAppend(&text, text.empty() ? "" : to_absl(kSectionEnd), member->definition_.character, ":\n");
      member->append_card(text, *this);
    }
    items.push_back({PromptItem::kOwn, Role::kSystem, std::move(text)});
  }
  void add_others(const Input& input) {
    std::string names;
    for (const PersonaPrompt* member : input.members) {
      if (member != &prompt)
        absl::StrAppend(&names, names.empty() ? "" : ", ", member->definition_.character);
    }
    if (!names.empty() && !call.joins_cards)
      items.push_back({PromptItem::kOwn, Role::kSystem, absl::StrCat("Others who speak here: ", names, ".")});
  }
  // Joined cards have, for every speaker, the notes of all members that have one or whose card names the
  // user; where none does, the first's.
  void add_note(const Input& input) {
    std::vector<const PersonaPrompt*> whose;
    if (call.joins_cards) {
      std::copy_if(input.members.begin(), input.members.end(), std::back_inserter(whose),
                   [](const PersonaPrompt* one) { return one->definition_.user_note || one->names_user_; });
      if (whose.empty() && !input.members.empty()) whose.push_back(input.members.front());
    }
    if (whose.empty()) whose.push_back(&prompt);
    std::vector<std::string> notes;
    for (const PersonaPrompt* one : whose) {
      std::string note;
      if (call.user || one->definition_.user_note) append_of(*one, note, one->user_note_);
      if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
        notes.push_back(std::move(note));
    }
    if (!notes.empty()) items.push_back({PromptItem::kOwn, Role::kSystem, absl::StrJoin(notes, "\n")});
  }
  // The part behind the conversation.
  void add_last(const Input& input) {
    std::string text;
    append(text, prompt.post_history_);
    if (input.members.size() > 1)
      absl::StrAppend(&text, text.empty() ? "" : "\n", "Write the next reply as ",
                      prompt.definition_.character, " only.");
    if (!text.empty()) items.push_back({PromptItem::kOwn, Role::kSystem, std::move(text)});
  }
  // Entries of one place are one message.
  void add_lore(const std::vector<Placed>& placed, size_t& next, bool late, size_t point) {
    PromptItem item;
    const auto& lore = prompt.definition_.lore;
    for (; next < placed.size() && placed[next].point <= point; ++next) {
      if ((lore[placed[next].entry->index].place == LorePlace::kLate) != late) break;
      if (!item.text.empty()) item.text += '\n';
      append(item.text, placed[next].entry->content);
    }
    if (!item.text.empty()) items.push_back(std::move(item));
  }
};

void PersonaPrompt::append_card(std::string& out, Rendering& rendering) const {
  if (shares_card_) {
    out += card_;
  } else {
    rendering.append_of(*this, out, card_parts_);
  }
}

ApiResult<std::vector<PromptItem>> PersonaPrompt::assemble(const Input& input) const {
  const PersonaCall& call = input.call;
  if (call.greeting && static_cast<size_t>(*call.greeting) >= greetings_.size())
    return ApiError::bad_field(
        "persona.greeting", absl::StrCat("'persona.greeting' is ", *call.greeting, ", and the persona has ",
                                         greetings_.size(), ", from 0 on"));
  Rendering out{*this, call};
  out.items.reserve(input.messages.size() + 8);
  out.add_cards(input);
  out.add_others(input);
  out.add_note(input);
  const std::vector<Placed> placed = place(input);
  size_t next = 0;
  out.add_lore(placed, next, false, 0);
  const Conversation conversation(input.messages, input.goes_on);
  for (size_t i = 0; i <= input.messages.size(); ++i) {
    if (i == conversation.begin && call.greeting)
      out.add(Role::kAssistant, greetings_[static_cast<size_t>(*call.greeting)]);
    out.add_lore(placed, next, true, i);
    if (i == conversation.end) out.add_last(input);
    if (i < input.messages.size()) out.items.push_back({static_cast<int32_t>(i), input.messages[i].role, ""});
  }
  if (!out.missing.empty())
    return ApiError::bad_field(absl::StrCat("persona.variables.", out.missing),
                               absl::StrCat("'persona.variables.", out.missing,
                                            "' is needed: the persona's texts have {{", out.missing, "}}"));
  return std::move(out.items);
}

}  // namespace troupe
