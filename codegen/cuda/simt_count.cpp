// Warp instructions and what they move: 32-byte sectors of global memory, wavefronts of shared memory.
//
// The accesses of a warp's lanes between two synchronisations are zipped while all lanes show the same site; after that the k-th execution of a
// site by one lane joins the k-th of the others. Counts of loops whose trip count differs between lanes are therefore approximate.
#include "simt_rt.hpp"

#include <unordered_map>

namespace simt {

void record(Lane* lane, const Access& a) { lane->log.push_back(a); }

static void account_global(const Access* const* v, int n, SimtCount& c) {
  static std::vector<uint64_t> sectors;
  sectors.clear();
  uint64_t bytes = 0;
  for (int i = 0; i < n; ++i) {
    bytes += v[i]->size;
    for (uint64_t s = v[i]->address / 32; s <= (v[i]->address + v[i]->size - 1) / 32; ++s) sectors.push_back(s);
  }
  std::sort(sectors.begin(), sectors.end());
  const uint64_t distinct = std::unique(sectors.begin(), sectors.end()) - sectors.begin();
  c.moved += distinct;
  c.ideal += (bytes + 31) / 32;
  c.worst = std::max(c.worst, distinct);
}

// 32 banks of 4 bytes; 8-byte accesses go in two halves of the warp, 16-byte ones in four quarters. Lanes that read one word share it; atomics do not.
static void account_shared(const Access* const* v, int n, SimtCount& c) {
  const int group = v[0]->size <= 4 ? 32 : v[0]->size == 8 ? 16 : 8;
  for (int g = 0; g < n; g += group) {
    static std::vector<uint64_t> words;
    words.clear();
    for (int i = g; i < std::min(n, g + group); ++i)
      for (uint64_t w = v[i]->address / 4; w <= (v[i]->address + v[i]->size - 1) / 4; ++w) words.push_back(w);
    std::sort(words.begin(), words.end());
    if (v[0]->kind != SIMT_ATOMIC) words.erase(std::unique(words.begin(), words.end()), words.end());
    uint64_t per_bank[32] = {}, most = 0;
    for (uint64_t w : words) most = std::max(most, ++per_bank[w & 31]);
    c.moved += most;
    c.ideal += 1;
    c.worst = std::max(c.worst, most);
  }
}

static void account(const Access* const* v, int n) {
  SimtCount& c = stats.count[v[0]->space][v[0]->kind];
  c.instructions += 1;
  c.lanes += n;
  for (int i = 0; i < n; ++i) c.bytes += v[i]->size;
  (v[0]->space == SIMT_GLOBAL ? account_global : account_shared)(v, n, c);
}

void account_warp(unsigned w) {
  Lane *active[WARP], *first = machine.lanes + w * WARP;
  int n = 0;
  for (unsigned i = 0; i < std::min<unsigned>(WARP, machine.threads - w * WARP); ++i)
    if (!first[i].log.empty()) active[n++] = first + i;
  const Access* v[WARP];
  size_t at = 0;
  for (bool same = n > 0; same; ++at) {
    for (int j = 0; j < n && same; ++j) {
      same = at < active[j]->log.size();
      if (same) v[j] = &active[j]->log[at], same = v[j]->site == v[0]->site && v[j]->space == v[0]->space;
    }
    if (!same) break;
    account(v, n);
  }
  std::unordered_map<uint64_t, size_t> group_of;
  std::vector<std::vector<const Access*>> groups;
  for (int j = 0; j < n; ++j) {
    std::unordered_map<uint64_t, uint64_t> times;
    for (size_t x = at; x < active[j]->log.size(); ++x) {
      const Access& a = active[j]->log[x];
      const uint64_t site = uint64_t(uintptr_t(a.site)) * 2 + a.space;
      const auto [found, added] = group_of.try_emplace(site * 0x9E3779B97F4A7C15ull + times[site]++, groups.size());
      if (added) groups.emplace_back();
      groups[found->second].push_back(&a);
    }
  }
  for (const auto& g : groups) account(g.data(), (int)g.size());
  for (int j = 0; j < n; ++j) active[j]->log.clear();
}

}  // namespace simt
