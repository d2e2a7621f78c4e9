// A libcuda.so.1 that does nothing: Triton compiles, loads and launches into it, so that the host's part is measured without a GPU.
#include <stdint.h>

typedef int Result;
typedef struct { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; } Config;

static uint64_t launches = 0;

Result cuGetErrorString(Result code, const char **text) { *text = "no CUDA"; return 0; }
Result cuInit(unsigned flags) { return 0; }
Result cuDeviceGet(int *device, int number) { *device = 0; return 0; }
// of an H100: 8 shared memory of a block, 10 warp size, 12 registers, 16 processors, 81 and 97 shared memory by request
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 97 ? 232448 : attribute == 81 ? 233472 : attribute == 16 ? 132 : attribute == 10 ? 32
           : attribute == 12 ? 65536 : attribute == 8 ? 49152 : 1000000;
  return 0;
}
Result cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
Result cuCtxSetCurrent(void *context) { return 0; }
Result cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
Result cuModuleLoadData(void **module, const void *data) { *module = (void *)2; return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)3; return 0; }
Result cuFuncGetAttribute(int *value, int attribute, void *function) { *value = attribute == 0 ? 1024 : 0; return 0; }
Result cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
Result cuFuncSetCacheConfig(void *function, int config) { return 0; }
Result cuLaunchKernelEx(const Config *config, void *function, void **arguments, void **extra) { launches++; return 0; }
Result cuPointerGetAttribute(void *out, int attribute, uint64_t pointer) { *(uint64_t *)out = pointer; return 0; }
Result cuOccupancyMaxActiveClusters(int *number, void *function, const void *config) { *number = 1; return 0; }
Result cuTensorMapEncodeTiled(void *map) { return 0; }
Result cuCtxGetLimit(uint64_t *value, int limit) { *value = 0; return 0; }
Result cuCtxSetLimit(int limit, uint64_t value) { return 0; }
// of triton 3.7 and later
Result cuDriverGetVersion(int *version) { *version = 13000; return 0; }
Result cuCtxGetDevice(int *device) { *device = 0; return 0; }
Result cuModuleUnload(void *module) { return 0; }
Result cuStreamIsCapturing(void *stream, int *capturing) { *capturing = 0; return 0; }

uint64_t count_launches(void) { return launches; }
