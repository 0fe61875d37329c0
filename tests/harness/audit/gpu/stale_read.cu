// A producer that lets its dependent start at once, sleeps, and only then writes; consumers that read the row
// before and after griddepcontrol.wait. Prints one JSON object with the stale reads of each consumer.
//
// Build:  nvcc -O3 -std=c++17 -arch=sm_90a --keep --keep-dir $OUT -o stale_read stale_read.cu
// Run:    ./stale_read [iterations]

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        cudaError_t status_ = (call);                                                                    \
        if (status_ != cudaSuccess) {                                                                    \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));         \
            std::exit(1);                                                                                \
        }                                                                                                \
    } while (0)

constexpr int kThreads = 256;
constexpr int kBlocks = 16;
constexpr int kElements = kThreads * kBlocks;

__device__ __forceinline__ void wait_for_producer() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void let_dependents_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(kThreads) producer(int* row, int value, int sleep_ns) {
    wait_for_producer();
    let_dependents_start();
    for (int slept = 0; slept < sleep_ns; slept += 1000) {
        asm volatile("nanosleep.u32 1000;");
    }
    row[blockIdx.x * kThreads + threadIdx.x] = value;
}

// The fault: the activation row is read together with the weights, above the wait.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_reads_early(
    const int* row, const int* weights, int* out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const int weight = weights[i];
    const int activation = *reinterpret_cast<const volatile int*>(row + i);
    wait_for_producer();
    let_dependents_start();
    out[i] = activation * weight;
}

// The repair: only the weights are read early.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_reads_late(
    const int* row, const int* weights, int* out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const int weight = weights[i];
    wait_for_producer();
    let_dependents_start();
    const int activation = *reinterpret_cast<const volatile int*>(row + i);
    out[i] = activation * weight;
}

// The wait stands in one warp only, and no barrier follows.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_one_warp_waits(
    const int* row, const int* weights, int* out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const int weight = weights[i];
    if (threadIdx.x < 32) {
        wait_for_producer();
    }
    const int activation = *reinterpret_cast<const volatile int*>(row + i);
    out[i] = activation * weight;
    wait_for_producer();
    let_dependents_start();
}

// Its repair: the barrier lets every warp go on after the one that waited.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_one_warp_waits_for_all(
    const int* row, const int* weights, int* out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const int weight = weights[i];
    if (threadIdx.x < 32) {
        wait_for_producer();
    }
    __syncthreads();
    const int activation = *reinterpret_cast<const volatile int*>(row + i);
    out[i] = activation * weight;
    wait_for_producer();
    let_dependents_start();
}

// Right in the source and in the PTX: lane 0 waits for its warp. The row is read through the read-only path, which
// the assembler takes as never written while the kernel runs, so it may move the load above the wait.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_read_only_path(
    const int* __restrict__ row, const int* __restrict__ weights, int* __restrict__ out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (threadIdx.x % 32 == 0) {
        wait_for_producer();
    }
    __syncwarp();
    const int activation = __ldg(row + i);
    out[i] = activation * __ldg(weights + i);
    wait_for_producer();
    let_dependents_start();
}

// Its repair: a volatile read stays where it is.
extern "C" __global__ void __launch_bounds__(kThreads) consumer_ordinary_path(
    const int* row, const int* __restrict__ weights, int* out) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (threadIdx.x % 32 == 0) {
        wait_for_producer();
    }
    __syncwarp();
    const int activation = *reinterpret_cast<const volatile int*>(row + i);
    out[i] = activation * __ldg(weights + i);
    wait_for_producer();
    let_dependents_start();
}

using Consumer = void (*)(const int*, const int*, int*);

static void launch(cudaStream_t stream, const void* kernel, void** arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kBlocks);
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelExC(&config, kernel, arguments));
}

struct Count {
    long long stale_elements = 0;
    int stale_iterations = 0;
};

static Count run(Consumer consumer, int iterations, int sleep_ns) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int *row, *weights, *out;
    CHECK(cudaMalloc(&row, kElements * sizeof(int)));
    CHECK(cudaMalloc(&weights, kElements * sizeof(int)));
    CHECK(cudaMalloc(&out, kElements * sizeof(int)));
    static int host[kElements];
    for (int i = 0; i < kElements; i++) host[i] = 1;
    CHECK(cudaMemcpy(weights, host, sizeof(host), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(row, 0, kElements * sizeof(int)));
    Count count;
    for (int iteration = 1; iteration <= iterations; iteration++) {
        int value = iteration;
        void* produced[] = {&row, &value, &sleep_ns};
        const int* row_in = row;
        const int* weights_in = weights;
        void* consumed[] = {&row_in, &weights_in, &out};
        launch(stream, reinterpret_cast<const void*>(&producer), produced);
        launch(stream, reinterpret_cast<const void*>(consumer), consumed);
        CHECK(cudaMemcpyAsync(host, out, sizeof(host), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        int stale = 0;
        for (int i = 0; i < kElements; i++) stale += host[i] != iteration;
        count.stale_elements += stale;
        count.stale_iterations += stale > 0;
    }
    CHECK(cudaFree(row));
    CHECK(cudaFree(weights));
    CHECK(cudaFree(out));
    CHECK(cudaStreamDestroy(stream));
    return count;
}

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? std::atoi(argv[1]) : 1000;
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    struct Case {
        const char* name;
        Consumer consumer;
    };
    const Case cases[] = {
        {"consumer_reads_early", consumer_reads_early},
        {"consumer_reads_late", consumer_reads_late},
        {"consumer_one_warp_waits", consumer_one_warp_waits},
        {"consumer_one_warp_waits_for_all", consumer_one_warp_waits_for_all},
        {"consumer_read_only_path", consumer_read_only_path},
        {"consumer_ordinary_path", consumer_ordinary_path},
    };
    std::printf("{\"schema_version\": 1, \"device\": \"%s\", \"sm\": \"%d.%d\", \"iterations\": %d, ", properties.name,
                properties.major, properties.minor, iterations);
    std::printf("\"elements\": %d, \"producer_sleep_ns\": 100000, \"cases\": [", kElements);
    bool first = true;
    for (const Case& one : cases) {
        const Count count = run(one.consumer, iterations, 100000);
        std::printf("%s{\"kernel\": \"%s\", \"stale_iterations\": %d, \"stale_elements\": %lld}", first ? "" : ", ",
                    one.name, count.stale_iterations, count.stale_elements);
        first = false;
    }
    std::printf("]}\n");
    return 0;
}
