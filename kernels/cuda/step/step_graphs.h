#pragma once

// A step of decodes as one launch. Its hundreds of kernels take some microseconds each; launched one by one
// there is a pause of the GPU between any two, in a graph hardly any. Every step is captured anew, so nothing
// can be stale: grids, addresses and implementations may change from step to step. Executable graphs are
// kept, as making one is expensive: one of the same form takes over the captured parameters
// (cudaGraphExecUpdate); its last launch may still be under way, which the update leaves as it was (CUDA
// programming guide, "Updating Instantiated Graphs"). Capturing costs the host what launching does, while the
// step before is computed.
//
// A form is the number of nodes and which edges are programmatic (launches that overlap, ops.h). The
// conditions of an update do not cover edges: with the old types a library's kernel in the place of one of
// ours would begin before its operands are there.
//
// Tried by thought only: a graph for each padded size that is launched without capturing it again saves host
// time, which delays nothing where steps run ahead, and needs every grid fixed and every plan padded.

#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace troupe::cuda {

// Driven by the backend's one thread.
class StepGraphs {
 public:
  // `stream`: where steps are launched, in order with all else there.
  explicit StepGraphs(cudaStream_t stream);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Launches in the returned stream are captured from now on, until end().
  cudaStream_t begin();
  bool is_capturing() const { return capturing_; }
  // Makes what was kept a graph that can be launched: all that costs the host. REQUIRES: is_capturing()
  void end();
  // REQUIRES: end() since the last begin(), once.
  void launch();

  int64_t launched_count() const { return launched_count_; }
  int64_t instantiated_count() const { return instantiated_count_; }

 private:
  struct Executable {
    cudaGraphExec_t graph = nullptr;
    int64_t used_at = 0;  // launched_count then
  };
  struct Form {
    size_t nodes = 0;
    std::vector<unsigned char> edges;  // cudaGraphDependencyType of each, in the graph's order
    auto operator<=>(const Form&) const = default;
  };
  static Form form_of(cudaGraph_t graph);
  cudaGraphExec_t executable_of(cudaGraph_t graph);
  void drop_oldest();

  cudaStream_t stream_;
  cudaStream_t captured_ = nullptr;
  std::map<Form, Executable> executables_;
  bool capturing_ = false;
  cudaGraphExec_t ended_ = nullptr;
  int64_t launched_count_ = 0;
  int64_t instantiated_count_ = 0;
};

}  // namespace troupe::cuda
