/* Passes the rows of Arrow record batches to librdkafka's producer. No row becomes a Python object.
 *
 * Part of the same library as _intake.c, with the same rules: no Python API, and only functions from the librdkafka copy that
 * confluent-kafka has loaded. Only one thread may use an outlet at a time.
 *
 * `gs_add` counts the rows, and adds up a checksum that does not depend on their order. `gs_produce` enqueues rows, and counts
 * what it has enqueued while this is still in the CPU cache. It serves librdkafka's callbacks while the queue is full. librdkafka
 * copies only keys and headers: it reads a value from Arrow's memory until the value's row is reported.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_native.h"

#define ERR_QUEUE_FULL (-184)

#define ANY_PARTITION (-1)

/* The maximum number of rows in one call to librdkafka. */
#define MOST_AT_ONCE 512
/* How long to serve librdkafka's callbacks at a time while its queue is full, in ms. */
#define FULL_WAIT_MS 2

#define ERROR_TOPIC 256

/* rd_kafka_vu_t, which is public. */
struct argument {
    int32_t type;
    union {
        int32_t int32;
        void *pointer;
        struct {
            void *pointer;
            size_t size;
        } memory;
        struct {
            const char *name;
            const void *value;
            ptrdiff_t size;
        } header;
        char padding[64];
    } u;
};

enum { ARGUMENT_RKT = 2, ARGUMENT_PARTITION = 3, ARGUMENT_VALUE = 4, ARGUMENT_KEY = 5, ARGUMENT_OPAQUE = 6, ARGUMENT_HEADERS = 10 };

struct producer_library {
    int (*produce_batch)(void *topic, int32_t partition, int flags, struct message *messages, int count);
    void *(*produceva)(void *handle, const struct argument *arguments, size_t count);
    int32_t (*error_code)(const void *error);
    void (*error_destroy)(void *error);
    void *(*headers_new)(size_t initial);
    int32_t (*header_add)(void *headers, const char *name, ptrdiff_t name_size, const void *value, ptrdiff_t value_size);
    void (*headers_destroy)(void *headers);
    int (*poll)(void *handle, int timeout_ms);
    const char *(*topic_name)(const void *topic);
    int32_t (*message_headers)(const struct message *message, void **headers);
    int32_t (*header_get_all)(const void *headers, size_t index, const char **name, const void **value, size_t *size);
    int32_t (*msg_partitioner_murmur2)(const void *topic, const void *key, size_t size, int32_t count, void *, void *);
};

/* An Arrow string or binary column: element i is data[offsets[i], offsets[i + 1]), and is null if its bit in `valid` is 0.
 * `offsets` is NULL if there is no such column, so that every element is null. */
struct column {
    const uint8_t *valid;
    const void *offsets;
    const uint8_t *data;
    int64_t start;
    int64_t wide; /* whether the offsets have 64 bits */
};

/* A record batch to write. */
struct rows {
    int64_t count;
    struct column key;
    struct column value;
    struct column headers; /* a list: `data` is not used */
    struct column header_key;
    struct column header_value;
    /* The index of each row's topic in `topics`. NULL: always the first one. */
    const int32_t *topic;
    void **topics;
    const char **topic_names;
    /* Each row's partition. NULL: any partition. */
    const int32_t *partitions;
    /* How many of the rows have not been reported yet. The rows and this counter must stay at their addresses until it is 0. */
    int64_t *unreported;
};

struct outlet {
    struct producer_library library;
    void *handle;
    struct message *messages; /* MOST_AT_ONCE */
    /* The number and the checksum of the rows that have been added. */
    int64_t added;
    uint64_t checksum;
    /* Counts the rows without a key for which a partition was chosen, starting at a random number. */
    uint64_t without_key;
    /* The error of the row that could not be enqueued, or of the first row that could not be delivered. */
    int64_t failed;
    int32_t error;
    int32_t error_partition;
    int64_t error_size;
    char error_topic[ERROR_TOPIC];
};

EXPORT int64_t gs_size_of_outlet(void) { return (int64_t)sizeof(struct outlet); }

EXPORT int64_t gs_size_of_rows(void) { return (int64_t)sizeof(struct rows); }

struct bytes {
    const uint8_t *data; /* NULL: null */
    int64_t size;
};

static int64_t offset_at(const struct column *column, int64_t index) {
    index += column->start;
    return column->wide ? ((const int64_t *)column->offsets)[index] : ((const int32_t *)column->offsets)[index];
}

static int is_null(const struct column *column, int64_t index) {
    index += column->start;
    return column->offsets == NULL || (column->valid != NULL && !(column->valid[index >> 3] >> (index & 7) & 1));
}

static struct bytes element(const struct column *column, int64_t index) {
    static const uint8_t nothing[1];
    struct bytes found = {NULL, 0};
    if (is_null(column, index))
        return found;
    int64_t from = offset_at(column, index);
    found.size = offset_at(column, index + 1) - from;
    /* Arrow may have no data at all for a column of empty strings. */
    found.data = column->data == NULL ? nothing : column->data + from;
    return found;
}

/* The checksum. sink/pure_producer.py implements the same one in Python. Both must return the same number, because a replay may run
 * on another executor. The checksum detects rows that differ by accident, and is no defense against attackers. */
#define FACTOR 0x9E3779B97F4A7C15ULL
#define LANES 4
#define STRIDE (8 * LANES)

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * FACTOR;
    return hash ^ (hash >> 32);
}

/* Returns up to eight bytes as a number, with the first byte as the lowest. */
static uint64_t word_at(const uint8_t *at, size_t size) {
    uint64_t word = 0;
    memcpy(&word, at, size);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint64_t with_bytes(uint64_t hash, struct bytes bytes) {
    if (bytes.data == NULL)
        return mixed(hash, UINT64_MAX);
    hash = mixed(hash, (uint64_t)bytes.size);
    const uint8_t *at = bytes.data;
    int64_t left = bytes.size;
    if (left >= STRIDE) {
        /* Four lanes, which the CPU mixes in parallel. */
        uint64_t lanes[LANES] = {hash, hash + 1, hash + 2, hash + 3};
        for (; left >= STRIDE; left -= STRIDE, at += STRIDE)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] = mixed(lanes[lane], word_at(at + 8 * lane, 8));
        for (int lane = 0; lane < LANES; lane++)
            hash = mixed(hash, lanes[lane]);
    }
    for (; left > 0; left -= 8, at += 8)
        hash = mixed(hash, word_at(at, left < 8 ? (size_t)left : 8));
    return hash;
}

static int64_t topic_at(const struct rows *rows, int64_t row) { return rows->topic == NULL ? 0 : rows->topic[row]; }

static int32_t partition_at(const struct rows *rows, int64_t row) {
    return rows->partitions == NULL ? ANY_PARTITION : rows->partitions[row];
}

static uint64_t row_hash(const struct rows *rows, int64_t row) {
    const char *topic = rows->topic_names[topic_at(rows, row)];
    struct bytes name = {(const uint8_t *)topic, (int64_t)strlen(topic)};
    uint64_t hash = with_bytes(FACTOR, name);
    hash = mixed(hash, (uint64_t)(int64_t)partition_at(rows, row));
    hash = with_bytes(hash, element(&rows->key, row));
    hash = with_bytes(hash, element(&rows->value, row));
    if (!is_null(&rows->headers, row)) {
        int64_t from = offset_at(&rows->headers, row), to = offset_at(&rows->headers, row + 1);
        for (int64_t at = from; at < to; at++) {
            hash = with_bytes(hash, element(&rows->header_key, at));
            hash = with_bytes(hash, element(&rows->header_value, at));
        }
    }
    /* Mix twice. After one mix, the top bit of the last word changes many hashes by the same amount, which would hide a swap. */
    return mixed(mixed(hash, 0), 0);
}

/* Adds the rows [row, end) to the count and the checksum. */
static void add(struct outlet *out, const struct rows *rows, int64_t row, int64_t end) {
    out->added += end - row;
    for (; row < end; row++)
        out->checksum += row_hash(rows, row);
}

/* Adds all rows to the count and the checksum. */
EXPORT void gs_add(struct outlet *out, const struct rows *rows) { add(out, rows, 0, rows->count); }

/* How many consecutive rows without a key go to one partition before the next partition gets as many. This way, a small task has
 * only one partition in its transaction, and a large task writes faster than if each row had its own partition. */
#define RUN 64

/* librdkafka's partitioner callback, which chooses by the key if there is one, as the Java producer does. As long as rows are
 * enqueued without a pause, librdkafka's own `murmur2_random` treats partitions as unavailable that have just not been assigned
 * yet, and one partition gets twice as many rows as the others. librdkafka's main thread may also call this function. */
EXPORT int32_t gs_partition(const void *topic, const void *key, size_t size, int32_t count, void *opaque, void *message) {
    struct outlet *out = opaque;
    if (key != NULL)
        return out->library.msg_partitioner_murmur2(topic, key, size, count, opaque, message);
    return (int32_t)(__atomic_fetch_add(&out->without_key, 1, __ATOMIC_RELAXED) / RUN % (uint64_t)count);
}

static void note(struct outlet *out, int32_t error, const char *topic, int32_t partition, int64_t size) {
    if (out->failed++ > 0)
        return;
    out->error = error;
    out->error_partition = partition;
    out->error_size = size;
    out->error_topic[0] = '\0';
    if (topic != NULL)
        strncat(out->error_topic, topic, ERROR_TOPIC - 1);
}

/* Returns the number of bytes in the headers of a librdkafka message. */
static int64_t size_of_headers(const struct producer_library *library, const struct message *message) {
    int64_t sum = 0;
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    if (library->message_headers(message, &headers) != NO_ERROR)
        return 0;
    for (size_t at = 0; library->header_get_all(headers, at, &name, &value, &size) == NO_ERROR; at++)
        sum += (int64_t)strlen(name) + (int64_t)size;
    return sum;
}

/* Returns the number of bytes in the headers of an Arrow row. */
static int64_t size_of_headers_at(const struct rows *rows, int64_t row) {
    int64_t sum = 0;
    if (!is_null(&rows->headers, row)) {
        int64_t from = offset_at(&rows->headers, row), to = offset_at(&rows->headers, row + 1);
        for (int64_t at = from; at < to; at++)
            sum += element(&rows->header_key, at).size + element(&rows->header_value, at).size;
    }
    return sum;
}

/* librdkafka's delivery report callback. The client's opaque is the outlet, and the row's is the number of unreported rows. */
EXPORT void gs_delivered(void *handle, const struct message *message, void *opaque) {
    struct outlet *out = opaque;
    --*(int64_t *)message->private_;
    if (out != NULL && message->err != NO_ERROR)
        note(out, message->err, out->library.topic_name(message->topic), message->partition,
             (int64_t)message->key_size + (int64_t)message->value_size + size_of_headers(&out->library, message));
    (void)handle;
}

static void fill(const struct rows *rows, int64_t row, struct message *message) {
    struct bytes key = element(&rows->key, row), value = element(&rows->value, row);
    memset(message, 0, sizeof(*message));
    message->partition = partition_at(rows, row);
    message->key = (void *)key.data;
    message->key_size = (size_t)key.size;
    message->value = (void *)value.data;
    message->value_size = (size_t)value.size;
    message->private_ = rows->unreported;
}

/* Returns whether a row must be enqueued by itself: it has headers, which a librdkafka batch cannot have, or it names its
 * partition. In a transaction, a batch with partitions for a topic that librdkafka does not know yet would fail
 * (`rd_kafka_produce_batch` adds partition -1 to the transaction). */
static int alone(const struct rows *rows, int64_t row) {
    return !is_null(&rows->headers, row) || partition_at(rows, row) != ANY_PARTITION;
}

/* Enqueues one row. */
static int32_t produce_alone(struct outlet *out, const struct rows *rows, int64_t row, const struct message *message) {
    int64_t from = 0, to = 0;
    void *headers = NULL;
    if (!is_null(&rows->headers, row)) {
        from = offset_at(&rows->headers, row);
        to = offset_at(&rows->headers, row + 1);
        headers = out->library.headers_new((size_t)(to - from));
    }
    for (int64_t at = from; at < to; at++) {
        struct bytes key = element(&rows->header_key, at), value = element(&rows->header_value, at);
        out->library.header_add(headers, (const char *)key.data, (ptrdiff_t)key.size, value.data, (ptrdiff_t)value.size);
    }
    struct argument arguments[] = {
        {.type = ARGUMENT_RKT, .u.pointer = rows->topics[topic_at(rows, row)]},
        {.type = ARGUMENT_PARTITION, .u.int32 = message->partition},
        {.type = ARGUMENT_OPAQUE, .u.pointer = message->private_},
        {.type = ARGUMENT_KEY, .u.memory = {message->key, message->key_size}},
        {.type = ARGUMENT_VALUE, .u.memory = {message->value, message->value_size}},
        {.type = ARGUMENT_HEADERS, .u.pointer = headers},
    };
    size_t count = sizeof(arguments) / sizeof(*arguments) - (headers == NULL);
    void *error = out->library.produceva(out->handle, arguments, count);
    if (error == NULL)
        return NO_ERROR;
    int32_t code = out->library.error_code(error);
    out->library.error_destroy(error);
    if (headers != NULL)
        out->library.headers_destroy(headers);
    return code;
}

/* Enqueues rows with the same topic, starting at `first`. Returns how many were enqueued before librdkafka's queue was full or a
 * row was refused. */
static int64_t produce_run(struct outlet *out, const struct rows *rows, int64_t first, int32_t *error) {
    int count = 0;
    while (count < MOST_AT_ONCE && first + count < rows->count && topic_at(rows, first + count) == topic_at(rows, first)) {
        if (alone(rows, first + count))
            break;
        fill(rows, first + count, &out->messages[count]);
        count++;
    }
    out->library.produce_batch(rows->topics[topic_at(rows, first)], ANY_PARTITION, 0, out->messages, count);
    for (int at = 0; at < count; at++)
        if (out->messages[at].err != NO_ERROR) {
            *error = out->messages[at].err;
            return at;
        }
    return count;
}

/* Enqueues rows, starting at `row`, and keeps trying for up to about `most_ms` while librdkafka's queue is full. Returns the next
 * row to enqueue, which is `rows->count` after the last one. Returns early if a row has failed. */
EXPORT int64_t gs_produce(struct outlet *out, const struct rows *rows, int64_t row, int most_ms) {
    out->library.poll(out->handle, 0);
    while (row < rows->count && out->failed == 0) {
        int32_t error = NO_ERROR;
        int64_t first = row;
        if (!alone(rows, row)) {
            row += produce_run(out, rows, row, &error);
        } else {
            fill(rows, row, &out->messages[0]);
            error = produce_alone(out, rows, row, &out->messages[0]);
            row += error == NO_ERROR;
        }
        add(out, rows, first, row);
        if (error == ERR_QUEUE_FULL) {
            if (most_ms <= 0)
                return row;
            out->library.poll(out->handle, FULL_WAIT_MS);
            most_ms -= FULL_WAIT_MS;
        } else if (error != NO_ERROR) {
            struct message refused;
            fill(rows, row, &refused);
            note(out, error, rows->topic_names[topic_at(rows, row)], refused.partition,
                 (int64_t)refused.key_size + (int64_t)refused.value_size + size_of_headers_at(rows, row));
        }
    }
    return row;
}
