#include "kernels/cuda/step/step_graphs.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/core/check.h"
#include "kernels/cuda/device/check_cuda.h"

namespace troupe::cuda {

namespace {

constexpr const char* kOp = "step graph";
// A few forms for each implementation that a number of rows or of keys brings with it, times the clusters of
// the library's algorithms: up to eight sizes of decodes are measured apart, four products each. The warm-up
// makes most of them, before KV gets the memory that they leave.
constexpr size_t kExecutablesMax = 64;
// Executables waiting for their last launch: a step is launched while the one before it is computed.
constexpr size_t kRetiredMax = 2;

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

// The nodes of a chain and the types of its edges, from its begin on: the order of the graph's own lists is
// not documented.
struct Chain {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<unsigned char> edges;
};

// Nothing where the graph is no chain.
std::optional<Chain> chain_of(cudaGraph_t graph) {
  size_t node_count = 0, edge_count = 0;
  check_cuda(kOp, cudaGraphGetNodes(graph, nullptr, &node_count));
  check_cuda(kOp, get_edges(graph, nullptr, nullptr, nullptr, &edge_count));
  if (node_count == 0) return Chain{};
  if (edge_count != node_count - 1) return std::nullopt;
  std::vector<cudaGraphNode_t> nodes(node_count), from(edge_count), to(edge_count);
  std::vector<cudaGraphEdgeData> edges(edge_count);
  check_cuda(kOp, cudaGraphGetNodes(graph, nodes.data(), &node_count));
  if (edge_count > 0) {
    check_cuda(kOp, get_edges(graph, from.data(), to.data(), edges.data(), &edge_count));
  }
  std::unordered_map<cudaGraphNode_t, size_t> edge_from;
  for (size_t i = 0; i < edge_count; ++i) edge_from.emplace(from[i], i);
  const std::unordered_set<cudaGraphNode_t> has_one_before(to.begin(), to.end());
  Chain chain;
  chain.nodes.push_back(*std::find_if(nodes.begin(), nodes.end(),
                                      [&](cudaGraphNode_t node) { return !has_one_before.contains(node); }));
  for (auto edge = edge_from.find(chain.nodes.back()); edge != edge_from.end();
       edge = edge_from.find(chain.nodes.back())) {
    chain.nodes.push_back(to[edge->second]);
    chain.edges.push_back(edges[edge->second].type);
  }
  if (chain.nodes.size() != node_count) return std::nullopt;
  return chain;
}

}  // namespace

StepGraphs::StepGraphs(cudaStream_t stream) : stream_(stream) {
  check_cuda(kOp, cudaStreamCreateWithFlags(&captured_, cudaStreamNonBlocking));
}

StepGraphs::~StepGraphs() {
  cudaStreamSynchronize(stream_);
  for (const auto& [form, executable] : executables_) cudaGraphExecDestroy(executable.graph);
  if (ended_ != nullptr && !ended_is_kept_) cudaGraphExecDestroy(ended_);
  destroy_retired(0);
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
  const cudaGraphExec_t graph = std::exchange(ended_, nullptr);
  check_cuda(kOp, cudaGraphLaunch(graph, stream_));
  if (!ended_is_kept_) retire(graph);
}

bool StepGraphs::Form::may_be_updated() const {
  return is_chain && std::all_of(clusters.begin(), clusters.end(),
                                 [](const Cluster& cluster) { return cluster.y <= 1 && cluster.z <= 1; });
}

StepGraphs::Form StepGraphs::form_of(cudaGraph_t graph) {
  Form form;
  auto chain = chain_of(graph);
  form.is_chain = chain.has_value();
  if (!chain) return form;
  form.edges = std::move(chain->edges);
  for (const cudaGraphNode_t node : chain->nodes) {
    Cluster& cluster = form.clusters.emplace_back();
    cudaGraphNodeType type = {};
    check_cuda(kOp, cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaLaunchAttributeValue value = {};
    check_cuda(kOp, cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
    cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
  }
  return form;
}

cudaGraphExec_t StepGraphs::executable_of(cudaGraph_t graph) {
  Form form = form_of(graph);
  destroy_retired(kRetiredMax - 1);
  ended_is_kept_ = form.may_be_updated();
  if (!ended_is_kept_) return instantiate(graph);
  if (!executables_.contains(form) && executables_.size() == kExecutablesMax) drop_oldest();
  Executable& executable = executables_[std::move(form)];
  executable.used_at = launched_count_;
  if (executable.graph != nullptr) {
    cudaGraphExecUpdateResultInfo result = {};
    if (cudaGraphExecUpdate(executable.graph, graph, &result) == cudaSuccess) return executable.graph;
    cudaGetLastError();  // it is forgotten: nodes of other kinds
    retire(executable.graph);
  }
  return executable.graph = instantiate(graph);
}

cudaGraphExec_t StepGraphs::instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  check_cuda(kOp, cudaGraphInstantiate(&executable, graph, 0));
  ++instantiated_count_;
  return executable;
}

void StepGraphs::drop_oldest() {
  const auto oldest =
      std::min_element(executables_.begin(), executables_.end(),
                       [](const auto& a, const auto& b) { return a.second.used_at < b.second.used_at; });
  retire(oldest->second.graph);
  executables_.erase(oldest);
}

void StepGraphs::retire(cudaGraphExec_t graph) {
  Retired& retired = retired_.emplace_back(Retired{graph, nullptr});
  check_cuda(kOp, cudaEventCreateWithFlags(&retired.done, cudaEventDisableTiming));
  check_cuda(kOp, cudaEventRecord(retired.done, stream_));
}

// Destroys the ones that are done; and, waiting for them, more until `left_max` are left.
void StepGraphs::destroy_retired(size_t left_max) {
  while (!retired_.empty()) {
    const Retired& oldest = retired_.front();
    if (retired_.size() > left_max) {
      check_cuda(kOp, cudaEventSynchronize(oldest.done));
    } else if (cudaEventQuery(oldest.done) != cudaSuccess) {
      cudaGetLastError();  // it is forgotten: not ready
      return;
    }
    check_cuda(kOp, cudaEventDestroy(oldest.done));
    check_cuda(kOp, cudaGraphExecDestroy(oldest.graph));
    retired_.pop_front();
  }
}

}  // namespace troupe::cuda
