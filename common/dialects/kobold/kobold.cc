#include "common/dialects/kobold/kobold.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/body.h"

namespace troupe::dialect::kobold {
namespace {

// {"detail": {"msg", "type"}}, with our own form beside it.
std::string error_json(const AnswerError& error) {
  bj::object body = error_object(error);
  body["detail"] = bj::object{{"msg", bj::string_view(error.message)}, {"type", bj::string_view(error.type)}};
  return to_json(body);
}

std::string_view reason_of(std::string_view finish) {
  return finish.empty() ? "stop" : finish;
}

// {"results": [{"text", "finish_reason", …}]}, of a whole answer or of a stream that was collected.
class GenerateAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    const AnswerPiece piece = read_answer(body);
    for (const ChoicePiece& choice : piece.choices) add(choice);
    if (piece.usage) usage_ = *piece.usage;
    return results_json();
  }
  std::string error(const AnswerError& error) const override { return error_json(error); }
  void chunk(const AnswerPiece& piece, std::string&) override {
    for (const ChoicePiece& choice : piece.choices) add(choice);
    if (piece.usage) usage_ = *piece.usage;
  }
  void end(std::string& out) override { out += results_json(); }
  void fail(const AnswerError& error, std::string& out) override { out += error_json(error); }
  std::string text_so_far() const override {
    return results_.empty() ? std::string() : results_.front().text;
  }

 private:
  struct Result {
    std::string text, finish;
    bj::value logprobs;
  };
  void add(const ChoicePiece& choice) {
    if (choice.index < 0 || choice.index >= 4096) return;
    if (results_.size() <= static_cast<size_t>(choice.index))
      results_.resize(static_cast<size_t>(choice.index) + 1);
    Result& result = results_[static_cast<size_t>(choice.index)];
    result.text += choice.text;
    if (!choice.finish.empty()) result.finish = choice.finish;
    if (!choice.logprobs.is_null()) result.logprobs = choice.logprobs;
  }
  std::string results_json() const {
    bj::array list;
    for (const Result& result : results_)
      list.push_back(bj::object{{"text", bj::string_view(result.text)},
                                {"finish_reason", bj::string_view(reason_of(result.finish))},
                                {"logprobs", result.logprobs},
                                {"prompt_tokens", usage_.prompt_tokens},
                                {"completion_tokens", usage_.completion_tokens}});
    return to_json(bj::object{{"results", std::move(list)}});
  }
  std::vector<Result> results_;
  AnswerUsage usage_;
};

// Events of one token's text each.
class StreamAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override { return GenerateAnswer().whole(body); }
  std::string error(const AnswerError& error) const override { return error_json(error); }
  void chunk(const AnswerPiece& piece, std::string& out) override {
    for (const ChoicePiece& choice : piece.choices) {
      if (choice.index != 0) continue;
      text_ += choice.text;
      if (!choice.text.empty() || !choice.finish.empty()) say(choice.text, choice.finish, out);
    }
  }
  void end(std::string&) override {}
  void fail(const AnswerError& error, std::string& out) override {
    absl::StrAppend(&out, "event: error\ndata: ", error_json(error), "\n\n");
  }
  std::string text_so_far() const override { return text_; }

 private:
  static void say(std::string_view text, std::string_view finish, std::string& out) {
    bj::object event{{"token", bj::string_view(text)}, {"finish_reason", nullptr}};
    if (!finish.empty()) event["finish_reason"] = bj::string_view(finish);
    absl::StrAppend(&out, "event: message\ndata: ", to_json(event), "\n\n");
  }
  std::string text_;
};

class CountAnswer final : public DialectAnswer {
 public:
  std::string whole(const bj::object& body) override {
    const bj::array* ids = array_member(body, "tokens");
    return to_json(
        bj::object{{"value", count_member(body, "count")}, {"ids", ids == nullptr ? bj::array() : *ids}});
  }
  std::string error(const AnswerError& error) const override { return error_json(error); }
};

// Answers from the list of models.
class QuestionAnswer final : public DialectAnswer {
 public:
  explicit QuestionAnswer(std::string_view path) : path_(path) {}
  std::string whole(const bj::object& body) override { return to_json(answer(first_model(body))); }
  std::string error(const AnswerError& error) const override { return error_json(error); }

 private:
  static bj::object first_model(const bj::object& body) {
    const bj::array* data = array_member(body, "data");
    return data == nullptr || data->empty() || !data->front().is_object() ? bj::object()
                                                                          : data->front().get_object();
  }
  bj::object answer(const bj::object& model) const {
    if (path_ == "/api/v1/model")
      return {{"result", absl::StrCat("koboldcpp/", to_absl(text_member(model, "id")))}};
    if (path_ == "/api/v1/info/version" || path_ == "/api/latest/info/version") return {{"result", "1.2.5"}};
    if (path_ == "/api/v1/config/max_length") return {{"value", kAnswerTokens}};
    if (path_ == "/api/extra/version") return version();
    return {{"value", count_member(model, "max_model_len")}};  // the context's
  }
  // The version is the one whose fields are spoken here: front ends enable them by it.
  static bj::object version() {
    bj::object out{{"result", "KoboldCpp"}, {"version", "1.90"}, {"protected", false}};
    for (const std::string_view what : {"txt2img", "vision", "audio", "transcribe", "multiplayer",
                                        "websearch", "tts", "embeddings", "music"})
      out[what] = false;
    out["savedata"] = false;
    out["admin"] = 0;
    return out;
  }
  const std::string path_;
};

// Strings there are phrases that the answer is to have nowhere.
void read_banned(bj::object& fields, bj::object& body) {
  const bj::value* banned = fields.if_contains("banned_tokens");
  const bool phrases = banned != nullptr && banned->is_array() && !banned->get_array().empty() &&
                       banned->get_array().front().is_string();
  if (!phrases) return;
  const bj::value strings = take(fields, "banned_tokens");
  if (!fields.contains("banned_strings")) body["banned_strings"] = strings;
}

Fault refuse_images(bj::object& fields) {
  for (const std::string_view name : {"images", "audio"}) {
    const bj::value value = take(fields, name);
    if (value.is_array() && !value.get_array().empty()) return unsupported(name, "leave it out");
  }
  return std::nullopt;
}

Fault read_generate(bj::object& fields, bj::object& body, TranslatedRequest& out) {
  std::optional<std::string> model, key, prompt, memory;
  if (auto fault = take_text(fields, "prompt", prompt)) return fault;
  if (auto fault = take_text(fields, "memory", memory)) return fault;
  if (!prompt) return required("prompt", "a string");
  body["prompt"] = memory.value_or("") + *prompt;
  if (memory) body["kept_prompt_bytes"] = memory->size();
  if (auto fault = take_text(fields, "model", model)) return fault;
  if (auto fault = take_text(fields, "genkey", key)) return fault;
  if (model) body["model"] = *model;
  out.model = model.value_or("");
  out.generation_key = key.value_or("");
  if (auto fault = refuse_images(fields)) return fault;
  move_member(fields, "max_length", body, "max_tokens");
  if (!body.contains("max_tokens")) body["max_tokens"] = kAnswerTokens;
  // Its own prompts are always cut to what fits.
  body["max_context_length"] = INT32_MAX;
  move_member(fields, "max_context_length", body, "max_context_length");
  bool trims = true, default_bans = false, bypasses = false;
  if (auto fault = take_flag(fields, "trim_stop", trims)) return fault;
  if (!trims) body["include_stop_str_in_output"] = true;
  if (auto fault = take_flag(fields, "use_default_badwordsids", default_bans)) return fault;
  if (default_bans) body["ban_eos_token"] = true;
  if (auto fault = take_flag(fields, "bypass_eos", bypasses)) return fault;
  if (bypasses) body["ignore_eos"] = true;
  read_banned(fields, body);
  for (const std::string_view name : {"stream", "stream_options", "echo", "quiet"}) take(fields, name);
  body["stream"] = true;
  body["stream_options"] = bj::object{{"include_usage", true}};
  return std::nullopt;
}

ApiResult<TranslatedRequest> generate(std::string_view body, bool collects) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/v1/completions";
  out.renames = {
      {"max_tokens", "max_length"}, {"include_stop_str_in_output", "!trim_stop"}, {"stop", "stop_sequence"}};
  bj::object completion;
  if (auto fault = read_generate(*fields, completion, out)) return *std::move(fault);
  add_rest(*std::move(fields), completion);
  out.body = to_json(completion);
  out.collects = collects;
  if (collects) {
    out.answer = std::make_unique<GenerateAnswer>();
  } else {
    out.answer = std::make_unique<StreamAnswer>();
  }
  return out;
}

}  // namespace

ApiResult<TranslatedRequest> translate_generate(std::string_view, std::string_view body) {
  return generate(body, /*collects=*/true);
}

ApiResult<TranslatedRequest> translate_stream(std::string_view, std::string_view body) {
  return generate(body, /*collects=*/false);
}

ApiResult<TranslatedRequest> translate_count(std::string_view, std::string_view body) {
  auto fields = read_body(body);
  if (!fields.ok()) return fields.error();
  TranslatedRequest out;
  out.path = "/tokenize";
  if (auto fault = refuse_persona(*fields)) return *std::move(fault);
  bj::object text;
  std::optional<std::string> prompt;
  if (auto fault = take_text(*fields, "prompt", prompt)) return *std::move(fault);
  if (!prompt) return required("prompt", "a string");
  text["prompt"] = *prompt;
  bool special = true;
  if (auto fault = take_flag(*fields, "special", special)) return *std::move(fault);
  text["add_special_tokens"] = special;
  move_member(*fields, "model", text, "model");
  out.body = to_json(text);
  out.answer = std::make_unique<CountAnswer>();
  return out;
}

ApiResult<TranslatedRequest> translate_control(std::string_view path, std::string_view body) {
  TranslatedRequest out;
  out.control =
      path == "/api/extra/abort" ? TranslatedRequest::Control::kAbort : TranslatedRequest::Control::kCheck;
  if (!body.empty()) {
    auto fields = read_body(body);
    if (!fields.ok()) return fields.error();
    std::optional<std::string> key;
    if (auto fault = take_text(*fields, "genkey", key)) return *std::move(fault);
    out.generation_key = key.value_or("");
  }
  out.method = "GET";
  out.path = "/v1/models";
  out.answer = make_refusal();
  return out;
}

ApiResult<TranslatedRequest> translate_question(std::string_view path, std::string_view) {
  TranslatedRequest out;
  out.method = "GET";
  out.path = "/v1/models";
  if (path == "/api/extra/perf") out.control = TranslatedRequest::Control::kPerf;
  out.answer = std::make_unique<QuestionAnswer>(path);
  return out;
}

std::unique_ptr<DialectAnswer> make_refusal() {
  return std::make_unique<GenerateAnswer>();
}

}  // namespace troupe::dialect::kobold
