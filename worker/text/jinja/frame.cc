#include "worker/text/jinja/frame.h"

#include "worker/text/jinja/meter.h"

namespace troupe::jinja {

void Frame::set(std::string_view name, Value value) {
  charge_read(name.size());
  for (auto& [key, current] : variables) {
    if (key == name) {
      current = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Frame::find(std::string_view name, int64_t* passed) const {
  charge_read(name.size());
  for (const Frame* frame = this; frame != nullptr; frame = frame->parent.get()) {
    if (passed != nullptr) *passed += static_cast<int64_t>(frame->variables.size()) + 1;
    for (const auto& [key, value] : frame->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

}  // namespace troupe::jinja
