#include "worker/model/decoder.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/model/layers.h"

namespace troupe {

namespace {

struct DecoderLayer {
  RmsNorm attention_norm;
  Attention attention;
  RmsNorm mlp_norm;
  GatedMlp mlp;
};

StatusOr<DecoderLayer> load_layer(const ModelConfig& config, const DecoderParts& parts, int index,
                                  WeightLoader& weights) {
  const std::string at = absl::StrCat("model.layers.", index, ".");
  const Attention::Parts attention{.prefix = at + "self_attn.",
                                   .packed_qkv = parts.packed_qkv,
                                   .qkv_bias = parts.qkv_bias,
                                   .out_bias = parts.out_bias,
                                   .head_norms = parts.head_norms};
  DecoderLayer layer;
  TROUPE_ASSIGN_OR_RETURN(layer.attention_norm, RmsNorm::load(config, at + "input_layernorm", weights));
  TROUPE_ASSIGN_OR_RETURN(layer.attention, Attention::load(config, index, attention, weights));
  TROUPE_ASSIGN_OR_RETURN(layer.mlp_norm, RmsNorm::load(config, at + "post_attention_layernorm", weights));
  TROUPE_ASSIGN_OR_RETURN(layer.mlp, GatedMlp::load(config, at + "mlp.", parts.mlp_bias, weights));
  return layer;
}

class Decoder final : public Model {
 public:
  static StatusOr<std::unique_ptr<Model>> load(const ModelConfig& config, const DecoderParts& parts,
                                               WeightLoader& weights) {
    auto model = std::make_unique<Decoder>();
    TROUPE_ASSIGN_OR_RETURN(model->embedding_, Embedding::load(config, kEmbeddingModule, weights));
    for (int i = 0; i < config.layers; ++i) {
      TROUPE_ASSIGN_OR_RETURN(DecoderLayer layer, load_layer(config, parts, i, weights));
      model->layers_.push_back(std::move(layer));
    }
    TROUPE_ASSIGN_OR_RETURN(model->norm_, RmsNorm::load(config, "model.norm", weights));
    const char* head = config.tie_word_embeddings ? kEmbeddingModule : kHeadModule;
    TROUPE_ASSIGN_OR_RETURN(model->head_, LmHead::load(config, head, parts.norm_head, weights));
    return std::unique_ptr<Model>(std::move(model));
  }

  void forward(const Context& context) override {
    embedding_.to_residual(context);
    const Tensor residual = first_rows(context.workspace.residual, context.step.token_count());
    for (const DecoderLayer& layer : layers_) {
      layer.attention.add_to_residual(context, layer.attention_norm.of(context, residual));
      layer.mlp.add_to_residual(context, layer.mlp_norm.of(context, residual));
    }
  }

  Tensor logits(const Context& context, std::span<const int32_t> rows) override {
    return head_.logits(context, norm_.of(context, gathered(context, rows)));
  }

  Tensor hidden(const Context& context, std::span<const int32_t> rows) override {
    const RmsNormParams norm = norm_.of(context, gathered(context, rows));
    context.backend.rms_norm(norm);
    return norm.out;
  }

 private:
  // The residual's rows, in the workspace.
  static Tensor gathered(const Context& context, std::span<const int32_t> rows) {
    const Tensor residual = first_rows(context.workspace.residual, context.step.token_count());
    const Tensor out = first_rows(context.workspace.gathered, static_cast<int64_t>(rows.size()));
    context.backend.gather_rows({.x = residual, .rows = rows, .out = out});
    return out;
  }

  Embedding embedding_;
  std::vector<DecoderLayer> layers_;
  RmsNorm norm_;
  LmHead head_;
};

}  // namespace

StatusOr<std::unique_ptr<Model>> load_decoder(const ModelConfig& config, const DecoderParts& parts,
                                              WeightLoader& weights) {
  return Decoder::load(config, parts, weights);
}

}  // namespace troupe
