// Enough of CUDA on a CPU to run the search kernels: every thread of a block is a fiber, warps meet at collectives
// and blocks at barriers; blocks run one after another. It finds wrong indices, counts, bounds and deadlocks; races
// and speed it cannot see.
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>
using std::fabs, std::fma, std::sqrt;
#define DEVICE static inline
#define OUTLINED static
#define __shared__ static
#define KERNEL(NAME, THREADS, BLOCKS)                                                              \
  static void NAME(const struct Search& s);                                                        \
  extern "C" void run_##NAME(unsigned x, unsigned y, unsigned threads, const void* search) {       \
    emulation::run(x, y, threads, search, [](const void* s) { NAME(*(const Search*)s); });         \
  }                                                                                                \
  static void NAME(const Search& s)

struct Index { unsigned x, y; };
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
struct float2 { float x, y; };
static Index threadIdx, blockIdx;

namespace emulation {
struct Slot { uint32_t word[6]; };
struct Warp { Slot given[32], seen[32]; int arrived = 0; long turn = 0; };
struct Fiber { ucontext_t first; jmp_buf at; char* stack = nullptr; bool started, done; };
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static jmp_buf scheduler;
static unsigned current, size, waiting;
static long barrier_turn, switches;
static void (*body)(const void*);
static const void* argument;

// swapcontext saves the signal mask by a system call; these two do not.
static void yield() { if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1); }
static void start() {
  body(argument);
  fibers[current].done = true;
  _longjmp(scheduler, 1);
}
static void resume(unsigned i) {
  current = threadIdx.x = i;
  Fiber& fiber = fibers[i];
  if (_setjmp(scheduler)) return;
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  setcontext(&fiber.first);
}
static void run_block() {
  constexpr size_t STACK = 1 << 17;
  if (fibers.size() < size) fibers.resize(size);
  warps.assign((size + 31) / 32, Warp());
  waiting = barrier_turn = 0;
  for (Fiber& fiber : fibers) {
    if (!fiber.stack) fiber.stack = (char*)malloc(STACK);
    fiber.started = fiber.done = false;
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack;
    fiber.first.uc_stack.ss_size = STACK;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, start, 0);
  }
  static unsigned alive, i;  // static: kept over longjmp
  for (alive = size, switches = 0; alive;)
    for (i = 0; i < size; i++) {
      if (fibers[i].done) continue;
      resume(i);
      if (fibers[i].done) alive--;
      if (++switches > 2000000000L) fprintf(stderr, "emulation: deadlock\n"), abort();
    }
}
static void run(unsigned x, unsigned y, unsigned threads, const void* search, void (*kernel)(const void*)) {
  size = threads, argument = search, body = kernel;
  for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) run_block();
}
// All 32 lanes arrive before any goes on; then each may look at what the others gave.
static void meet(const Slot& own) {
  Warp& warp = warps[current / 32];
  warp.given[current % 32] = own;
  long turn = warp.turn;
  if (++warp.arrived == 32) {
    memcpy(warp.seen, warp.given, sizeof warp.seen);
    warp.arrived = 0;
    warp.turn++;
  } else {
    while (warps[current / 32].turn == turn) yield();
  }
}
static const uint32_t* from(unsigned lane) { return warps[current / 32].seen[lane % 32].word; }
template <class To, class From> static To bits(From value) {
  To to;
  static_assert(sizeof to == sizeof value);
  memcpy(&to, &value, sizeof to);
  return to;
}
}  // namespace emulation

static void __syncthreads() {
  long turn = emulation::barrier_turn;
  if (++emulation::waiting == emulation::size) emulation::waiting = 0, emulation::barrier_turn++;
  else while (emulation::barrier_turn == turn) emulation::yield();
}
static void __syncwarp() { emulation::meet({}); }
template <class T> static T __shfl_sync(unsigned, T value, int lane) {
  emulation::Slot slot{};
  memcpy(slot.word, &value, sizeof value);
  emulation::meet(slot);
  memcpy(&value, emulation::from(lane), sizeof value);
  return value;
}
template <class T> static T __shfl_xor_sync(unsigned mask, T value, int by) {
  return __shfl_sync(mask, value, threadIdx.x % 32 ^ by);
}
template <class T> static T __shfl_up_sync(unsigned mask, T value, int by) {
  int lane = threadIdx.x % 32;
  return __shfl_sync(mask, value, lane < by ? lane : lane - by);
}
static unsigned __ballot_sync(unsigned, int vote) {
  emulation::meet({{vote != 0}});
  unsigned all = 0;
  for (int lane = 0; lane < 32; lane++) all |= emulation::from(lane)[0] << lane;
  return all;
}
static int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
template <class T> static T atomicAdd(T* at, T by) { T old = *at; *at = old + by; return old; }
template <class T> static T atomicMax(T* at, T by) { T old = *at; *at = old < by ? by : old; return old; }
template <class T> static T __ldg(const T* at) { return *at; }
template <class T> static T min(T a, T b) { return b < a ? b : a; }
template <class T> static T max(T a, T b) { return a < b ? b : a; }
static int max3(int a, int b, int c) { return max(a, max(b, c)); }
static float held(float x) { return x; }
static uint32_t any_bits(uint32_t x) {
  for (int lane = 16; lane; lane >>= 1) x |= __shfl_xor_sync(~0u, x, lane);
  return x;
}
static int warp_max(int x) {
  for (int lane = 16; lane; lane >>= 1) x = max(x, __shfl_xor_sync(~0u, x, lane));
  return x;
}
static void copy_start(void* to, const void* from) { *(uint4*)to = *(const uint4*)from; }
static void copy_commit() {}
template <int PENDING> static void copy_wait() {}
static uint32_t __float_as_uint(float x) { return emulation::bits<uint32_t>(x); }
static int __float_as_int(float x) { return emulation::bits<int>(x); }
static float __uint_as_float(uint32_t x) { return emulation::bits<float>(x); }
static float __int_as_float(int x) { return emulation::bits<float>(x); }
static long long __double_as_longlong(double x) { return emulation::bits<long long>(x); }
static double __longlong_as_double(long long x) { return emulation::bits<double>(x); }
static float __double2float_rd(double x) { float y = (float)x; return y > x ? nextafterf(y, -INFINITY) : y; }
static float __double2float_ru(double x) { float y = (float)x; return y < x ? nextafterf(y, INFINITY) : y; }

static uint32_t half_nearest(float x) { return emulation::bits<uint16_t>((_Float16)x); }
static float half_value(uint32_t x) { return (float)emulation::bits<_Float16>((uint16_t)x); }
static uint32_t half_above(float x) {  // of numbers that are not negative
  uint32_t near = half_nearest(x);
  return half_value(near) < x ? near + 1 : near;
}
static uint32_t permute(uint32_t x, uint32_t y, uint32_t bytes) {
  uint64_t both = (uint64_t)y << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = bytes >> (4 * i) & 15, byte = both >> (8 * (pick & 7)) & 255;
    result |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
// As wrong as a tensor core may be: every addend is cut to 24 bits of the largest, and so is the sum, in the direction
// that hurts. That is down where sums are compared with thresholds, up where they make thresholds (which begin at 64).
static void multiply(int parts, float* d, const uint32_t* a, const uint32_t* b, const float* c) {
  emulation::Slot slot{};
  memcpy(slot.word, a, 8 * parts);
  memcpy(slot.word + 4, b, 4 * parts);
  float from[4] = {c[0], c[1], c[2], c[3]};
  emulation::meet(slot);
  int lane = threadIdx.x % 32;
  for (int j = 0; j < 4; j++) {
    double term[17], largest = fabs(from[j]), sum = 0, plain = 0;
    int n = 0;
    term[n++] = from[j];
    for (int part = 0; part < parts; part++)
      for (int i = 0; i < 8; i++) {
        uint32_t row = emulation::from(lane / 4 * 4 + i / 2)[2 * part + j / 2];
        uint32_t column = emulation::from((lane % 4 * 2 + j % 2) * 4 + i / 2)[4 + part];
        term[n] = (double)half_value(row >> (16 * (i % 2)) & 0xffff) * half_value(column >> (16 * (i % 2)) & 0xffff);
        largest = fmax(largest, fabs(term[n++]));
      }
    for (int i = 0; i < n; i++) plain += term[i];
    d[j] = (float)plain;
    if (plain != plain) d[j] = __uint_as_float(0x7fffffffu);  // a GPU's NaN: its sign is clear
    if (!(largest > 0 && largest < 1e38)) continue;
    bool up = from[j] > 31 && from[j] < 97;
    double unit = ldexp(1.0, ilogb(largest) - 23);
    for (int i = 0; i < n; i++) sum += (up ? ceil(term[i] / unit) : floor(term[i] / unit)) * unit;
    float rounded = (float)sum;
    if (up ? rounded < sum : rounded > sum) rounded = nextafterf(rounded, up ? INFINITY : -INFINITY);
    if (plain == plain) d[j] = rounded;
  }
}
static void multiply_16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, const float* c) {
  uint32_t b[2] = {b0, b1};
  multiply(2, d, a, b, c);
}
static void multiply_8(float* d, const uint32_t* a, uint32_t b, const float* c) { multiply(1, d, a, &b, c); }
