#pragma once

// The items of a response's input → messages of a chat: thoughts, text and calls of one turn of the model
// become one assistant's message, and each call's output a message of its own.

#include <cstddef>
#include <string>
#include <string_view>

#include "common/dialects/body.h"
#include "common/dialects/dialect.h"

namespace troupe::dialect::responses {

class ItemReader {
 public:
  // `input`: a text, which a user says, or items. `instructions`: the system's, empty: none.
  Fault read(const bj::value& input, std::string_view instructions);
  bj::array take_messages() { return std::move(messages_); }
  Renames take_renames() { return std::move(renames_); }

 private:
  Fault read_item(const std::string& path, const bj::value& item);
  Fault read_message(const std::string& path, const bj::object& item);
  Fault read_call(const std::string& path, const bj::object& item);
  Fault read_output(const std::string& path, const bj::object& item);
  void read_reasoning(const bj::object& item);
  void push(std::string_view path, bj::object message);
  // The assistant's message that the turn's next item belongs to; a new one where there is none.
  bj::object& turn(std::string_view path);

  bj::array messages_;
  Renames renames_;
  bool in_turn_ = false;   // the last message is an assistant's, to which calls are added
  std::string reasoning_;  // of the turn's next message
};

}  // namespace troupe::dialect::responses
