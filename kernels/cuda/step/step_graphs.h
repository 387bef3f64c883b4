#pragma once

// A step of decodes as one launch. Its hundreds of kernels take some microseconds each; launched one by one
// there is a pause of the GPU between any two, in a graph hardly any.
//
// A step's launches are written down (launch_list.h). Executable graphs are kept, as making one is expensive,
// each with the list it was captured from: where a step's list is just that, the executable is launched as it
// is. Capturing, updating and looking at the graph, some three calls of the driver's for each launch, are
// left out. Nothing can be stale, as the list is all that a graph is captured from. What changes from one
// step of decodes to the next lies in the step's arrays in device memory, so that most steps' lists are the
// last one's. A list of 300 launches has some 70 KB; to write and compare it takes a core of an EPYC 11 us.
//
// Else the list is captured, and an executable of the same form takes over the captured parameters
// (cudaGraphExecUpdate); its last launch may still be under way, which the update leaves as it was (CUDA
// programming guide, "Updating Instantiated Graphs"). So grids, addresses and implementations may change from
// step to step.
//
// A form is what an update may not take over. First, which edges are programmatic (launches that overlap,
// ops.h): the conditions of an update do not cover edges, and with the old types a library's kernel in the
// place of one of ours would begin before its operands are there. Second, the thread-block clusters of the
// kernels: cuBLASLt's for Hopper have the shape of their algorithm, and drivers were seen to keep the old one
// without a word, so that part of the result is never written (ml-explore/mlx, issue 2748). Seen on an H200,
// driver 580: clusters of one dimension are taken over, and no product had others. Since other drivers may
// keep them, graphs of other clusters are other forms; and where a cluster has y or z > 1, nothing is updated
// at all: such a graph is made anew where its list is another, at milliseconds of the host's, until a device
// has shown that its updates hold. To look at a step of 300 nodes takes 60 us there, while the step before is
// computed.
//
// Tried by thought only: to decide by a step's shape before its ops are issued would leave out writing the
// list, too, some ten microseconds; but a parameter that the shape does not tell would be stale in silence.

#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "kernels/cuda/device/launch_list.h"

namespace troupe::cuda {

// Driven by the backend's one thread.
class StepGraphs {
 public:
  // `stream`: where steps are launched, in order with all else there.
  explicit StepGraphs(cudaStream_t stream);
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // The list to write the step's launches to, empty: until end().
  LaunchList& begin();
  bool is_recording() const { return recording_; }
  // Makes what was written down a graph that can be launched: all that costs the host. REQUIRES:
  // is_recording()
  void end();
  // REQUIRES: end() since the last begin(), once.
  void launch();

  int64_t launched_count() const { return launched_count_; }
  int64_t unchanged_count() const { return unchanged_count_; }  // of those: without a capture
  int64_t instantiated_count() const { return instantiated_count_; }

 private:
  struct Executable {
    cudaGraphExec_t graph = nullptr;
    LaunchList launches;  // that it makes
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
  cudaGraph_t capture() const;
  Executable* unchanged();  // null: none makes the step's launches
  Executable& executable_of(cudaGraph_t graph);
  cudaGraphExec_t instantiate(cudaGraph_t graph);
  void drop_oldest();
  void retire(cudaGraphExec_t graph);  // after its last launch
  void destroy_retired();

  cudaStream_t stream_;
  cudaStream_t captured_ = nullptr;
  std::map<Form, Executable> executables_;
  LaunchList launches_;  // the step's
  bool recording_ = false;
  Executable* ended_ = nullptr;
  std::deque<Retired> retired_;
  int64_t launched_count_ = 0;
  int64_t unchanged_count_ = 0;
  int64_t instantiated_count_ = 0;
};

}  // namespace troupe::cuda
