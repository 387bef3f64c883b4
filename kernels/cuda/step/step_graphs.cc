#include "kernels/cuda/step/step_graphs.h"

#include <algorithm>
#include <utility>

#include "common/core/check.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "step graph";
// A few forms for each implementation that a number of rows or of keys brings with it.
constexpr size_t kExecutablesMax = 16;

// A graph's edges; into null pointers, only their number. (CUDA 13 has changed the function's meaning.)
cudaError_t get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                      size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, edges, count);
#else
  const cudaError_t error = cudaGraphGetEdges_v2(graph, from, to, edges, count);
  // A driver older than 12.3 has edges of one type alone.
  return error == cudaErrorCallRequiresNewerDriver ? cudaGraphGetEdges(graph, from, to, count) : error;
#endif
}

}  // namespace

StepGraphs::StepGraphs(cudaStream_t stream) : stream_(stream) {
  check_cuda(kOp, cudaStreamCreateWithFlags(&captured_, cudaStreamNonBlocking));
}

StepGraphs::~StepGraphs() {
  cudaStreamSynchronize(stream_);
  for (const auto& [form, executable] : executables_) cudaGraphExecDestroy(executable.graph);
  cudaStreamDestroy(captured_);
}

cudaStream_t StepGraphs::begin() {
  TROUPE_CHECK(!capturing_, "a step begins before the last one's end");
  // Relaxed: other streams of this thread, and memory, are used meanwhile.
  check_cuda(kOp, cudaStreamBeginCapture(captured_, cudaStreamCaptureModeRelaxed));
  capturing_ = true;
  return captured_;
}

void StepGraphs::end() {
  TROUPE_CHECK(capturing_, "a step ends that has not begun");
  cudaGraph_t graph = nullptr;
  check_cuda(kOp, cudaStreamEndCapture(captured_, &graph));
  capturing_ = false;
  ended_ = executable_of(graph);
  check_cuda(kOp, cudaGraphDestroy(graph));
}

void StepGraphs::launch() {
  TROUPE_CHECK(ended_ != nullptr, "no step has ended since the last launch");
  ++launched_count_;
  check_cuda(kOp, cudaGraphLaunch(std::exchange(ended_, nullptr), stream_));
}

StepGraphs::Form StepGraphs::form_of(cudaGraph_t graph) {
  Form form;
  check_cuda(kOp, cudaGraphGetNodes(graph, nullptr, &form.nodes));
  size_t count = 0;
  check_cuda(kOp, get_edges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count > 0) check_cuda(kOp, get_edges(graph, from.data(), to.data(), edges.data(), &count));
  for (const cudaGraphEdgeData& edge : edges) form.edges.push_back(edge.type);
  return form;
}

cudaGraphExec_t StepGraphs::executable_of(cudaGraph_t graph) {
  Form form = form_of(graph);
  if (!executables_.contains(form) && executables_.size() == kExecutablesMax) drop_oldest();
  Executable& executable = executables_[std::move(form)];
  executable.used_at = launched_count_;
  if (executable.graph != nullptr) {
    cudaGraphExecUpdateResultInfo result = {};
    if (cudaGraphExecUpdate(executable.graph, graph, &result) == cudaSuccess) return executable.graph;
    cudaGetLastError();  // it is forgotten: as many nodes, but of other kinds
    check_cuda(kOp, cudaGraphExecDestroy(executable.graph));
  }
  check_cuda(kOp, cudaGraphInstantiate(&executable.graph, graph, 0));
  ++instantiated_count_;
  return executable.graph;
}

// A graph that is being computed may be destroyed: the driver waits for it.
void StepGraphs::drop_oldest() {
  const auto oldest =
      std::min_element(executables_.begin(), executables_.end(),
                       [](const auto& a, const auto& b) { return a.second.used_at < b.second.used_at; });
  check_cuda(kOp, cudaGraphExecDestroy(oldest->second.graph));
  executables_.erase(oldest);
}

}  // namespace troupe::cuda
