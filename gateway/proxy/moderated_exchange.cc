#include "gateway/proxy/moderated_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gateway/access/moderated_prompt.h"
#include "gateway/upstream/answer_content.h"
#include "gateway/upstream/sse_lines.h"
#include "gateway/upstream/stream_events.h"

namespace troupe {

namespace {

using Kind = ModerationVerdict::Kind;

constexpr size_t kGatheredBytesMax = size_t{64} << 20;

// The severest counts.
void note_verdict(RequestContext& context, Kind kind) {
  const auto rank = [](std::string_view name) {
    for (const Kind one : {Kind::kBlock, Kind::kRedact, Kind::kAnnotate})
      if (verdict_name(one) == name) return static_cast<int>(one);
    return 0;
  };
  if (static_cast<int>(kind) > rank(context.account.verdict)) context.account.verdict = verdict_name(kind);
}

ModerationHook::Subject subject_of(const RequestContext& context, std::string_view stage) {
  ModerationHook::Subject subject;
  subject.stage = stage;
  subject.request_id = context.request_id;
  if (context.client != nullptr) subject.key = context.client->name();
  subject.end_user = context.account.end_user;
  subject.model = context.routed.model;
  return subject;
}

// Headers were made before the answer was judged.
HeaderList with_verdict(HeaderList headers, const RequestContext& context) {
  constexpr std::string_view kName = "x-troupe-moderation";
  std::erase_if(headers, [kName](const auto& header) { return header.first == kName; });
  if (!context.account.verdict.empty()) headers.emplace_back(kName, context.account.verdict);
  return headers;
}

}  // namespace

Task<ApiResult<bool>> moderate_prompt(ModerationHook& hook, const HttpRequest& request,
                                      RequestContext& context) {
  std::string text;
  if (hook.options().prompt == PromptModeration::kLast) {
    text = text_of_prompt(request.body);
  } else {
    ModeratedPrompt prompt = whole_prompt(request.body);
    if (prompt.token_ids)
      co_return ApiError::bad_field("prompt",
                                    "token ids cannot be judged by this service's moderation: send text");
    text = std::move(prompt.text);
  }
  if (text.empty()) co_return true;
  const ModerationHook::Subject subject = subject_of(context, "prompt");
  const ModerationVerdict verdict = co_await hook.ask(subject, std::move(text));
  note_verdict(context, verdict.kind);
  // (A prompt with another text in it would not be what the client's next turn begins with.)
  if (verdict.kind != Kind::kBlock && verdict.kind != Kind::kRedact) co_return true;
  ApiError error = ApiError::bad_field("", "the prompt was refused by this service's moderation");
  error.code = "content_filter";
  co_return error;
}

Task<ModerationVerdict> ModeratedExchange::ask(int64_t choice, std::string text) {
  ModerationHook::Subject subject = subject_of(context_, "answer");
  subject.choice = choice;
  ModerationVerdict verdict = co_await hook_.ask(subject, std::move(text));
  note_verdict(context_, verdict.kind);
  co_return verdict;
}

Task<void> ModeratedExchange::start(int status, const HeaderList& headers) {
  events_ = status == 200 && is_event_stream(find_header(headers, "content-type"));
  started_ = true;
  if (status == 200 && !events_ && !is_media(find_header(headers, "content-type"))) {
    gathered_ = Gathered{headers};
    co_return;
  }
  co_await inner_.start(status, headers);
}

Task<void> ModeratedExchange::gather(std::string_view bytes) {
  gathered_->body += bytes;
  if (gathered_->body.size() <= kGatheredBytesMax) co_return;
  if (hook_.options().on_error == OnFailure::kBlock) {
    note_verdict(context_, Kind::kBlock);
    inner_.cut();
    co_return;
  }
  const Gathered passed = *std::exchange(gathered_, std::nullopt);
  co_await inner_.start(200, passed.headers);
  co_await inner_.write(passed.body);
}

// The events that may go, after all verdicts that can be asked for.
Task<std::string> ModeratedExchange::judge() {
  std::string out;
  while (auto window = held_.next_window()) {
    const ModerationVerdict verdict = co_await ask(window->choice, std::move(window->text));
    if (verdict.kind == Kind::kBlock || (verdict.kind == Kind::kRedact && window->has_calls)) {
      note_verdict(context_, Kind::kBlock);
      context_.account.cut_short = context_.worker.progress.enough = true;
      out += blocked_events(held_.last_chunk(), window->choice);
      co_return out;
    }
    held_.verdict(verdict);
    out += held_.release();
  }
  out += held_.release();
  co_return out;
}

Task<void> ModeratedExchange::write(std::string_view bytes) {
  if (context_.account.cut_short) co_return;
  if (gathered_) {
    co_await gather(bytes);
    co_return;
  }
  if (!events_) {
    co_await inner_.write(bytes);
    co_return;
  }
  bool ends = false;
  for_each_event(bytes, [this, &ends](std::string_view event) {
    ends = ends || contains_last_event(event, AnswerForm::kCompletion);
    held_.take(event);
    return false;
  });
  if (ends) held_.end();
  const std::string out = co_await judge();
  if (!out.empty()) co_await inner_.write(out);
}

Task<void> ModeratedExchange::finish() {
  if (gathered_) {
    std::string body = co_await judge_whole(std::move(gathered_->body));
    co_await inner_.respond(200, with_verdict(gathered_->headers, context_), std::move(body));
    co_return;
  }
  if (events_ && !context_.account.cut_short) {
    held_.end();
    const std::string out = co_await judge();
    if (!out.empty()) co_await inner_.write(out);
  }
  co_await inner_.finish();
}

Task<std::string> ModeratedExchange::judge_whole(std::string body) {
  std::vector<std::string> texts = texts_of_answer(body);
  std::vector<JudgedText> judged(texts.size());
  bool changed = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    const ModerationVerdict verdict = co_await ask(static_cast<int64_t>(i), std::move(texts[i]));
    judged[i].blocked = verdict.kind == Kind::kBlock;
    if (verdict.kind == Kind::kRedact) judged[i].instead = verdict.text;
    changed = changed || judged[i].blocked || judged[i].instead;
  }
  co_return changed ? with_answer_texts(body, judged) : std::move(body);
}

Task<void> ModeratedExchange::respond(int status, const HeaderList& headers, std::string body) {
  started_ = true;
  if (status == 200) body = co_await judge_whole(std::move(body));
  co_await inner_.respond(status, with_verdict(headers, context_), std::move(body));
}

}  // namespace troupe
