#include "worker/text/template_probe.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "worker/text/chat_context.h"

namespace troupe {
namespace {

// A text that no template has. A chat's messages with it get a letter each behind it.
constexpr std::string_view kProbeText = "8f1bd2c07e";

ChatMessage probe_message(Role role) {
  return {role, std::string(kProbeText), ""};
}
ChatMessage other_message(Role role) {
  return {role, "hello", ""};
}
// Ids of calls have nine letters and digits where templates count.
ChatMessage calling_message() {
  return {
      Role::kAssistant, "",
      R"({"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":"{}"}}]})"};
}
ChatMessage result_message(std::string_view text = kProbeText) {
  return {Role::kTool, std::string(text), R"({"tool_call_id":"call00001","name":"f"})"};
}

class Prober {
 public:
  Prober(const RenderTemplate& render, const TemplateTraits& traits) : render_(render), traits_(traits) {}

  enum class Fate { kShown, kLeftOut, kRefused };

  // All probes' texts are shown, or one is left out, or the chat is refused. (A list that is printed whole
  // shows its text, too.)
  Fate fate_of(std::vector<ChatMessage> messages) const {
    char letter = 'a';
    std::vector<std::string> probes;
    for (ChatMessage& message : messages) {
      if (message.content == kProbeText) probes.push_back(message.content += letter++);
    }
    GenerateRequest request;
    request.messages = std::move(messages);
    const auto context = chat_context(request, {{"bos_token", ""}, {"eos_token", ""}},
                                      /*add_generation_prompt=*/false, traits_);
    const auto text = context.ok() ? render_(*context) : StatusOr<std::string>(context.status());
    if (!text.ok()) return Fate::kRefused;
    const bool shows_all = std::all_of(probes.begin(), probes.end(), [&text](const std::string& probe) {
      return text->find(probe) != std::string::npos;
    });
    return shows_all && text->find("'type'") == std::string::npos ? Fate::kShown : Fate::kLeftOut;
  }
  bool shows(std::vector<ChatMessage> messages) const { return fate_of(std::move(messages)) == Fate::kShown; }

  // A second instruction may replace the first one, and take its place.
  RoleUse use_of(Role role) const {
    const ChatMessage probe = probe_message(role);
    if (!shows({probe, user_}) || !shows({probe, user_, assistant_, user_})) return RoleUse::kNowhere;
    const bool is_anywhere = shows({probe, probe, user_}) && shows({user_, probe}) &&
                             shows({user_, assistant_, probe, user_}) && shows({user_, assistant_, probe}) &&
                             shows({probe, user_, assistant_, probe, user_}) &&
                             shows({probe, user_, assistant_, user_, probe});
    return is_anywhere ? RoleUse::kAnywhere : RoleUse::kAtBeginning;
  }

  // Whether it leaves instructions out where the last message is an assistant's, or a tool's.
  bool needs_user_last(Role role) const {
    const ChatMessage probe = probe_message(role);
    return fate_of({probe, user_, assistant_}) == Fate::kLeftOut ||
           fate_of({probe, user_, calling_message(), result_message("hello")}) == Fate::kLeftOut;
  }

  bool takes_calls() const {
    return fate_of({user_, calling_message(), result_message()}) != Fate::kRefused ||
           fate_of({user_, calling_message(), result_message(), assistant_, user_}) != Fate::kRefused;
  }

  bool shows_results() const {
    return shows({user_, calling_message(), result_message()}) ||
           shows({user_, calling_message(), result_message(), assistant_, user_});
  }
  bool shows_stray_results() const {
    return shows({user_, result_message()}) && shows({user_, assistant_, result_message()});
  }

 private:
  const RenderTemplate& render_;
  const TemplateTraits traits_;
  const ChatMessage user_ = other_message(Role::kUser), assistant_ = other_message(Role::kAssistant);
};

}  // namespace

TemplateTraits probed_traits(const RenderTemplate& render, const TemplateTraits& known) {
  TemplateTraits traits;
  traits.knows_developer = known.knows_developer;
  const std::vector<ChatMessage> alone = {probe_message(Role::kUser)};
  if (!Prober(render, traits).shows(alone)) {
    traits.wants_parts = true;
    if (!Prober(render, traits).shows(alone)) return known;
  }
  if (!Prober(render, traits).takes_calls()) {
    traits.arguments_are_text = true;
    traits.arguments_are_text = Prober(render, traits).takes_calls();
  }
  const Prober prober(render, traits);
  traits.system = prober.use_of(Role::kSystem);
  if (traits.knows_developer) traits.developer = prober.use_of(Role::kDeveloper);
  traits.needs_user_last = prober.needs_user_last(Role::kSystem) ||
                           (traits.knows_developer && prober.needs_user_last(Role::kDeveloper));
  traits.shows_results = prober.shows_results();
  traits.shows_stray_results = prober.shows_stray_results();
  return traits;
}

}  // namespace troupe
