#pragma once

// A step of decodes as one launch. Its hundreds of kernels take some microseconds each; launched one by one
// there is a pause of the GPU between any two, in a graph hardly any. Every step is captured anew, so nothing
// can be stale: grids, addresses and implementations may change from step to step. Executable graphs are
// kept, as making one is expensive: one of the same form takes over the captured parameters
// (cudaGraphExecUpdate); its last launch may still be under way, which the update leaves as it was (CUDA
// programming guide, "Updating Instantiated Graphs"). Capturing costs the host what launching does, while the
// step before is computed.
//
// A form is what an update may not take over. First, which edges are programmatic (launches that overlap,
// ops.h): the conditions of an update do not cover edges, and with the old types a library's kernel in the
// place of one of ours would begin before its operands are there. Second, the thread-block clusters of the
// kernels: cuBLASLt's for Hopper have the shape of their algorithm, and drivers were seen to keep the old one
// without a word, so that part of the result is never written (ml-explore/mlx, issue 2748). Seen on an H200,
// driver 580: clusters of one dimension are taken over, and no product had others. Since other drivers may
// keep them, graphs of other clusters are other forms; and where a cluster has y or z > 1, nothing is updated
// at all: such a graph is made anew each step, at milliseconds of the host's, until a device has shown that
// its updates hold. To look at a step of 300 nodes takes 60 us there, while the step before is computed.
//
// Tried by thought only: a graph for each padded size that is launched without capturing it again saves host
// time, which delays nothing where steps run ahead, and needs every grid fixed and every plan padded.

#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
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
  struct Cluster {
    unsigned x = 0, y = 0, z = 0;  // blocks; 0: the kernel has none, or the node is a copy
    auto operator<=>(const Cluster&) const = default;
  };
  // In the order of the launches.
  struct Form {
    bool is_chain = true;              // else the rest is empty; what one stream captures is a chain
    std::vector<Cluster> clusters;     // of each node
    std::vector<unsigned char> edges;  // cudaGraphDependencyType of each
    auto operator<=>(const Form&) const = default;
    bool may_be_updated() const;
  };
  // A graph that is destroyed when the event has fired: what happens to one under way is not documented.
  struct Retired {
    cudaGraphExec_t graph = nullptr;
    cudaEvent_t done = nullptr;
  };
  static Form form_of(cudaGraph_t graph);
  cudaGraphExec_t executable_of(cudaGraph_t graph);
  cudaGraphExec_t instantiate(cudaGraph_t graph);
  void drop_oldest();
  void retire(cudaGraphExec_t graph);  // after its last launch
  void destroy_retired(size_t left_max);

  cudaStream_t stream_;
  cudaStream_t captured_ = nullptr;
  std::map<Form, Executable> executables_;
  bool capturing_ = false;
  cudaGraphExec_t ended_ = nullptr;
  bool ended_is_kept_ = false;  // among executables_
  std::deque<Retired> retired_;
  int64_t launched_count_ = 0;
  int64_t instantiated_count_ = 0;
};

}  // namespace troupe::cuda
