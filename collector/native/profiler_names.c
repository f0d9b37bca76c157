/* NCCL's names of functions, types, algorithms and protocols, as the codes of a ring record. */
#include "profiler.h"

#include <string.h>
#include <strings.h>

static uint8_t position(const char *name, const char *const names[], size_t n) {
    for (size_t i = 1; name && i < n; i++)
        if (names[i] && strcasecmp(name, names[i]) == 0) return (uint8_t)i;
    return 0;
}
#define POSITION(name, names) position(name, names, sizeof names / sizeof names[0])

uint8_t ph_code_of_function(const char *name) {
    static const char *const names[] = {NULL,     "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                                        "AlltoAll", "Gather",    "Scatter",   NULL,            "Send",      "Recv"};
    return POSITION(name, names);
}

uint8_t ph_code_of_datatype(const char *name) {
    static const char *const names[] = {NULL,    "int8",    "uint8",    "int16",   "int32",   "uint32",    "int64",
                                        "uint64", "float16", "bfloat16", "float32", "float64", "float8e4m3", "float8e5m2"};
    if (name && strncasecmp(name, "nccl", 4) == 0) name += 4;
    return POSITION(name, names);
}

uint8_t ph_code_of_algorithm(const char *name) {
    static const char *const names[] = {NULL,   "ring",      "tree", "collnet_direct", "collnet_chain",
                                        "nvls", "nvls_tree", "pat"};
    return POSITION(name, names);
}

uint8_t ph_code_of_protocol(const char *name) {
    static const char *const names[] = {NULL, "ll", "ll128", "simple"};
    return POSITION(name, names);
}
