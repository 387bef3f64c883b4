#pragma once

// Stage 5 of encoding: adds the file's ids around every text (BOS, EOS). Immutable after load.

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/core/status.h"

namespace troupe {

namespace bj = boost::json;

class PostProcessor {
 public:
  // Reads tokenizer.json's "post_processor" (null, ByteLevel: adds nothing).
  static StatusOr<PostProcessor> load(const bj::value& value, const std::string& where);

  std::vector<int32_t> apply(std::vector<int32_t> ids) const;
  // The added ids, for the loader to check against the vocabulary.
  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& after() const { return after_; }

 private:
  Status load_template(const bj::value& value, const std::string& where);
  Status load_nested(const bj::value& value, const std::string& where);

  std::vector<int32_t> before_;
  std::vector<int32_t> after_;
};

}  // namespace troupe
