#include "worker/text/jinja/loop.h"

#include <algorithm>

#include "worker/text/jinja/function.h"
#include "worker/text/jinja/runtime.h"

namespace troupe::jinja {

void Loop::make_recursive(RunAgain run_again, const FramePtr& frame) {
  run_again_ = std::move(run_again);
  frame_ = frame;
}

void Loop::end() {
  items_ = nullptr;
  // changed() may have stored the loop itself.
  last_changed_.reset();
}

Value Loop::call(Runtime& runtime, Arguments& arguments) {
  FramePtr frame = frame_.lock();
  if (run_again_ == nullptr || frame == nullptr)
    throw JinjaError("the loop is not recursive: write {% for … recursive %}");
  if (arguments.positional.size() != 1) throw JinjaError("loop() takes one argument, what to walk");
  return runtime.text(run_again_(arguments.positional[0], frame, depth_ + 1));
}

Value Loop::neighbour(int64_t offset) const {
  int64_t at = static_cast<int64_t>(index_) + offset;
  bool there = items_ != nullptr && at >= 0 && at < static_cast<int64_t>(length_);
  return there ? (*items_)[static_cast<size_t>(at)] : Value::undefined("there is no previous or next item");
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) throw JinjaError("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::changed(const Arguments& arguments) {
  const std::vector<Value>& now = arguments.positional;
  bool same = last_changed_.has_value() && last_changed_->size() == now.size() &&
              std::equal(now.begin(), now.end(), last_changed_->begin(), equal);
  if (!same && items_ != nullptr) last_changed_ = now;
  return Value(!same);
}

bool Loop::attribute(Runtime&, std::string_view name, Value& result) {
  auto index = static_cast<int64_t>(index_);
  auto length = static_cast<int64_t>(length_);
  if (name == "index") {
    result = Value(index + 1);
  } else if (name == "index0") {
    result = Value(index);
  } else if (name == "revindex") {
    result = Value(length - index);
  } else if (name == "revindex0") {
    result = Value(length - index - 1);
  } else if (name == "first") {
    result = Value(index == 0);
  } else if (name == "last") {
    result = Value(index + 1 == length);
  } else if (name == "length") {
    result = Value(length);
  } else if (name == "depth") {
    result = Value(depth_ + 1);
  } else if (name == "depth0") {
    result = Value(depth_);
  } else if (name == "previtem") {
    result = neighbour(-1);
  } else if (name == "nextitem") {
    result = neighbour(1);
  } else if (name == "cycle") {
    result = make_function("cycle", [self = shared_from_this()](Runtime&, Arguments& arguments) {
      return self->cycle(arguments);
    });
  } else if (name == "changed") {
    result = make_function("changed", [self = shared_from_this()](Runtime&, Arguments& arguments) {
      return self->changed(arguments);
    });
  } else {
    return false;
  }
  return true;
}

}  // namespace troupe::jinja
