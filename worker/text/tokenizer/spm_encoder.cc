#include "worker/text/tokenizer/spm_encoder.h"

#include <sentencepiece_processor.h>

#include <exception>

// The library's own switch, missing from its installed headers: otherwise it writes to stderr while loading.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}  // namespace sentencepiece::logging

namespace troupe {
namespace {

constexpr int kLogErrors = 2;

class LibraryEncoder final : public SpmEncoder {
 public:
  // The double-array trie inside throws on keys it cannot store.
  bool load(std::string_view model, std::string& error) try {
    sentencepiece::util::Status status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) error = status.ToString();
    return status.ok();
  } catch (const std::exception& e) {
    error = e.what();
    return false;
  }

  bool encode(std::string_view text, std::vector<int32_t>& ids, std::string& error) const override try {
    std::vector<int> encoded;
    sentencepiece::util::Status status = processor_.Encode(text, &encoded);
    if (!status.ok()) error = status.ToString();
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return status.ok();
  } catch (const std::exception& e) {
    error = e.what();
    return false;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<SpmEncoder> SpmEncoder::load(std::string_view model, std::string& error) {
  sentencepiece::logging::SetMinLogLevel(kLogErrors);
  auto encoder = std::make_unique<LibraryEncoder>();
  if (!encoder->load(model, error)) return nullptr;
  return encoder;
}

}  // namespace troupe
