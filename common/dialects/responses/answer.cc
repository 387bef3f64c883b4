// A chat's answer as a response of items: thoughts, a message, calls. A stream numbers its events, and opens
// and closes every item and every part of one; a whole answer is what such a stream has come to.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/dialects/responses/responses.h"

namespace troupe::dialect::responses {
namespace {

bj::object usage_object(const AnswerUsage& usage) {
  bj::object out;
  out["input_tokens"] = usage.prompt_tokens;
  out["input_tokens_details"] = bj::object{{"cached_tokens", usage.cached_tokens}};
  out["output_tokens"] = usage.completion_tokens;
  out["output_tokens_details"] = bj::object{{"reasoning_tokens", usage.reasoning_tokens}};
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  return out;
}

// A chat's list of tokens.
bj::array logprobs_of(const bj::value& logprobs) {
  const bj::object* fields = logprobs.if_object();
  const bj::array* list = fields == nullptr ? nullptr : array_member(*fields, "content");
  return list == nullptr ? bj::array() : *list;
}

class ResponseAnswer final : public DialectAnswer {
 public:
  explicit ResponseAnswer(bj::object echoed) : echoed_(std::move(echoed)) {}

  std::string whole(const bj::object& body) override {
    std::string unused;
    chunk(read_answer(body), unused);
    close_item(unused);
    return to_json(response(final_status()));
  }

  void chunk(const AnswerPiece& piece, std::string& out) override {
    if (piece.usage) usage_ = *piece.usage;
    begin(piece, out);
    for (const ChoicePiece& choice : piece.choices) {
      if (!choice.reasoning.empty()) think(choice.reasoning, out);
      if (!choice.text.empty()) say(choice, out);
      for (const ChoicePiece::Call& call : choice.calls) call_function(call, out);
      if (!choice.finish.empty()) finish_ = choice.finish;
    }
  }

  void end(std::string& out) override {
    begin({}, out);  // a worker of another kind may have said nothing
    close_item(out);
    const std::string_view status = final_status();
    append_event(out, absl::StrCat("response.", to_absl(status)), {{"response", response(status)}});
  }

  // With `error` beside the documented fields: OpenAI's SDK raises for that alone.
  void fail(const AnswerError& error, std::string& out) override {
    bj::object event = error_object(error).at("error").get_object();
    event["error"] = bj::object(event);
    if (error.code.empty()) event["code"] = bj::string_view(error.type);
    append_event(out, "error", std::move(event));
  }

 private:
  enum class Item : uint8_t { kNone, kReasoning, kMessage, kCall };

  void append_event(std::string& out, std::string_view type, bj::object fields) {
    fields["type"] = bj::string_view(type);
    fields["sequence_number"] = sequence_++;
    absl::StrAppend(&out, "event: ", to_absl(type), "\ndata: ", to_json(fields), "\n\n");
  }

  void begin(const AnswerPiece& piece, std::string& out) {
    if (std::exchange(begun_, true)) return;
    id_ = id_with("", piece.id);
    model_ = piece.model;
    created_s_ = piece.created_s;
    append_event(out, "response.created", {{"response", response("in_progress")}});
    append_event(out, "response.in_progress", {{"response", response("in_progress")}});
  }

  std::string_view final_status() const {
    return finish_ == "length" || finish_ == "content_filter" ? "incomplete" : "completed";
  }

  bj::object response(std::string_view status) const {
    bj::object out = echoed_;
    out["id"] = absl::StrCat("resp_", id_);
    out["object"] = "response";
    out["created_at"] = created_s_;
    out["status"] = bj::string_view(status);
    out["background"] = false;
    out["error"] = nullptr;
    out["incomplete_details"] = nullptr;
    if (status == "incomplete")
      out["incomplete_details"] =
          bj::object{{"reason", finish_ == "length" ? "max_output_tokens" : "content_filter"}};
    out["model"] = bj::string_view(model_);
    out["output"] = output_;
    out["previous_response_id"] = nullptr;
    out["store"] = false;
    out["usage"] = status == "in_progress" ? bj::value() : bj::value(usage_object(usage_));
    return out;
  }

  // "rs_", "msg_" and "fc_" and the response's id, with the item's place behind it.
  std::string new_id(std::string_view prefix) const {
    return absl::StrCat(to_absl(prefix), id_, "_", output_.size());
  }

  // Where an event belongs.
  bj::object at(bj::object fields, bool in_part) const {
    fields["item_id"] = bj::string_view(item_id_);
    fields["output_index"] = output_.size();
    if (in_part) fields["content_index"] = 0;
    return fields;
  }

  bj::object item(std::string_view status) const {
    bj::object out{{"id", bj::string_view(item_id_)}};
    const bool done = status == "completed";
    if (item_ == Item::kReasoning) {
      out["type"] = "reasoning";
      out["summary"] = bj::array();
      out["content"] = done ? bj::array{part()} : bj::array();
    } else if (item_ == Item::kMessage) {
      out["type"] = "message";
      out["role"] = "assistant";
      out["content"] = done ? bj::array{part()} : bj::array();
    } else {
      out["type"] = "function_call";
      out["call_id"] = bj::string_view(call_id_);
      out["name"] = bj::string_view(name_);
      out["arguments"] = bj::string_view(text_);
    }
    out["status"] = bj::string_view(status);
    return out;
  }

  bj::value part() const {
    if (item_ == Item::kReasoning)
      return bj::object{{"type", "reasoning_text"}, {"text", bj::string_view(text_)}};
    return bj::object{{"type", "output_text"},
                      {"text", bj::string_view(text_)},
                      {"annotations", bj::array()},
                      {"logprobs", logprobs_}};
  }

  void open_item(Item kind, std::string_view prefix, std::string& out) {
    item_ = kind;
    item_id_ = new_id(prefix);
    text_.clear();
    logprobs_ = {};
    append_event(out, "response.output_item.added",
                 {{"output_index", output_.size()}, {"item", item("in_progress")}});
    if (kind != Item::kCall) append_event(out, "response.content_part.added", at({{"part", part()}}, true));
  }

  void close_item(std::string& out) {
    if (item_ == Item::kNone) return;
    const bj::string_view text(text_);
    if (item_ == Item::kReasoning) {
      append_event(out, "response.reasoning_text.done", at({{"text", text}}, true));
    } else if (item_ == Item::kMessage) {
      append_event(out, "response.output_text.done", at({{"text", text}, {"logprobs", logprobs_}}, true));
    } else {
      append_event(out, "response.function_call_arguments.done",
                   at({{"name", bj::string_view(name_)}, {"arguments", text}}, false));
    }
    if (item_ != Item::kCall) append_event(out, "response.content_part.done", at({{"part", part()}}, true));
    bj::object done = item("completed");
    append_event(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", done}});
    output_.push_back(std::move(done));
    item_ = Item::kNone;
  }

  void turn_to(Item kind, std::string_view prefix, std::string& out) {
    if (item_ == kind) return;
    close_item(out);
    open_item(kind, prefix, out);
  }

  void think(const std::string& text, std::string& out) {
    turn_to(Item::kReasoning, "rs_", out);
    text_ += text;
    append_event(out, "response.reasoning_text.delta", at({{"delta", bj::string_view(text)}}, true));
  }

  void say(const ChoicePiece& choice, std::string& out) {
    turn_to(Item::kMessage, "msg_", out);
    text_ += choice.text;
    bj::array logprobs = logprobs_of(choice.logprobs);
    logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
    append_event(out, "response.output_text.delta",
                 at({{"delta", bj::string_view(choice.text)}, {"logprobs", std::move(logprobs)}}, true));
  }

  void call_function(const ChoicePiece::Call& call, std::string& out) {
    if (!call.name.empty() || item_ != Item::kCall || call.index != call_index_) {
      close_item(out);
      call_index_ = call.index;
      call_id_ = call.id;
      name_ = call.name;
      open_item(Item::kCall, "fc_", out);
    }
    if (call.arguments.empty()) return;
    text_ += call.arguments;
    append_event(out, "response.function_call_arguments.delta",
                 at({{"delta", bj::string_view(call.arguments)}}, false));
  }

  const bj::object echoed_;
  std::string id_, model_;
  int64_t created_s_ = 0;
  bool begun_ = false;
  int64_t sequence_ = 0;
  AnswerUsage usage_;
  std::string finish_;
  bj::array output_;  // items that are done
  // The open item:
  Item item_ = Item::kNone;
  std::string item_id_, text_, call_id_, name_;
  size_t call_index_ = 0;
  bj::array logprobs_;
};

}  // namespace

std::unique_ptr<DialectAnswer> make_answer(bj::object echoed) {
  return std::make_unique<ResponseAnswer>(std::move(echoed));
}

std::unique_ptr<DialectAnswer> make_refusal() {
  return make_answer({});
}

}  // namespace troupe::dialect::responses
