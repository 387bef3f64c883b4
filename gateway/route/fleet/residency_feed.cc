#include "gateway/route/fleet/residency_feed.h"

namespace troupe::route {
namespace {

void change(NodeIndex node, const ResidencyEvent& event, ResidencyIndex& index) {
  for (const ResidencyItem& item : event.items) {
    index.put({item.key, item.kind, node, item.tokens, 0});
  }
}

}  // namespace

ResidencyFeeds::Feed& ResidencyFeeds::feed(NodeIndex node) {
  if (node >= feeds_.size()) feeds_.resize(static_cast<size_t>(node) + 1);
  return feeds_[node];
}

FeedResult ResidencyFeeds::apply(NodeIndex node, const ResidencyEvent& event, ResidencyIndex& index) {
  Feed& f = feed(node);
  const bool same_life = f.known && f.epoch == event.epoch;
  if (event.kind == ResidencyEvent::Kind::kSnapshot) {
    if (same_life && f.in_step && event.seq < f.seq) return FeedResult::kOld;
    index.drop_node(node);
    change(node, event, index);
    f = Feed{true, true, event.epoch, event.seq};
    return FeedResult::kApplied;
  }
  if (!same_life) {
    index.drop_node(node);
    f = Feed{true, event.seq == 1, event.epoch, event.seq};
  } else if (event.seq <= f.seq) {
    return FeedResult::kOld;
  } else {
    f.in_step = f.in_step && event.seq == f.seq + 1;
    f.seq = event.seq;
  }
  change(node, event, index);
  return f.in_step ? FeedResult::kApplied : FeedResult::kGap;
}

void ResidencyFeeds::lost(NodeIndex node) {
  feed(node).in_step = false;
}

void ResidencyFeeds::forget_node(NodeIndex node) {
  feed(node) = Feed{};
}

}  // namespace troupe::route
