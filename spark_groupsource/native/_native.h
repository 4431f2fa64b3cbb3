/* The declarations that _intake.c and _outlet.c share. Both are compiled into one library. */

#ifndef GS_NATIVE_H
#define GS_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* Raise this with every change to a struct or a function in either file: libraries.py refuses any other value. */
#define GS_ABI 9

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define NO_ERROR 0

/* rd_kafka_message_t, which is public. */
struct message {
    int32_t err;
    void *topic;
    int32_t partition;
    void *value; /* for an error, its message */
    size_t value_size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *private_;
};

#endif
