#pragma once

// Stage 1 of encoding: rewrites the whole text before it is cut. Immutable after load.

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "worker/text/tokenizer/regex.h"

namespace troupe {

namespace bj = boost::json;

// A text passing through the stages. `at_start`: its first character stands for the very beginning of the
// user's text, which Metaspace's "first" needs. `goes_on`: it continues a text (EncodeOptions::boundary), and
// nothing is put before it or taken away there.
struct NormalizedText {
  std::string text;
  bool at_start = true;
  bool goes_on = false;
};

// One step; one class for each "type" in tokenizer.json.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual Status apply(NormalizedText& text, Regex::Matcher& matcher) const = 0;
};

class Normalizer {
 public:
  // Reads tokenizer.json's "normalizer" (null: text stays as it is). Errors name the component.
  static StatusOr<Normalizer> load(const bj::value& value, const std::string& where);

  bool is_identity() const { return steps_.empty(); }
  Status apply(NormalizedText& text, Regex::Matcher& matcher) const;

 private:
  Status collect(const bj::value& value, const std::string& where);

  std::vector<std::unique_ptr<NormalizerStep>> steps_;  // applied in order
};

}  // namespace troupe
