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
  destroy_retired();
  cudaStreamDestroy(captured_);
}

LaunchList& StepGraphs::begin() {
  TROUPE_CHECK(!recording_, "a step begins before the last one's end");
  launches_.clear();
  recording_ = true;
  return launches_;
}

void StepGraphs::end() {
  TROUPE_CHECK(recording_, "a step ends that has not begun");
  recording_ = false;
  ended_ = unchanged();
  if (ended_ != nullptr) {
    ++unchanged_count_;
  } else {
    const cudaGraph_t graph = capture();
    ended_ = &executable_of(graph);
    check_cuda(kOp, cudaGraphDestroy(graph));
    std::swap(ended_->launches, launches_);
  }
  ended_->used_at = launched_count_;
}

void StepGraphs::launch() {
  TROUPE_CHECK(ended_ != nullptr, "no step has ended since the last launch");
  ++launched_count_;
  check_cuda(kOp, cudaGraphLaunch(std::exchange(ended_, nullptr)->graph, stream_));
}

StepGraphs::Executable* StepGraphs::unchanged() {
  const auto found = std::find_if(executables_.begin(), executables_.end(),
                                  [&](const auto& kept) { return kept.second.launches == launches_; });
  return found == executables_.end() ? nullptr : &found->second;
}

cudaGraph_t StepGraphs::capture() const {
  // Relaxed: other streams of this thread, and memory, are used meanwhile.
  check_cuda(kOp, cudaStreamBeginCapture(captured_, cudaStreamCaptureModeRelaxed));
  launches_.issue(captured_);
  cudaGraph_t graph = nullptr;
  check_cuda(kOp, cudaStreamEndCapture(captured_, &graph));
  return graph;
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

// The executable of the graph's form, which makes its launches now.
StepGraphs::Executable& StepGraphs::executable_of(cudaGraph_t graph) {
  Form form = form_of(graph);
  destroy_retired();
  const bool may_be_updated = form.may_be_updated();
  if (!executables_.contains(form) && executables_.size() == kExecutablesMax) drop_oldest();
  Executable& executable = executables_[std::move(form)];
  if (executable.graph != nullptr) {
    cudaGraphExecUpdateResultInfo result = {};
    if (may_be_updated && cudaGraphExecUpdate(executable.graph, graph, &result) == cudaSuccess) {
      return executable;
    }
    cudaGetLastError();  // it is forgotten: nodes of other kinds
    retire(executable.graph);
  }
  executable.graph = instantiate(graph);
  return executable;
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

// Waits for them: each had its last launch before the step that was launched last, which is all that a step
// may run ahead of.
void StepGraphs::destroy_retired() {
  for (; !retired_.empty(); retired_.pop_front()) {
    check_cuda(kOp, cudaEventSynchronize(retired_.front().done));
    check_cuda(kOp, cudaEventDestroy(retired_.front().done));
    check_cuda(kOp, cudaGraphExecDestroy(retired_.front().graph));
  }
}

}  // namespace troupe::cuda
