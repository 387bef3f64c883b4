#pragma once

// POST /v1/embeddings: computes the inputs, a few at a time, and makes the answer.

#include <string>
#include <utility>

#include "common/net/task.h"
#include "worker/engine/engine.h"
#include "worker/input/prepare_embeddings.h"

namespace troupe {

// On `executor`'s thread. `engine` and `model`, the name in the answer, must outlive the coroutine, which
// frees in the engine what is left however it ends. An engine that is full is waited for once it has computed
// one of the inputs. Errors: as the engine's; 501 where the device computes nothing.
Task<ApiResult<EmbeddingsAnswer>> compute_embeddings(Executor executor, Engine& engine,
                                                     const std::string& model, PreparedEmbeddings prepared,
                                                     Deadline deadline);

// Keeps the vectors of all requests under way within a bound. Not thread-safe.
class EmbeddingsRoom {
 public:
  // The numbers of one request's vectors, from take() until it is destroyed.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : room_(std::exchange(other.room_, nullptr)), count_(other.count_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (room_ != nullptr) room_->taken_ -= count_;
    }

   private:
    friend class EmbeddingsRoom;
    Place(EmbeddingsRoom* room, int64_t count) : room_(room), count_(count) { room_->taken_ += count; }
    EmbeddingsRoom* room_ = nullptr;
    int64_t count_ = 0;
  };
  // Errors (429): others' take too much; one request alone always may. The room must outlive the place.
  ApiResult<Place> take(int64_t count);

 private:
  int64_t taken_ = 0;
};

}  // namespace troupe
