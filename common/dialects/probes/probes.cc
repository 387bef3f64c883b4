#include "common/dialects/probes/probes.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/body.h"

namespace troupe::dialect::probes {
namespace {

class EncodeAnswer final : public DialectAnswer {
 public:
  explicit EncodeAnswer(bool counts_only) : counts_only_(counts_only) {}
  std::string whole(const bj::object& body) override {
    bj::object out{{"length", count_member(body, "count")}};
    const bj::array* ids = array_member(body, "tokens");
    if (!counts_only_) out["tokens"] = ids == nullptr ? bj::array() : *ids;
    return to_json(out);
  }

 private:
  const bool counts_only_;
};

class DecodeAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    return to_json(bj::object{{"text", bj::string_view(text_member(body, "prompt"))}});
  }
};

// Answers from the list of models.
class QuestionAnswer final : public DialectAnswer {
 public:
  explicit QuestionAnswer(std::string_view path) : path_(path) {}
  std::string whole(const bj::object& body) override {
    if (path_ == "/v1/model/list") return to_json(body);
    if (path_ == "/v1/auth/permission") return R"({"permission":"api"})";
    const bj::array* data = array_member(body, "data");
    bj::object model;
    if (data != nullptr && !data->empty() && data->front().is_object()) model = data->front().get_object();
    const std::string name(text_member(model, "id"));
    const int64_t context = count_member(model, "max_model_len");
    if (path_ == "/v1/internal/model/info")
      return to_json(bj::object{{"model_name", name}, {"lora_names", bj::array()}, {"loader", "troupe"}});
    if (path_ == "/props")
      return to_json(bj::object{{"default_generation_settings", bj::object{{"n_ctx", context}}},
                                {"total_slots", 1},
                                {"chat_template", ""},  // (SillyTavern hashes it)
                                {"model_alias", name},
                                {"model_path", name},
                                {"build_info", "troupe"}});
    model["parameters"] = bj::object{{"max_seq_len", context}};
    return to_json(model);
  }

 private:
  const std::string path_;
};

// /v1/tokenize of Aphrodite's clients is /tokenize by another path.
class SameAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override { return to_json(body); }
};

// A completion's `logprobs` → llama.cpp's list of tokens, each with those that might have stood in its place.
bj::array probabilities_of(const bj::value& logprobs) {
  bj::array out;
  const bj::object* fields = logprobs.if_object();
  if (fields == nullptr) return out;
  const bj::array* tokens = array_member(*fields, "tokens");
  const bj::array* likely = array_member(*fields, "token_logprobs");
  const bj::array* tops = array_member(*fields, "top_logprobs");
  if (tokens == nullptr || likely == nullptr || tokens->size() != likely->size()) return out;
  for (size_t i = 0; i < tokens->size(); ++i) {
    bj::array others;
    const bj::object* top = tops == nullptr || i >= tops->size() ? nullptr : (*tops)[i].if_object();
    if (top != nullptr)
      for (const auto& [token, logprob] : *top)
        others.push_back(bj::object{{"token", token}, {"logprob", logprob}});
    out.push_back(
        bj::object{{"token", (*tokens)[i]}, {"logprob", (*likely)[i]}, {"top_logprobs", std::move(others)}});
  }
  return out;
}

// llama.cpp's own form: {"content", "stop", "tokens_predicted", …}, of a stream's pieces, too; with `n_probs`
// also "completion_probabilities".
class CompletionAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    const AnswerPiece piece = read_answer(body);
    take(piece);
    std::string text;
    bj::array probabilities;
    if (!piece.choices.empty()) {
      text = piece.choices.front().text;
      probabilities = probabilities_of(piece.choices.front().logprobs);
    }
    bj::object out = last(text);
    if (!probabilities.empty()) out["completion_probabilities"] = std::move(probabilities);
    return to_json(out);
  }
  void chunk(const AnswerPiece& piece, std::string& out) override {
    take(piece);
    for (const ChoicePiece& choice : piece.choices) {
      if (choice.index != 0 || choice.text.empty()) continue;
      bj::object event{{"index", 0}, {"content", bj::string_view(choice.text)}, {"stop", false}};
      if (bj::array probabilities = probabilities_of(choice.logprobs); !probabilities.empty())
        event["completion_probabilities"] = std::move(probabilities);
      absl::StrAppend(&out, "data: ", to_json(event), "\n\n");
    }
  }
  void end(std::string& out) override { absl::StrAppend(&out, "data: ", to_json(last("")), "\n\n"); }

 private:
  void take(const AnswerPiece& piece) {
    if (!piece.model.empty()) model_ = piece.model;
    if (piece.usage) usage_ = *piece.usage;
    for (const ChoicePiece& choice : piece.choices)
      if (!choice.finish.empty()) last_ = choice;
  }
  bj::object last(std::string_view text) const {
    const bool cut = last_.finish == "length", word = !last_.stop_text.empty();
    bj::object out{{"index", 0}, {"content", bj::string_view(text)}, {"stop", true}};
    out["model"] = bj::string_view(model_);
    out["stop_type"] = cut ? "limit" : word ? "word" : "eos";
    out["stopping_word"] = bj::string_view(last_.stop_text);
    out["stopped_limit"] = cut;
    out["stopped_eos"] = !cut && !word;
    out["stopped_word"] = word;
    out["tokens_predicted"] = usage_.completion_tokens;
    out["tokens_evaluated"] = usage_.prompt_tokens;
    out["tokens_cached"] = usage_.cached_tokens;
    out["truncated"] = false;
    return out;
  }
  std::string model_;
  AnswerUsage usage_;
  ChoicePiece last_;
};

}  // namespace

ApiResult<TranslatedRequest> translate_encode(std::string_view path, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/tokenize";
  if (auto fault = refuse_persona(*fields)) return *std::move(fault);
  bj::object text;
  const bj::value given = take(*fields, "text");
  if (given.is_null()) return required("text", "a string, or a chat's messages");
  const bool chat = given.is_array();
  if (!chat && !given.is_string()) return wrong("text", "a string, or a chat's messages");
  text[chat ? "messages" : "prompt"] = given;
  bool special = !chat;
  if (auto fault = take_flag(*fields, "add_bos_token", special)) return *std::move(fault);
  text["add_special_tokens"] = !chat && special;  // a chat's template writes its own
  move_member(*fields, "model", text, "model");
  out.renames = {{"messages", "text"}, {"prompt", "text"}};
  out.body = to_json(text);
  out.answer = std::make_unique<EncodeAnswer>(absl::EndsWith(to_absl(path), "token-count"));
  return out;
}

ApiResult<TranslatedRequest> translate_decode(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/detokenize";
  bj::object ids;
  move_member(*fields, "tokens", ids, "tokens");
  move_member(*fields, "model", ids, "model");
  out.body = to_json(ids);
  out.answer = std::make_unique<DecodeAnswer>();
  return out;
}

ApiResult<TranslatedRequest> translate_tokenize(std::string_view, std::string_view body) {
  TranslatedRequest out;
  out.path = "/tokenize";
  out.body = std::string(body);
  out.answer = std::make_unique<SameAnswer>();
  return out;
}

ApiResult<TranslatedRequest> translate_question(std::string_view path, std::string_view) {
  TranslatedRequest out;
  out.method = "GET";
  out.path = "/v1/models";
  out.answer = std::make_unique<QuestionAnswer>(path);
  return out;
}

ApiResult<TranslatedRequest> translate_completion(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/v1/completions";
  bj::object completion;
  std::optional<std::string> model;
  if (auto fault = take_text(*fields, "model", model)) return *std::move(fault);
  if (model) completion["model"] = *model;
  out.model = model.value_or("");
  bool stream = false;
  if (auto fault = take_flag(*fields, "stream", stream)) return *std::move(fault);
  take(*fields, "stream_options");
  if (stream) {
    completion["stream"] = true;
    completion["stream_options"] = bj::object{{"include_usage", true}};
  }
  // −1: until the model ends; −2: until the context is full.
  const bj::value count = take(*fields, "n_predict");
  const bool endless = count.is_int64() && count.get_int64() < 0;
  if (!count.is_null() && !endless) completion["max_tokens"] = count;
  out.renames = {{"max_tokens", "n_predict"}};
  add_rest(*std::move(fields), completion);
  out.body = to_json(completion);
  out.answer = std::make_unique<CompletionAnswer>();
  return out;
}

std::unique_ptr<DialectAnswer> make_refusal() {
  return std::make_unique<CompletionAnswer>();
}

}  // namespace troupe::dialect::probes
