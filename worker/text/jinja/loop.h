#pragma once

// The `loop` variable of a for statement.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/text/jinja/frame.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {

class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // Reads `items` until end(); afterwards it only knows where the loop stopped.
  Loop(const std::vector<Value>& items, int depth) : items_(&items), length_(items.size()), depth_(depth) {}
  void set_index(size_t index) { index_ = index; }
  // Runs the loop's statement again, on other items, in a scope inside `frame`. Returns its output, which is
  // that of loop(…).
  using RunAgain = std::function<std::string(const Value& iterable, const FramePtr& frame, int depth)>;
  void make_recursive(RunAgain run_again, const FramePtr& frame);
  void end();

  std::string type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return run_again_ != nullptr; }
  Value call(Runtime& runtime, Arguments& arguments) override;
  bool attribute(Runtime& runtime, std::string_view name, Value& result) override;

  // Implement cycle(…) and changed(…).
  Value cycle(const Arguments& arguments) const;
  Value changed(const Arguments& arguments);

 private:
  Value neighbour(int64_t offset) const;

  const std::vector<Value>* items_;
  size_t length_;
  size_t index_ = 0;
  int depth_;
  RunAgain run_again_;  // set in a recursive loop
  std::weak_ptr<Frame> frame_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace troupe::jinja
