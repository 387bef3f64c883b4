#include "tests/kernels/emulated/streams.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/kernels/emulated/emulator.h"
#include "tests/kernels/emulated/host.h"

namespace troupe::emulated {
namespace {

std::atomic<bool> is_late = false;
std::atomic<bool> is_hung = false;
std::atomic<int> capturing_count = 0;

// A stream's work. An event may outlive the stream it was recorded in.
class Queue {
 public:
  void push(Work work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  uint64_t end() const {
    const std::lock_guard lock(mutex_);
    return done_ + work_.size();
  }
  uint64_t done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  // Runs the work before the `end`th.
  void run_to(uint64_t end) {
    if (is_hung) return;
    const std::lock_guard lock(mutex_);
    for (; done_ < end && !work_.empty(); ++done_) {
      const Work work = std::move(work_.front());
      work_.pop_front();
      if (done_ + 1 < end && !work_.empty() && may_begin_within(work, work_.front())) work_.front().begin();
      work.run();
    }
  }
  void run() { run_to(~uint64_t{0}); }
  // As a thread that waits for it.
  void await(uint64_t end) {
    run_to(end);
    if (done() >= end) return;
    std::fprintf(stderr, "emulated CUDA: a wait for a device that hangs\n");
    std::abort();
  }
  // Runs one piece of the work before the `end`th, if there is any. Returns whether all of it is done.
  bool run_one_to(uint64_t end) {
    run_to(std::min(end, done() + 1));
    return done() >= end;
  }

 private:
  // Two launches of one kernel would share its `__shared__` arrays of fixed size.
  static bool may_begin_within(const Work& work, const Work& next) {
    return next.begin != nullptr && work.kernel != nullptr && work.kernel != next.kernel;
  }

  mutable std::mutex mutex_;
  std::deque<Work> work_;
  uint64_t done_ = 0;
};

// The process's.
struct Queues {
  std::mutex mutex;
  std::vector<std::shared_ptr<Queue>> all;
};

Queues& queues() {
  static Queues own;
  return own;
}

}  // namespace

void set_late(bool late) {
  is_late = late;
}

void set_hung(bool hung) {
  is_hung = hung;
}

}  // namespace troupe::emulated

using troupe::emulated::Queue;
using troupe::emulated::Work;

// Opaque handles: their own allocations, so that the leak checker sees one that is not given back.
struct CUgraphNode_st {
  Work work;
};
struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
  bool lists_backwards = false;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
  std::shared_ptr<Queue> queue;  // of its last launch, which ends at `end`; null: never launched
  uint64_t end = 0;
};
struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::unique_ptr<CUgraph_st> captured;  // null: it is not capturing
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null: never recorded, or in the default stream
  uint64_t end = 0;
};

namespace troupe::emulated {

void enqueue(cudaStream_t stream, Work work) {
  if (stream == nullptr) return work.run();
  if (stream->captured != nullptr) {
    stream->captured->nodes.push_back({std::move(work)});
    return;
  }
  stream->queue->push(std::move(work));
  if (!is_late) stream->queue->run();
}

void run_all() {
  std::vector<std::shared_ptr<Queue>> all;
  {
    const std::lock_guard lock(queues().mutex);
    all = queues().all;
  }
  for (const auto& queue : all) queue->run();
}

bool any_captures() {
  return capturing_count > 0;
}

}  // namespace troupe::emulated

using namespace troupe::emulated;

namespace {

cudaError_t wait_for(cudaEvent_t event) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  if (event->queue != nullptr) event->queue->await(event->end);
  return cudaSuccess;
}

size_t place_in_list(const CUgraph_st& graph, size_t i, size_t count) {
  return graph.lists_backwards ? count - 1 - i : i;
}

bool operator==(const dim3& a, const dim3& b) {
  return a.x == b.x && a.y == b.y && a.z == b.z;
}

// An update's work on a node.
void take_over(const Work& captured, Work& node) {
  const dim3 instantiated = node.cluster;
  node = captured;
  node.cluster = instantiated;
  if (captured.cluster == instantiated) return;
  node.run = [] {};
  if (node.begin != nullptr) node.begin = [] {};
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  const std::lock_guard lock(queues().mutex);
  queues().all.push_back((*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return noted(cudaErrorInvalidResourceHandle);
  stream->queue->run();
  if (stream->captured != nullptr) --capturing_count;
  {
    const std::lock_guard lock(queues().mutex);
    std::erase(queues().all, stream->queue);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr && stream->captured != nullptr) return noted(cudaErrorStreamCaptureUnsupported);
  if (stream != nullptr) stream->queue->await(stream->queue->end());
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream == nullptr) return cudaSuccess;
  if (stream->captured != nullptr) return noted(cudaErrorStreamCaptureUnsupported);
  return stream->queue->run_one_to(stream->queue->end()) ? cudaSuccess : noted(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  return wait_for(event);
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  if (stream != nullptr && stream->captured != nullptr) return noted(cudaErrorStreamCaptureUnsupported);
  event->queue = stream == nullptr ? nullptr : stream->queue;
  event->end = stream == nullptr ? 0 : stream->queue->end();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return wait_for(event);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr) return noted(cudaErrorInvalidResourceHandle);
  const bool done = event->queue == nullptr || event->queue->run_one_to(event->end);
  return done ? cudaSuccess : noted(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = 0.0f;
  const cudaError_t error = wait_for(begin);
  return error == cudaSuccess ? wait_for(end) : error;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->captured != nullptr) return noted(cudaErrorStreamCaptureUnsupported);
  count_call(&DriverCalls::captures);
  stream->captured = std::make_unique<CUgraph_st>();
  ++capturing_count;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || stream->captured == nullptr) return noted(cudaErrorInvalidValue);
  static std::atomic<unsigned> serial = 0;
  *graph = stream->captured.release();
  (*graph)->lists_backwards = serial++ % 2 == 1;
  --capturing_count;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  count_call(&DriverCalls::looks);
  *count = graph->nodes.size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i)
    nodes[place_in_list(*graph, i, *count)] = &graph->nodes[i];
  return cudaSuccess;
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edges, size_t* count) {
  count_call(&DriverCalls::looks);
  *count = graph->nodes.empty() ? 0 : graph->nodes.size() - 1;
  for (size_t i = 0; edges != nullptr && i < *count; ++i) {
    const size_t place = place_in_list(*graph, i, *count);
    from[place] = &graph->nodes[i];
    to[place] = &graph->nodes[i + 1];
    const bool programmatic = from[place]->work.kernel != nullptr && to[place]->work.begin != nullptr;
    const auto type = programmatic ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault;
    edges[place] = {0, 0, static_cast<unsigned char>(type)};
  }
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  count_call(&DriverCalls::looks);
  *type = node->work.kernel != nullptr ? cudaGraphNodeTypeKernel : cudaGraphNodeTypeMemcpy;
  return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            cudaLaunchAttributeValue* value) {
  count_call(&DriverCalls::looks);
  if (node->work.kernel == nullptr || id != cudaLaunchAttributeClusterDimension) {
    return noted(cudaErrorInvalidValue);
  }
  const dim3& cluster = node->work.cluster;
  value->clusterDim = {cluster.x, cluster.y, cluster.z};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  count_call(&DriverCalls::instantiations);
  *executable = new CUgraphExec_st;
  for (const CUgraphNode_st& node : graph->nodes) (*executable)->nodes.push_back(node.work);
  take_graph_memory();
  return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo*) {
  count_call(&DriverCalls::updates);
  const auto same_kind = [](const Work& a, const CUgraphNode_st& b) {
    return (a.kernel == nullptr) == (b.work.kernel == nullptr) &&
           (a.begin == nullptr) == (b.work.begin == nullptr);
  };
  if (!std::equal(executable->nodes.begin(), executable->nodes.end(), graph->nodes.begin(),
                  graph->nodes.end(), same_kind)) {
    return noted(cudaErrorGraphExecUpdateFailure);
  }
  for (size_t i = 0; i < executable->nodes.size(); ++i) take_over(graph->nodes[i].work, executable->nodes[i]);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  count_call(&DriverCalls::graph_launches);
  for (const Work& node : executable->nodes) stream->queue->push(node);
  executable->queue = stream->queue;
  executable->end = stream->queue->end();
  if (!is_late) stream->queue->run();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (executable == nullptr) return noted(cudaErrorInvalidValue);
  if (executable->queue != nullptr && executable->queue->done() < executable->end) {
    std::fprintf(stderr, "emulated CUDA: a graph is destroyed whose launch is still to be done\n");
    std::abort();
  }
  give_graph_memory();
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
