#include "worker/text/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

constexpr std::string_view kEnd = "<|endoftext|>";

// Classes of vocabularies that BPE or SentencePiece made, and of others that models' directories name.
constexpr std::array kClasses = {
    // names, then bos, eos, unk, sep, pad, cls, mask
    TokenizerClass{" GPT2Tokenizer CodeGenTokenizer WhisperTokenizer ", {kEnd, kEnd, kEnd}},
    TokenizerClass{" GPTNeoXTokenizer ", {kEnd, kEnd, kEnd, "", "<|padding|>"}},
    TokenizerClass{" Qwen2Tokenizer Qwen3_5Tokenizer ", {"", kEnd, kEnd, "", kEnd}},
    TokenizerClass{" LlamaTokenizer ", {"<s>", "</s>", "<unk>"}, /*is_legacy=*/false},
    TokenizerClass{" CodeLlamaTokenizer ", {"<s>", "</s>", "<unk>"}},
    TokenizerClass{" GemmaTokenizer Siglip2Tokenizer ",
                   {"<bos>", "<eos>", "<unk>", "", "<pad>", "", "<mask>"}},
    TokenizerClass{
        " CohereTokenizer ",
        {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"}},
    TokenizerClass{" NougatTokenizer ", {"<s>", "</s>", "<unk>", "", "<pad>"}},
    TokenizerClass{" XGLMTokenizer SeamlessM4TTokenizer ", {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>"}},
    TokenizerClass{" RobertaTokenizer XLMRobertaTokenizer CamembertTokenizer BarthezTokenizer"
                   " BlenderbotTokenizer MBartTokenizer NllbTokenizer ",
                   {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}},
    TokenizerClass{" T5Tokenizer ", {"", "</s>", "<unk>", "", "<pad>"}},
    TokenizerClass{" BertTokenizer DistilBertTokenizer ElectraTokenizer ",
                   {"", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    TokenizerClass{" AlbertTokenizer ", {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"}},
    TokenizerClass{" DebertaTokenizer DebertaV2Tokenizer ",
                   {"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"}},
    TokenizerClass{" CLIPTokenizer ", {"<|startoftext|>", kEnd, kEnd, "", kEnd}},
};

// A model type that has a class of its own.
struct ModelType {
  std::string_view name;
  std::string_view tokenizer_class;
  bool wins;  // over the class that the directory names
};
constexpr ModelType kModelTypes[] = {
    {"mistral", "", true}, {"qwen2", "Qwen2Tokenizer", true}, {"qwen3", "Qwen2Tokenizer", false}};

std::string_view without_fast(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  return name;
}

}  // namespace

const TokenizerClass* find_tokenizer_class(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return nullptr;
  const std::string wanted = " " + std::string(without_fast(name)) + " ";
  const auto it = std::find_if(kClasses.begin(), kClasses.end(), [&](const TokenizerClass& entry) {
    return entry.names.find(wanted) != std::string_view::npos;
  });
  return it == kClasses.end() ? nullptr : &*it;
}

std::string_view tokenizer_class_of(std::string_view config_class, std::string_view model_type,
                                    bool is_byte_level) {
  const auto* const own = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                       [&](const ModelType& type) { return type.name == model_type; });
  const bool has_own = own != std::end(kModelTypes);
  if (has_own && (own->wins || config_class.empty())) return own->tokenizer_class;
  // Llama 3's directories have a class that would read another kind of vocabulary.
  if (is_byte_level && without_fast(config_class) == "LlamaTokenizer") return {};
  return without_fast(config_class);
}

}  // namespace troupe
