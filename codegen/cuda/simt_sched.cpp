// Launches: blocks one after another, each with its lanes as fibers; block barriers, warp operations, reports.
#include "simt_rt.hpp"

#include <cstdio>
#include <map>

namespace simt {

Machine machine;
SimtStats stats;

static std::vector<SimtStats> launches;
static std::string messages;
static unsigned message_count;
static cudaError_t last_error = cudaSuccess;
static std::map<const void*, size_t> allowed_shared;
constexpr size_t SHARED_DEFAULT = 48 * 1024, SHARED_OPT_IN = 163 * 1024;  // compute capability 8.0


void complain(uint64_t& counter, const char* what, const void* site, const void* address, const char* detail) {
  ++counter;
  if (message_count >= 20) return;
  ++message_count;
  char text[256];
  snprintf(text, sizeof text, "%s: %s at site %p address %p, block %llu thread %u %s\n", stats.kernel, what, site, address,
           (unsigned long long)machine.block_number, machine.current ? machine.current->linear : 0, detail);
  messages += text;
}

static unsigned lanes_of(unsigned w) { return std::min<unsigned>(WARP, machine.threads - w * WARP); }

static unsigned source_lane(const Lane& l, unsigned j) {
  const unsigned base = j & ~unsigned(l.width - 1);
  switch (l.op) {
    case SIMT_IDX: return base + (unsigned(l.arg) & unsigned(l.width - 1));
    case SIMT_UP: return int(j) - l.arg < int(base) ? j : j - unsigned(l.arg);
    case SIMT_DOWN: return j + unsigned(l.arg) >= base + unsigned(l.width) ? j : j + unsigned(l.arg);
    case SIMT_XOR: return (j ^ unsigned(l.arg)) >= base + unsigned(l.width) ? j : j ^ unsigned(l.arg);
    default: return j;
  }
}

// The lanes in `need` of the warp starting at `l` perform one warp operation.
static void perform(Lane* l, unsigned n, unsigned need, int op) {
  if (op == SIMT_SYNC) ++stats.warp_syncs;
  else if (op <= SIMT_XOR) ++stats.shuffles;
  else ++stats.votes;
  unsigned ballot = 0;
  for (unsigned j = 0; j < n; ++j)
    if ((need >> j & 1) && l[j].value) ballot |= 1u << j;
  for (unsigned j = 0; j < n; ++j) {
    if (!(need >> j & 1)) continue;
    Lane& q = l[j];
    switch (q.op) {
      case SIMT_SYNC: ++q.warp_epoch; break;
      case SIMT_BALLOT: q.result = ballot; break;
      case SIMT_ANY: q.result = ballot != 0; break;
      case SIMT_ALL: q.result = ballot == need; break;
      default: {
        unsigned s = source_lane(q, j);
        if (s >= n || !(need >> s & 1)) complain(stats.warp_errors, "shuffle from a lane outside the mask", nullptr, nullptr), s = j;
        q.result = l[s].value;
      }
    }
  }
  for (unsigned j = 0; j < n; ++j)
    if (need >> j & 1) l[j].state = State::ready;
}

// Completes the warp operations of warp w that can be; true if a lane may go on. `forced`: nothing else can run.
static bool resolve_warp(unsigned w, bool forced) {
  Lane* l = machine.lanes + w * WARP;
  const unsigned n = lanes_of(w), all = n == 32 ? ~0u : (1u << n) - 1;
  bool any = false;
  for (unsigned i = 0; i < n; ++i) {
    if (l[i].state != State::in_warp_op) continue;
    unsigned waiting = 0, live = 0;
    for (unsigned j = 0; j < n; ++j) {
      if (l[j].state == State::in_warp_op) waiting |= 1u << j;
      if (l[j].state != State::done) live |= 1u << j;
    }
    unsigned mask = l[i].mask & all;
    if (!(mask >> i & 1)) complain(stats.warp_errors, "warp operation by a lane outside its own mask", nullptr, nullptr), mask |= 1u << i;
    unsigned need = mask & live;
    if ((waiting & need) != need) {
      if (!forced) continue;
      complain(stats.warp_errors, "a lane named in the mask does not take part", nullptr, nullptr);
      need &= waiting;
    }
    bool agree = true;
    for (unsigned j = 0; j < n; ++j)
      if (need >> j & 1) agree &= l[j].op == l[i].op && l[j].line == l[i].line && l[j].mask == l[i].mask;
    if (!agree) {
      if (!forced) continue;
      complain(stats.warp_errors, "lanes of one mask wait at different warp operations", nullptr, nullptr);
    }
    if ((mask & live) != mask) complain(stats.warp_errors, "warp operation names an exited lane", nullptr, nullptr);
    perform(l, n, need, l[i].op);
    any = true;
  }
  return any;
}

static void run_warps() {
  const unsigned turn = machine.seed ? unsigned(machine.seed * 2654435761u + machine.block_number * 40503u) : 0;
  for (unsigned k = 0; k < machine.warps; ++k) {
    const unsigned w = (k + turn % machine.warps) % machine.warps, n = lanes_of(w);
    Lane* l = machine.lanes + w * WARP;
    do {
      for (unsigned j = 0; j < n; ++j) {
        Lane* q = l + (machine.seed & 1 ? n - 1 - j : j);
        if (q->state == State::fresh || q->state == State::ready) resume(q);
      }
    } while (resolve_warp(w, false));
    account_warp(w);
  }
}

static void run_block() {
  for (unsigned i = 0; i < machine.threads; ++i) {
    Lane& l = machine.lanes[i];
    l.index = {i % machine.block.x, i / machine.block.x % machine.block.y, i / (machine.block.x * machine.block.y)};
    l.linear = i, l.state = State::fresh, l.warp_epoch = 0, l.result = 0;
  }
  machine.epoch = 0;
  for (;;) {
    run_warps();
    unsigned at = 0, done = 0, votes = 0;
    int line = -1;
    bool diverged = false;
    for (unsigned i = 0; i < machine.threads; ++i) {
      const Lane& l = machine.lanes[i];
      if (l.state == State::done) ++done;
      if (l.state != State::at_barrier) continue;
      ++at;
      votes += l.predicate != 0;
      diverged |= line >= 0 && line != l.line;
      line = line < 0 ? l.line : line;
    }
    if (done == machine.threads) return;
    if (at + done < machine.threads) {  // some wait in warp operations that will never be complete
      ++stats.deadlocks;
      bool any = false;
      for (unsigned w = 0; w < machine.warps; ++w) any |= resolve_warp(w, true);
      if (any) continue;
    }
    if (diverged || done) {
      char text[96];
      snprintf(text, sizeof text, "%u threads at line %d%s, %u exited", at, line, diverged ? " and others at other lines" : "", done);
      complain(stats.divergent_barriers, "divergent barrier", nullptr, nullptr, text);
    }
    ++stats.barriers;
    for (unsigned i = 0; i < machine.threads; ++i) {
      Lane& l = machine.lanes[i];
      if (l.state != State::at_barrier) continue;
      l.state = State::ready;
      l.result = l.op == 0 ? votes : l.op == 1 ? votes == at : votes > 0;
    }
    ++machine.epoch;
  }
}

static cudaError_t configuration(const void* kernel, dim3 g, dim3 b, size_t shared) {
  const uint64_t threads = uint64_t(b.x) * b.y * b.z, blocks = uint64_t(g.x) * g.y * g.z;
  if (!threads || threads > 1024 || b.z > 64 || !blocks || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
  const auto found = allowed_shared.find(kernel);
  if (shared > (found == allowed_shared.end() ? SHARED_DEFAULT : std::max(SHARED_DEFAULT, found->second))) return cudaErrorInvalidValue;
  if (blocks >= 1 << 24) return cudaErrorLaunchFailure;  // more than the stamps can tell apart
  return cudaSuccess;
}

}  // namespace simt

using namespace simt;

extern "C" {
uint3 simt_thread() { return machine.current->index; }
uint3 simt_block() { return machine.block_index; }
uint3 simt_block_dim() { return {machine.block.x, machine.block.y, machine.block.z}; }
uint3 simt_grid_dim() { return {machine.grid.x, machine.grid.y, machine.grid.z}; }

int simt_barrier(int line, int op, int predicate) {
  Lane& l = *machine.current;
  l.state = State::at_barrier, l.line = line, l.op = op, l.predicate = predicate;
  leave();
  return (int)l.result;
}
uint64_t simt_warp(int op, unsigned mask, uint64_t value, int arg, int width, int line) {
  Lane& l = *machine.current;
  l.state = State::in_warp_op, l.op = op, l.mask = mask, l.value = value, l.arg = arg, l.width = width, l.line = line;
  leave();
  return l.result;
}

cudaError_t simt_allow_shared(const void* kernel, int bytes) {
  if (bytes < 0 || size_t(bytes) > SHARED_OPT_IN) return cudaErrorInvalidValue;
  allowed_shared[kernel] = size_t(bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

void simt_launch(const char* name, const void* kernel, dim3 grid, dim3 block, size_t shared, void (*body)(void*), void* closure, size_t closure_size) {
  const cudaError_t e = configuration(kernel, grid, block, shared);
  if (e != cudaSuccess) {
    last_error = e;
    return;
  }
  Machine& m = machine;
  stats = SimtStats{};
  snprintf(stats.kernel, sizeof stats.kernel, "%s", name);
  m.grid = grid, m.block = block, m.shared = shared, m.body = body, m.closure = closure;
  m.closure_low = (const char*)closure, m.closure_high = m.closure_low + closure_size;
  m.threads = block.x * block.y * block.z, m.warps = (m.threads + WARP - 1) / WARP;
  ++m.launch;
  if (m.threads > m.capacity) m.lanes = new Lane[m.threads], m.capacity = m.threads;
  begin_memory();
  m.block_number = 0;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x, ++m.block_number) {
        m.block_index = {x, y, z};
        if (shared) memset(simt_dynamic_shared(), 0xff, shared);
        run_block();
      }
  stats.grid = m.block_number, stats.block = m.threads, stats.shared = shared;
  stats.sectors_read = distinct_sectors(0), stats.sectors_written = distinct_sectors(1);
  launches.push_back(stats);
}

// --- for the Python side --------------------------------------------------------------------------------------------------------------
void simt_reset(unsigned seed) {
  launches.clear();
  messages.clear();
  message_count = 0;
  last_error = cudaSuccess;
  allowed_shared.clear();
  machine.seed = seed;
}
int simt_launches() { return (int)launches.size(); }
void simt_stats(int i, SimtStats* to) { *to = launches[i]; }
const char* simt_messages() { return messages.c_str(); }
}
